"""Cutting a decoder open changes nothing but who owns the FFNs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from engine.config import ModelConfig
from engine.errors import EngineError, ModelError
from engine.methods.demix.placement import ExpertLinear
from engine.methods.multi_expert_files import new_placement
from engine.models.families import fresh_model, layout_of, load_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.decoders import decoder
from tests.engine.models.tiny_families import COMMON, tiny_model


@pytest.mark.parametrize("family", sorted(COMMON))
@torch.no_grad()
def test_every_expert_of_a_new_demix_model_is_the_model_that_was_cut_open(family: str) -> None:
    lm = decoder(family)
    ids = torch.randint(0, 300, (3, 10))
    before = lm(input_ids=ids).logits
    model = MultiExpertModel(copy.deepcopy(lm), ["a", "b"], new_placement()).eval()
    assert torch.equal(model(ids, Rows.all_to("a", 3)), before)
    assert torch.equal(model(ids, Rows.all_to("b", 3)), before)


@pytest.mark.parametrize("family", sorted(set(COMMON) - {"mixtral"}))
def test_only_small_experts_are_stacked_and_their_gradients_are_the_same(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = MultiExpertModel(decoder(family), ["a", "b"], new_placement()), torch.randint(0, 300, (4, 10))
    result, stacked = {}, []
    real = ExpertLinear._together
    monkeypatch.setattr(ExpertLinear, "_together", lambda self, *shown: stacked.append(self) or real(self, *shown))
    for limit in (0, 2 * 32 * 64 * 4):  # a map of both experts in bytes
        monkeypatch.setattr("engine.methods.demix.placement._STACKED_BYTES", limit)
        model.zero_grad()
        model(ids, Rows(("a", "b"), (2, 2))).logsumexp(-1).sum().backward()
        result[limit] = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert bool(stacked) == bool(limit)
    torch.testing.assert_close(*result.values(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("experts_in", ["ffn", "token"])
@pytest.mark.parametrize("family", sorted(COMMON))
@torch.no_grad()
def test_likelihoods_and_hits_of_a_text_are_what_its_logits_say(
    family: str, experts_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.likelihoods._LOGITS_PER_CHUNK", 300 * 7)  # 7 of the 30 positions at a time
    monkeypatch.setattr("engine.models.likelihoods._LEAST_POSITIONS", 1)
    model = MultiExpertModel(decoder(family), ["a", "b"], new_placement(experts_in)).eval()
    for number, parameter in enumerate(model.expert_parameters("b").values()):
        parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    ids, targets, rows = torch.randint(0, 300, (3, 10)), torch.randint(0, 300, (3, 10)), Rows(("a", "b"), (1, 2))
    most_probable = model(ids, rows).argmax(-1)
    targets[:, ::3] = most_probable[:, ::3]
    wanted = model(ids, rows).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    result = model.token_scores(ids, targets, rows)
    torch.testing.assert_close(result.logprobs_BT, wanted, atol=1e-5, rtol=0)
    assert torch.equal(result.hits_BT, most_probable == targets)
    assert torch.equal(model.token_scores(ids, targets, rows).logprobs_BT, result.logprobs_BT)


@pytest.mark.parametrize("family", sorted(COMMON))
@torch.no_grad()
def test_one_batch_carries_many_domains(family: str) -> None:
    model = MultiExpertModel(decoder(family), ["a", "b", "c"], new_placement()).eval()
    for key in model.keys:
        for parameter in model.expert_parameters(key).values():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    ids = torch.randint(0, 300, (4, 10))
    together = model(ids, Rows(("b", "c", "a"), (1, 2, 1)))
    by_itself = torch.cat([model(ids[i : i + 1], Rows.all_to(key, 1)) for i, key in enumerate("bcca")])
    torch.testing.assert_close(together, by_itself, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(together[1], model(ids[1:2], Rows.all_to("a", 1))[0], atol=1e-3)


@pytest.mark.parametrize("family", sorted(COMMON))
def test_the_batched_product_of_training_is_the_product_expert_by_expert(family: str) -> None:
    model = MultiExpertModel(decoder(family), ["a", "b"], new_placement())
    with torch.no_grad():
        for key in model.keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    ids, rows = torch.randint(0, 300, (4, 10)), Rows(("b", "a"), (2, 2))
    together = model(ids, rows)  # with gradients: all experts at once
    with torch.no_grad():
        one_by_one = model(ids, rows)
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-5)
    together.logsumexp(-1).mean().backward()
    gradients = {name: p.grad.clone() for key in model.keys for name, p in model.expert_parameters(key).items()}
    model.zero_grad()
    halves = [model(ids[:2], Rows.all_to("b", 2)), model(ids[2:], Rows.all_to("a", 2))]
    torch.cat(halves).logsumexp(-1).mean().backward()
    for key in model.keys:
        for name, parameter in model.expert_parameters(key).items():
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_expert_and_shared_tensors_make_the_full_seed_again(family: str) -> None:
    lm = decoder(family)
    names = dict(lm.named_parameters())
    model = MultiExpertModel(copy.deepcopy(lm), ["a"], new_placement())
    parts = {**model.shared_state(), **model.expert_state("a")}
    assert set(parts) == set(names)
    assert all(torch.equal(parts[name], names[name]) for name in names)


def test_removing_an_expert_touches_no_other_tensor(model: MultiExpertModel) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.remove_expert("code")
    after = model.state_dict()
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    assert "code" not in model.keys
    assert len(before) - len(after) == len(model.expert_state("law"))


def test_an_expert_of_another_shape_is_refused_and_nothing_changed(model: MultiExpertModel) -> None:
    state = {name: tensor[..., :1] for name, tensor in model.expert_state("law").items()}
    with pytest.raises(ModelError, match=r"do(es)? not fit its base"):
        model.add_expert("odd", state=state)
    assert "odd" not in model.keys


def test_a_model_without_layers_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"“Linear” is not supported: it has no list of decoder layers"):
        layout_of(nn.Linear(2, 2))


def test_a_family_without_fresh_models_is_refused_and_no_other_made_in_its_place() -> None:
    shape = ModelConfig(family="mixtral")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"cannot have the family “mixtral”\. Choose one of llama, gpt2, opt"):
        fresh_model(shape, 300)


def test_a_folder_without_a_model_is_refused(tmp_path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        load_model(tmp_path)


def test_the_same_seed_gives_the_same_fresh_model() -> None:
    shape = ModelConfig(num_layers=1, width=16, num_heads=2, ffn_width=32)
    one, two, other = (fresh_model(shape, 300, seed).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(EngineError, match="multiple of num_heads"):
        ModelConfig(width=100, num_heads=3)


SELF_ATTENTION = {f"self_attn.{name}_proj" for name in "qkvo"}
GATED = {f"mlp.{name}_proj" for name in ("gate", "up", "down")}
KNOWN = {
    "llama": ("model.layers", GATED, SELF_ATTENTION),
    "mistral": ("model.layers", GATED, SELF_ATTENTION),
    "qwen2": ("model.layers", GATED, SELF_ATTENTION),
    "mixtral": ("model.layers", {"mlp"}, SELF_ATTENTION),
    "gpt2": ("transformer.h", {"mlp.c_fc", "mlp.c_proj"}, {"attn.c_attn", "attn.c_proj"}),
    "opt": ("model.decoder.layers", {"fc1", "fc2"}, {*SELF_ATTENTION} ^ {"self_attn.o_proj", "self_attn.out_proj"}),
    "gpt_neox": (
        "gpt_neox.layers",
        {"mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
        {"attention.query_key_value", "attention.dense"},
    ),
}


@pytest.mark.parametrize("family", COMMON)
def test_the_known_layouts_are_recognized_by_structure(family: str) -> None:
    layout = layout_of(decoder(family))
    layers, ffn, attention = KNOWN[family]
    assert layout.layers == layers
    assert [*map(set, layout.ffn)] == [ffn] * 2
    assert [*map(set, layout.attention)] == [attention] * 2


def test_layers_of_several_kinds_have_their_own_maps() -> None:
    layout = layout_of(tiny_model("qwen3_next"))  # a linear and a full attention, both with a mixture of experts
    assert layout.ffn == (("mlp",), ("mlp",))
    assert [*map(set, layout.attention)] == [set(), SELF_ATTENTION]
    dense, sparse = layout_of(tiny_model("deepseek_v32")).ffn
    assert {*dense} == GATED
    assert sparse == ("mlp",)


def test_layers_that_share_weights_are_refused() -> None:
    with pytest.raises(ModelError, match="its layers share weights"):
        layout_of(tiny_model("zamba2"))
