"""Forecasts of MoDE trainings: memory and disk are computed, the time follows from measured speeds."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.config import AdaptingConfig
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.flops import Learning, training_flops
from engine.models.flops import Shape
from workbench.errors import BadSpec, NotFound
from workbench.kinds.catalog import kind_named
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.mode_composition import composition
from workbench.registry.experts import expert_row
from workbench.registry.seeds import seed_row
from workbench.tables import Expert, Job, SeedModel

_BYTES = 4  # of a number in float32, in which all that is trained is held
_STORED_BYTES = {"bfloat16": 2, "float16": 2}  # of a seed's number, by its precision; all others are in float32
_CHECKPOINTS = 2  # on disk together
_JOBS = 50  # of the newest, to find a speed in


@dataclass(frozen=True)
class Forecast:
    """The resources of a training. Parameters are those of matrices and gates; norms and biases are not counted."""

    num_trained: int  # parameters that are trained
    num_beside: int  # parameters beside the backbone
    num_frozen: int  # parameters of the backbone
    memory_bytes: int  # of weights, gradients and Adam's moments, without activations
    disk_bytes: int  # of the expert
    checkpoint_bytes: int  # as long as it trains
    num_tokens: int  # of all updates
    num_flops: int
    seconds: float | None  # at the speed of the newest training here; None before the first
    measured_by: str | None  # title of the job whose speed it is
    is_alike: bool  # whether that job has the same kind and backbone; otherwise the time is a guess
    seconds_between: tuple[float, float] | None  # by all jobs of the same kind and backbone


@dataclass(frozen=True)
class _Work:
    """A training to forecast."""

    seed: SeedModel
    experts: tuple[ModeConfig, ...]
    learning: Learning | None  # None: nothing is trained
    num_domains: int
    training: AdaptingConfig

    @property
    def num_tokens(self) -> int:
        """Tokens of all updates."""
        if self.learning is None:
            return 0
        each = self.training.block_size * self.training.sequences_per_domain * self.training.accumulate
        return each * self.num_domains * self.training.num_steps


def forecast(session: Session, spec: TrainMode | ComposeMode) -> Forecast | None:
    """The forecast of a training; None if it is impossible, or needs something that is not in the registry yet."""
    check = kind_named(spec.kind).complaints
    if check and check(session, spec):
        return None
    try:
        work = _of_training(session, spec) if isinstance(spec, TrainMode) else _of_composition(session, spec)
    except (NotFound, BadSpec):
        return None
    shape = Shape.of(work.seed.config)
    num_beside = sum(_num_parameters(shape, expert) for expert in work.experts)
    num_gates = sum(_gates(shape, expert) for expert in work.experts)
    num_trained = {"experts": num_beside, "gates": num_gates, None: 0}[work.learning]
    num_flops = 0
    if work.learning is not None:
        num_flops = work.num_tokens * training_flops(shape, work.training.block_size, work.experts, work.learning)
    stored = _STORED_BYTES.get(str(work.seed.config.get("dtype")), _BYTES)
    frozen = stored if work.training.precision == "bf16" else _BYTES  # auto: at most
    speeds, is_alike = _speeds(session, spec.kind, work.seed.name)
    seconds = [num_flops / speed for speed, _ in speeds] if num_flops else []
    return Forecast(
        num_trained=num_trained,
        num_beside=num_beside,
        num_frozen=work.seed.num_parameters,
        memory_bytes=frozen * (work.seed.num_parameters + num_beside - num_trained) + _BYTES * 4 * num_trained,
        disk_bytes=stored * num_beside,
        checkpoint_bytes=_CHECKPOINTS * _BYTES * 3 * num_trained,
        num_tokens=work.num_tokens,
        num_flops=num_flops,
        seconds=seconds[0] if seconds else None,
        measured_by=speeds[0][1] if speeds else None,
        is_alike=is_alike,
        seconds_between=(min(seconds), max(seconds)) if seconds and is_alike else None,
    )


def _of_training(session: Session, spec: TrainMode) -> _Work:
    experts = (spec.shape,) * spec.num_parts
    return _Work(seed_row(session, spec.seed_model), experts, "experts", len(spec.domains), spec.training)


def _of_composition(session: Session, spec: ComposeMode) -> _Work:
    rows = [expert_row(session, name) for name in spec.experts]
    experts = tuple(ModeConfig(**part.shape) for part in composition(rows, spec.without, bool(spec.domains)))
    if rows[0].seed is None:
        raise NotFound("seed model", f"of {rows[0].name}", [])
    learning: Learning | None = ("gates" if spec.frozen else "experts") if spec.domains else None
    return _Work(rows[0].seed, experts, learning, len(spec.domains), spec.training)


def _num_parameters(shape: Shape, expert: ModeConfig) -> int:
    layer = (shape.projections + shape.ffn) // 2  # two operations for each number of a matrix
    return expert.num_blocks * expert.expert_layers * layer + _gates(shape, expert)


def _gates(shape: Shape, expert: ModeConfig) -> int:
    return expert.num_blocks * (shape.width + 1)


def _speeds(session: Session, kind: str, seed: str) -> tuple[list[tuple[float, str]], bool]:
    """Operations per second with job titles, newest first: of this kind and backbone if any (True), else of all."""
    done = select(Job).where(Job.state == "done").order_by(Job.finished_at.desc()).limit(_JOBS)
    measured = [(job, job.result.get("throughput", {}).get("flops_per_second")) for job in session.scalars(done)]
    known = [(job, speed) for job, speed in measured if speed]
    alike = [(job, speed) for job, speed in known if job.kind == kind and _backbone(session, job) == seed]
    return [(speed, job.title) for job, speed in alike or known], bool(alike)


def _backbone(session: Session, job: Job) -> str | None:
    """The name of the seed model that a training started from, directly or through its experts."""
    if "seed_model" in job.spec:
        return str(job.spec["seed_model"])
    first = next(iter(job.spec.get("experts", ())), None)
    row = session.scalar(select(Expert).where(Expert.name == first))
    return row.seed.name if row is not None and row.seed is not None else None
