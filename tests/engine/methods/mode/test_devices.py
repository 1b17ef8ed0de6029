"""Experts on a device of their own, in one process: the same numbers, computed there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.config import TrainingConfig
from engine.methods.mode.model import ModeModel
from engine.training.optimizer import GradientGroup, clip_and_step
from tests.engine.methods.mode.backbones import FAMILIES, mode_model, some_ids, with_common_kernels
from tests.engine.methods.mode.elsewhere import DEVICE, SecondDevice, There

KEYS, CLIP = ["law", "code"], 0.1


def pass_of(model: ModeModel) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits of padded text, and the gradients of all experts."""
    with_common_kernels(model.lm)
    mask = (torch.arange(12) >= torch.tensor([0, 5, 9])[:, None]).long()
    logits, _ = model(some_ids(), KEYS, None, mask)
    (logits.logsumexp(-1) * mask).mean().backward()
    named = {name: parameter.grad for key in KEYS for name, parameter in model.expert_parameters(key).items()}
    return logits.detach(), {name: grad for name, grad in named.items() if grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_expert_on_a_device_of_its_own_says_and_learns_the_same(family: str) -> None:
    here, there = mode_model(KEYS, family), mode_model(KEYS, family)
    expected, gradients = pass_of(here)
    with SecondDevice():
        there.place_expert("code", DEVICE)
        logits, result = pass_of(there)
    assert type(logits) is Tensor
    torch.testing.assert_close(logits, expected, atol=1e-6, rtol=1e-6)
    assert result.keys() == gradients.keys()
    for name, gradient in result.items():
        assert isinstance(gradient, There) == name.startswith("code:")
        content = gradient.inner if isinstance(gradient, There) else gradient
        torch.testing.assert_close(content, gradients[name], atol=1e-7, rtol=1e-4)


def test_an_update_is_clipped_over_all_devices() -> None:
    here, there, before = (mode_model(KEYS) for _ in range(3))
    update(here)
    with SecondDevice():
        there.place_expert("code", DEVICE)
        update(there)
    moved = 0.0
    for key in KEYS:
        for name, tensor in there.expert_state(key).items():
            content = tensor.inner if isinstance(tensor, There) else tensor
            torch.testing.assert_close(content, here.expert_state(key)[name], atol=1e-6, rtol=0)
            moved += float((content - before.expert_state(key)[name]).square().sum())
    assert moved == pytest.approx(CLIP**2, rel=1e-3)


def update(model: ModeModel) -> None:
    """One step of plain descent at the rate 1, so that it is as long as the clip."""
    pass_of(model)
    parameters = [parameter for key in KEYS for parameter in model.expert_parameters(key).values()]
    config = TrainingConfig(num_steps=1, learning_rate=1.0, warmup=0, clip=CLIP)
    clip_and_step(torch.optim.SGD(parameters, foreach=False), [GradientGroup(parameters)], 0, config)
