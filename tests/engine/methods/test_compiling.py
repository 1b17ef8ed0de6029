"""Compiled layers train as others do, share one compilation, and leave the model as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from engine.config import ModelConfig, TrainingConfig
from engine.errors import ModelError
from engine.events import Step
from engine.methods.registry import get_method
from engine.models import compiled as compiled_module
from engine.models.compiled import compiled, compiling_failed
from engine.models.families import fresh_model
from engine.training.loop import train

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch.compile takes seconds, and warns
CONFIG = TrainingConfig(num_steps=4, block_size=16, learning_rate=0.01, checkpoint_every=2, evaluate_every=2, seed=1)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the C++ compiler."""
    monkeypatch.setattr(compiled_module, "_BACKEND", "aot_eager")
    monkeypatch.setattr(
        compiled_module,
        "_compiled_cross_entropy",
        lambda: torch.compile(compiled_module._cross_entropy, dynamic=True, backend="aot_eager"),
    )


def losses(name: str, family: Any, make_texts: Any, folder: Path, **changes: Any) -> list[float]:
    """The losses of a training of two experts."""
    seed, method = folder / "seed", get_method(name)
    shape = ModelConfig(family=family, num_layers=12, width=32, num_heads=2, ffn_width=64, max_positions=64)
    fresh_model(shape, 300, seed=7).save_pretrained(seed)
    keys = ["law"] if name in ("dense", "mode") else ["law", "code"]
    model, learns = method.build(seed, keys), keys if method.base_is_frozen else None
    events = train(model, make_texts(keys), replace(CONFIG, **changes), folder / str(changes), only_experts=learns)
    found = [event.loss for event in events if isinstance(event, Step)]
    assert all(getattr(one, "_compiled_call_impl", None) is None for one in model.lm.modules())
    return found


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("changes", [{}, {"activation_checkpointing": True}], ids=["", "checkpointing"])
@pytest.mark.parametrize(
    ("name", "family"),
    [(name, "llama") for name in ("demix", "dense", "domain-token", "lora", "mode")] + [("demix", "gpt2")],
)
def test_a_compiled_training_has_the_losses_of_one_that_is_not(
    name: str, family: str, changes: dict[str, Any], make_texts: Any, tmp_path: Path
) -> None:
    expected = losses(name, family, make_texts, tmp_path, **changes)
    assert not counters["stats"]
    found = losses(name, family, make_texts, tmp_path, compile=True, **changes)
    assert found == pytest.approx(expected, rel=1e-4)
    assert 0 < counters["stats"]["unique_graphs"] <= 40  # not one for each of 12 layers, trained and evaluated


def test_a_training_compiled_by_the_usual_backend_has_the_same_losses(make_texts: Any, tmp_path: Path) -> None:
    expected = losses("demix", "gpt2", make_texts, tmp_path)
    assert losses("demix", "gpt2", make_texts, tmp_path, compile=True) == pytest.approx(expected, rel=1e-4)


def test_a_compiler_that_is_missing_is_named(make_texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compiled_module, "_BACKEND", failing)
    with pytest.raises(ModelError, match=r"torch\.compile failed: .*no compiler") as error:
        losses("dense", "llama", make_texts, tmp_path, compile=True)
    assert "Install a C++ compiler" in error.value.next_step
    assert compiling_failed(ValueError("something else")) is None


def test_a_family_whose_layers_are_not_marked_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot be compiled"), compiled(torch.nn.Linear(1, 1)):
        pass
