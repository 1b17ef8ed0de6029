"""Make a seed model: a new small one with its own tokenizer, or one from a folder, the hub or an expert."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import ModelError, TokenizerError
from engine.events import Event, Note, Progress
from engine.files import ArtifactRef
from engine.foreign_files import short
from engine.methods.export import set_special_tokens
from engine.methods.registry import get_method, method_of
from engine.models.families import fresh_model, num_parameters
from engine.models.imported_model import Fingerprint, ImportedModel, download_model, import_model
from engine.path_kinds import require_kind
from engine.text.chat.own_template import copy_template
from engine.text.split import read_split
from engine.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry.experts import expert_row
from workbench.registry.seeds import CHANGES, MADE_OF, register_seed
from workbench.schema.names import ensure_free
from workbench.schema.tables import SeedModel
from workbench.specs.base import hub_name, hub_source
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact

_TOKENIZER_BYTES = 4 << 20  # text of each domain that a fresh tokenizer sees


@dataclass(frozen=True)
class _Copied:
    """The expert that becomes a seed: its files and its base's files."""

    id: str
    method: str
    base: ArtifactRef
    kept: ArtifactRef

    def parts(self) -> tuple[Tokenizer, ImportedModel]:
        """Loads its tokenizer, and the expert with its base as a plain decoder."""
        lm = get_method(self.method).load_full_model(self.base, self.kept)
        return load_tokenizer(self.base.folder), ImportedModel(lm, ())


def run(work: Work, spec: MakeSeed) -> Generator[Event, None, Register]:
    """Writes config, weights and tokenizer into one folder that transformers can load, and loads it again."""
    with work.reading() as session:
        ensure_free(session, SeedModel, spec.name)
        domains = [domain_files(session, work.storage, name) for name in spec.domains]
        copied = _copied(session, work, spec.expert) if spec.expert else None
    yield Progress(0, 2, "parts", "making tokenizer and weights")
    given = _given_folder(spec)
    tokenizer, made = copied.parts() if copied else _parts(spec, domains, given)
    yield from map(Note, made.changes)
    yield Progress(1, 2, "parts", "saving")
    artifact_id = stable_id(work.job_id, "seed")
    with work.storage.new(artifact_id) as folder:
        size = _save(made.lm, tokenizer, folder)
        if copied:
            copy_template(copied.kept.folder, folder)
        config_json = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    yield Progress(2, 2, "parts", "done")

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.SEED, job_id=work.job_id)
        register_seed(
            session,
            name=spec.name,
            source=_source(spec, given),
            family=made.lm.config.model_type,
            config=config_json,
            num_parameters=size,
            tokenizer_sha256=tokenizer.sha256,
            artifact=artifact,
            job_id=work.job_id,
        )
        return {
            "seed_model": spec.name,
            "num_parameters": size,
            "vocab_size": tokenizer.vocab_size,
            **({MADE_OF: copied.id} if copied else {}),
            **({CHANGES: " ".join(made.changes)} if made.changes else {}),
        }

    return register


def _save(lm: Any, tokenizer: Tokenizer, folder: Path) -> int:
    """Writes a model with its tokenizer; gives the number of its parameters.

    Raises TokenizerError for a tokenizer of more entries than the model has rows, ModelError where what was written is
    not the model when it is loaded again.
    """
    if lm.config.vocab_size < tokenizer.vocab_size:
        raise _too_many_entries(tokenizer, lm.config.vocab_size)
    tokenizer.try_out()
    set_special_tokens(lm, tokenizer)  # a generation_config.json among its own files replaces those of generation
    expected = Fingerprint.of(lm)
    lm.save_pretrained(folder, safe_serialization=True)
    tokenizer.save(folder)
    expected.require_same(folder)
    return num_parameters(lm)


def _too_many_entries(tokenizer: Tokenizer, num_rows: int) -> TokenizerError:
    extra = [f"“{short(tokenizer.written(id))}” ({id})" for id in range(num_rows, tokenizer.vocab_size)]
    shown = ", ".join(extra[:3]) + (" …" if len(extra) > 3 else "")
    return TokenizerError(
        f"The tokenizer has {tokenizer.vocab_size:,} entries, but the model {num_rows:,} rows: none for {shown}.",
        "If the model never saw them, as padding, remove them from tokenizer.json; else give the model that was "
        "trained with them, or add rows: model.resize_token_embeddings("
        f"{tokenizer.vocab_size}).",
    )


def _copied(session: Session, work: Work, name: str) -> _Copied:
    row = expert_row(session, name)
    if reason := method_of(row.method).no_decoder_because:
        raise ModelError(
            f"“{name}” cannot become a seed, since it is no plain decoder with its base: it {reason}.",
            "Choose an expert of another method.",
        )
    return _Copied(row.id, row.method, work.storage.kept(row.base), work.storage.kept(row.artifact))


def _given_folder(spec: MakeSeed) -> Path | None:
    """The folder of a model from elsewhere, downloaded now if need be."""
    if spec.source == "hub":
        return download_model(*hub_name(spec.location))
    if spec.source != "folder":
        return None
    require_kind(Path(spec.location), ("model", "folder"))  # of a folder that is no kind its files say what is missing
    return Path(spec.location)


def _source(spec: MakeSeed, folder: Path | None) -> str:
    if spec.source == "hub" and folder is not None:
        return hub_source(hub_name(spec.location)[0], folder.name)
    return "fresh" if spec.source == "fresh" else f"{spec.source}:{spec.expert or spec.location}"


def _parts(spec: MakeSeed, domains: list[DomainFiles], folder: Path | None) -> tuple[Tokenizer, ImportedModel]:
    """Makes or loads the tokenizer and the model."""
    if folder is None:
        tokenizer = train_tokenizer(
            (text for domain in domains for text in _sample(domain.documents())), spec.vocab_size
        )
        return tokenizer, ImportedModel(fresh_model(spec.shape, tokenizer.vocab_size, spec.seed), ())
    return load_tokenizer(folder), import_model(folder)


def _sample(documents: Path) -> Iterator[str]:
    """Yields the first megabytes of a domain's training text, as much of each domain for the vocabulary."""
    bytes_left = _TOKENIZER_BYTES
    for row in islice(read_split(documents, "train"), 1_000_000):
        if bytes_left <= 0:
            return
        yield row["text"]
        bytes_left -= len(row["text"].encode("utf-8"))
