"""Scores by shared caches are those of plain forward passes, for every option, prompt and expert."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.analysis.fewshot.prompts import Prompt
from engine.analysis.fewshot.scoring import score_options
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows

OPTIONS = ((5, 9, 200), (5,), (17, 4))


def prompt(*ids: int, num_shots: int = 2) -> Prompt:
    return Prompt(ids, 0, num_shots, is_cut=False)


PROMPTS = (prompt(0, 7, 8, 9, 21), prompt(0, 7, 8, 30), prompt(0, 40, num_shots=0), prompt(0, 7, 8, 9, 21, 22, 23))


def scored(model: MultiExpertModel, key: str, prompts: Sequence[Prompt] = PROMPTS) -> Tensor:
    *_, scores_NOT = score_options(model, key, prompts, OPTIONS)
    assert isinstance(scores_NOT, Tensor)
    return scores_NOT


@torch.no_grad()
def plain(model: MultiExpertModel, key: str, ids: Sequence[int], option: Sequence[int]) -> list[float]:
    """Log-likelihoods of an option's tokens by one forward pass over the whole text."""
    text = torch.tensor([[*ids, *option]])
    logprobs_TV = model(text, Rows.all_to(key, 1))[0].log_softmax(-1)
    return [float(logprobs_TV[len(ids) - 1 + place, token]) for place, token in enumerate(option)]


def test_shared_caches_change_nothing(model: MultiExpertModel) -> None:  # L18
    for key in model.keys[:2]:
        scores_NOT = scored(model, key)
        for row, one in zip(scores_NOT, PROMPTS, strict=True):
            for result, option in zip(row.tolist(), OPTIONS, strict=True):
                expected = plain(model, key, one.ids, option)
                assert result == pytest.approx([*expected, *[0.0] * (3 - len(option))], abs=1e-5)


def test_experts_differ(model: MultiExpertModel) -> None:
    assert not torch.allclose(scored(model, model.keys[0]), scored(model, model.keys[1]), atol=1e-3)


def test_the_company_of_a_prompt_changes_nothing(model: MultiExpertModel) -> None:  # L9
    together = scored(model, model.keys[0])
    for row, one in zip(together, PROMPTS, strict=True):
        assert torch.allclose(scored(model, model.keys[0], [one])[0], row, atol=1e-5)
