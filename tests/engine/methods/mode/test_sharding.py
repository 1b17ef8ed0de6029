"""Experts in processes of their own: the same numbers as in one process, and nothing of theirs in the backbone's.

An answer is the same to the last bit. Gradients of a block's input are added in another order, so what is learnt
differs in the last bits: a gradient by less than 1e-5 of its norm, weights and moments by 1e-4 after six clipped steps.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import DynamicCache

from engine.config import Precision, TrainingConfig
from engine.errors import ModelError, TrainingError
from engine.events import Evaluated, Step
from engine.inference.mixing import Mixing
from engine.inference.scores import losses_of
from engine.methods.mode.model import ModeModel
from engine.methods.mode.sharding.backbone import Shard, ShardedProcessGroup, _Caches
from engine.methods.mode.sharding.folders import gather_checkpoints
from engine.methods.parts.method import Learning
from engine.methods.parts.parts_model import ActiveParts
from engine.mixing.base import FixedGate
from engine.models.likelihoods import token_scores
from engine.models.rows import Rows
from engine.text.blocks import EvalSample, eval_sample
from engine.training.checkpoint import evaluation_history_at, newest_step
from engine.training.data import DomainText
from engine.training.distributed import SINGLE_PROCESS
from engine.training.loop import train
from engine.training.optimizer import autocast_for
from tests.engine.methods.mode.backbones import FAMILIES, dropping, mode_model, some_ids
from tests.engine.methods.mode.processes import Plan, Shown, seen, together

pytestmark = pytest.mark.slow

EXPERTS = ["law", "code", "news"]
LAYOUTS = [[["law", "code"]], [["code"], ["law"]], [["news", "law"], ["code"]]]
CONFIG = TrainingConfig(
    num_steps=6,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=2,
    evaluate_every=3,
    evaluation_blocks=2,
    accumulate=2,
    seed=1,
)


KEY_BIASES = ("k_proj.bias", "c_attn.bias")  # attention does not see them: what moves them is rounding alone


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the processes: other numbers of threads may add in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def padded() -> Tensor:
    return (torch.arange(12) >= torch.tensor([0, 5, 9])[:, None]).long()


def passes(model: ModeModel, shards: list[Shard], keys: list[str]) -> dict[str, Tensor]:
    """A forward and backward pass with padding, then a pass with fewer experts, and likelihoods of plain text."""
    logits, weights = model(some_ids(), keys, None, padded())
    (logits.logsumexp(-1) * padded()).mean().backward()
    with torch.no_grad():
        fewer, _ = model(some_ids(), keys[:1])
        apart, _ = model(some_ids(), keys, position_ids_BT=(torch.arange(12) % 5).expand(3, -1))
    scores = token_scores(model.lm, model.read(some_ids(), keys)[0], some_ids(seed=1)).logprobs_BT
    return {"logits": logits, "weights": weights, "fewer": fewer, "apart": apart, "scores": scores}


def assert_close(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        wanted = theirs[name]
        slack = 1e-5 if name.endswith(KEY_BIASES) else tolerance * float(wanted.norm()) + 1e-9
        assert float((tensor - wanted).norm()) <= slack, name


@pytest.mark.parametrize("held", LAYOUTS, ids=str)
def test_experts_elsewhere_answer_as_here_and_have_the_same_gradients(tmp_path: Path, held) -> None:
    assert_same_passes(tmp_path, Plan(passes, tmp_path / "many", held))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama"])
def test_every_family_does(tmp_path: Path, family: str) -> None:
    assert_same_passes(tmp_path, Plan(passes, tmp_path / "many", [["law"], ["code"]], family=family))


def assert_same_passes(tmp_path: Path, plan: Plan) -> None:
    keys = [key for key in EXPERTS if any(key in held for held in plan.held)]
    shown, model = together(replace(plan, requested=keys)), mode_model(keys, plan.family)
    expected = passes(model, [], keys)
    assert not any(shown.errors)
    for name, tensor in shown.tensors[0].items():
        assert torch.equal(tensor, expected[name]), name
    assert_close(shown.experts, seen(model), 1e-5)
    assert any(name.startswith("gradient ") for name in shown.experts)


def in_bf16(model: ModeModel, shards: list[Shard], keys: list[str]) -> dict[str, Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        return {"logits": model(some_ids(), keys)[0]}


def test_experts_elsewhere_compute_in_bf16_where_the_backbone_does(tmp_path: Path) -> None:
    shown, model = together(Plan(in_bf16, tmp_path / "many", [["law"]], ["law"])), mode_model(["law"])
    assert not any(shown.errors)
    assert torch.equal(shown.tensors[0]["logits"], in_bf16(model, [], ["law"])["logits"])
    assert not torch.equal(shown.tensors[0]["logits"].float(), model(some_ids(), ["law"])[0])


def inspected(model: ModeModel, shards: list[Shard], texts: dict[str, EvalSample]) -> dict[str, Tensor]:
    """The held-out losses of texts, in either precision; experts elsewhere are asked one thing after another."""
    active, losses = ActiveParts(model, ["law", "code"], "both"), {}
    for precision in get_args(Precision):
        with autocast_for(precision, model.device):
            shown = losses_of(active, "both", texts, in_turn=bool(shards))
        losses |= {f"{name} in {precision}": torch.tensor(one, dtype=torch.float64) for name, one in shown.items()}
    return losses


def test_held_out_losses_are_those_of_one_process(tmp_path: Path) -> None:
    texts = {name: eval_sample(some_ids(1, 205, seed)[0].numpy(), 16) for seed, name in enumerate(("law", "sea"))}
    shown = together(Plan(inspected, tmp_path / "many", [["law"], ["code"]], texts))
    assert not any(shown.errors)
    expected = inspected(mode_model(["law", "code"]), [], texts)
    assert {name: float(one) for name, one in shown.tensors[0].items()} == {
        n: float(one) for n, one in expected.items()
    }
    assert expected["law in fp32"] != expected["law in bf16"]


SENT, THERE, LAYER, LAYER_BACK = range(4)


def watched(model: ModeModel, shards: list[Shard], keys: list[str]) -> dict[str, Tensor]:
    """What the backbone's process does in a pass, in order."""
    seen_here: list[int] = []
    wire: Any = shards[0].wire
    send, expect = wire.send_tensor, wire.receive_tensor

    def noted(wait: Any) -> Any:
        return lambda: (wait(), seen_here.append(THERE))[0]

    wire.send_tensor = lambda tensor: (seen_here.append(SENT), send(tensor))
    wire.receive_tensor = lambda *requested: noted(expect(*requested))
    for block in model.lm.model.layers:
        for layer in block.backbone:
            layer.register_forward_hook(lambda *_: seen_here.append(LAYER))
            layer.register_full_backward_hook(lambda *_: seen_here.append(LAYER_BACK))
    model(some_ids(), keys)[0].logsumexp(-1).mean().backward()
    return {"order": torch.tensor(seen_here)}


