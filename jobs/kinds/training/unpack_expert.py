"""Unpack an expert: its files are checked aside, tried out on its base, and only then stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import DamagedFileError, ModelError
from engine.events import Progress
from engine.files import EXPERT_CARD, ArtifactRef, sha256_of, write_manifest
from engine.loading.loaded_base import load_base
from engine.methods.base import Method
from engine.methods.registry import get_method, method_of_files
from engine.models.families import num_parameters
from engine.models.imported_model import import_model
from engine.models.rows import Rows
from engine.packed_file import Packed, open_packed
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import JobRun, Work
from workbench.analysis.changes.retrained_baselines import OF_BASE, OWN, TrainingText
from workbench.formatting.shell_command import shell_command
from workbench.kinds.training.exchange import UnpackExpert
from workbench.registry.experts import IMPORTED, register_expert
from workbench.registry.packed_experts import PackedExpert, PackedSeed, read_packed
from workbench.registry.seeds import register_seed
from workbench.schema.names import clean_name, ensure_free, free_name
from workbench.schema.tables import Artifact, Domain, Expert, SeedModel
from workbench.specs.base import PUBLIC
from workbench.store import artifact_kinds
from workbench.store.artifact_files import config_of_card

_AGAIN = "Get the file again from whoever packed it."
_BASE, _EXPERT, _SEED = "base", "expert", "seed"


@dataclass(frozen=True)
class _StoredOrigins:
    """What this workbench has of an expert's origins; None for what the file must bring."""

    seed: ArtifactRef | None
    base: ArtifactRef | None


@dataclass(frozen=True)
class _CheckedExpert:
    """An expert that computed on its base, and what its own files show of it: the list itself proves nothing."""

    method: Method
    num_parameters: int
    tokenizer_sha256: str
    seed_parameters: int


@dataclass(frozen=True)
class _New:
    """What the job registers: the name of the expert, and the artifacts of the file that are new here, by part."""

    name: str
    source: str
    described: PackedExpert
    checked: _CheckedExpert
    ids: dict[str, str]


