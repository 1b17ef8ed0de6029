"""Scores every option after every prompt under one expert; routings are arithmetic on these scores.

Prompts with the same demonstrations share the key-value cache of their common prefix, which is copied for each. The
options of a prompt are rows of one batch on its cache.
Shapes: N prompts, O options, T tokens of an option, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from engine.analysis.fewshot.prompts import Ids, Prompt
from engine.events import Progress
from engine.models.expert_model import ExpertModel
from engine.models.rows import Rows


def score_options(
    model: ExpertModel, key: str, prompts: Sequence[Prompt], options: Sequence[Ids]
) -> Iterator[Progress | Tensor]:
    """Yields progress, then one expert's log-likelihood [N, O, T] of each option token (nats; 0 after its end)."""
    scores_NOT = torch.zeros(len(prompts), len(options), max(map(len, options)))
    reader = _PromptReader(model, key, options)
    done = 0
    order = sorted(range(len(prompts)), key=lambda index: prompts[index].num_shots)
    for _, group in groupby(order, key=lambda index: prompts[index].num_shots):
        indices = list(group)
        prefix = _common_prefix([prompts[index].ids for index in indices])
        cache = reader.read_prefix(prefix)
        for index in indices:
            scores_NOT[index] = reader.score(cache, prompts[index].ids[len(prefix) :])
            done += 1
            yield Progress(done, len(prompts), "prompts")
    yield scores_NOT


def _common_prefix(texts: Sequence[Ids]) -> Ids:
    """The common prefix of all texts, at least one token shorter than each."""
    first, last = min(texts), max(texts)  # lexicographic extremes: their common prefix is that of all
    most = min(map(len, texts)) - 1
    length = next((place for place in range(most) if first[place] != last[place]), most)
    return first[:length]


class _PromptReader:
    """One expert reading prompts and options."""

    def __init__(self, model: ExpertModel, key: str, options: Sequence[Ids]) -> None:
        self._model, self._key = model, key
        self._lengths_O = torch.tensor([len(option) for option in options])
        rows = [torch.tensor(option) for option in options]
        self._options_OT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    @torch.inference_mode()
    def read_prefix(self, prefix: Ids) -> Any:
        """The cache after a common prefix."""
        cache = self._model.new_cache()
        if prefix:
            self._read(torch.tensor([prefix]), cache)
        return cache

    @torch.inference_mode()
    def score(self, prefix: Any, rest: Ids) -> Tensor:
        """Log-likelihoods [O, T] of the options after a prompt; the prefix's cache is not changed."""
        cache = copy.deepcopy(prefix)
        first_V = self._read(torch.tensor([rest]), cache)[0, -1]
        num_options, num_tokens = self._options_OT.shape
        logprobs = first_V[self._options_OT[:, :1]]
        if num_tokens > 1:
            cache.batch_repeat_interleave(num_options)
            following_OTV = self._read(self._options_OT[:, :-1], cache)
            following_OT = following_OTV.gather(-1, self._options_OT[:, 1:, None])[..., 0]
            logprobs = torch.cat([logprobs, following_OT], 1)
        is_token_OT = torch.arange(num_tokens) < self._lengths_O[:, None]
        return torch.where(is_token_OT, logprobs, 0.0)

    def _read(self, ids: Tensor, cache: Any) -> Tensor:
        """Log-probabilities [rows, positions, V] of the next tokens, on the CPU."""
        rows = Rows.all_to(self._key, len(ids))
        logits: Tensor = self._model(ids.to(self._model.device), rows, cache)
        return logits.float().log_softmax(-1).cpu()
