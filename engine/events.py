"""Events of long-running functions. Every such function is an iterator of these; closing it means stop."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

BACKBONE = "backbone"  # what it is called next to the parts of an expert, none of which may be called so


@dataclass(frozen=True, slots=True)
class OverallProgress:
    """How far work of several phases is: the share of its expected time, and the seconds left with their range."""

    share: float
    seconds_left: float
    soonest: float
    latest: float


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` units so far; `total` is None while it is unknown.

    Preparations (`is_first`) do not count for the total progress. Of work with several phases, `phase` names the one
    that the units are of, and `overall` says how far all of them are together. `is_estimated`: by the clock only.
    `share` is that of a full job's work which was done since the event before: a probe does less.
    """

    done: float
    total: float | None
    unit: str
    note: str = ""
    is_first: bool = False
    phase: str = ""
    overall: OverallProgress | None = None
    is_estimated: bool = False
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer update: losses in nats per token, speed in tokens per second, FLOPs by `engine.models.flops`.

    `loss` is None where no token of the batch counts.
    """

    step: int
    num_steps: int
    loss: float | None
    learning_rate: float
    num_tokens: int
    tokens_per_second: float
    loss_by_domain: Mapping[str, float] = field(default_factory=dict)
    num_flops: float = 0.0  # of the whole update; 0: not counted


@dataclass(frozen=True, slots=True)
class TextSample:
    """A text that a model in training wrote: how it continues the first words of a domain's held-out text."""

    domain: str
    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Losses in nats per token on held-out text, after `step` updates.

    `gates_by_domain` are the mean weights of the backbone and of each part there; 1 together, empty without parts.
    `samples` are texts that the model wrote, if the training samples any.
    """

    step: int
    loss_by_domain: Mapping[str, float]
    gates_by_domain: Mapping[str, Sequence[float]] = field(default_factory=dict)
    samples: Sequence[TextSample] = ()


@dataclass(frozen=True, slots=True)
class Saving:
    """A checkpoint is about to be written: whoever stores the curve must write it first.

    A large one is written while updates go on; `Saved` then comes some of them later, before the next `Saving`.
    """

    step: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written and synced; training can continue from `step`, which may be some updates ago."""

    step: int
    path: str


@dataclass(frozen=True, slots=True)
class TrainingFinished:
    """The end of a training after `num_steps` of `max_steps` updates.

    The weights are those after `step` updates, with their losses on held-out text (nats per token): the last ones, or
    with patience those whose losses were the best on average.
    """

    step: int
    num_steps: int
    max_steps: int
    loss_by_domain: Mapping[str, float]
    loss_at_start: Mapping[str, float] = field(default_factory=dict)  # the same before the first update

    @property
    def worse(self) -> dict[str, tuple[float, float]]:
        """The domains whose loss is higher than before the training, with both losses."""
        before = self.loss_at_start
        pairs = {name: (before[name], loss) for name, loss in self.loss_by_domain.items() if name in before}
        return {name: pair for name, pair in pairs.items() if pair[1] > pair[0]}


@dataclass(frozen=True, slots=True)
class Note:
    """A choice made during the job for an unset option, as a sentence for its log."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Requirements:
    """The least that a training takes, in bytes, by the shapes of its tensors; `sentence` is for its log.

    Of one process; activations, libraries and working copies come on top.
    """

    sentence: str
    memory_bytes: int
    gpu_bytes: int
    checkpoints_bytes: int  # disk while it trains
    result_bytes: int  # disk of what it trained


@dataclass(frozen=True, slots=True)
class ParentChosen:
    """The expert whose copy is trained: its id and its name."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class PartOrder:
    """The names of the parts that are trained together, in the order of its gates; the backbone comes before."""

    parts: Sequence[str]


@dataclass(frozen=True, slots=True)
class GateWeights:
    """The gate weights of the backbone and each active part at one token, by block; 1 together in each block."""

    backbone: tuple[float, ...]
    parts: Mapping[str, tuple[float, ...]]


class Candidate(NamedTuple):
    """A token that could stand in a place, with its log-probability under the mixture."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token, its log-probability under the mixture, and the weight of each expert behind it.

    `gates` are those inside each expert with parts that weighs something, where the token was predicted. `candidates`
    are the most probable tokens there, the greatest first; as many as the sampling asks for.
    """

    id: int
    text: str
    logprob: float
    weights: Mapping[str, float]
    gates: Mapping[str, GateWeights] = field(default_factory=dict)
    candidates: Sequence[Candidate] = ()


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt as it was read: the text of each token, its log-probability (nats), and the most probable token there.

    Of the first token the prompt holds both are None. `num_tokens` counts a beginning token too that was put before it.
    `candidates` are for each token the most probable ones in its place, as many as were requested; none of the first.
    """

    tokens: Sequence[str]
    logprobs: Sequence[float | None]
    best: Sequence[tuple[str, float] | None]
    num_tokens: int
    candidates: Sequence[Sequence[Candidate]] = ()


@dataclass(frozen=True)
class TextReading:
    """A text by token: the weight of every expert before it, its log-probability (nats), the most probable token there.

    `gate_weights` are those inside experts with parts; an expert that did not run is left out.
    """

    experts: list[str]
    tokens: list[str]
    weights: list[list[float]]  # token × expert
    logprobs: list[float]
    best: list[tuple[str, float]]
    gate_weights: list[dict[str, GateWeights]]


@dataclass(frozen=True, slots=True)
class Drafting:
    """An answer's drafts: those compared with the mixture's tokens, those that were right, or why there are none."""

    num_judged: int
    num_accepted: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a generation: `reason` is `stop` (end of document), `length` or `phrase` (a stop phrase)."""

    reason: str
    num_prompt_tokens: int
    num_tokens: int
    text: str = ""  # held-back text that no later token completed
    drafting: Drafting | None = field(default=None, compare=False)  # with speculation


Event = Progress | Step | Evaluated | Saving | Saved | TrainingFinished | Note | Requirements | ParentChosen | PartOrder
Made = TypeVar("Made")


def forward_progress(
    events: Iterator[Progress | Made], total: float | None = None, phase: str = ""
) -> Generator[Progress, None, Made]:
    """Yields the progress, with `total` if it has none, as of a phase if one is given; returns the last item."""
    for event in events:
        if not isinstance(event, Progress):
            return event
        event = event if event.total is not None else replace(event, total=total)
        yield replace(event, phase=phase, note=phase) if phase else event
    raise AssertionError("long work ends with what it made")
