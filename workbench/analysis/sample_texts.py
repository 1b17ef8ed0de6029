"""Held-out text: to try a mixture on, and with labels to make tasks of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from sqlalchemy.orm import Session

from engine.text.split_names import HELD_OUT_SPLITS, HeldOutSplit
from workbench.errors import StorageError
from workbench.registry.corpora import domain_row, preview_documents
from workbench.registry.experts import domains_of
from workbench.registry.mixtures import mixture_row, taking_part
from workbench.schema.tables import Expert, Mixture
from workbench.store.storage import Storage

NUM_PASSAGES, PASSAGE_CHARACTERS = 3, 600
CHARACTERS = (150, 600)  # of each domain: the second must outweigh the evidence for the first
_OF_ITS_OWN = 2  # positions: of the beginning of a document, and of a domain's token
_SHORTER = 0.95  # of what would fit if all characters took as many tokens


def example(session: Session, storage: Storage, mixture: str) -> str:
    """The beginnings of held-out documents of two of a mixture's domains, as long as all its experts can read."""
    row = mixture_row(session, mixture)
    experts = _readers(row)
    domains = dict.fromkeys(name for expert in experts for name in domains_of(expert))
    previews = [preview_documents(session, storage, name, "test", 1, 0) for name in [*domains][:2]]
    texts = [document.text.strip() for documents in previews for document in documents]

    def beginnings(share: float) -> str:
        parts = [text[: int(share * length)] for text, length in zip(texts, CHARACTERS, strict=False)]
        return "\n\n".join(parts).strip()

    return _as_long_as_fits(beginnings, storage, experts)


def passages(session: Session, storage: Storage, mixture: str, domain: str, split: HeldOutSplit) -> list[str]:
    """The beginnings of held-out documents of a domain, each as long as all experts of a mixture can read."""
    experts = _readers(mixture_row(session, mixture))
    documents = preview_documents(session, storage, domain, split, NUM_PASSAGES, 0)
    texts = [document.text.strip()[:PASSAGE_CHARACTERS] for document in documents]

    def cut(text: str) -> str:
        return _as_long_as_fits(lambda share: text[: int(share * len(text))], storage, experts)

    return [cut(text) for text in texts if text]


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
    from engine.text.tokenizer import load_tokenizer

    config = base / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    longest = settings.get("max_position_embeddings") or settings.get("n_positions")
    return 1.0 if longest is None else (longest - _OF_ITS_OWN) / max(1, len(load_tokenizer(base).encode(text)))


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
