"""MoDE by surgery: the laws of its blocks in every family, and what cannot be cut."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from engine.errors import EngineError, ModelError
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.models.families import layout_of
from engine.models.likelihoods import TokenScores, token_scores
from tests.engine.methods.mode.backbones import (
    FAMILIES,
    LAYERS,
    SHAPE,
    backbone,
    mode_model,
    plain_logits,
    some_ids,
)

every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@pytest.mark.parametrize("num_blocks", [1, 2, 3, LAYERS])
@torch.no_grad()
def test_a_model_without_experts_is_its_backbone(family: str, num_blocks: int) -> None:
    lm, ids = backbone(family), some_ids()
    model = ModeModel(copy.deepcopy(lm), num_blocks)
    assert model.num_blocks == num_blocks
    logits, weights = model(ids, [])
    assert torch.equal(logits, plain_logits(lm, ids))
    assert torch.equal(weights, torch.ones(num_blocks, 1, *ids.shape))


@every_family
@pytest.mark.parametrize("init", ["copy", "random"])
@torch.no_grad()
def test_at_its_start_it_is_the_backbone_to_the_last_bit(family: str, init) -> None:  # L12
    lm, ids = backbone(family), some_ids()
    model = ModeModel(copy.deepcopy(lm), 3)
    for key in ("law", "code"):
        model.add_expert(key, ModeConfig(3, 2, init))
        for mode in (True, False):
            assert torch.equal(model.train(mode)(ids, model.keys)[0], plain_logits(lm, ids))


@every_family
@torch.no_grad()
def test_it_can_start_with_equal_weights_instead(family: str) -> None:
    model, ids = ModeModel(backbone(family), 2), some_ids()
    for key in ("law", "code"):
        model.add_expert(key, ModeConfig(2, 1, start="even"))
    logits, weights = model(ids, model.keys)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3))
    assert not torch.allclose(logits, model(ids, [])[0], atol=1e-3)


@every_family
@torch.no_grad()
def test_an_expert_that_copies_a_full_block_gives_the_backbones_output_whatever_its_weight(family: str) -> None:
    model, ids = ModeModel(backbone(family), 1), some_ids()
    model.add_expert("twin", ModeConfig(1, LAYERS))
    model.gate_parameters("twin")["twin:blocks.0.odds"].fill_(0.01)
    logits, weights = model(ids, ["twin"])
    assert bool((weights[:, 1] > 0.1).all())
    torch.testing.assert_close(logits, model(ids, [])[0], atol=1e-5, rtol=1e-5)


@every_family
@torch.no_grad()
def test_an_expert_with_all_the_weight_is_the_decoder_made_of_its_layers(family: str) -> None:  # L1
    lm, ids = backbone(family), some_ids()
    model = ModeModel(copy.deepcopy(lm), 1)
    model.add_expert("all", ModeConfig(1, LAYERS - 1, "random", seed=5))
    model.gate_parameters("all")["all:blocks.0.odds"].fill_(1e30)
    assert bool((model(ids, ["all"])[1][:, 1] == 1).all())
    path, _, attribute = layout_of(lm).layers.rpartition(".")
    branch = model.lm.get_submodule(layout_of(lm).layers)[0].experts["all"]
    setattr(lm.get_submodule(path), attribute, nn.ModuleList(branch.layers))
    lm.config.num_hidden_layers = LAYERS - 1
    torch.testing.assert_close(model(ids, ["all"])[0], plain_logits(lm, ids), atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_copies_are_of_the_last_layers_of_their_block_in_turn_where_there_are_more() -> None:
    lm = backbone()
    model = ModeModel(copy.deepcopy(lm), 3)  # blocks of 2, 2 and 1 layers
    model.add_expert("law", ModeConfig(3, 2))
    state = model.expert_state("law")
    for block, layer, source in ((0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3), (2, 0, 4), (2, 1, 4)):
        result = state[f"blocks.{block}.layers.{layer}.mlp.up_proj.weight"]
        assert torch.equal(result, lm.model.layers[source].mlp.up_proj.weight)


@torch.no_grad()
def test_random_layers_follow_from_their_seed() -> None:
    model = ModeModel(backbone(), 2)
    for key, seed in (("a", 1), ("b", 1), ("c", 2)):
        model.add_expert(key, ModeConfig(2, 1, "random", seed=seed))
    a, b, c = (model.expert_state(key)["blocks.0.layers.0.mlp.up_proj.weight"] for key in "abc")
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert not torch.equal(a, model.lm.model.layers[0].backbone[-1].mlp.up_proj.weight)


@pytest.mark.parametrize("init", ["copy", "random"])
def test_an_experts_coming_draws_from_no_one_elses_chance(init) -> None:
    """Whoever else draws, a training's order or another expert, has the same whether it comes or not."""
    model = ModeModel(backbone(), 2)
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    model.add_expert("law", ModeConfig(2, 1, init, seed=9))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("is_training", [True, False])
def test_an_expert_comes_in_the_mode_that_the_model_is_in(is_training: bool) -> None:
    model = ModeModel(backbone(), 2)
    model.lm.train(not is_training)  # which an expert's layers are copies of
    model.training = is_training
    model.add_expert("law", SHAPE)
    model.add_expert("code", SHAPE, model.expert_state("law"))
    modules = [one for key in model.keys for branch in model.branches(key) for one in branch.modules()]
    assert {one.training for one in modules} == {is_training}


