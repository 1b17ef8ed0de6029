"""Samples of text that a model writes while it is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import AdaptingConfig, SamplingConfig
from engine.events import TextSample
from engine.inference.sampling import make_generator, only_tokens, sample_token
from engine.models.expert_model import TrainableModel
from engine.models.rows import Rows
from engine.text.tokenizer import Tokenizer
from engine.training.data import DomainText, by_expert

MOST_ROWS = 8  # samples of one evaluation
MOST_EVALUATIONS = 40  # with samples; of more evaluations every n-th has some
PROMPT_TOKENS = 16
_SAMPLING = SamplingConfig(temperature=0.7, top_p=0.95)


class TextSampler:
    """Writes the samples of one training: one for each domain, by the expert that learns it.

    Each continues the same held-out words at every evaluation. They change nothing of the training: the random
    generator is their own, and no gradient is computed.
    """

    def __init__(
        self, model: TrainableModel, tokenizer: Tokenizer, texts: Sequence[DomainText], config: AdaptingConfig
    ) -> None:
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._texts = by_expert(texts[:MOST_ROWS])
        counts = Counter(text.expert for text in self._texts)
        self._rows = Rows(tuple(counts), tuple(counts.values()))
        self._num_prompt = min(PROMPT_TOKENS, config.block_size // 2)
        self._num_tokens = min(config.sample_tokens, config.block_size - self._num_prompt)
        starts = [text.dev.block(0, config.block_size)[0][: self._num_prompt].tolist() for text in self._texts]
        self._prompts_BT = torch.tensor(starts, dtype=torch.long)

    def is_due(self, step: int) -> bool:
        """Whether the evaluation after this step has samples; the last one always does."""
        config = self._config
        every = -(-(config.max_steps // config.evaluate_every) // MOST_EVALUATIONS) or 1
        return step == config.max_steps or step % (every * config.evaluate_every) == 0

    @torch.no_grad()
    def __call__(self, step: int) -> tuple[TextSample, ...]:
        """The samples after this step, in the order of experts; none where they are not due."""
        if not self._num_tokens or not self.is_due(step):
            return ()
        generator = make_generator(self._config.seed)
        ids_BT = self._prompts_BT
        for _ in range(self._num_tokens):
            ids_BT = torch.cat([ids_BT, self._next(ids_BT, generator)], dim=1)
        return tuple(self._sample(text, ids) for text, ids in zip(self._texts, ids_BT.tolist(), strict=True))

    def _next(self, ids_BT: Tensor, generator: torch.Generator) -> Tensor:
        """The next token [B, 1] of every row."""
        logits_BV = self._model(ids_BT.to(self._model.device), self._rows)[:, -1, : self._tokenizer.vocab_size]
        unused_rows = self._tokenizer.unused_rows(logits_BV.shape[-1])
        logprobs_BV = only_tokens(logits_BV.float().log_softmax(-1).cpu(), unused_rows)
        return torch.tensor([[sample_token(logprobs_V, _SAMPLING, generator)] for logprobs_V in logprobs_BV])

    def _sample(self, text: DomainText, ids: Sequence[int]) -> TextSample:
        prompt, rest = ids[: self._num_prompt], ids[self._num_prompt :]
        end = next((place for place, id in enumerate(rest) if id in self._tokenizer.stop_ids), len(rest))
        words = self._tokenizer.decode(prompt)
        return TextSample(text.name, words, self._tokenizer.decode(ids[: self._num_prompt + end])[len(words) :])
