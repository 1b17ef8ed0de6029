"""Anchored experts: beside the seed's frozen networks, chosen by rows of a router; and the model that joins them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.config import TrainingConfig
from engine.errors import ModelError
from engine.events import Progress, Step
from engine.files import ArtifactRef, new_folder, verify_folder, write_manifest
from engine.methods.joint_training import start_experts
from engine.methods.moe.checkpoint import as_sparse_moe, set_routers
from engine.methods.registry import get_method
from engine.methods.ridge.router import trained_routers
from engine.models.families import load_model
from engine.models.rows import Rows
from engine.text.blocks import Tokens
from engine.training.data import DomainText
from engine.training.loop import train
from tests.engine.methods.test_moe_checkpoint import FAMILIES, IDS, VOCAB, expert, logits

METHOD = get_method("anchored")
CONFIG = TrainingConfig(num_steps=3, block_size=8, sequences_per_domain=2, learning_rate=1e-2)


@pytest.fixture
def seed(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactRef:
    expert(getattr(request, "param", "llama"), 1).save_pretrained(tmp_path / "seed")
    write_manifest(tmp_path / "seed")
    return ArtifactRef(tmp_path / "seed", verify_folder(tmp_path / "seed"))


@pytest.fixture
def texts(make_tokens: Callable[..., Tokens]) -> dict[str, DomainText]:
    """Two domains that have no token in common."""

    def tokens(key: str, number: int) -> Tokens:
        low = 2 if key == "law" else VOCAB // 2
        array = np.random.default_rng(number).integers(low, low + VOCAB // 2 - 2, 400)
        return Tokens(array.astype("<u2"), np.array([0]))

    return {key: DomainText(key, key, tokens(key, n), tokens(key, 9 + n)) for n, key in enumerate(("law", "sea"))}


def trained(seed: ArtifactRef, texts: dict[str, DomainText], keys: list[str], folder: Path) -> Any:
    """Started from their texts and trained for some updates, each update of every expert."""
    model = METHOD.build(seed.folder, keys)
    own = [texts[key] for key in keys]
    assert all(isinstance(event, Progress) for event in start_experts(model, own, CONFIG, folder))
    events = train(model, own, CONFIG, folder, only_experts=keys)
    assert sum(isinstance(event, Step) for event in events) == 3
    return model.eval()


def stored(model: Any, seed: ArtifactRef, key: str, root: Path) -> ArtifactRef:
    with new_folder(root / key) as folder:
        METHOD.save_expert(model, key, folder, base_sha256=str(seed.sha256), tokenizer_sha256="tokenizer")
    return ArtifactRef(root / key, verify_folder(root / key))


def joined(seed: ArtifactRef, experts: list[ArtifactRef], num_active: int) -> Any:
    models: dict[str, Callable[[], Any]] = {"seed": lambda: load_model(seed.folder)}
    models |= {one.folder.name: lambda one=one: METHOD.load_networks(seed, one) for one in experts}
    *_, moe = as_sparse_moe(models, num_active, of_all=True)
    set_routers(moe, trained_routers([METHOD.rows(one) for one in experts]).weights_LEH)
    return moe


@torch.no_grad()
def expert_logits(model: Any, key: str) -> Tensor:
    return model(IDS, Rows.all_to(key, len(IDS)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", FAMILIES, indirect=True)
def test_a_new_expert_is_its_seed_to_the_bit_and_training_changes_nothing_of_the_seed(
    seed: ArtifactRef, texts: dict[str, DomainText], tmp_path: Path
) -> None:
    before = load_model(seed.folder).eval()
    model = METHOD.build(seed.folder, ["law"])
    [*start_experts(model, [texts["law"]], CONFIG, tmp_path / "none")]
    assert torch.equal(expert_logits(model.eval(), "law"), logits(before))
    model = trained(seed, texts, ["law"], tmp_path / "training")
    assert not torch.allclose(expert_logits(model, "law"), logits(before), atol=1e-3)
    state = {name.replace(".shared", ""): tensor for name, tensor in model.lm.state_dict().items()}
    for name, tensor in before.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_first_rows_are_the_direction_of_the_text_less_that_of_the_seeds_own(
    seed: ArtifactRef, texts: dict[str, DomainText], tmp_path: Path
) -> None:
    both, one = METHOD.build(seed.folder, ["law", "sea"]), METHOD.build(seed.folder, ["sea"])
    [*start_experts(both, [*texts.values()], CONFIG, tmp_path)]
    [*start_experts(one, [texts["sea"]], CONFIG, tmp_path)]
    rows = dict(both.own_modules("sea"))  # type: ignore[operator]
    for place, module in one.own_modules("sea"):  # type: ignore[operator]
        sea = rows[place].row.detach()
        assert torch.equal(module.row, sea)  # whatever is trained beside it
        assert 0 < float(torch.linalg.vector_norm(sea)) < 2
    place, module = next(one.own_modules("sea"))  # type: ignore[operator]
    means = {key: _mean_input(seed, texts[key], place) for key in texts}
    row = module.row.detach()
    assert float(means["sea"] @ row) > float(means["law"] @ row)


@torch.no_grad()
def _mean_input(seed: ArtifactRef, text: DomainText, place: str) -> Tensor:
    seen: list[Tensor] = []
    lm = load_model(seed.folder).eval()
    lm.get_submodule(place).register_forward_pre_hook(lambda _, x: seen.append(x[0].flatten(0, 1)))
    lm(input_ids=torch.from_numpy(text.train.array.astype("int64")).view(-1, 8))
    return torch.cat(seen).mean(0)


@pytest.mark.parametrize("seed", FAMILIES, indirect=True)
def test_the_joined_model_of_one_expert_is_the_expert(
    seed: ArtifactRef, texts: dict[str, DomainText], tmp_path: Path
) -> None:
    model = trained(seed, texts, ["law"], tmp_path / "training")
    moe = joined(seed, [stored(model, seed, "law", tmp_path)], 2)
    assert torch.allclose(expert_logits(model, "law"), logits(moe), atol=1e-5)
    moe.save_pretrained(tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(moe), logits(again))


def test_joined_without_one_is_joined_of_the_others_to_the_bit(
    seed: ArtifactRef, texts: dict[str, DomainText], tmp_path: Path
) -> None:
    model = trained(seed, texts, ["law", "sea"], tmp_path / "training")
    law, sea = (stored(model, seed, key, tmp_path) for key in texts)
    both = joined(seed, [sea, law], 3).state_dict()
    for name, tensor in joined(seed, [law], 2).state_dict().items():
        kept = both[name][[0, 2]] if ".mlp." in name else both[name]  # a row, or networks, of the seed and of law
        assert torch.equal(tensor, kept), name


@pytest.mark.parametrize("seed", ["qwen3", "olmo2"], indirect=True)
def test_shares_of_fewer_networks_are_those_among_all(
    seed: ArtifactRef, texts: dict[str, DomainText], tmp_path: Path
) -> None:
    model = trained(seed, texts, ["law", "sea"], tmp_path / "training")
    experts = [stored(model, seed, key, tmp_path) for key in texts]
    moe = joined(seed, experts, 1)
    assert moe.config.norm_topk_prob is False
    layer = moe.model.layers[0].mlp
    x_1NH = torch.randn(1, 5, moe.config.hidden_size, generator=torch.Generator().manual_seed(0))
    seen = []
    layer.experts.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[2]))
    layer(x_1NH)
    shares = (x_1NH[0] @ layer.gate.weight.T).float().softmax(-1)
    assert torch.allclose(seen[0].flatten(), shares.max(-1).values, atol=1e-6)
    moe.save_pretrained(tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(moe), logits(again))


def test_what_cannot_be_an_anchor_is_refused(tmp_path: Path) -> None:
    from transformers import MixtralConfig, OPTConfig

    small = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    opt = OPTConfig(**small, ffn_dim=32, word_embed_proj_dim=16, max_position_embeddings=32)
    mixtral = MixtralConfig(**small, intermediate_size=32, num_key_value_heads=2, num_local_experts=2)
    for config, words in ((opt, "no networks as modules"), (mixtral, "mixtures of experts already")):
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / config.model_type)
        with pytest.raises(ModelError, match=words):
            METHOD.build(tmp_path / config.model_type, ["law"])


@pytest.mark.parametrize("row", [0.0, 1.0])
def test_rows_that_are_alike_have_a_condition_that_can_be_written(row: float) -> None:
    routers = trained_routers([torch.full((2, 4), row)] * 2)
    assert bool(routers.condition_L.isfinite().all())


def test_rows_of_different_seeds_are_refused() -> None:
    with pytest.raises(ModelError, match="different numbers of layers or widths"):
        trained_routers([torch.ones(2, 4), torch.ones(3, 4)])
