"""Routers in closed form: sums that add up, the equations they solve, and the model that they make of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.errors import DamagedFileError, ModelError
from engine.events import Progress
from engine.methods.moe.checkpoint import as_sparse_moe, set_routers
from engine.methods.ridge.router import Sums, count_choices, gather, solve
from engine.text.blocks import EvalSample, eval_sample
from tests.engine.methods.test_moe_checkpoint import FAMILIES, VOCAB, expert, logits

BLOCK = 8


def text(seed: int, num_tokens: int = 257) -> EvalSample:
    return eval_sample(np.random.default_rng(seed).integers(0, VOCAB, num_tokens), BLOCK)


def last(events: Any) -> Any:
    *progress, result = events
    assert all(isinstance(one, Progress) for one in progress)
    return result


def inputs_of(lm: Any, sample: EvalSample) -> torch.Tensor:
    """What goes into each layer's network [L, N, H], read block by block."""
    seen: dict[int, list[torch.Tensor]] = {}
    hooks = [
        layer.mlp.register_forward_pre_hook(lambda _, x, n=n: seen.setdefault(n, []).append(x[0].detach()[0].double()))
        for n, layer in enumerate(lm.model.layers)
    ]
    with torch.no_grad():
        for ids, _ in sample.batches(1):
            lm(input_ids=torch.from_numpy(ids))
    for hook in hooks:
        hook.remove()
    return torch.stack([torch.cat(parts) for parts in seen.values()])


@pytest.mark.parametrize("family", FAMILIES)
def test_streamed_sums_solve_the_ridge_regression_of_all_inputs_at_once(family: str) -> None:
    experts, samples, shrinkage = [expert(family, n) for n in (1, 2)], [text(1), text(2)], 0.03
    sums = [last(gather(lm, [sample])) for lm, sample in zip(experts, samples, strict=True)]
    routers = solve(sums, shrinkage, temperature=0.5)
    inputs = [inputs_of(lm, sample) for lm, sample in zip(experts, samples, strict=True)]
    assert sums[0].num_tokens == inputs[0].shape[1] == 256
    for number, router_EH in enumerate(routers.weights_LEH):
        x_NH = torch.cat([of[number] for of in inputs]) / 16  # the root of the tokens of each text
        labels_NE = torch.block_diag(torch.ones(256, 1), torch.ones(256, 1)).double() / 16
        penalty = shrinkage * (x_NH**2).sum(0).mean().sqrt() ** 2
        rows = torch.cat([x_NH, penalty.sqrt() * torch.eye(x_NH.shape[1]).double()])
        targets = torch.cat([labels_NE, torch.zeros(x_NH.shape[1], 2).double()])
        expected_HE = torch.linalg.lstsq(rows, targets).solution
        expected_HE = 2 * expected_HE / expected_HE.norm(dim=0)
        torch.testing.assert_close(router_EH.T, expected_HE, atol=1e-10, rtol=1e-8)
        eigenvalues = torch.linalg.eigvalsh(rows.T @ rows)
        assert float(routers.condition_L[number]) == pytest.approx(float(eigenvalues[-1] / eigenvalues[0]), rel=1e-6)


def test_an_expert_that_is_added_and_left_out_again_changes_no_bit(tmp_path: Path) -> None:
    sums = [last(gather(expert("llama", n), [text(n)])) for n in (1, 2, 3)]
    before = solve(sums[:2], 0.01)
    for n, one in enumerate(sums):
        (tmp_path / str(n)).mkdir()
        one.save(tmp_path / str(n))
    kept = [Sums.load(tmp_path / str(n)) for n in range(3)]
    assert all(torch.equal(a.squares_LHH, b.squares_LHH) for a, b in zip(sums, kept, strict=True))
    assert all(torch.equal(a.inputs_LH, b.inputs_LH) for a, b in zip(sums, kept, strict=True))
    assert solve(kept, 0.01).weights_LEH.shape[1] == 3
    assert torch.equal(solve(kept[:2], 0.01).weights_LEH, before.weights_LEH)


def test_sums_of_two_texts_are_those_of_both() -> None:
    lm = expert("llama", 1)
    both = last(gather(lm, [text(1), text(2)]))
    inputs_LNH = torch.cat([inputs_of(lm, text(1)), inputs_of(lm, text(2))], dim=1)
    torch.testing.assert_close(both.squares_LHH, inputs_LNH.mT @ inputs_LNH)
    torch.testing.assert_close(both.inputs_LH, inputs_LNH.sum(1))
    assert both.num_tokens == 512


def test_an_expert_with_more_text_counts_no_more_than_another() -> None:
    short, long = last(gather(expert("llama", 1), [text(1)])), last(gather(expert("llama", 2), [text(2)]))
    doubled = Sums(2 * long.squares_LHH, 2 * long.inputs_LH, 2 * long.num_tokens)
    torch.testing.assert_close(solve([short, long], 0.01).weights_LEH, solve([short, doubled], 0.01).weights_LEH)