def test_backbone_and_experts_compute_at_the_same_time_there_and_back(tmp_path: Path) -> None:
    shown = together(Plan(watched, tmp_path / "many", [["law", "code"]], ["law", "code"]))
    assert not any(shown.errors)
    there = [SENT, LAYER, LAYER, LAYER, THERE, SENT, LAYER, LAYER, THERE]
    back = [SENT, LAYER_BACK, LAYER_BACK, THERE, SENT]  # nothing goes back through the first block of the backbone
    assert shown.tensors[0]["order"].tolist() == there + back


@dataclass(frozen=True)
class Assignment:
    """A training of these experts on these texts by the project's training loop."""

    active: Sequence[str]
    texts: Sequence[DomainText]
    folder: Path
    learning: Learning = "experts"
    stop_after: int = CONFIG.num_steps
    config: TrainingConfig = CONFIG


def learnt(model: ModeModel, shards: list[Shard], training_data: Assignment) -> dict[str, Tensor]:
    """The losses, and how many tensors of experts the first process has."""
    active = ActiveParts(model, training_data.active, "chosen", training_data.learning)
    team = ShardedProcessGroup(shards, active, training_data.config) if shards else SINGLE_PROCESS
    texts = [replace(text, expert="chosen") for text in training_data.texts]
    events = train(active, texts, training_data.config, training_data.folder, only_experts=active.keys, team=team)
    losses: list[float] = []
    for event in events:
        losses += [event.loss] if isinstance(event, Step) else []
        losses += list(event.loss_by_domain.values()) if isinstance(event, Evaluated) else []
        if isinstance(event, Step) and event.step == training_data.stop_after:
            break
    events.close()  # type: ignore[attr-defined]
    held = [name for name, _ in model.named_parameters() if ".experts." in name]
    return {"losses": torch.tensor(losses, dtype=torch.float64), "held": torch.tensor(len(held))}


