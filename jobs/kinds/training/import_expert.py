"""Import an expert: read from its folder, checked against its seed model, and stored as those that are trained here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Note, Progress
from engine.methods.base import SeedOrigin
from engine.methods.export import set_special_tokens
from engine.methods.imports import import_expert
from engine.models.imported_model import download_model
from engine.text.chat.template import save_template
from jobs.attempt.work import JobRun, Work
from jobs.kinds.shared.expert_files import base_artifact, store_base
from workbench.analysis.changes.retrained_baselines import OWN, sources_of
from workbench.kinds.training.exchange import ImportExpert
from workbench.registry.corpora import domain_row
from workbench.registry.experts import IMPORTED, register_expert
from workbench.registry.seeds import CHANGES, seed_row
from workbench.specs.base import HUB, hub_name, hub_origin, hub_source


def run(work: Work, spec: ImportExpert) -> JobRun:
    """Stores the expert, and its base where the seed model is not its base."""
    with work.reading() as session:
        row = seed_row(session, spec.seed_model)
        seed_id, seed, origin = row.id, work.storage.kept(row.artifact), SeedOrigin(*hub_origin(row.source))
        seed_artifact_id = row.artifact_id
    yield Progress(0, 2, "parts", "reading")
    folder, source = _find(spec)
    id = work.stable_id("expert")
    method_name = "" if spec.method == "auto" else spec.method
    imported = import_expert(seed, folder, id, method=method_name, origin=origin)
    yield Note(f"{spec.expert} is an expert of the method {imported.reason}.")
    yield from map(Note, imported.changes)
    yield Progress(1, 2, "parts", "saving")
    base_id = seed_artifact_id
    if not imported.is_on_seed:
        set_special_tokens(imported.model.lm, imported.tokenizer)
        base_id = store_base(work, imported.method, imported.model, imported.tokenizer)
    base_sha256, _ = work.storage.describe(base_id)
    tokenizer_sha256 = imported.tokenizer.sha256
    with work.storage.new(id) as target:
        imported.method.save_expert(
            imported.model, id, target, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256
        )
        if imported.template is not None:
            save_template(imported.template, target)
    facts = {"reason": imported.reason, "source": source}
    if imported.changes:
        facts[CHANGES] = " ".join(imported.changes)
    num_parameters = sum(parameter.numel() for parameter in imported.model.expert_parameters(id).values())
    yield Progress(2, 2, "parts", "done")

    def register(session: Session) -> dict[str, Any]:
        domain_ids = [domain_row(session, name).id for name in spec.domains]
        register_expert(
            session,
            id=id,
            name=spec.expert,
            method=imported.method.name,
            domain_id=domain_ids[0] if len(domain_ids) == 1 else None,
            seed_id=seed_id,
            parent_id=None,
            base=base_artifact(session, work, base_id),
            artifact=work.register_artifact(session, id, imported.method.artifact_kind),
            tokenizer_sha256=tokenizer_sha256,
            data_sha256="",
            num_parameters=num_parameters,
            config={**_domains(session, spec, domain_ids), IMPORTED: facts},
            metrics={},
            code_version=version("expert-workbench"),
            job_id=work.job_id,
        )
        return {"expert": spec.expert, **facts, "num_parameters": num_parameters}

    return register


def _domains(session: Session, spec: ImportExpert, ids: Sequence[str]) -> dict[str, Any]:
    """What a row says of the text that trained the expert, where it is not one domain."""
    if len(ids) < 2:
        return {} if ids else {"domains": []}
    return {"domains": spec.domains, OWN: [asdict(source) for source in sources_of(session, ids)]}


def _find(spec: ImportExpert) -> tuple[Path, str]:
    """The folder to read, downloaded now if need be, and the source that the registry keeps."""
    if not spec.source.startswith(HUB):
        return Path(spec.source), f"folder:{spec.source}"
    name, revision = hub_name(spec.source)
    folder = download_model(name, revision, or_adapter=True)
    return folder, hub_source(name, folder.name)
