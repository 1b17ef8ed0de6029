"""Train one model on all domains jointly: DEMix with an expert per domain, or one of its baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from engine.config import LoraConfig, MoeConfig, TrainingConfig
from engine.methods.registry import get_method, joint_methods
from workbench.formatting.number_format import pluralize
from workbench.kinds.analysis import Evaluate
from workbench.kinds.kind import CHAT_LINK, Kind, Probe, ResultLink, named, no_path, training_probe
from workbench.kinds.training.method_settings import OPTIONS, MethodSettings, advice, with_defaults
from workbench.specs.base import GPU_SHARE, NUM_GPUS, RETAIN, RETAIN_TITLE, SCHEDULING, Name, require_others

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from workbench.schema.tables import SeedModel


METHOD_SETTINGS = {"lora", "moe", "options"}


class TrainJoint(MethodSettings):
    """Train a DEMix model (DEMix §3): one expert per domain, everything else shared. Or train one of its baselines."""

    offered: ClassVar = joint_methods

    kind: Literal["train-joint"] = "train-joint"
    name: Name = Field(description="Name of the mixture; its experts are called NAME/DOMAIN.")
    seed_model: Name = Field(description="Seed model to start from.")
    domains: list[Name] = Field(
        min_length=1, description="Domains, one expert each (dense, moe: one for all, such as NAME/dense)."
    )
    method: str = Field(
        "demix", description="; ".join(f"{name}: {one.sentence}" for name, one in joint_methods().items()) + "."
    )
    training: TrainingConfig = Field(
        default_factory=TrainingConfig, title="Training details", description="How to train."
    )
    lora: LoraConfig = Field(
        default_factory=LoraConfig, title="Adapters", description="The adapters, with the methods lora and lora-mixed."
    )
    moe: MoeConfig = Field(
        default_factory=MoeConfig, title="Mixture of experts", description="The networks, with the method moe."
    )
    options: dict[str, JsonValue] = Field(default_factory=dict, description=OPTIONS)
    retain: list[Name] = Field(default_factory=list, title=RETAIN_TITLE, description=f"{RETAIN} With one expert only.")
    num_gpus: int = Field(0, ge=0, le=1024, title="GPUs", description=NUM_GPUS)
    gpu_share: float = Field(1.0, gt=0, le=1, title="Share of a GPU", description=GPU_SHARE)

    @model_validator(mode="after")
    def _distinct(self) -> TrainJoint:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if self.retain and len(self.experts) > 1:
            raise ValueError(
                "domains to retain need a single expert: train on one domain, or use a method with one expert for all"
            )
        if self.retain and self.num_gpus > 1:
            raise ValueError("domains to retain are evaluated in one process: choose at most one GPU")
        if self.num_gpus > 1 and self.gpu_share < 1:
            raise ValueError("a share is of one GPU: choose at most one GPU, or leave the share out")
        if self.num_gpus > 1 and (used := self.training.of_one_process):
            raise ValueError(
                f"{' and '.join(used)} work in one process only: choose at most one GPU, or leave them out"
            )
        if self.num_gpus > _most_processes(self):
            raise ValueError(f"each GPU needs a sequence of each batch: choose at most {_most_processes(self)} GPUs")
        require_others(self.retain, self.domains)
        return self

    def identity(self) -> str:
        """Without the settings of other methods, whose defaults may change."""
        return self.model_dump_json(exclude=SCHEDULING | METHOD_SETTINGS - {get_method(self.method).config_field})

    @property
    def experts(self) -> dict[str, list[str]]:
        """The names of the new experts, each with the domains that train it."""
        if only := get_method(self.method).only_expert:
            return {f"{self.name}/{only}": self.domains}
        return {f"{self.name}/{domain}": [domain] for domain in self.domains}


_LONGEST = ("max_position_embeddings", "n_positions")  # in a model's config.json, by family


def too_long_blocks(seed: SeedModel | None, block_size: int) -> list[str]:
    """A complaint where blocks exceed the context; none where the seed model is not there yet, or names no context."""
    longest = next((int(seed.config[name]) for name in _LONGEST if name in seed.config), None) if seed else None
    if seed is None or longest is None or block_size <= longest:
        return []
    return [
        f"Block size (--block-size) must be at most {longest:,}, the context of “{seed.name}” in tokens, not "
        f"{block_size:,}: choose a smaller one."
    ]


def _complaints(session: Session, spec: TrainJoint) -> list[str]:
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.schema.tables import SeedModel

    seed = session.scalar(select(SeedModel).where(SeedModel.name == spec.seed_model))
    return too_long_blocks(seed, spec.training.block_size)


def _probe(spec: TrainJoint) -> Probe[TrainJoint]:
    """Measures one process: of several, the one that has the most experts and sequences."""
    full = training_probe(spec, ("seed model", spec.seed_model))
    if spec.num_gpus <= 1:
        return full
    share = _share_of_process(spec)
    num_rows, own_rows = (len(one.domains) * one.training.sequences_per_domain for one in (spec, share))
    return replace(
        full,
        short=training_probe(share, ("seed model", spec.seed_model)).short,
        smaller=tuple(one for one in full.smaller if _most_processes(one) >= one.num_gpus),
        num_processes=spec.num_gpus,
        batch_shares=num_rows / own_rows,
        domain_shares=len(spec.domains) / len(share.domains),
        expert_shares=len(spec.experts) / len(share.experts),
    )


def _share_of_process(spec: TrainJoint) -> TrainJoint:
    """The part that one of the processes trains: some of the experts, or some of one expert's sequences."""
    training, num_experts = spec.training, len(spec.experts)
    if num_experts > 1:
        domains = spec.domains[: -(-num_experts // spec.num_gpus)]
        sequences = -(-training.sequences_per_domain // max(1, spec.num_gpus // num_experts))
    else:  # its sequences are of all domains
        num_rows = -(-len(spec.domains) * training.sequences_per_domain // spec.num_gpus)
        domains = spec.domains[:num_rows]
        sequences = -(-num_rows // len(domains))
    share = replace(training, sequences_per_domain=sequences)
    return spec.model_copy(update={"domains": domains, "training": share, "num_gpus": 0})


def _most_processes(spec: TrainJoint) -> int:
    domains_each = len(spec.domains) // len(spec.experts)
    return len(spec.experts) * domains_each * spec.training.sequences_per_domain


KIND = Kind(
    spec=TrainJoint,
    title="Train joint model",
    creates=lambda spec: [("mixture", spec.name), *named("expert", *spec.experts)],
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains, *spec.retain)],
    reads=no_path,
    complaints=_complaints,
    settled=lambda session, spec: with_defaults(session, spec, spec.method, ("seed model", spec.seed_model)),
    advice=lambda session, spec: advice(session, spec, spec.method, ("seed model", spec.seed_model)),
    probe=_probe,
    replayed=lambda spec: spec.model_copy(update={"retain": []}),
    follow_up=lambda spec: Evaluate(mixture=spec.name),
    first_step="experts",
    uses_gpu=True,
    uses_processes=True,
    command="train joint NAME",
    sentence=lambda result: f"{pluralize(len(result['experts']), 'expert')} in the mixture {result['mixture']}.",
    link=ResultLink("experts", "See the experts", lambda result: {"experts.chosen": result["experts"]}, CHAT_LINK),
)
