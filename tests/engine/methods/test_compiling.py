"""Compiled layers and losses train as the others do, and a compiler that is missing is named."""

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
from engine.inference.shared_passes import SharedPasses
from engine.methods.multi_expert_files import new_placement
from engine.methods.registry import get_method
from engine.models import compiled
from engine.models.compiled import compiled_layers, compiling_failed
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.training.loop import train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.compile warns
CONFIG = TrainingConfig(num_steps=4, block_size=16, learning_rate=0.01, checkpoint_every=2, evaluate_every=2, seed=1)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    compiled._compile_cross_entropy.cache_clear()
    yield
    compiled._compile_cross_entropy.cache_clear()


def losses(name: str, make_texts: Any, folder: Path, **changes: Any) -> list[float]:
    """The losses of a training of one expert, or two."""
    seed, method = folder / "seed", get_method(name)
    shape = ModelConfig(num_layers=3, width=32, num_heads=2, ffn_width=64, max_positions=64)
    fresh_model(shape, 300, seed=7).save_pretrained(seed)
    keys = ["law"] if name in ("dense", "mode") else ["law", "code"]
    model, learns = method.build(seed, keys), keys if method.base_is_frozen else None
    events = train(model, make_texts(keys), replace(CONFIG, **changes), folder / str(changes), only_experts=learns)
    return [event.loss for event in events if isinstance(event, Step)]


@pytest.mark.parametrize("name", ["demix", "lora", "moe", "mode", "dense"])
def test_a_compiled_training_is_nearly_the_same(
    name: str, make_texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_BACKEND", "aot_eager")  # all but the C++ compiler
    """The graphs are those of the loss and of a layer, and for LoRA of a first layer, whose input needs no gradient."""
    expected = losses(name, make_texts, tmp_path)
    assert not counters["stats"]
    assert losses(name, make_texts, tmp_path, compile=True) == pytest.approx(expected, rel=1e-4)
    assert not counters["graph_break"]
    num_graphs = {"demix": 2, "lora": 3, "dense": 2, "moe": 1, "mode": 1}[name]
    assert counters["stats"]["unique_graphs"] == num_graphs


def test_a_process_in_which_streams_share_passes_compiles_layers_without_breaks(
    make_texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_BACKEND", "aot_eager")
    SharedPasses()  # replaces the attention of transformers
    losses("demix", make_texts, tmp_path, compile=True)
    assert not counters["graph_break"]


def test_held_out_text_of_other_rows_runs_layers_that_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_BACKEND", "aot_eager")
    shape = ModelConfig(num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)
    model = MultiExpertModel(fresh_model(shape, 300), ["law", "code"], new_placement())
    with torch.no_grad():
        for parameter in model.expert_parameters("code").values():
            parameter.normal_()
    ids_BT, both = torch.arange(1, 65).view(4, 16), Rows(("law", "code"), (2, 2))
    others = [Rows(("law", "code"), (1, 3)), Rows(("code", "law"), (2, 2)), Rows.all_to("code", 4)]
    expected = [model(ids_BT, rows) for rows in others]
    with compiled_layers(model.lm, both):
        model(ids_BT, both)
        assert counters["stats"]["unique_graphs"] == 1
        for rows, logits_BTV in zip(others, expected, strict=True):
            assert torch.equal(model(ids_BT, rows), logits_BTV)
            with torch.no_grad():
                assert torch.equal(model(ids_BT, rows), logits_BTV)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.long
@pytest.mark.slow
def test_a_loss_compiled_by_the_usual_backend_is_nearly_the_same(make_texts: Any, tmp_path: Path) -> None:
    expected = losses("demix", make_texts, tmp_path)
    assert losses("demix", make_texts, tmp_path, compile=True) == pytest.approx(expected, rel=1e-4)


def test_a_compiler_that_is_missing_is_named(make_texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compiled, "_BACKEND", failing)
    with pytest.raises(ModelError, match=r"torch\.compile failed: .*no compiler") as error:
        losses("dense", make_texts, tmp_path, compile=True)
    assert "Install a C++ compiler" in error.value.next_step
    assert compiling_failed(ValueError("something else")) is None
