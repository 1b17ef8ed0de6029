"""Train one more expert: a copy of a parent, on one more domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.config import (
    AdaptingConfig,
)
from workbench.kinds.analysis.certify_addition import CertifyAddition
from workbench.kinds.kind import Kind, named, no_path
from workbench.spec_base import ExpertName, Name, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class TrainExpert(Spec):
    """Add an expert: copy a parent, train only the copy on a domain, change nothing else (DEMix §6)."""

    kind: Literal["train-expert"] = "train-expert"
    name: Name = Field(description="Name of the new expert.")
    domain: Name = Field(description="Domain to train on.")
    mixture: Name = Field(description="Mixture whose base the expert is for; its experts are the possible parents.")
    parent: ExpertName | None = Field(
        None, description="Expert to copy; empty takes the nearest by its posterior on held-out text."
    )
    join: bool = Field(True, description="Put the new expert into the mixture when it is done.")
    whole: bool = Field(
        False,
        description="Train the shared parameters, too (dense-DAPT): makes a mixture NAME, on a base of its own, of one "
        "expert NAME/DOMAIN; the model it began from stays as it is.",
    )
    watch: list[Name] = Field(
        default_factory=list,
        description="Domains whose held-out loss is measured at each evaluation, to see what is forgotten (Fig. 6).",
    )
    training: AdaptingConfig = Field(default_factory=AdaptingConfig, description="How to train.")

    @property
    def expert(self) -> str:
        """What the new expert is called."""
        return f"{self.name}/{self.domain}" if self.whole else self.name

    @property
    def certificate(self) -> CertifyAddition | None:
        """The spec of the certificate of its addition; None where it joins no mixture."""
        if self.whole or not self.join:
            return None
        return CertifyAddition(expert=self.name, mixture=self.mixture)

    @model_validator(mode="after")
    def _watch_others(self) -> TrainExpert:
        if len(set(self.watch)) < len(self.watch) or self.domain in self.watch:
            raise ValueError(
                "name each domain to watch once, and not the one that is trained on: it is measured anyway"
            )
        return self


def _no_parent(session: Session, spec: TrainExpert) -> list[str]:
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.registry.experts import can_be_parent
    from workbench.registry.tables import Mixture

    mixture = session.scalar(select(Mixture).where(Mixture.name == spec.mixture))
    if mixture is None or any(can_be_parent(member.expert) for member in mixture.members):
        return []
    return [
        f"“{spec.mixture}” must hold an expert that can be copied, but all its experts are of MoDE: "
        "train another beside the same seed, with `workbench train mode`."
    ]


KIND = Kind(
    spec=TrainExpert,
    title="Train expert",
    creates=lambda spec: [("expert", spec.expert), *named("mixture", spec.name if spec.whole else None)],
    requires=lambda spec: [
        ("domain", spec.domain),
        ("mixture", spec.mixture),
        *named("expert", spec.parent),
        *named("domain", *spec.watch),
    ],
    reads=no_path,
    complaints=_no_parent,
)