@pytest.mark.parametrize(
    ("held", "active", "learning", "family", "dropout"),
    [
        ([["law"]], ["law"], "experts", "llama", 0.0),  # stage 1
        ([["law"], ["code"]], ["law", "code"], "experts", "llama", 0.0),
        ([["news", "law"], ["code"]], ["law", "code"], "gates", "llama", 0.0),  # with one that is off
        ([["law", "code"]], ["law", "code"], "experts", "llama", 0.3),
        ([["law"], ["code"]], ["law", "code"], "gates", "gpt2", 0.3),  # nobody draws anything
    ],
    ids=["stage 1", "compose", "frozen", "dropping", "dropping, frozen"],
)
def test_a_training_with_experts_elsewhere_is_the_training_here(
    make_texts, tmp_path: Path, held, active: list[str], learning: Learning, family: str, dropout: float
) -> None:
    training_data = Assignment(active, make_texts(active), tmp_path / "ours", learning)
    keys = [key for keys in held for key in keys]
    shown = together(Plan(learnt, tmp_path / "many", held, training_data, family, dropout=dropout))
    model = dropping(mode_model(keys, family), dropout)
    expected = learnt(model, [], replace(training_data, folder=tmp_path / "theirs"))
    assert not any(shown.errors)
    torch.testing.assert_close(shown.tensors[0]["losses"], expected["losses"], rtol=2e-6, atol=0)
    weights = {name: one for name, one in shown.experts.items() if not name.startswith("gradient ")}
    assert_close(weights, {name: one for name, one in seen(model).items() if name in weights}, 1e-4)
    ours, theirs = moments(*(tmp_path / "many").glob("own-*/experts/*")), moments(tmp_path / "theirs")
    assert_close(ours, theirs, 1e-4)  # they are as large as the clip makes them


def moments(*folders: Path) -> dict[str, Tensor]:
    """Adam's, of the last checkpoints in folders."""
    files = [folder / "step-00000006" / "optimizer.safetensors" for folder in folders]
    return {name: one for file in files if file.exists() for name, one in load_file(file).items()}


def test_these_steps_are_clipped_by_the_norm_of_all(make_texts, tmp_path: Path) -> None:
    both, one = (tmp_path / name for name in ("both", "one"))
    for folder, keys in ((both, ["law", "code"]), (one, ["law"])):
        learnt(mode_model(["law", "code"]), [], Assignment(keys, make_texts(["law"]), folder))
    shown = [float(moments(folder)["exp_avg/law:blocks.0.slope"].norm()) for folder in (both, one)]
    assert shown[0] < 0.95 * shown[1]  # each process by itself would clip less


