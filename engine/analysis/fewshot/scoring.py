"""What one expert says of every option after every prompt, computed once; routings are arithmetic on it.

Prompts with the same demonstrations share the reading of what they have in common: the key-value cache of that part is
copied for each. The options of a prompt are then rows of one batch on its cache.
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
    """Progress, then one expert's log-likelihood [N, O, T] of each token of each option (nats; 0 behind its end)."""
    scores_NOT = torch.zeros(len(prompts), len(options), max(map(len, options)))
    reader = _Reader(model, key, options)
    done = 0
    order = sorted(range(len(prompts)), key=lambda place: prompts[place].num_shots)
    for _, group in groupby(order, key=lambda place: prompts[place].num_shots):
        places = list(group)
        stem = _common_beginning([prompts[place].ids for place in places])
        cache = reader.read_stem(stem)
        for place in places:
            scores_NOT[place] = reader.score(cache, prompts[place].ids[len(stem) :])
            done += 1
            yield Progress(done, len(prompts), "prompts")
    yield scores_NOT


def _common_beginning(texts: Sequence[Ids]) -> Ids:
    """What all texts begin with, a token of each left over to be read."""
    first, last = min(texts), max(texts)  # in the order of a dictionary these two differ first
    most = min(map(len, texts)) - 1
    length = next((place for place in range(most) if first[place] != last[place]), most)
    return first[:length]


class _Reader:
    """One expert reading prompts and options."""

    def __init__(self, model: ExpertModel, key: str, options: Sequence[Ids]) -> None:
        self._model, self._key = model, key
        self._lengths_O = torch.tensor([len(option) for option in options])
        rows = [torch.tensor(option) for option in options]
        self._options_OT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    @torch.inference_mode()
    def read_stem(self, stem: Ids) -> Any:
        """The cache after what many prompts begin with."""
        cache = self._model.new_cache()
        if stem:
            self._read(torch.tensor([stem]), cache)
        return cache

    @torch.inference_mode()
    def score(self, stem: Any, rest: Ids) -> Tensor:
        """Log-likelihoods [O, T] of the options after a prompt; the stem's cache stays as it was."""
        cache = copy.deepcopy(stem)
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
        """Log-probabilities [rows, positions, V] of what follows each token, on the processor."""
        rows = Rows.all_to(self._key, len(ids))
        logits: Tensor = self._model(ids.to(self._model.device), rows, cache)
        return logits.float().log_softmax(-1).cpu()
