"""Draws one token for all rows of a group, from the sum of what their experts predict.

A step of vLLM gives the logits of every scheduled row, also of rows whose prompt is not read to its end, whose tokens
vLLM then drops. So a draw counts only once its token stands in the row's output: until then it is made again, from the
same noise. That also holds after a preemption.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.logger import init_logger
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from engine.config import SamplingConfig
from engine.inference.sampling import make_generator, only_tokens, sample_token
from engine.mixing.base import Stream, mix
from engine.mixing.gate_type import GateConfig, build_gate, gate_type
from vllm_mixtures.rows import MixtureSpec, Row, row_of

logger = init_logger("vllm.expert_workbench")
MOST_IDLE = 1024  # groups without a row in the batch, ended or preempted, whose state is kept


@dataclass(frozen=True)
class _Draw:
    """A token that was drawn for a position of the answer, and what counts once it stands in the output."""

    position: int
    token: int
    logprobs_E: Tensor
    noise: torch.Generator  # after the draw


class Group:
    """A mixture on one growing text."""

    def __init__(self, spec: MixtureSpec, prompt_ids: Sequence[int]) -> None:
        self._sampling = SamplingConfig(**_sampling(spec))
        self._unused = [int(row) for row in spec.unused]
        self._ids = list(prompt_ids)
        self._num_prompt = len(prompt_ids)
        self._stream = _stream_after(spec, prompt_ids)
        self._noise = make_generator(self._sampling.seed)
        self._draw: _Draw | None = None

    def draw(self, logits_EV: Tensor, output_ids: Sequence[int]) -> int | None:
        """The next token behind this output; None where the output is not this group's own."""
        self._count(output_ids)
        position = len(output_ids)
        if len(self._ids) != self._num_prompt + position:
            return None
        logprobs_EV = logits_EV.float().log_softmax(-1)
        unused = [row for row in self._unused if 0 <= row < logits_EV.shape[-1]]
        possible_V = only_tokens(mix(self._stream.log_weights(), logprobs_EV), unused)
        noise = self._noise.clone_state()
        token = sample_token(possible_V, self._sampling, noise, self._ids, self._num_prompt)
        self._draw = _Draw(position, token, logprobs_EV[:, token].cpu(), noise)
        return token

    def _count(self, output_ids: Sequence[int]) -> None:
        """Takes the last draw as evidence, if vLLM took its token."""
        last = self._draw
        if last is None or len(output_ids) != last.position + 1 or output_ids[-1] != last.token:
            return
        self._stream.observe(last.logprobs_E, last.token)
        self._ids.append(last.token)
        self._noise, self._draw = last.noise, None


def _sampling(spec: MixtureSpec) -> dict[str, Any]:
    known = dict(spec.sampling)
    if bias := known.get("logit_bias"):
        known["logit_bias"] = {int(token): value for token, value in bias.items()}  # JSON has only text as keys
    return known


def _gate_config(spec: MixtureSpec) -> GateConfig:
    kind = gate_type(str(spec.gate.get("kind")))
    if kind.needs_clustering:
        raise ValueError(f"The gate “{kind.name}” needs a clustering, which is not here.")
    return kind.config(**spec.gate)


def _stream_after(spec: MixtureSpec, prompt_ids: Sequence[int]) -> Stream:
    """The gate after the prompt, as `engine.inference.mixing` reads it."""
    stream = build_gate(_gate_config(spec), spec.prior).start()
    stream.begin(prompt_ids[0])
    for position, (token, logprobs) in enumerate(zip(prompt_ids[1:], spec.observed, strict=False), 1):
        if position >= spec.evidence_from:
            stream.observe(torch.tensor(logprobs, dtype=torch.float32), token)
    return stream


@dataclass(frozen=True)
class _RowInBatch:
    row: Row
    output_ids: list[int]  # vLLM's own list, which grows


class MixtureProcessor(LogitsProcessor):
    """vLLM's side of all groups."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raises ValueError for a request that names a group and cannot be a row of one."""
        row = row_of(sampling_params)
        if row is None:
            return
        if sampling_params.n != 1:
            raise ValueError("A row of a group has one answer (n = 1).")
        if row.spec is not None:
            try:
                build_gate(_gate_config(row.spec), row.spec.prior)
                SamplingConfig(**_sampling(row.spec))
            except Exception as error:  # each is a sentence for the client
                raise ValueError(f"The mixture cannot be made: {error}") from None

    def __init__(self, *_: Any) -> None:
        """vLLM gives its configuration and its device, which no group needs."""
        self._rows: dict[int, _RowInBatch] = {}  # by the index in the batch
        self._groups: OrderedDict[str, Group] = OrderedDict()  # the newest last

    def is_argmax_invariant(self) -> bool:
        """A mixture's most probable token is not that of an expert."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follows the rows through the batch."""
        if not process_dict_updates(self._rows, batch_update, self._enter):
            return
        present = {entry.row.group for entry in self._rows.values()}
        idle = [name for name in self._groups if name not in present]
        for name in idle[: max(0, len(idle) - MOST_IDLE)]:
            del self._groups[name]

    def _enter(self, params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]) -> _RowInBatch | None:
        row = row_of(params)
        if row is None:
            return None
        if row.spec is not None and row.group not in self._groups:
            try:
                self._groups[row.group] = Group(row.spec, prompt_ids or [])
            except Exception:  # of this group only: the others go on
                logger.exception("The group %s cannot be mixed.", row.group)
        return _RowInBatch(row, output_ids)

    def apply(self, logits: Tensor) -> Tensor:
        """Leaves each group one token. Rows without their group get one each, by which the client sees it."""
        by_group: dict[str, dict[int, int]] = {}
        for index, entry in self._rows.items():
            by_group.setdefault(entry.row.group, {}).setdefault(entry.row.number, index)
        for name, places in by_group.items():
            first = next(iter(places.values()))
            indices = [places.get(number) for number in range(self._rows[first].row.num_rows)]
            try:
                token = self._draw(name, logits, indices)
            except Exception:  # of this group only
                logger.exception("The group %s cannot be mixed.", name)
                token = None
            for number, index in places.items():
                logits[index] = -torch.inf
                logits[index, number % logits.shape[-1] if token is None else token] = 0.0
        return logits

    def _draw(self, name: str, logits: Tensor, indices: Sequence[int | None]) -> int | None:
        known = [index for index in indices if index is not None]
        if len(known) < len(indices) or name not in self._groups:
            return None
        outputs = [self._rows[index].output_ids for index in known]
        if any(output != outputs[0] for output in outputs[1:]):
            return None
        return self._groups[name].draw(logits[known], outputs[0])
