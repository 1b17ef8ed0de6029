"""Held-out text: to try a mixture on, and with labels to make tasks of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy.orm import Session

from engine.errors import Problem
from engine.files import reading_own
from engine.text.split_names import HELD_OUT_SPLITS, HeldOutSplit
from workbench.analysis.scores import load_places, load_scores, scored_tokens, shared_scores
from workbench.errors import StorageError
from workbench.registry.corpora import domain_row, preview_documents
from workbench.registry.experts import domains_of
from workbench.registry.mixtures import mixture_row, taking_part
from workbench.schema.tables import Expert, Mixture
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.text.tokenizer import Tokenizer

NUM_PASSAGES, PASSAGE_CHARACTERS = 3, 600
CHARACTERS = (150, 600)  # of each domain: the second must outweigh the evidence for the first
_OF_ITS_OWN = 2  # positions: of the beginning of a document, and of a domain's token
_SHORTER = 0.95  # of what would fit if all characters took as many tokens


def example(session: Session, storage: Storage, mixture: str) -> str:
    """Held-out text of two of a mixture's domains, as long as all its experts can read.

    It is that in which the domains' own experts are most ahead of all others, by the stored scores; where there are
    none, the beginnings of documents.
    """
    row = mixture_row(session, mixture)
    experts = _readers(row)
    domains = dict.fromkeys(name for expert in experts for name in domains_of(expert))
    leads = [lead for name in domains if (lead := _greatest_lead(session, storage, experts, name, "test"))]
    texts = [_read(storage, lead) for lead in sorted(leads, key=lambda lead: -lead.nats)[:2]]
    if len(texts) < min(2, len(domains)):
        previews = [preview_documents(session, storage, name, "test", 1, 0) for name in [*domains][:2]]
        texts = [document.text.strip() for documents in previews for document in documents]

    def beginnings(share: float) -> str:
        parts = [to_word_end(text, int(share * length)) for text, length in zip(texts, CHARACTERS, strict=False)]
        return "\n\n".join(parts).strip()

    return _as_long_as_fits(beginnings, storage, experts)


def passages(session: Session, storage: Storage, mixture: str, domain: str, split: HeldOutSplit) -> list[str]:
    """Held-out text of a domain, each as long as all experts of a mixture can read.

    First that in which the domain's own expert is most ahead, then beginnings of documents.
    """
    experts = _readers(mixture_row(session, mixture))
    documents = preview_documents(session, storage, domain, split, NUM_PASSAGES, 0)
    lead = _greatest_lead(session, storage, experts, domain, split)
    texts = [*([_read(storage, lead)] if lead else []), *(document.text.strip() for document in documents)]

    def cut(text: str) -> str:
        return _as_long_as_fits(lambda share: to_word_end(text, int(share * PASSAGE_CHARACTERS)), storage, experts)

    return [cut(text) for text in texts[:NUM_PASSAGES] if text]


def to_word_end(text: str, length: int) -> str:
    """At most `length` characters, up to the end of a word; of a text without spaces, exactly as many."""
    if len(text) <= length or text[length].isspace():
        return text[:length].rstrip()
    return re.sub(r"\s+\S*$", "", text[:length])


class _Lead(NamedTuple):
    """The scored block on which a domain's own expert is most ahead of the best other, and by how much per token."""

    nats: float
    ids: NDArray[Any]
    expert: Expert


