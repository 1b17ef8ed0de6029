"""A new expert of a job: its folder and its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.methods.base import Method
from engine.methods.registry import get_method
from engine.models.expert_model import TrainableModel
from engine.statistics.perplexity import perplexity_of
from engine.text.chat.own_template import copy_template
from engine.text.tokenizer import Tokenizer
from jobs.attempt.work import Work, stable_id
from jobs.kinds.shared.losses import HeldOut
from jobs.kinds.shared.resume_guard import mask_rule
from jobs.kinds.shared.tokens import DomainFiles, data_sha256_of
from workbench.analysis.changes.additions import AFTER, BEFORE
from workbench.analysis.changes.retrained_baselines import OF_BASE, OWN, sources_of
from workbench.registry.experts import register_expert
from workbench.schema.tables import Artifact
from workbench.store.artifacts import register_artifact


def store_base(work: Work, method: Method, model: TrainableModel, tokenizer: Tokenizer) -> str:
    """Stores the base as an artifact of the job and returns its id."""
    base_id = stable_id(work.job_id, "base")
    with work.storage.new(base_id) as folder:
        method.save_base(model, folder)
        tokenizer.save(folder)
    return base_id


@dataclass(frozen=True)
class NewExpert:
    """An expert before it has a row. `id` also names its folder."""

    id: str
    name: str
    method: str
    domains: tuple[DomainFiles, ...]
    num_parameters: int
    held_out: HeldOut
    kind: str  # of its artifact


def keep_expert(
    work: Work,
    model: TrainableModel,
    id: str,
    name: str,
    domains: Sequence[DomainFiles],
    *,
    method: str,
    held_out: HeldOut,
    base_sha256: str,
    tokenizer_sha256: str,
    parent: Path | None = None,
) -> NewExpert:
    """Stores the parameters of the expert `id`, trained on these domains, as an artifact with the same id.

    A chat template of its own comes from the folder of its `parent`.
    """
    with work.storage.new(id) as folder:
        descriptor = get_method(method)
        descriptor.save_expert(model, id, folder, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256)
        if parent is not None:
            copy_template(parent, folder)
    size = sum(parameter.numel() for parameter in model.expert_parameters(id).values())
    return NewExpert(id, name, method, tuple(domains), size, held_out, descriptor.artifact_kind)


def register_new_expert(
    session: Session,
    work: Work,
    expert: NewExpert,
    *,
    base: Artifact,
    seed_id: str | None,
    parent_id: str | None,
    tokenizer_sha256: str,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any] | None = None,
    trained_base: Sequence[DomainFiles] = (),
) -> None:
    """Writes the expert's row with its provenance. If several domains trained it, its config lists their texts.

    It also lists the texts that trained the base in the same training: a domain's name may later belong to other text.
    """
    several = len(expert.domains) > 1
    texts: dict[str, Any] = {"domains": [domain.name for domain in expert.domains]} if several else {}
    if "num_steps" in config and any(domain.is_chat for domain in (*expert.domains, *trained_base)):
        texts["mask_rule"] = mask_rule(work)
    for key, domains in ((OWN, expert.domains if several else ()), (OF_BASE, trained_base)):
        if domains:
            texts[key] = [asdict(source) for source in sources_of(session, [domain.id for domain in domains])]
    artifact = register_artifact(session, work.storage, expert.id, expert.kind, job_id=work.job_id)
    losses = {AFTER: expert.held_out.after, BEFORE: expert.held_out.before}
    measured = {name: perplexity_of(loss) for name, loss in losses.items() if loss is not None}
    register_expert(
        session,
        id=expert.id,
        name=expert.name,
        method=expert.method,
        seed_id=seed_id,
        domain_id=None if several else expert.domains[0].id,
        parent_id=parent_id,
        base=base,
        artifact=artifact,
        tokenizer_sha256=tokenizer_sha256,
        data_sha256=data_sha256_of(expert.domains),
        num_parameters=expert.num_parameters,
        config={**config, **texts},
        metrics={**measured, **(metrics or {})},
        code_version=version("expert-workbench"),
        job_id=work.job_id,
    )
