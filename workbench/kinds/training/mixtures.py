"""Kinds of job that put experts together: into a mixture, their average (BTM), or one sparse model (DUME)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.config import MOST_TOKENS
from workbench.formatting.number_format import pluralize
from workbench.kinds.kind import Kind, Probe, ResultLink, expert_link, named, no_path
from workbench.specs.base import ExpertName, Name, Spec
from workbench.specs.gates import AnyGate, default_gate

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class MakeMixture(Spec):
    """Make a mixture after its experts were trained: the last step of a plan that trains them."""

    kind: Literal["make-mixture"] = "make-mixture"
    name: Name = Field(description="Name of the mixture.")
    experts: list[ExpertName] = Field(min_length=1, description="Experts that share a tokenizer.")
    weights: list[float] | None = Field(None, description="Prior (or fixed) weight of each expert; empty: equal.")
    gate: AnyGate = Field(default_factory=default_gate, description="Gate that weighs the experts.")
    clustering: Name | None = Field(None, description="Clustering for a cluster gate, by name, instead of `gate`.")
    replace: bool = Field(False, description="Replace the experts of an existing mixture with this name.")


MAKE_MIXTURE = Kind(
    spec=MakeMixture,
    title="Make mixture",
    creates=lambda spec: named("mixture", spec.name),
    requires=lambda spec: [*named("clustering", spec.clustering), *named("expert", *spec.experts)],
    reads=no_path,
    may_replace=lambda spec: spec.replace,
    sentence=lambda result: f"{pluralize(len(result['experts']), 'expert')} in the mixture {result['mixture']}.",
    link=ResultLink("mixtures", "See the mixture", lambda result: {"mixture": result["mixture"]}),
)


class AverageExperts(Spec):
    """Average the parameters of several experts into one model (BTM, Li et al. 2022, §3.3)."""

    kind: Literal["average-experts"] = "average-experts"
    name: Name = Field(description="Name of the mixture that will hold the average; the expert is called NAME/average.")
    experts: list[ExpertName] = Field(
        min_length=2, description="Experts to average, with the same architecture and seed model."
    )
    weights: list[float] | None = Field(None, description="Weight of each expert; empty: equal.")
    prior: Name | None = Field(None, description="Saved prior whose shares are the weights (BTM: a cached one).")

    @property
    def expert(self) -> str:
        """The name of the averaged expert."""
        return f"{self.name}/average"

    @model_validator(mode="after")
    def _weighable(self) -> AverageExperts:
        if len(set(self.experts)) < len(self.experts):
            raise ValueError("name each expert once")
        if self.weights is not None and self.prior is not None:
            raise ValueError("give weights or a prior, not both")
        if self.weights is not None:
            if len(self.weights) != len(self.experts):
                raise ValueError(f"give one weight for each of the {len(self.experts)} experts")
            if not (min(self.weights) >= 0 and 0 < sum(self.weights) < float("inf")):
                raise ValueError("weights must be 0 or more, and one of them above 0")
        return self


AVERAGE_EXPERTS = Kind(
    spec=AverageExperts,
    title="Average into",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: [*named("expert", *spec.experts), *named("prior", spec.prior)],
    reads=no_path,
    probe=Probe,
    command="mixture average NAME",
    sentence=lambda result: (
        f"{pluralize(len(result['weights']), 'expert')} averaged in the mixture {result['mixture']}."
    ),
    link=expert_link("See the average"),
    runner="jobs.kinds.training.averages:average_experts",
)


class JoinExperts(Spec):
    """Join experts into one sparse model: routers in its layers choose among their networks.

    Routers are solved in closed form (DUME), or have the rows that anchored experts were trained with (FlexOlmo).
    """

    kind: Literal["join-experts"] = "join-experts"
    name: Name = Field(
        description="Name of the mixture that will hold the joined model; the expert is called NAME/joined."
    )
    experts: list[ExpertName] = Field(
        min_length=1,
        description="Experts that differ only in their feed-forward networks, such as DEMix experts, two or more; or "
        "anchored experts, which are joined with their seed model.",
    )
    top_k: int | None = Field(
        None,
        ge=1,
        description="Networks that each token goes through in a layer; their outputs get the shares of a softmax. "
        "Empty: 1, or of anchored experts all.",
        title="Networks of each token (top k)",
    )
    routers: Literal["solved", "random"] = Field(
        "solved",
        description="solved: in closed form from each expert's text; random: to be trained with the whole joined model "
        "afterwards (BTX).",
        title="Where the routers come from",
    )
    average_rest: bool = Field(
        False,
        description="Average what differs besides the networks, as of whole models of one seed (dense, C-BTM). Else it "
        "is refused.",
        title="Average the rest",
    )
    tokens: int = Field(
        65_536,
        ge=8,
        le=MOST_TOKENS,
        description="Tokens to read of each expert's own training text; 20 or more for each dimension of the model. "
        "Anchored experts use neither these nor the penalty.",
    )
    shrinkage: float = Field(
        0.01,
        ge=1e-9,
        le=1e6,
        description="Ridge penalty, relative to the mean eigenvalue of the inputs' second moments.",
    )
    temperature: float = Field(
        1.0, gt=0, le=1e6, description="How evenly the outputs of several networks are shared; lower is sharper."
    )
    block_size: int = Field(
        256, ge=8, le=MOST_TOKENS, description="Most tokens of context while the text is read; at most the model's."
    )

    @property
    def expert(self) -> str:
        """The name of the joined expert."""
        return f"{self.name}/joined"

    @model_validator(mode="after")
    def _joinable(self) -> JoinExperts:
        if len(set(self.experts)) < len(self.experts):
            raise ValueError("name each expert once")
        return self


def join_complaints(session: Session, spec: JoinExperts) -> list[str]:
    """Why these experts cannot be joined; of experts that a job still makes, only that job's end shows it."""
    from engine.methods.registry import method_of  # here, since a spec is read without the registry
    from workbench.schema.names import find_row
    from workbench.schema.tables import Expert

    complaints, with_rows = [], list[bool]()
    for name in spec.experts:
        if (row := find_row(session, Expert, name)) is None:
            continue
        method = method_of(row.method)
        with_rows.append(method.has_rows)
        if (because := method.no_decoder_because) and not method.has_rows:
            complaints.append(f"“{name}” cannot become a part of one model: it {because}.")
        elif row.domain_id is None and not row.config.get("domains") and not method.has_rows:
            complaints.append(f"“{name}” has no training text here, which its router is solved from: leave it out.")
    if len(with_rows) < len(spec.experts):
        return complaints
    is_anchored, num_networks = all(with_rows), len(spec.experts)
    if any(with_rows) and not is_anchored:
        complaints.append("Some of these experts have rows of a router from their training, others have none.")
    elif is_anchored:
        num_networks += 1
        if spec.routers == "random":
            complaints.append("Anchored experts have the rows of their training: leave “routers” out.")
    elif num_networks < 2:
        complaints.append("Name two experts or more: a router chooses among at least 2.")
    if spec.top_k is not None and spec.top_k > num_networks:
        complaints.append(f"A token can go through at most {num_networks} networks.")
    return complaints


JOIN_EXPERTS = Kind(
    spec=JoinExperts,
    title="Join into",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: named("expert", *spec.experts),
    reads=no_path,
    complaints=join_complaints,
    command="mixture join NAME",
    link=expert_link("See the joined model"),
)


KIND = (MAKE_MIXTURE, AVERAGE_EXPERTS, JOIN_EXPERTS)
