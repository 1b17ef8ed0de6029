"""The forecast of a training: what it will take of this machine, and its first batch, both from a probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from workbench.answers.base import Answer

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer


class BatchToken(Answer):
    """A token as the model reads it."""

    text: str = Field(description="Its text; empty where a character also needs the next token.")
    in_loss: bool = Field(description="Whether it is predicted and counts in the loss.")


class BatchRow(Answer):
    """One sequence of the first batch."""

    domain: str = Field(description="The domain that it is from.")
    num_tokens: int = Field(description="All its tokens.")
    num_in_loss: int = Field(description="Those of them that count in the loss.")
    num_before: int = Field(0, description="Its tokens before those listed: answers may come late.")
    tokens: list[BatchToken] = Field(description="Its first tokens, or those around the first that counts.")

    @classmethod
    def of(cls, domain: str, ids: Sequence[int], counted: Sequence[bool], tokenizer: Tokenizer, most: int) -> BatchRow:
        """A sequence; at most so many of its tokens are listed."""
        first = counted.index(True) if True in counted else 0
        start = 0 if first < most else first - most // 4
        stream = tokenizer.stream(ids[:start])
        listed = zip(ids[start : start + most], counted[start : start + most], strict=True)
        tokens = [
            BatchToken(text=tokenizer.written(id) if id in tokenizer.special_ids else stream.push(id), in_loss=is_in)
            for id, is_in in listed
        ]
        return cls(domain=domain, num_tokens=len(ids), num_in_loss=sum(counted), num_before=start, tokens=tokens)


class MemoryParts(Answer):
    """The memory of a job at its peak, in bytes: of its processes, or of a GPU, but for `process`."""

    process: int = Field(description="Python and its libraries, before anything is loaded.")
    weights: int = Field(description="All weights, those that stay as they are included.")
    gradients: int = Field(description="A gradient of each trained weight.")
    optimizer: int = Field(description="What the optimizer keeps of each trained weight.")
    rest: int = Field(description="Activations, libraries that are loaded later, working copies of files.")


class TimeParts(Answer):
    """Seconds of the full training, by what is done."""

    start: float = Field(description="Until the first update: libraries, text to tokens, loading, choosing a parent.")
    steps: float = Field(description="All updates.")
    evaluations: float = Field(description="All evaluations.")
    checkpoints: float = Field(description="All checkpoints.")
    end: float = Field(description="Storing the result.")


class UpdateTime(Answer):
    """The time of one update."""

    seconds: float = Field(description="The mean.")
    num_measured: int = Field(description="Updates that were measured, without the first unless it is the only one.")
    low: float | None = Field(None, description="95% interval of the mean, by Student's t; None for fewer than 3.")
    high: float | None = Field(None, description="Its upper end.")


class Measured(Answer):
    """What the probe measured, in bytes and seconds of the full job."""

    num_processes: int = Field(1, description="Processes that train together; the one with the most was measured.")
    num_trained: int = Field(description="Trainable parameters, of several processes those of one.")
    memory: MemoryParts
    is_undivided: bool = Field(
        False, description="Whether the whole model was measured; each process holds a part of it and takes less."
    )
    peak_bytes: int = Field(
        description="Peak of resident memory, of all processes on this machine together; on a GPU, that of the "
        "processes next to it."
    )
    model_bytes: int = Field(0, description="Weights of the finished model.")
    num_on_node: int = Field(
        0, description="Processes on each other machine, at most; 0 where all processes run on this one."
    )
    node_bytes: int = Field(0, description="Memory that each other machine needs for them; what it has is not known.")
    gpu_peak_bytes: int = Field(0, description="Peak of a GPU's memory, as torch reserves it; 0 without a GPU.")
    gpu_free_bytes: int = Field(0, description="Memory of the GPU that was free before; 0 without a GPU.")
    gpu_share_bytes: int = Field(
        0, description="The most that the job may reserve of the GPU, by its share; 0 without a share."
    )
    artifact_bytes: int = Field(
        description="Disk of what stays: weights, and tokens that no job has made; of several processes at most this."
    )
    checkpoint_bytes: int = Field(description="Disk of checkpoints, as long as it trains.")
    time: TimeParts
    update: UpdateTime | None = Field(None, description="Of the probe's batches.")
    not_measured: list[str] = Field(
        default_factory=list,
        description="What the probe had not come to when it was ended; time and disk are then lower bounds.",
    )
    tokens_per_second: float = Field(description="Of updates; 0 where nothing is trained.")
    num_tokens: int = Field(description="Tokens of all updates.")
    num_flops: float = Field(description="Floating-point operations of all updates.")
    first_batch: list[BatchRow] = Field(description="Empty where nothing is trained.")

    @property
    def seconds(self) -> float:
        """Seconds of the full job."""
        return float(sum(self.time.model_dump().values()))

    @property
    def disk_bytes(self) -> int:
        """Disk at its most: while it trains, before the checkpoints go."""
        return self.artifact_bytes + self.checkpoint_bytes


class Forecast(Answer):
    """What a job will take of this machine, measured on its first updates; nothing of the probe was registered."""

    kind: str = Field(description="The kind of job.")
    title: str = Field(description="What it makes.")
    measured: Measured | None = Field(
        description="None: the probe did not come to its first update; `problem` says why."
    )
    problem: str = Field("", description="Why not all was measured, or does not fit; empty otherwise.")
    next_step: str = Field("", description="What to do about the problem.")
    fits: bool | None = Field(
        description="Whether it fits into memory and disk; None where that is not known, as of other machines."
    )
    memory_free_bytes: int = Field(description="Memory that was available.")
    disk_free_bytes: int = Field(description="Disk that was free.")
    nearest: dict[str, int | bool] = Field(
        default_factory=dict, description="The smallest change of options that makes it fit; empty where none is known."
    )
    probe_seconds: float = Field(description="How long all probes took.")
    command: str = Field("", description="The command line of exactly this job; empty where its kind has none.")
    request: str = Field("", description="The same job as an HTTP call, by curl.")
