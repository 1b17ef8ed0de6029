"""Loads models for a job, one base at a time or all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.device import choose_device
from engine.files import ArtifactRef
from engine.inference.ensemble import Ensemble, Group
from engine.loading.loaded_base import load_base
from engine.methods.multi_expert_files import read_limits
from engine.models.expert_model import ExpertModel, require_context
from jobs.attempt.work import Work

Experts = Mapping[ArtifactRef, Mapping[str, ArtifactRef]]  # by base, then by id


def load_experts(work: Work, base: ArtifactRef, experts: Mapping[str, ArtifactRef], block_size: int) -> ExpertModel:
    """Loads experts of one base on the job's device. Raises TrainingError if its context is shorter than a block."""
    require_context(read_limits(base.folder), block_size)
    return load_base(base, experts, choose_device(work.settings.device)).view(list(experts))


def load_in_turn(work: Work, experts: Experts, block_size: int) -> Ensemble:
    """Loads each base when it is used and frees it when nothing refers to it. Raises as `load_experts` does."""
    return _ensemble(experts, block_size, lambda base: lambda: load_experts(work, base, experts[base], block_size))


def load_all(work: Work, experts: Experts, block_size: int) -> Ensemble:
    """Loads all bases into memory."""
    loaded = {base: load_experts(work, base, kept, block_size) for base, kept in experts.items()}
    return _ensemble(experts, block_size, lambda base: lambda: loaded[base])


def _ensemble(
    experts: Experts, block_size: int, loader: Callable[[ArtifactRef], Callable[[], ExpertModel]]
) -> Ensemble:
    groups = []
    for base, kept in experts.items():
        limits = read_limits(base.folder)
        require_context(limits, block_size)
        groups.append(Group(tuple(kept), loader(base), limits.max_positions, limits.vocab_size))
    return Ensemble(tuple(groups))
