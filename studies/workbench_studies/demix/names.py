"""The systems that a replication of DEMix compares, and their names in the registry.

Names derive from the replication's: `NAME-s0` is the DEMix mixture of the first seed, `NAME-s0-dense` the dense one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from engine.config import PAPER_NEWEST_WEIGHT, Evidence, TrainingConfig
from workbench.specs.base import Name
from workbench_studies.core.spec import BUDGET, Replicate, Run, Size, read_sizes, read_table


@dataclass(frozen=True, kw_only=True)
class DemixSize(Size):
    """Everything that the jobs are made of, apart from names and text."""

    adapting: TrainingConfig  # to a novel domain, at a tenth of the training's learning rate (DEMix §6.1)
    retrained_domains: int = 2  # –Domain (table 7) is a whole training for each
    retrained_seeds: int = 1
    interleaved_every: int | None = None  # experts in every so-manieth layer (§3.3); replications once had no such arm
    interleaved_seeds: int = 1


SIZES = read_sizes(__file__, DemixSize)


Variant = Literal[
    "dense",
    "dense-balanced",
    "domain-token",
    "naive",
    "average",
    "uniform",
    "updating",
    "cached",
    "interleaved",
    "alone",
    "grown",
    "minus expert",
    "minus domain",
    "dense-dapt",
    "demix-dapt",
]
METHODS: tuple[str, ...] = ("demix", "dense", "dense-balanced", "domain-token")
WORDS: Mapping[str, str] = read_table(__file__, "study")["words"]  # how reports call a mode
PRINTED = read_table(__file__, "paper")  # the paper's numbers


ReadEvidence = Evidence | Literal["calibrated"]  # the last: a rule of each seed's own, which is fitted


@dataclass(frozen=True)
class Reading:
    """How the posterior and its updating prior are read: the paper's text and its released code differ."""

    evidence: ReadEvidence
    newest_weight: float

    def __str__(self) -> str:
        if self.evidence == "calibrated":
            return "calibrated on dev text (ours)"
        return f"{self.evidence}, newest block {self.newest_weight:g}"


PAPER = Reading("prefix", PAPER_NEWEST_WEIGHT)
CODE = Reading("last_token", 0.3)
READINGS = (PAPER, CODE, Reading("prefix", 0.3), Reading("last_token", 0.7))
# Eq. 9's λ in the paper's grid (§5.1), each as a reading of its text: a share of 1 − λ for the newest block
GRID = {0.1: Reading("prefix", 0.9), 0.3: PAPER, 0.5: Reading("prefix", 0.5), 1.0: Reading("prefix", 0.0)}
# where claims stand that are read as the paper says, where no other reading was measured
READ_AS_PAPER = ("Figure 4", "Figures 7, 8", "§5.1", "§5.2", "Table 7")
CALIBRATED = Reading("calibrated", PAPER.newest_weight)  # ours, not the paper's: no claim is judged by it


class DemixRun(Run):
    """One seed: names of what it makes."""

    def mixture(self, method: str) -> str:
        """The mixture that a method trains."""
        return self.seed_model if method == "demix" else f"{self.seed_model}-{method}"

    def expert(self, method: str, domain: str) -> str:
        """The expert of a method that knows a training domain; the dense ones have one for all."""
        own = "dense" if method in ("dense", "dense-balanced") else domain
        return f"{self.mixture(method)}/{own}"

    def experts(self, method: str, domains: Sequence[str]) -> list[str]:
        """All experts of a method, once each."""
        return list(dict.fromkeys(self.expert(method, domain) for domain in domains))

    def added(self, novel: str) -> str:
        """The expert that DEMix-DAPT adds for a novel domain."""
        return f"{self.seed_model}-{novel}"

    def adapted(self, novel: str) -> str:
        """The mixture that dense-DAPT makes of the dense model; its one expert is NAME/NOVEL."""
        return f"{self.mixture('dense')}-{novel}"

    @property
    def interleaved(self) -> str:
        """The DEMix mixture whose experts are in some layers only (§3.3)."""
        return self.mixture("interleaved")

    def without(self, domain: str) -> str:
        """The DEMix mixture trained without a domain (–Domain, table 7)."""
        return self.mixture(f"no-{domain}")


def own(mixture: str, domain: str) -> str:
    """A mixture's expert of a domain."""
    return f"{mixture}/{domain}"


# systems whose losses are compared: what a model's scores become in one way of using them -----------------------------


@dataclass(frozen=True)
class System:
    """One way to use models: its mode, the reading of the posterior where one touches it, a domain where it has one."""

    mode: Variant
    reading: Reading | None = None
    domain: str = ""  # whose expert it is, or which one it was adapted to


READ_MODES: tuple[Variant, ...] = ("uniform", "updating", "cached")  # of table 5
_READ_BY_EVIDENCE: tuple[Variant, ...] = ("uniform", "cached", "grown", "minus expert", "minus domain", "demix-dapt")


def system(mode: Variant, reading: Reading, domain: str = "") -> System:
    """A mode under a reading, reduced to what touches the mode: only the updating prior has a newest block."""
    if mode == "updating":
        return System(mode, reading, domain)
    return System(mode, by_evidence(reading.evidence) if mode in _READ_BY_EVIDENCE else None, domain)


def by_evidence(evidence: ReadEvidence) -> Reading:
    """The reading that stands for all with this evidence."""
    return Reading(evidence, PAPER.newest_weight)


class ReplicateDemix(Replicate):
    """Judge DEMix's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-demix"] = "replicate-demix"
    paper: Literal["demix"] = Field("demix", description="The paper.")
    budget: DemixSize = Field(default_factory=lambda data: SIZES[data["size"]], description=BUDGET)
    removed: list[Name] = Field(
        default_factory=list, description="Training domains that are left out to train a model without them."
    )

    @model_validator(mode="after")
    def _of_these(self) -> ReplicateDemix:
        if not set(self.removed) <= set(self.domains):
            raise ValueError("only a training domain can be left out of training")
        return self

    @property
    def runs(self) -> list[DemixRun]:
        return [DemixRun(self.name, seed) for seed in range(self.seeds)]

    def own_options(self) -> list[str]:
        return ["--removed", ",".join(self.removed)] if self.removed else []

    def names(self) -> list[str]:
        made = []
        for run in self.runs:
            made += [run.seed_model, *map(run.mixture, METHODS)]
            made += [name(novel) for novel in self.novel for name in (run.added, run.adapted)]
            made += [*map(run.without, self.removed), *([run.interleaved] if self.budget.interleaved_every else [])]
        return made
