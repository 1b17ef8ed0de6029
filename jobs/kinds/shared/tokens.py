"""A domain's text as tokens: packed once per tokenizer and stored as an artifact with a key."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from engine.events import Event
from engine.files import ArtifactRef
from engine.text.blocks import pack_domain
from engine.text.tokenizer import Tokenizer
from jobs.attempt.work import Work
from jobs.kinds.shared.artifact_cache import cached_artifact
from workbench.registry.corpora import domain_row
from workbench.store.storage import Storage


@dataclass(frozen=True)
class DomainFiles:
    """A domain's id, name, hash and files, read from the registry together."""

    id: str
    name: str
    data_sha256: str
    kept: ArtifactRef
    folder: str

    def documents(self) -> Path:
        """The folder of its documents, after they were verified."""
        self.kept.check()
        return self.kept.folder / self.folder


def data_sha256_of(domains: Sequence[DomainFiles]) -> str:
    """The SHA-256 of one domain's text; of several, the SHA-256 of their sorted hashes."""
    hashes = sorted(domain.data_sha256 for domain in domains)
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def domain_files(session: Session, storage: Storage, name: str) -> DomainFiles:
    """Reads a domain by name; raises NotFound. Nothing is hashed, to keep the transaction short."""
    row = domain_row(session, name)
    return DomainFiles(row.id, row.name, row.data_sha256, storage.kept(row.artifact), row.folder)


def pack(work: Work, domain: DomainFiles, tokenizer: Tokenizer) -> Generator[Event, None, Path]:
    """Returns the folder of a domain's tokens, and packs them if no job has done so yet."""

    def fill(folder: Path) -> Iterator[Event]:
        yield from pack_domain(domain.documents(), tokenizer, folder)

    return (yield from cached_artifact(work, f"tokens:{domain.id}:{tokenizer.sha256}", "tokens", fill))
