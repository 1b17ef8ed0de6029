"""Train another expert: a copy of a parent, on a further domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.config import AdaptingConfig
from workbench.formatting.number_format import listed, pluralize, share, weight
from workbench.kinds.analysis import CertifyAddition, Evaluate
from workbench.kinds.kind import CHAT_LINK, Kind, Result, expert_link, named, no_path, training_probe
from workbench.kinds.training.method_settings import advice, with_defaults
from workbench.kinds.training.train_joint import too_long_blocks
from workbench.specs.base import GPU_SHARE, ExpertName, Name, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class TrainExpert(Spec):
    """Add an expert: copy a parent and train only the copy on a domain (DEMix §6)."""

    kind: Literal["train-expert"] = "train-expert"
    name: Name = Field(description="Name of the new expert.")
    domain: Name = Field(description="Domain to train on.")
    mixture: Name = Field(description="Mixture whose base the expert is for; its experts are the possible parents.")
    parent: ExpertName | None = Field(
        None,
        title="Parent to copy",
        description="Expert to copy; empty takes the nearest by its posterior on held-out text.",
    )
    join: bool = Field(
        True,
        title="Put the new expert into the mixture when it is done",
        description="Add the new expert to the mixture when training ends.",
    )
    full_model: bool = Field(
        False,
        title="Train the whole model instead (dense-DAPT)",
        description="Train the shared parameters too (dense-DAPT): makes a mixture NAME with a new base and one expert "
        "NAME/DOMAIN; the original model does not change.",
    )
    watch: list[Name] = Field(
        default_factory=list,
        title="Domains to watch while it is trained",
        description="Domains whose held-out loss is measured at each evaluation, to show forgetting (Fig. 6).",
    )
    training: AdaptingConfig = Field(
        default_factory=AdaptingConfig, title="Training details", description="How to train."
    )
    gpu_share: float = Field(1.0, gt=0, le=1, title="Share of a GPU", description=GPU_SHARE)

    @property
    def expert(self) -> str:
        """The name of the new expert."""
        return f"{self.name}/{self.domain}" if self.full_model else self.name

    @property
    def certificate(self) -> CertifyAddition | None:
        """The spec of the certificate of its addition; None where it joins no mixture."""
        if self.full_model or not self.join:
            return None
        return CertifyAddition(expert=self.name, mixture=self.mixture)

    @model_validator(mode="after")
    def _watch_others(self) -> TrainExpert:
        if len(set(self.watch)) < len(self.watch) or self.domain in self.watch:
            raise ValueError("name each domain to watch once, and not the training domain: it is measured anyway")
        return self


def _complaints(session: Session, spec: TrainExpert) -> list[str]:
    from engine.methods.registry import method_of
    from workbench.schema.names import find_row  # here, since a spec is read without the registry
    from workbench.schema.tables import Mixture

    mixture = find_row(session, Mixture, spec.mixture)
    if mixture is None:
        return []
    experts = [member.expert for member in mixture.members]
    if any(method_of(expert.method).can_be_copied for expert in experts):
        return too_long_blocks(experts[0].seed, spec.training.block_size)
    return [
        f"“{spec.mixture}” has no expert that can be copied: train another on the same seed with "
        "`workbench train mode`."
    ]


def _sentence(result: Result) -> str:
    posterior = result.get("parent_posterior") or {}
    ranked = sorted(posterior.items(), key=lambda pair: -pair[1])
    blocks = pluralize(result["parent_blocks"], "held-out block") if result.get("parent_blocks") else "held-out text"
    shares = listed([f"{name} {weight(value)}" for name, value in ranked])
    reason = f", the nearest by the posterior on {blocks} ({shares})" if ranked else ""
    origin = f"It began as a copy of {result['parent']}{reason}. {known_to_parent(result, result['parent'])}"
    mixture = result.get("mixture")
    return f"{origin.rstrip()} It is in the mixture {mixture}." if mixture else origin.rstrip()


def known_to_parent(result: Result, parent: str) -> str:
    """The share of the new expert's text that its parent was trained on; empty if none or not measured."""
    known = result.get("parent_documents")
    return f"{parent} was trained on {share(known)} of the same documents." if known else ""


def _follow_up(spec: TrainExpert) -> Spec | None:
    """The certificate, which also scores the expert; of a model of its own its evaluation; nothing where none joins."""
    return Evaluate(mixture=spec.name) if spec.full_model else spec.certificate


_METHOD = "demix"  # of a copy; its number of updates is that of every method
_OPEN = ("num_steps",)  # the learning rate follows from the parent's


def _with_steps(session: Session, spec: TrainExpert) -> TrainExpert:
    settled: TrainExpert = with_defaults(session, spec, _METHOD, ("mixture", spec.mixture), _OPEN)
    return settled


KIND = Kind(
    spec=TrainExpert,
    title="Train expert",
    creates=lambda spec: [("expert", spec.expert), *named("mixture", spec.name if spec.full_model else None)],
    requires=lambda spec: [
        ("domain", spec.domain),
        ("mixture", spec.mixture),
        *named("expert", spec.parent),
        *named("domain", *spec.watch),
    ],
    reads=no_path,
    complaints=_complaints,
    settled=_with_steps,
    advice=lambda session, spec: advice(session, spec, _METHOD, ("mixture", spec.mixture), _OPEN),
    probe=lambda spec: training_probe(spec, ("mixture", spec.mixture)),
    replayed=lambda spec: spec.model_copy(update={"watch": [], "join": False}),
    follow_up=_follow_up,
    first_step="experts",
    uses_gpu=True,
    command="train expert NAME",
    sentence=_sentence,
    link=expert_link("See the expert", CHAT_LINK),
)