def test_the_backbones_process_never_holds_a_tensor_of_an_expert_and_theirs_none_of_it(
    make_texts, tmp_path: Path
) -> None:
    training_data = Assignment(["law"], make_texts(["law"]), tmp_path / "ours")
    shown = together(Plan(learnt, tmp_path / "many", [["law"]], training_data))
    assert not any(shown.errors)
    assert int(shown.tensors[0]["held"]) == 0
    kept = [load_file(file) for file in (tmp_path / "ours").rglob("*.safetensors")]
    assert len(kept) == 4  # parameters and moments, twice
    assert not any(kept)
    own = load_file(tmp_path / "many/own-1/experts/law/step-00000006/parameters.safetensors")
    assert own.keys() == {name for name in shown.experts if not name.startswith("gradient ")}
    assert all(torch.equal(tensor, shown.experts[name]) for name, tensor in own.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_process_with_experts_forgets_the_backbone_and_no_expert(family: str) -> None:
    model, full = mode_model(["law", "code"], family), mode_model(["law", "code"], family)
    model.free_backbone()
    experts = {id(one) for key in model.keys for one in model.expert_parameters(key).values()}
    assert {one.device.type for one in model.parameters() if id(one) not in experts} == {"meta"}
    for key in model.keys:
        assert all(torch.equal(one, full.expert_state(key)[name]) for name, one in model.expert_state(key).items())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_training_resumed_is_a_training_uninterrupted(make_texts, tmp_path: Path, dropout: float) -> None:  # L17
    held: Any = [["law"], ["code"]]
    training_data = Assignment(["law", "code"], make_texts(["law", "code"]), tmp_path / "ours")
    plan = Plan(learnt, tmp_path / "cut", held, training_data, "gpt2", dropout=dropout)
    full = together(
        replace(plan, folder=tmp_path / "whole", requested=replace(training_data, folder=tmp_path / "theirs"))
    )
    first = together(replace(plan, requested=replace(training_data, stop_after=3)))
    for file in (tmp_path / "cut").glob("rank-*"):
        file.unlink()
    rest = together(plan)
    assert not any(full.errors + first.errors + rest.errors)
    losses = torch.cat([first.tensors[0]["losses"], rest.tensors[0]["losses"]])
    assert torch.equal(losses, full.tensors[0]["losses"])
    assert_close(rest.experts, full.experts, 0)


WILD = replace(CONFIG, num_steps=12, learning_rate=0.02, clip=1.0, evaluate_every=1, accumulate=1, patience=2)


def test_experts_elsewhere_are_the_best_ones_where_patience_ends_a_training(make_texts, tmp_path: Path) -> None:
    held, folder = [["law"], ["code"]], tmp_path / "ours"
    training_data = Assignment(
        ["law", "code"], make_texts(["law", "code"]), folder, stop_after=WILD.num_steps, config=WILD
    )
    shown, model = together(Plan(learnt, tmp_path / "many", held, training_data)), mode_model(["law", "code"])
    assert not any(shown.errors)
    expected = learnt(model, [], replace(training_data, folder=tmp_path / "theirs"))
    last, theirs = (newest_step(one, WILD) for one in (folder, tmp_path / "theirs"))
    best = evaluation_history_at(folder, last).best_step
    assert (last, best) == (theirs, evaluation_history_at(tmp_path / "theirs", last).best_step)
    assert best < last < WILD.num_steps
    torch.testing.assert_close(shown.tensors[0]["losses"], expected["losses"], rtol=1e-4, atol=0)
    assert_close(shown.experts, {name: seen(model)[name] for name in shown.experts}, 1e-3)
    cut = Plan(learnt, tmp_path / "cut", held, replace(training_data, folder=tmp_path / "cut's", stop_after=last - 1))
    assert not any(together(cut).errors)
    rest = together(replace(cut, requested=replace(cut.requested, stop_after=WILD.num_steps)))
    assert not any(rest.errors)
    assert_close(rest.experts, shown.experts, 0)
    end = load_file(tmp_path / f"many/own-1/experts/law/step-{last:08d}/parameters.safetensors")
    assert not all(torch.equal(one, shown.experts[name]) for name, one in end.items())  # the last ones are others


def test_a_training_goes_on_in_another_number_of_processes(make_texts, tmp_path: Path) -> None:
    keys, ours = ["law", "code"], tmp_path / "ours"
    training_data = Assignment(keys, make_texts(keys), ours)
    model = mode_model(keys)
    expected = learnt(model, [], replace(training_data, folder=tmp_path / "theirs"))
    learnt(mode_model(keys), [], replace(training_data, stop_after=1))
    for held, stop_after in (([["law"], ["code"]], 3), ([["law", "code"]], 5)):
        folder = tmp_path / f"many-{stop_after}"
        plan = Plan(learnt, folder, held, replace(training_data, stop_after=stop_after), in_one_folder=ours)
        assert not any(together(plan).errors)
    last = mode_model(keys)
    names = ActiveParts(last, keys, "chosen").expert_parameters("chosen")
    gather_checkpoints(ours, names, CONFIG)
    assert newest_step(ours, CONFIG) == 5
    shown = learnt(last, [], training_data)
    torch.testing.assert_close(shown["losses"], expected["losses"][-len(shown["losses"]) :], rtol=2e-6, atol=0)
    assert_close(seen(last), seen(model), 1e-4)
    assert not (ours / "experts").exists()


def test_a_checkpoint_that_an_experts_process_lacks_is_named(make_texts, tmp_path: Path) -> None:
    training_data = Assignment(["law"], make_texts(["law"]), tmp_path / "ours", stop_after=3)
    assert not any(together(Plan(learnt, tmp_path / "many", [["law"]], training_data)).errors)
    (tmp_path / "many/own-1/experts/law/step-00000003/parameters.safetensors").write_bytes(b"")
    shown = together(Plan(learnt, tmp_path / "many", [["law"]], training_data))
    assert "has no checkpoint of the expert “law” at step 3, where the first process resumes" in shown.errors[1]
    assert shown.errors[0].startswith("LostRankError: Process 1")


def test_the_first_process_may_lose_its_checkpoint_twice_before_it_has_it(make_texts, tmp_path: Path) -> None:
    training_data = Assignment(["law"], make_texts(["law"]), tmp_path / "ours")
    plan = Plan(learnt, tmp_path / "many", [["law"]], training_data)
    full = together(plan)
    for lost, stop_after in ((6, 5), (5, 6)):  # experts keep theirs first
        shutil.rmtree(tmp_path / f"ours/step-{lost:08d}")
        shown = together(replace(plan, requested=replace(training_data, stop_after=stop_after)))
        assert not any(shown.errors)
    assert_close(shown.experts, full.experts, 0)


@pytest.mark.parametrize("held", [[["law"]], [["law"], ["code"]]], ids=str)
def test_a_process_that_dies_ends_all_with_an_error_that_names_it(tmp_path: Path, held) -> None:
    shown = together(Plan(passes, tmp_path / "many", held, [key for keys in held for key in keys], dies=1))
    assert shown.errors[0].startswith("LostRankError: Process 1 is gone")
    assert shown.errors[1] == "gone"
    assert all(error.startswith("LostRankError: Process 0 is gone") for error in shown.errors[2:])


@pytest.mark.parametrize(
    ("held", "another", "problem"),
    [([["law"], ["code"]], 2, "process 2 were trained on another backbone"), ([["a"], ["a"]], None, "“a” is in this")],
)
def test_experts_that_do_not_belong_together_are_refused_before_anything_is_read(
    tmp_path: Path, held, another: int | None, problem: str
) -> None:
    shown = together(Plan(passes, tmp_path / "many", held, another=another))
    assert problem in shown.errors[0]
    assert all(error.startswith("LostRankError: Process 0 is gone") for error in shown.errors[1:])


def death(model: ModeModel, shards: list[Shard], keys: list[str]) -> dict[str, Tensor]:
    model(some_ids(), keys)
    os._exit(1)


def test_experts_do_not_outlive_the_backbone(tmp_path: Path) -> None:
    shown = together(Plan(death, tmp_path / "many", [["law"]], ["law"]))
    assert shown.errors[0] == "gone"
    assert shown.errors[1].startswith("LostRankError: Process 0 is gone")


def decoded(model: ModeModel, shards: list[Shard], keys: list[str]) -> dict[str, Tensor]:
    """Two texts that are read on in turn from caches, one without the first expert; and generated text."""
    active, fewer = ActiveParts(model, keys, "both"), ActiveParts(model, keys[1:], "fewer")
    ids, answers = some_ids(1), []
    caches = [active.new_cache(), fewer.new_cache()]
    with torch.inference_mode():
        for start, end in ((0, 5), (5, 6), (6, 9), (9, 10)):
            for one, cache in zip((active, fewer), caches, strict=True):
                answers.append(one(ids[:, start:end], Rows.all_to(one.keys[0], 1), cache)[0])
        chosen: list[int] = []
        mixing = Mixing(active, ["both"], FixedGate([1.0]))
        mixing.feed(ids[0, :4].tolist())
        for _ in range(6):
            chosen.append(int(mixing.distribution()[1].argmax()))
            mixing.feed(chosen[-1:])
        plain = model(ids[:, :10], keys)[0][0]
    return {"read": torch.cat(answers), "generated": torch.tensor(chosen), "plain": plain}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("held", LAYOUTS[1:], ids=str)
def test_experts_elsewhere_go_on_with_a_text_from_their_own_caches(tmp_path: Path, held, family: str) -> None:
    keys = [key for key in EXPERTS if any(key in some for some in held)]
    shown = together(Plan(decoded, tmp_path / "many", held, keys, family=family))
    expected = decoded(mode_model(keys, family), [], keys)
    assert not any(shown.errors)
    for name, tensor in shown.tensors[0].items():
        assert torch.equal(tensor, expected[name]), name
    in_turn = expected["read"].split((5, 5, 1, 1, 3, 3, 1, 1))[::2]
    torch.testing.assert_close(torch.cat(in_turn), expected["plain"], atol=1e-5, rtol=1e-5)


def test_a_process_that_dies_while_text_is_generated_is_named_immediately(tmp_path: Path) -> None:
    shown = together(Plan(decoded, tmp_path / "many", [["law"], ["code"]], ["law", "code"], dies=1))
    assert shown.errors[0].startswith("LostRankError: Process 1 is gone")


def test_a_text_that_has_ended_leaves_no_cache_in_another_process() -> None:
    caches, sent = _Caches(), []
    for _ in range(3):
        cache = DynamicCache()
        caches.add(cache, ["law"], 4)
        sent.append([caches.number(cache), *caches.forgotten()])
    assert sent == [[0], [1, 0], [2, 1]]
    assert (caches.num_read(cache, "law"), caches.num_read(DynamicCache(), "law")) == (4, 0)


def refused(model: ModeModel, shards: list[Shard], keys: list[str]) -> dict[str, Tensor]:
    started = DynamicCache()
    model(some_ids(), [], started)
    with pytest.raises(ModelError, match="“law” was inactive when this text started"):
        model(some_ids(), keys, started)
    with pytest.raises(ModelError, match="in this model already"):
        model.add_expert("law", model.shape_of("law"))
    older = model(some_ids(), keys)[0]
    newer = model(some_ids(), keys)[0]
    with pytest.raises(TrainingError, match="has started another pass"):
        older.sum().backward()
    newer.sum().backward()
    return {}


def test_what_cannot_be_done_with_experts_elsewhere_is_refused_and_nothing_is_broken(tmp_path: Path) -> None:
    shown: Shown = together(Plan(refused, tmp_path / "many", [["law"]], ["law"]))
    assert shown.errors == ["", ""]
    assert any(name.startswith("gradient ") for name in shown.experts)