def run(work: Work, spec: UnpackExpert) -> JobRun:
    """Registers the expert, and its base and seed model where they are new."""
    packed = open_packed(Path(spec.file))
    described = read_packed(packed.about)
    name = clean_name("expert", spec.name or described.name)
    with work.reading() as session:
        ensure_free(session, Expert, name)
        stored = _find_stored(session, work, described, packed)
    yield Progress(0, 2, "parts", "checking")
    aside = work.folder / "unpacked"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folders = _unpack(packed, described, stored, aside)
        checked = _check(folders, described, stored)
        yield Progress(1, 2, "parts", "saving")
        ids = {part: work.stable_id(part) for part in folders}
        for part, folder in folders.items():
            with work.storage.new(ids[part]) as target:
                shutil.copytree(folder, target, dirs_exist_ok=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    source = f"packed:{sha256_of(packed.path)}"
    yield Progress(2, 2, "parts", "done")
    return partial(_register, work, _New(name, source, described, checked, ids))


def _find_stored(session: Session, work: Work, described: PackedExpert, packed: Packed) -> _StoredOrigins:
    """The seed model and the base that are here; raises ModelError where the base is neither here nor packed."""
    seed, base = _find_seed(session, described.seed), _find_artifact(session, described.base_sha256)
    is_packed = packed.names_in(_BASE) or (packed.names_in(_SEED) and _is_on_seed(described))
    if base is None and not is_packed:
        raise _missing_base(session, described)
    return _StoredOrigins(work.storage.kept(seed.artifact) if seed else None, work.storage.kept(base) if base else None)


def _find_seed(session: Session, seed: PackedSeed | None) -> SeedModel | None:
    if seed is None:
        return None
    return session.scalar(select(SeedModel).join(Artifact).where(Artifact.sha256 == seed.sha256).limit(1))


def _find_artifact(session: Session, sha256: str) -> Artifact | None:
    return session.scalar(select(Artifact).where(Artifact.sha256 == sha256).limit(1))


def _is_on_seed(described: PackedExpert) -> bool:
    return described.seed is not None and described.seed.sha256 == described.base_sha256


def _missing_base(session: Session, described: PackedExpert) -> ModelError:
    """Why the base of an expert is missing, also where another seed model has the name of its own."""
    seed = described.seed
    if seed is None or not _is_on_seed(described):
        return ModelError("The packed expert comes without its base.", _AGAIN)
    named = session.scalar(select(SeedModel).where(SeedModel.name == seed.name))
    other = f": the one of that name is a different model (SHA-256 {named.artifact.sha256[:12]}…)" if named else ""
    free = free_name(seed.name, "-", session.scalars(select(SeedModel.name)).all())
    kind, _, origin = seed.source.partition(":")
    add = shell_command("seed", "add", free, f"--{kind}", origin.partition("==")[0])
    where = f"Add it with `{add}`, or have" if seed.source.startswith(PUBLIC) else "Have"
    return ModelError(
        f"The expert needs the seed model “{seed.name}” (SHA-256 {seed.sha256[:12]}…), which is not here{other}.",
        f"{where} the expert packed with --with-seed.",
    )


# checked aside ------------------------------------------------------------------------------------


def _unpack(packed: Packed, described: PackedExpert, stored: _StoredOrigins, aside: Path) -> dict[str, Path]:
    """Writes each part that is new here into a folder whose manifest has the recorded hash."""
    hashes = {_EXPERT: described.sha256}
    if stored.base is None and not _is_on_seed(described):
        hashes[_BASE] = described.base_sha256
    if stored.seed is None and described.seed is not None and packed.names_in(_SEED):
        hashes[_SEED] = described.seed.sha256
    folders = {part: aside / part for part in hashes}
    for part, folder in folders.items():
        folder.mkdir(parents=True)
        packed.unpack(part, folder)
        if write_manifest(folder) != hashes[part]:
            raise DamagedFileError(f"The folder “{part}” in {packed.path} is not the one that was packed.", _AGAIN)
    return folders


@torch.no_grad()
def _check(folders: Mapping[str, Path], described: PackedExpert, stored: _StoredOrigins) -> _CheckedExpert:
    """Loads the expert on its base and computes with it; raises ModelError for one that does not fit."""
    expert = ArtifactRef(folders[_EXPERT], described.sha256)
    base = stored.base or ArtifactRef(folders.get(_BASE) or folders[_SEED], described.base_sha256)
    stored_as, method = method_of_files(expert.folder, base.folder), get_method(described.method)
    if stored_as.host_key != method.host_key:
        raise ModelError(f"The packed files are not of an expert of the method {method.title}.", _AGAIN)
    loaded = load_base(base, {"expert": expert})
    logits = loaded.view(["expert"])(torch.tensor([[0, 1]]), Rows.all_to("expert", 1))
    if not bool(torch.isfinite(logits).all()):
        raise ModelError("The packed expert computes infinite numbers or NaN.", _AGAIN)
    tokenizer = load_tokenizer(base.folder)
    if _SEED in folders:
        tokenizer.try_out()
    return _CheckedExpert(
        method,
        loaded.num_parameters("expert"),
        tokenizer.sha256,
        num_parameters(import_model(folders[_SEED]).lm) if _SEED in folders else 0,
    )


# registered ---------------------------------------------------------------------------------------


def _register(work: Work, new: _New, session: Session) -> dict[str, Any]:
    described, checked, ids = new.described, new.checked, new.ids
    new_seed = _register_seed(session, work, new) if _SEED in ids else None
    seed = new_seed or _find_seed(session, described.seed)
    # The domain of this workbench whose text trained the expert; a name proves nothing.
    same = select(Domain).where(Domain.data_sha256 == described.data_sha256).limit(1)
    domain = session.scalar(same) if described.data_sha256 else None
    # What the expert's own files say of its parts; the config in the packed file is only for people.
    card = work.storage.path(ids[_EXPERT]) / EXPERT_CARD
    of_files = config_of_card(json.loads(card.read_text(encoding="utf-8")) if checked.method.has_parts else {})
    register_expert(
        session,
        id=ids[_EXPERT],
        name=new.name,
        method=checked.method.name,
        domain_id=domain.id if domain else None,
        seed_id=seed.id if seed else None,
        parent_id=None,
        base=_base(session, work, new),
        artifact=work.register_artifact(session, ids[_EXPERT], checked.method.artifact_kind),
        tokenizer_sha256=checked.tokenizer_sha256,
        data_sha256=described.data_sha256,
        num_parameters=checked.num_parameters,
        config={
            **of_files,
            **_training_texts(domain, described, has_new_base=_BASE in ids),
            IMPORTED: {"source": new.source, **described.model_dump(mode="json")},
        },
        metrics={},
        code_version=version("expert-workbench"),
        job_id=work.job_id,
    )
    return {"expert": new.name, "new_seed": new_seed.name if new_seed else "", "source": new.source}


def _base(session: Session, work: Work, new: _New) -> Artifact:
    """The base of the expert; raises ModelError where it was deleted since it was checked."""
    if _BASE in new.ids:
        return work.register_artifact(session, new.ids[_BASE], artifact_kinds.BASE)
    if (base := _find_artifact(session, new.described.base_sha256)) is None:
        raise _missing_base(session, new.described)
    return base


def _register_seed(session: Session, work: Work, new: _New) -> SeedModel:
    id, seed = new.ids[_SEED], new.described.seed
    assert seed is not None
    name = free_name(clean_name("seed model", seed.name), "-", session.scalars(select(SeedModel.name)).all())
    config = json.loads((work.storage.path(id) / "config.json").read_text(encoding="utf-8"))
    card = register_seed(
        session,
        name=name,
        source=seed.source if seed.source.startswith(PUBLIC) else "packed",
        family=config["model_type"],
        config=config,
        num_parameters=new.checked.seed_parameters,
        tokenizer_sha256=load_tokenizer(work.storage.path(id)).sha256,
        artifact=work.register_artifact(session, id, artifact_kinds.SEED),
        job_id=work.job_id,
    )
    return session.get_one(SeedModel, card.id)


def _training_texts(domain: Domain | None, described: PackedExpert, *, has_new_base: bool) -> dict[str, Any]:
    """The training texts of an expert and its base: unknown ones, where only the other workbench knows them."""
    texts: dict[str, Any] = {OF_BASE: [asdict(TrainingText())]} if has_new_base else {}
    if described.has_parents:
        texts[OWN] = [asdict(source) for source in ([TrainingText.of(domain)] if domain else []) + [TrainingText()]]
    return texts