@pytest.mark.parametrize("family", FAMILIES)
def test_where_the_router_always_chooses_an_expert_the_model_is_that_expert(family: str, tmp_path: Path) -> None:
    experts = {str(n): expert(family, n) for n in (1, 2, 3)}
    moe = last(as_sparse_moe({name: (lambda lm=lm: lm) for name, lm in experts.items()}, 1))
    router_EH = torch.zeros(2, 3, 32)
    set_routers(moe, router_EH)
    moe.save_pretrained(tmp_path)
    for number, (name, lm) in enumerate(experts.items()):
        again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
        assert again.config.num_experts_per_tok == 1
        always_choose(again, number)
        torch.testing.assert_close(logits(again), logits(lm), atol=1e-6, rtol=0)
        assert name == str(number + 1)


def always_choose(moe: Any, number: int) -> None:
    """Makes every router prefer one expert, whatever goes in."""
    for name, module in moe.named_modules():
        if name.endswith("mlp.gate"):

            def choose(_: Any, args: Any, module: Any = module) -> None:
                x = args[0].flatten(0, -2)
                signs = torch.linalg.lstsq(x, torch.ones(len(x), 1)).solution[:, 0]
                module.weight.data.zero_()
                module.weight.data[number] = signs

            module.register_forward_pre_hook(choose)


def test_equal_experts_are_the_expert_whatever_the_routers_choose() -> None:
    lm = expert("llama", 1)
    for num_active in (1, 2):
        moe = last(as_sparse_moe({"a": lambda: lm, "b": lambda: lm}, num_active))
        set_routers(moe, torch.randn(2, 2, 32))
        torch.testing.assert_close(logits(moe), logits(lm), atol=1e-6, rtol=0)


def test_choices_are_counted_where_the_joined_model_makes_them() -> None:
    experts = {str(n): expert("llama", n) for n in (1, 2)}
    moe = last(as_sparse_moe({name: (lambda lm=lm: lm) for name, lm in experts.items()}, 1))
    torch.manual_seed(0)
    set_routers(moe, torch.randn(2, 2, 32))
    counts_LE = last(count_choices(moe, [text(5)]))
    with torch.no_grad():
        expected = torch.zeros(2, 2, dtype=torch.long)
        for ids, _ in text(5).batches(3):
            out = moe(input_ids=torch.from_numpy(ids), output_router_logits=True)
            for layer, scores in enumerate(out.router_logits):
                expected[layer] += torch.bincount(scores.argmax(-1), minlength=2)
    assert torch.equal(counts_LE, expected)
    assert counts_LE.sum(1).tolist() == [256, 256]


def test_sums_of_other_shapes_are_refused() -> None:
    sums = [last(gather(expert("llama", 1, num_hidden_layers=layers), [text(1)])) for layers in (1, 2)]
    with pytest.raises(ModelError, match="different numbers of layers"):
        solve(sums, 0.01)


def test_damaged_sums_are_named(tmp_path: Path) -> None:
    (tmp_path / "sums.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(DamagedFileError, match="cannot be read"):
        Sums.load(tmp_path)


def test_columns_of_equal_experts_point_in_one_direction() -> None:
    sums = [last(gather(expert("llama", 1), [text(1)])), last(gather(expert("llama", 1), [text(1)]))]
    assert float(solve(sums, 0.01).cosine_EE[0, 1]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_differs_besides_the_networks_is_averaged_where_that_is_allowed(family: str) -> None:
    full = [expert(family, number) for number in (0, 1)]
    with torch.no_grad():
        for parameter in full[1].parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    models = {str(number): (lambda one=one: one) for number, one in enumerate(full)}
    with pytest.raises(ModelError, match="--average-rest"):
        last(as_sparse_moe(models, 1))
    moe = last(as_sparse_moe(models, 1, average_rest=True)).state_dict()
    first, second = (one.state_dict() for one in full)
    rest = [name for name in moe if ".mlp." not in name]
    assert rest
    assert all(torch.allclose(moe[name], (first[name] + second[name]) / 2, atol=1e-7) for name in rest)
    gate_up = moe["model.layers.1.mlp.experts.gate_up_proj"]
    own = [
        torch.cat([one[f"model.layers.1.mlp.{part}_proj.weight"] for part in ("gate", "up")]) for one in (first, second)
    ]
    assert torch.equal(gate_up, torch.stack(own))
    other = {"0": lambda: full[0], "1": lambda: expert(family, 1, num_hidden_layers=3)}
    with pytest.raises(ModelError, match="differ in"):
        last(as_sparse_moe(other, 1, average_rest=True))
