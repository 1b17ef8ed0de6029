"""Sets of parts, and their training next to a backbone with its evaluations (MoDE §3.2, §4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import torch

from engine.config import TrainingConfig
from engine.device import choose_device
from engine.events import Evaluated, Event, Progress, TextSample
from engine.files import ArtifactRef
from engine.inference.scores import losses_of, watched_blocks
from engine.inference.text_samples import TextSampler
from engine.methods.parts.files import read_parts
from engine.methods.parts.method import Learning, PartsMethod, get_parts_method
from engine.methods.parts.parts_model import ActiveParts, PartsModel
from engine.models.expert_model import require_context
from engine.text.blocks import EvalSample, Tokens
from engine.text.tokenizer import Tokenizer
from engine.training.data import BlockSampler, DomainText, PackedDomain
from engine.training.distributed import SINGLE_PROCESS, ProcessGroup
from engine.training.loop import train
from engine.training.memory import require_memory_to_build


@dataclass(frozen=True)
class PartInit:
    """An expert by its key in a model: a new one of this shape, or a part of a stored expert."""

    key: str
    name: str  # in gate weights
    shape: Any  # a config of the method
    kept: ArtifactRef | None = None
    part: str = ""  # its name in the stored expert


@dataclass(frozen=True)
class PartSet:
    """Experts on one backbone, known together as `id`. The experts are trained, or only their gates."""

    id: str
    base: ArtifactRef
    experts: tuple[PartInit, ...]
    method: str
    learning: Learning = "experts"

    @property
    def descriptor(self) -> PartsMethod:
        """The method of all of them."""
        return get_parts_method(self.method)

    @property
    def keys(self) -> list[str]:
        return [one.key for one in self.experts]

    def backbone(self) -> PartsModel:
        """Loads the backbone without experts; every byte is checked before use."""
        return self.descriptor.open_base(self.base, self.experts[0].shape)

    def add_to(self, model: PartsModel, keys: Collection[str]) -> Iterator[Progress]:
        """Adds some of the experts; only the needed parts of stored experts are read.

        Raises ModelError where one is of another backbone, DamagedFileError where a folder is not what was written.
        """
        chosen, done = [expert for expert in self.experts if expert.key in keys], 0
        for kept, group in groupby(chosen, key=lambda expert: expert.kept):
            some = list(group)
            names = {expert.part for expert in some}
            parts = {part.name: part for part in read_parts(kept, str(self.base.sha256), names)} if kept else {}
            for expert in some:
                model.add_expert(expert.key, expert.shape, parts[expert.part].state if kept else None)
            done += len(some)
            yield Progress(done, len(chosen), "experts", "loading experts", is_first=True)

    def load(self, device: torch.device) -> Generator[Progress, None, ActiveParts]:
        """Loads the backbone with all experts."""
        model = self.backbone().to(device)
        yield from self.add_to(model, self.keys)
        return self.of(model)

    def load_now(self) -> ActiveParts:
        """The same at once, where it was built."""
        model = self.backbone()
        for _ in self.add_to(model, self.keys):
            pass
        return self.of(model)

    def of(self, model: PartsModel) -> ActiveParts:
        """All experts of the set as active experts of a model that has them."""
        return ActiveParts(model, self.keys, self.id, self.learning, [one.name for one in self.experts])


@dataclass(frozen=True)
class TrainingData:
    """The domains to train on, with equal samples of each, and further domains to evaluate."""

    domains: tuple[PackedDomain, ...]
    retained: tuple[PackedDomain, ...]
    config: TrainingConfig

    def texts(self) -> list[DomainText]:
        return [domain.open() for domain in self.domains]

    def held_out(self) -> dict[str, EvalSample]:
        """The held-out blocks for evaluations, by domain."""
        size, number = self.config.block_size, self.config.evaluation_blocks
        every = (*self.domains, *self.retained)
        return {one.name: watched_blocks(one.name, Tokens.open(one.folder, "dev"), size, number) for one in every}

    def check(self) -> None:
        """Raises TrainingError if a text is too short for a block."""
        config = self.config
        BlockSampler(self.texts(), config.block_size, config.sequences_per_domain, config.seed)
        self.held_out()


def train_active(
    active: ActiveParts,
    data: TrainingData,
    folder: Path,
    *,
    in_turn: bool = False,
    sample: Callable[[int], Sequence[TextSample]] | None = None,
    team: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[Event]:
    """Trains in place from the newest checkpoint in `folder`, or from the start.

    Each evaluation also measures the domains to retain, and reports the mean gate weights of each expert on every
    domain; `in_turn` as for `losses_of`, `sample` as for `train`. Raises TrainingError if a text or the backbone's
    context is too short, and what `train` raises.
    """
    require_context(active, data.config.block_size)
    held_out = data.held_out()
    shares: dict[str, tuple[float, ...]] = {}

    @contextmanager
    def listen(name: str) -> Iterator[None]:
        with active.record_gates() as gates:
            yield
        shares[name] = gates.means()

    def watch() -> dict[str, float]:
        losses: dict[str, float] = {}
        for domain in data.retained:
            with listen(domain.name):
                losses |= losses_of(active, active.keys[0], {domain.name: held_out[domain.name]}, in_turn=in_turn)
        return losses

    events = train(
        active,
        data.texts(),
        data.config,
        folder,
        only_experts=active.keys,
        team=team,
        listen=listen,
        watch=watch if data.retained else None,
        sample=sample,
    )
    return _with_gates(events, shares)


def _with_gates(events: Iterator[Event], shares: Mapping[str, Sequence[float]]) -> Iterator[Event]:
    """Adds the recorded gate weights to each evaluation."""
    with closing(cast(Generator[Event, None, None], events)):
        for event in events:
            yield replace(event, gates_by_domain=dict(shares)) if isinstance(event, Evaluated) else event


@dataclass
class PartsTraining:
    """The training of a set of parts in this process: an iterator of events. Afterwards `write` writes the parts."""

    part_set: PartSet
    data: TrainingData
    tokenizer: Tokenizer
    folder: Path  # of the checkpoints
    device: str = "auto"
    num_processes: int = 0  # that were asked for; 0: none
    threads: int = 0
    log: Path | None = None

    def __iter__(self) -> Iterator[Event]:
        part_set, config, device = self.part_set, self.data.config, choose_device(self.device)
        require_memory_to_build(part_set.load_now, part_set.base.folder, [part_set.id], config, device)
        self._active = yield from part_set.load(device)
        self.begin(self._active)
        sample = TextSampler(self._active, self.tokenizer, self.data.texts(), config)
        yield from train_active(self._active, self.data, self.folder, sample=sample)

    def begin(self, active: ActiveParts) -> None:
        """Called before the first update, or before the training resumes."""

    def write(self, folder: Path) -> None:
        """Writes the trained parts as those of one expert."""
        part_set = self.part_set
        sums = {"base_sha256": str(part_set.base.sha256), "tokenizer_sha256": self.tokenizer.sha256}
        part_set.descriptor.save_expert(self._active, part_set.id, folder, **sums)