def _greatest_lead(
    session: Session, storage: Storage, experts: Sequence[Expert], domain: str, split: HeldOutSplit
) -> _Lead | None:
    """None where there is no such expert, no other, no score that all share and that can be read, or no such block."""
    own = next((index for index, expert in enumerate(experts) if domain in domains_of(expert)), None)
    row = domain_row(session, domain)
    scored = shared_scores(session, experts, row.id, split, num_blocks=1) if len(experts) > 1 else None
    if own is None or scored is None or row.format == "chat":
        return None
    evaluations = [scored[expert.id] for expert in experts]
    try:
        scores_EX, size = load_scores(storage, evaluations)
        tokens = scored_tokens(session, storage, row, experts[own], evaluations[own])
    except (Problem, OSError):  # of a file that is missing or damaged
        return None
    means_EN = scores_EX[:, : scores_EX.shape[1] // size * size].unflatten(1, (-1, size)).mean(-1)
    others_EN = means_EN.clone()
    others_EN[own] = -math.inf
    nats, block = (means_EN[own] - others_EN.amax(0)).max(0)
    start = int(load_places(storage, evaluations[own])[0][int(block)]) + 1
    return _Lead(float(nats), tokens.array[start : start + size], experts[own]) if nats > 0 else None


def _read(storage: Storage, lead: _Lead) -> str:
    """The longest piece of one document in a block, without its first line, which is cut."""
    tokenizer = _tokenizer(storage.path(lead.expert.base_id))
    cuts = [0, *(index for index, id in enumerate(lead.ids) if id == tokenizer.bos_id), len(lead.ids)]
    begin, end = max(pairwise(cuts), key=lambda pair: pair[1] - pair[0])
    text = tokenizer.decode(lead.ids[begin:end].tolist())
    if end == len(lead.ids):  # the block ends, and mostly within a word
        text = to_word_end(text, len(text) - 1)
    return text[text.find("\n", 0, len(text) // 2) + 1 :].strip()


@lru_cache(maxsize=4)
def _tokenizer(base: Path) -> Tokenizer:
    from engine.text.tokenizer import load_tokenizer

    return load_tokenizer(base)


def _readers(mixture: Mixture) -> Sequence[Expert]:
    """The experts that take part; all of them where none does."""
    return taking_part(mixture) or tuple(member.expert for member in mixture.members)


def _as_long_as_fits(cut: Callable[[float], str], storage: Storage, experts: Sequence[Expert]) -> str:
    bases = {storage.path(expert.base_id) for expert in experts}
    share = 1.0
    while (text := cut(share)) and (fits := min(_fitting(base, text) for base in bases)) < 1:
        share *= _SHORTER * fits
    return text


def _fitting(base: Path, text: str) -> float:
    """The context length over the text's length in tokens, for the models on a base; above 1 if the text fits."""
    config = base / "config.json"
    longest = None
    if config.is_file():
        with reading_own(str(config)):
            settings = json.loads(config.read_text(encoding="utf-8"))
            longest = settings.get("max_position_embeddings") or settings.get("n_positions")
    return 1.0 if longest is None else (longest - _OF_ITS_OWN) / max(1, len(_tokenizer(base).encode(text)))


Label = Literal["domain", "source"]
_HASH = re.compile("[0-9a-f]{64}")  # the group of the pieces of one document


def read_labelled_text(
    session: Session, storage: Storage, domains: Sequence[str], by: Label = "domain"
) -> Iterator[tuple[str, str]]:
    """Text and label of the held-out documents of these domains: the domain's name, or the `source` of the record.

    Documents without a source have no label by it. Raises NotFoundError for an unknown domain.
    """
    folders: dict[str, Path] = {}
    for name in domains:
        row = domain_row(session, name)
        folders[name] = storage.path(row.artifact_id) / row.folder
        if not folders[name].is_dir():
            raise StorageError(f"The text of “{name}” is not in {folders[name]}.", "Import it again.")
    return _documents(folders, by)


def _documents(folders: dict[str, Path], by: Label) -> Iterator[tuple[str, str]]:
    from engine.text.split import read_split  # here, because only this needs Arrow

    for name, folder in folders.items():
        for split in sorted(HELD_OUT_SPLITS):
            for document in read_split(folder, split):
                label = name if by == "domain" else document["group"]
                if label and not _HASH.fullmatch(label):
                    yield document["text"], " ".join(label.split())