@every_family
@torch.no_grad()
def test_composed_with_the_others_off_it_is_the_single_expert_model(family: str) -> None:  # L12, L7
    composed, ids = mode_model(["law", "code", "news"], family), some_ids()
    for key in composed.keys:
        single = mode_model([key], family)
        for one, other in zip(composed(ids, [key]), single(ids, [key]), strict=True):
            assert torch.equal(one, other)
        assert not torch.allclose(composed(ids, composed.keys)[0], single(ids, [key])[0], atol=1e-3)


@every_family
@torch.no_grad()
def test_removing_an_expert_is_switching_it_off(family: str) -> None:  # L7
    model, ids = mode_model(["law", "code", "news"], family), some_ids()
    off = model(ids, ["law", "news"])[0]
    model.remove_expert("code")
    assert model.keys == ["law", "news"]
    assert torch.equal(model(ids, model.keys)[0], off)
    assert torch.equal(off, mode_model(["law", "news"], family)(ids, ["law", "news"])[0])


@every_family
@torch.no_grad()
def test_weights_sum_to_one_in_every_block_and_share_out_what_is_off(family: str) -> None:  # L5
    model, ids = mode_model(["law", "code", "news"], family), some_ids()
    weights = model(ids, model.keys)[1]
    assert weights.shape == (2, 4, *ids.shape)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, *ids.shape), atol=1e-6, rtol=0)
    first, kept = model(ids, ["law", "news"])[1][0], weights[0][[0, 1, 3]]  # later blocks read what the first ones made
    torch.testing.assert_close(first, kept / kept.sum(0), atol=1e-6, rtol=1e-5)
    assert float(weights.std()) > 0.01


@every_family
@torch.no_grad()
def test_permuting_experts_permutes_the_weights_and_changes_nothing_else(family: str) -> None:  # L6
    model, ids = mode_model(["law", "code", "news"], family), some_ids()
    logits, weights = model(ids, ["law", "code", "news"])
    others, permuted = model(ids, ["news", "law", "code"])
    torch.testing.assert_close(permuted, weights[:, [0, 3, 1, 2]], atol=1e-6, rtol=0)
    torch.testing.assert_close(others.log_softmax(-1), logits.log_softmax(-1), atol=1e-5, rtol=0)


def scores_of(model: ModeModel, ids: Tensor, targets: Tensor, mask: Tensor | None = None) -> TokenScores:
    """The scores of targets with all experts active."""
    return token_scores(model.lm, model.read(ids, model.keys, None, mask)[0], targets)


@every_family
@torch.no_grad()
def test_likelihoods_and_hits_do_not_depend_on_the_batch_or_on_padding(family: str) -> None:  # L9
    model, ids, targets = mode_model(["law", "code"], family), some_ids(), some_ids(seed=1)
    most_probable = model(ids, model.keys)[0].argmax(-1)
    targets[:, ::2] = most_probable[:, ::2]
    together = scores_of(model, ids, targets)
    assert torch.equal(together.hits_BT, most_probable == targets)
    one_by_one = [scores_of(model, ids[i : i + 1], targets[i : i + 1]) for i in range(3)]
    logprobs, hits = map(torch.cat, zip(*one_by_one, strict=True))
    torch.testing.assert_close(together.logprobs_BT, logprobs, atol=1e-5, rtol=0)
    assert torch.equal(together.hits_BT, hits)
    lengths = torch.tensor([12, 7, 3])
    mask = (torch.arange(12) >= (12 - lengths)[:, None]).long()
    padded = scores_of(model, ids * mask, targets, mask)
    for row, length in enumerate(lengths.tolist()):
        by_itself = scores_of(model, ids[row : row + 1, -length:], targets[row : row + 1, -length:])
        torch.testing.assert_close(padded.logprobs_BT[row, -length:], by_itself.logprobs_BT[0], atol=1e-5, rtol=0)
        assert torch.equal(padded.hits_BT[row, -length:], by_itself.hits_BT[0])


