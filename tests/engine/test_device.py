"""The device of a process."""

from __future__ import annotations

import pytest
import torch

from engine.device import choose_device


@pytest.mark.parametrize(
    ("has_cuda", "has_mps", "name"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_is_the_first_device_that_is_available(
    monkeypatch: pytest.MonkeyPatch, has_cuda: bool, has_mps: bool, name: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
    tried: list[torch.device] = []
    monkeypatch.setattr(torch, "empty", lambda *_, device: tried.append(device))
    assert choose_device("auto") == torch.device(name) == tried[0]
