"""Training the experts of several domains together, on several processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.config import TrainingConfig
from engine.events import Event, Progress
from engine.methods.base import Method
from engine.methods.registry import get_method
from engine.models.expert_model import TrainableModel
from engine.text.blocks import EvalSample
from engine.training.checkpoint import newest_step
from engine.training.data import BlockSampler, DomainText, PackedDomain
from engine.training.distributed import layout_of
from engine.training.launch import run_workers
from engine.training.launchers import Launcher

FIRST_TOKENS = 4_096  # of each domain, for what an expert takes from its text before it is trained


@dataclass(frozen=True)
class Recipe:
    """`config` is one of the method's own dataclass; None stands for its defaults."""

    method: str = "demix"
    config: Any = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe made from the stored values of its fields."""
        return cls(data["method"], get_method(data["method"]).config_from(data["config"] or {}))

    @property
    def descriptor(self) -> Method:
        return get_method(self.method)

    def learns(self, keys: Sequence[str]) -> Sequence[str] | None:
        """The experts, if only they learn; None: all that they share also learns."""
        return keys if self.descriptor.base_is_frozen else None


def start_experts(
    model: TrainableModel, domains: Sequence[DomainText], config: TrainingConfig, folder: Path
) -> Iterator[Progress]:
    """What new experts take from their own text before they are trained; nothing where a checkpoint goes on.

    Blocks are spread evenly over each domain. Raises TrainingError for a checkpoint of another config.
    """
    if newest_step(folder, config):
        return
    texts = {
        expert: [
            EvalSample.of(domain.train, config.block_size, FIRST_TOKENS)
            for domain in domains
            if domain.expert == expert
        ]
        for expert in model.keys
    }
    yield from model.start_from(texts)


# glibc returns what is freed of this many bytes and more: else it keeps the memory of gathered layers.
_FREED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


@dataclass(frozen=True)
class JointTask:
    """The task of one training process: where things lie, what to train and how."""

    seed_folder: Path
    domains: tuple[PackedDomain, ...]
    config: TrainingConfig
    folder: Path  # of the checkpoints
    device: str = "auto"
    recipe: Recipe = field(default_factory=Recipe)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> JointTask:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        domains = tuple(PackedDomain(one["name"], one["expert"], Path(one["folder"])) for one in data["domains"])
        config = TrainingConfig(**data["config"])
        recipe = Recipe.from_json(data["recipe"])
        return cls(Path(data["seed_folder"]), domains, config, Path(data["folder"]), data["device"], recipe)


def train_distributed(
    num_processes: int,
    seed_folder: Path,
    domains: Sequence[PackedDomain],
    config: TrainingConfig,
    folder: Path,
    *,
    recipe: Recipe | None = None,
    device: str = "auto",
    launcher: Launcher | None = None,
    threads: int = 0,
    log: Path | None = None,
) -> Iterator[Event]:
    """Trains a model of the seed (None: a DEMix model) from the newest checkpoint in `folder`, or from the start.

    The weights are those of the last checkpoint. The processes run where the launcher starts them (None: here).
    `threads` are those of each process; 0 shares the cores out. What the processes print goes to `log`, or where this
    process prints. Raises TrainingError when the layout or a text cannot be trained on, LostRankError when a process
    dies, and what the training itself raises.
    """
    layout_of(domains, config.sequences_per_domain, num_processes)
    texts = [domain.open() for domain in domains]
    BlockSampler(texts, config.block_size, config.sequences_per_domain, config.seed)  # refuses texts that are too short
    task = JointTask(seed_folder.resolve(), tuple(domains), config, folder.resolve(), device, recipe or Recipe())
    variables = _FREED if config.shard else {}
    return run_workers(
        task,
        "engine.methods.joint_worker",
        num_processes,
        launcher=launcher,
        threads=threads,
        log=log,
        variables=variables,
    )