@every_family
@torch.no_grad()
def test_cached_decoding_is_plain_decoding_with_padding_on_the_left(family: str) -> None:  # L18
    model, ids = mode_model(["law", "code"], family), some_ids()
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    logits, weights = model(ids, model.keys, None, mask)
    cache, seen = DynamicCache(), 0
    for part in ids.split([6, 1, 1, 4], 1):
        now = slice(seen, seen + part.shape[1])
        seen = now.stop
        cached, gates = model(part, model.keys, cache, mask[:, :seen])
        real = mask[:, now].bool()
        torch.testing.assert_close(cached[real], logits[:, now][real], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(gates[..., real], weights[..., now][..., real], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_every_expert_has_keys_and_values_of_its_own_even_one_that_came_after_another_left() -> None:
    model, ids = mode_model(["law", "code"]), some_ids()
    cache = DynamicCache()
    model(ids, ["code"], cache)
    assert len([layer for layer in cache.layers if layer.get_seq_length()]) == LAYERS + 4
    model.remove_expert("law")
    model.add_expert("news", SHAPE)  # while the text that “code” reads goes on
    expected = mode_model(["code"])(torch.cat([ids, ids], 1), ["code"])[0][:, ids.shape[1] :]
    torch.testing.assert_close(model(ids, ["code"], cache)[0], expected, atol=1e-5, rtol=1e-5)


def test_an_expert_cannot_wake_in_the_middle_of_a_text() -> None:
    model, cache = mode_model(["law", "code"]), DynamicCache()
    model(some_ids(), ["law"], cache)
    with pytest.raises(ModelError, match="“code” was inactive when this text started"):
        model(some_ids(length=1), ["law", "code"], cache)
    model(some_ids(length=1), ["law"], cache)  # nothing was changed


@pytest.mark.parametrize("num_blocks", [0, LAYERS + 1])
def test_more_blocks_than_layers_are_refused_and_nothing_is_cut(num_blocks: int) -> None:
    lm = backbone()
    names = set(lm.state_dict())
    with pytest.raises(ModelError, match=f"num_blocks must be 1 to {LAYERS}, "):
        ModeModel(lm, num_blocks)
    assert set(lm.state_dict()) == names
    assert all(parameter.requires_grad for parameter in lm.parameters())


def test_layers_that_attend_differently_are_refused() -> None:
    config = Qwen2Config(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=300,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=2,
    )
    with pytest.raises(ModelError, match="full attention"):
        ModeModel(Qwen2ForCausalLM(config), 2)


def test_an_expert_of_other_blocks_is_refused() -> None:
    model = mode_model(["law"])
    with pytest.raises(ModelError, match="has 3 blocks, the model 2"):
        model.add_expert("code", ModeConfig(3, 1))


def test_tensors_that_do_not_fit_are_refused_and_nothing_is_added() -> None:
    model = mode_model(["law"])
    state = model.expert_state("law")
    for wrong in ({}, {**state, "more": torch.zeros(1)}, {**state, "blocks.0.odds": torch.zeros(2)}):
        with pytest.raises(ModelError, match="do not fit its backbone"):
            model.add_expert("code", SHAPE, wrong)
    assert model.keys == ["law"]
    assert not any("code" in name for name in model.state_dict())


def test_unknown_experts_and_duplicates_are_refused() -> None:
    model = mode_model(["law", "code"])
    with pytest.raises(ModelError, match="no expert “news”"):
        model(some_ids(), ["law", "news"])
    with pytest.raises(ModelError, match="names an expert twice"):
        model(some_ids(), ["law", "law"])
    with pytest.raises(ModelError, match="in this model already"):
        model.add_expert("law", SHAPE)


@pytest.mark.parametrize("wrong", [{"num_blocks": 0}, {"expert_layers": 0}, {"seed": -1}])
def test_knobs_out_of_bounds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(EngineError, match=f"{next(iter(wrong))} must be"):
        ModeConfig(**wrong)  # type: ignore[arg-type]
