"""DEMix layers in every k-th layer alone, the others shared (DEMix §3.2, "interleaved")."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.config import DemixConfig, ModelConfig
from engine.errors import EngineError, ModelError
from engine.files import EXPERT_CARD, write_manifest
from engine.loading.loaded_base import load_base
from engine.methods.moe.checkpoint import as_moe
from engine.methods.registry import get_method
from engine.methods.rows import BASE_CARD
from engine.models.families import fresh_model
from engine.models.flops import Shape
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.test_demix_files import save

SHAPE = ModelConfig("llama", num_layers=4, width=32, num_heads=2, ffn_width=64, max_positions=64)
IDS = torch.randint(0, 300, (2, 12), generator=torch.Generator().manual_seed(1))
DEMIX = get_method("demix")


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    fresh_model(SHAPE, 300, seed=7).save_pretrained(tmp_path / "seed")
    write_manifest(tmp_path / "seed")
    return tmp_path / "seed"


def built(seed: Path, every: int) -> Any:
    return DEMIX.build(seed, ["law", "sea"], DemixConfig(expert_every=every)).eval()  # type: ignore[attr-defined]


def disturb(model: MultiExpertModel) -> None:
    """Gives the experts networks that differ plainly."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for key in model.keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)


def layers_of(names: Any) -> set[int]:
    return {int(name.split("layers.")[1].split(".")[0]) for name in names if ".mlp." in name}


@pytest.mark.parametrize(("every", "own"), [(1, {0, 1, 2, 3}), (2, {1, 3}), (3, {2}), (4, {3})])
def test_experts_are_in_every_kth_layer_and_the_other_networks_are_shared(
    seed: Path, every: int, own: set[int]
) -> None:
    model = built(seed, every)
    assert layers_of(model.expert_parameters("law")) == own
    assert layers_of(model.shared_parameters()) == {0, 1, 2, 3} - own
    one_network = 3 * 32 * 64
    assert sum(one.numel() for one in model.expert_parameters("law").values()) == len(own) * one_network


@torch.no_grad()
def test_experts_that_are_alike_are_the_dense_model_to_the_last_bit(seed: Path) -> None:
    dense = fresh_model(SHAPE, 300, seed=7).eval()(input_ids=IDS).logits
    assert torch.equal(built(seed, 2)(IDS, Rows.all_to("sea", 2)), dense)
    assert torch.equal(built(seed, 2)(IDS, Rows(("law", "sea"), (1, 1))), dense)


def test_the_default_writes_the_files_of_before_and_another_choice_is_in_both_cards(seed: Path, tmp_path: Path) -> None:
    for every, more in ((1, {}), (2, {"expert_every": 2})):
        base, experts = save(built(seed, every), tmp_path / str(every))
        assert json.loads((base.folder / BASE_CARD).read_text()) == {"experts_in": "ffn"} | more
        card = json.loads((experts["law"].folder / EXPERT_CARD).read_text())
        assert {name: card[name] for name in card if name not in ("base_sha256", "tokenizer_sha256", "method")} == {
            "experts_in": "ffn"
        } | more


def test_experts_with_other_layers_do_not_come_onto_one_base(seed: Path, tmp_path: Path) -> None:
    base, experts = save(built(seed, 2), tmp_path / "two")
    _, others = save(built(seed, 4), tmp_path / "four")
    with pytest.raises(ModelError, match=r"trained on another base\. Mix experts of the same base"):
        load_base(base, {"law": experts["law"], "sea": others["sea"]})


@pytest.mark.parametrize("wrong", [0, "2", True, 2.0])
def test_a_card_that_says_it_wrongly_is_refused(seed: Path, wrong: Any) -> None:
    with pytest.raises(ModelError, match="expert_every as"):
        built(seed, 2).placement.of_card({"experts_in": "ffn", "expert_every": wrong})


def test_fewer_layers_than_that_and_layers_that_are_no_number_are_refused(seed: Path) -> None:
    with pytest.raises(ModelError, match="expert_every is 5, but the model has 4 layers"):
        built(seed, 5)
    with pytest.raises(EngineError, match="expert_every"):
        DemixConfig(expert_every=0)


class Mean(nn.Module):
    """The mean of what two networks give."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.both = nn.ModuleList([first, second])

    def forward(self, x: Tensor) -> Tensor:
        return (self.both[0](x) + self.both[1](x)) / 2


@torch.no_grad()
def test_as_one_mixture_of_experts_it_adds_only_the_networks_of_its_layers(seed: Path, tmp_path: Path) -> None:
    model = built(seed, 2)
    disturb(model)
    base, experts = save(model, tmp_path / "made")
    loaders = {key: lambda kept=kept: DEMIX.load_full_model(base, kept) for key, kept in experts.items()}  # type: ignore[misc]
    *_, moe = as_moe(loaders, {"law": 1.0, "sea": 1.0})
    expected, sea = loaders["law"]().eval(), loaders["sea"]()
    for number in (1, 3):
        own = expected.model.layers[number]
        own.mlp = Mean(copy.deepcopy(own.mlp), sea.model.layers[number].mlp)
    torch.testing.assert_close(moe(input_ids=IDS).logits, expected(input_ids=IDS).logits, atol=1e-5, rtol=1e-4)


def test_training_only_experts_costs_less_where_fewer_layers_learn(seed: Path) -> None:
    shape = Shape.of(json.loads((seed / "config.json").read_text()))
    dense, half = (built(seed, every).training_flops(16, experts_only=True) for every in (1, 2))
    assert dense - half == shape.through_layer(16) + 2 * shape.ffn  # one layer less to go back, two that do not learn
