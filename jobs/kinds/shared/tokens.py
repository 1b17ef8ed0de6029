"""A domain's text as tokens: packed once per tokenizer and stored as an artifact with a key.

Conversations are packed with the chat template of a base, and for one block size.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import TrainingError
from engine.events import Event, Note
from engine.files import ArtifactRef
from engine.text.blocks import MASK_RULE, pack_domain
from engine.text.chat.blocks import ChatEncoder, pack_conversations
from engine.text.chat.conversations import Conversation
from engine.text.chat.template import load_chat_template, stop_ids
from engine.text.tokenizer import Tokenizer
from jobs.attempt.work import Events, Work
from jobs.kinds.shared.resume_guard import SOURCES, mask_rule, read_inputs, write_inputs, write_mask_rule
from workbench.formatting.number_format import pluralize
from workbench.registry.corpora import domain_row
from workbench.registry.experts import chat_tokens_key, tokens_key
from workbench.schema.tables import Domain
from workbench.store import artifact_kinds
from workbench.store.storage import Storage


@dataclass(frozen=True)
class DomainFiles:
    """A domain's id, name, hash and files, read from the registry together."""

    id: str
    name: str
    data_sha256: str
    kept: ArtifactRef
    folder: str
    is_chat: bool = False  # its documents are conversations

    def documents(self) -> Path:
        """The folder of its documents, after they were verified."""
        self.kept.check()
        return self.kept.folder / self.folder


def data_sha256_of(domains: Sequence[DomainFiles]) -> str:
    """The SHA-256 of one domain's text; of several, the SHA-256 of their sorted hashes."""
    hashes = sorted(domain.data_sha256 for domain in domains)
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def domain_files(session: Session, storage: Storage, name: str) -> DomainFiles:
    """Reads a domain by name; raises NotFoundError. Nothing is hashed, to keep the transaction short."""
    row = domain_row(session, name)
    return DomainFiles(row.id, row.name, row.data_sha256, storage.kept(row.artifact), row.folder, row.format == "chat")


def read_domains(session: Session, storage: Storage, names: Sequence[str] | None) -> tuple[DomainFiles, ...]:
    """Reads domains by name; without names all of them."""
    chosen = names or session.scalars(select(Domain.name).order_by(Domain.name)).all()
    return tuple(domain_files(session, storage, name) for name in chosen)


def require_same(work: Work, domains: Sequence[DomainFiles], others: Mapping[str, str] | None = None) -> None:
    """Raises TrainingError if the text, or another input by SHA-256, differs from that of the first attempt.

    A failed job does not protect its inputs: they may be deleted and made again under the same name, while its
    checkpoints belong to the old ones.
    """
    now = {f"domain “{domain.name}”": domain.data_sha256 for domain in domains} | dict(others or {})
    stored = read_inputs(work, SOURCES)
    if stored is None:
        write_mask_rule(work, MASK_RULE)
        write_inputs(work, SOURCES, now)
        return
    for what, sha256 in now.items():
        if stored.get(what) != sha256:
            raise TrainingError(f"The {what} has changed since this training started.", "Start a new job.")


def can_show(base: Path, domain: DomainFiles) -> bool:
    """Whether a base can show a domain's documents: conversations need a chat template."""
    return not domain.is_chat or load_chat_template(base) is not None


def pack(work: Work, domain: DomainFiles, tokenizer: Tokenizer, template: Path, block_size: int) -> Events[Path]:
    """Returns the folder of a domain's tokens, and packs them if no job has done so yet.

    Conversations are packed in blocks of this size, with the chat template in the folder `template`: that of the
    tokenizer's base, or of an expert of it. Notes say how many tokens are of answers, and what of the conversations
    cannot be learned. Raises TrainingError without a template.
    """
    if domain.is_chat:
        encoder = _encoder(domain, tokenizer, template, mask_rule(work))
        key = chat_tokens_key(domain.id, tokenizer.sha256, encoder.template_sha256, block_size, encoder.mask_rule)
    else:
        encoder, key = None, tokens_key(domain.id, tokenizer.sha256)

    def fill(folder: Path) -> Iterator[Event]:
        documents = domain.documents()
        for event in (
            pack_conversations(documents, encoder, folder, block_size)
            if encoder
            else pack_domain(documents, tokenizer, folder)
        ):
            yield replace(event, note=f"tokenizing {domain.name} ({event.note})")

    folder = yield from work.cached_artifact(key, artifact_kinds.TOKENS, fill)
    if encoder:
        facts = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        for sentence in (*_chat_sentences(facts["splits"], block_size), *facts.get("limits", ())):
            yield Note(f"“{domain.name}”: {sentence}")
    return folder


def _chat_sentences(splits: Mapping[str, Mapping[str, int]], block_size: int) -> Iterator[str]:
    """What of the conversations counts, and what does not fit into blocks."""
    train = splits["train"]
    yield (
        f"{train['tokens']:,} tokens in {pluralize(train['documents'], 'conversation')} to train on; "
        f"{train['counted']:,} of them are of answers and count in the loss."
    )
    if num_cut := sum(counts["cut"] for counts in splits.values()):
        total = sum(counts["documents"] for counts in splits.values())
        yield (
            f"{num_cut} of {pluralize(total, 'conversation')} are longer than a block of {block_size} tokens and were "
            "cut; the others are whole."
        )
    for split, what in (("train", "training"), ("dev", "held-out")):
        if left := splits[split].get("blocks_without_answer", 0):
            yield (
                f"{left} of {splits[split]['blocks']} {what} blocks hold no token of an answer and are left out: cut "
                "conversations have long questions. Choose a larger block size to keep answers with their questions."
            )


def _encoder(domain: DomainFiles, tokenizer: Tokenizer, folder: Path, rule: int) -> ChatEncoder:
    template = load_chat_template(folder, "the seed model")
    if template is None:
        raise TrainingError(
            f"“{domain.name}” holds conversations, and this base has no chat template to show them with.",
            "Choose a seed model with a chat template (seed add --chat-template), or import the text as plain text.",
        )
    unread: Counter[str] = Counter()  # values for the template, in conversations

    def encode(conversation: Conversation) -> tuple[list[int], NDArray[np.bool_]]:
        unread.update(template.unread(conversation.template_kwargs))
        with_values = template.with_values(conversation.template_kwargs)
        return with_values.encode_answers(tokenizer, conversation.messages, rule=rule)

    def limits() -> list[str]:
        stops = stop_ids(tokenizer, tokenizer.folder or folder, folder)
        return [
            *template.limits(tokenizer, stops),
            *(
                f"The chat template does not read “{name}”, which {pluralize(number, 'conversation')} set."
                for name, number in unread.items()
            ),
        ]

    return ChatEncoder(tokenizer, template.sha256, encode, rule, limits)
