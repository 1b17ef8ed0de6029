"""MoDE's two stages by the project's training loop: what learns, what does not, and that it does learn."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.config import SamplingConfig, TrainingConfig
from engine.errors import ModelError
from engine.events import Evaluated, Step, Token
from engine.inference.generate import generate
from engine.inference.mixing import Mixing
from engine.inference.scores import score_text
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.parts.method import Learning
from engine.methods.parts.parts_model import ActiveParts
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.fixed import FixedGateConfig
from engine.models.rows import Rows
from engine.text.blocks import Tokens, eval_sample
from engine.training.data import DomainText
from engine.training.loop import train
from tests.engine.methods.mode.backbones import FAMILIES, SHAPE, backbone, dropping, mode_model, plain_logits, some_ids

CONFIG = TrainingConfig(
    num_steps=12,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=5,
    evaluate_every=4,
    evaluation_blocks=2,
    seed=1,
)
LONG = replace(CONFIG, num_steps=60, evaluate_every=60, learning_rate=2e-2, clip=1.0)
SINGLE = FixedGateConfig()


def new_model(family: str = "llama", config: ModeConfig = SHAPE, dropout: float = 0.0) -> ModeModel:
    model = ModeModel(backbone(family), config.num_blocks)
    model.add_expert("law", config)
    return dropping(model, dropout)


def learning(active: ActiveParts, texts, folder: Path, config: TrainingConfig = CONFIG) -> list:
    """The events of a training of all these texts."""
    named = [replace(text, expert=active.keys[0]) for text in texts]
    return list(train(active, named, config, folder, only_experts=active.keys))


def rounds() -> list[DomainText]:
    """Two domains that go round and round through ten tokens of their own: soon learnt."""
    shown = [
        Tokens(np.tile(np.arange(first, first + 10, dtype=np.uint16), 40), np.zeros(1, np.int64)) for first in (50, 90)
    ]
    return [DomainText(f"domain {key}", key, one, one) for key, one in zip(("law", "code"), shown, strict=True)]


def copies(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(model: torch.nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


def names_of(model: ModeModel, key: str) -> set[str]:
    """What an expert's parameters are called in the model; a backbone may have “experts” of its own."""
    own = {id(one) for one in model.expert_parameters(key).values()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in own}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("start", ["backbone", "even"])
def test_stage_one_changes_every_tensor_of_the_expert_and_none_of_the_backbone(
    make_texts, tmp_path: Path, family: str, start
) -> None:
    model = new_model(family, replace(SHAPE, start=start))
    before = copies(model)
    still = set(dict(model.named_parameters())) - names_of(model, "law")
    learning(ActiveParts(model, ["law"], "law"), make_texts(["law"]), tmp_path)
    assert changed(model, before) == set(dict(model.named_parameters())) - still
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if name in still)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_expert_that_copies_its_full_block_starts_as_the_backbone_and_learns_immediately(family: str) -> None:
    lm, config = backbone(family), ModeConfig(5, 1)
    model, ids = ModeModel(copy.deepcopy(lm), 5), some_ids()
    model.add_expert("law", config)
    logits = model(ids, ["law"])[0]
    assert torch.equal(logits, plain_logits(lm, ids))
    logits.logsumexp(-1).mean().backward()
    layers = [parameter for name, parameter in model.expert_parameters("law").items() if ".layers." in name]
    assert sum(bool((layer.grad != 0).any()) for layer in layers) > 0.9 * len(layers)


@pytest.mark.parametrize("learning", ["experts", "gates"])
def test_what_learns_separately_is_in_training_mode(learning: Learning) -> None:
    model = mode_model(["law", "code"])
    active = ActiveParts(model, ["law"], "law", learning).train()
    modes = {name for name, one in model.named_modules() if one.training}
    assert modes == {name for name, _ in model.named_modules() if ".experts.law" in name and learning == "experts"}
    assert active.training
    assert not any(module.training for module in active.eval().modules())


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_what_is_frozen_drops_nothing_out(family: str) -> None:
    """A closed expert, and a twin whose gates alone learn, are the backbone in training mode, too."""
    lm, ids = backbone(family), some_ids()
    plain = plain_logits(lm, ids)
    for config, learning in ((ModeConfig(2, 1), "experts"), (ModeConfig(5, 1), "gates")):
        active = ActiveParts(new_model(family, config, dropout=0.5), ["law"], "law", learning)
        assert torch.equal(active.train()(ids, Rows.all_to("law", 3)), plain)
    learns = ActiveParts(new_model(family, ModeConfig(5, 1), dropout=0.5), ["law"], "law")
    assert not torch.equal(learns.train()(ids, Rows.all_to("law", 3)), plain)
    assert torch.equal(learns.eval()(ids, Rows.all_to("law", 3)), plain)


def test_nothing_is_computed_backward_below_the_first_gate() -> None:
    model = new_model(config=replace(SHAPE, start="even"))
    result: list[torch.Tensor] = []
    for block in model.lm.model.layers:
        block.register_forward_hook(lambda _, given, out: result.extend([given[0], out]))
        block.backbone[0].register_forward_hook(lambda *shown: result.append(shown[-1]))
    model(some_ids(), ["law"])[0].sum().backward()
    inside, before, after, inside_second, _, last = result
    assert not before.requires_grad
    assert not inside.requires_grad
    assert after.requires_grad
    assert inside_second.requires_grad  # the way back to the first gate leads through the backbone
    assert last.requires_grad


def test_a_closed_expert_opens_with_the_first_update_and_learns_from_the_second_on() -> None:
    model = new_model(config=ModeConfig(2, 1))
    parameters = model.expert_parameters("law")
    optimizer = torch.optim.SGD(parameters.values(), lr=1e-3)
    layers = {name for name in parameters if ".layers." in name}
    moved = []
    for _ in range(2):
        model(some_ids(), ["law"])[0].logsumexp(-1).mean().backward()
        moved.append({name for name, parameter in parameters.items() if bool((parameter.grad != 0).any())})
        optimizer.step()
        optimizer.zero_grad()
    assert moved[0] == {name for name in parameters if name.endswith("odds")}
    assert moved[1] >= layers


@pytest.mark.parametrize("config", [SHAPE, replace(SHAPE, init="random"), replace(SHAPE, start="even")])
def test_stage_one_learns_a_domain(tmp_path: Path, config: ModeConfig) -> None:
    model = new_model(config=config)
    active = ActiveParts(model, ["law"], "law")
    texts = rounds()
    excerpt = eval_sample(texts[0].dev.array.astype("int64"), 16)
    by_itself = -score_text(ActiveParts(model, [], "backbone"), "backbone", excerpt).mean()
    *_, shown = [event for event in learning(active, texts[:1], tmp_path, LONG) if isinstance(event, Evaluated)]
    model.eval()
    after = -score_text(active, "law", excerpt).mean()
    assert shown.loss_by_domain == pytest.approx({"domain law": after}, abs=0.1)  # on two of its blocks
    assert after < by_itself - 2
    assert -score_text(ActiveParts(model, [], "backbone"), "backbone", excerpt).mean() == by_itself
    assert active.weights is not None
    assert float(active.weights[:, 1].mean()) > 0.02


@pytest.mark.parametrize(("family", "dropout"), [("llama", 0.0), ("gpt2", 0.3)])
@pytest.mark.parametrize("stop_after", [1, 5, 7])
def test_a_training_resumed_is_a_training_uninterrupted(  # L17
    make_texts, tmp_path: Path, family, dropout: float, stop_after
) -> None:
    texts = make_texts(["law"])
    full, again, cut = (new_model(family, dropout=dropout) for _ in range(3))
    expected = learning(ActiveParts(full, ["law"], "law"), texts, tmp_path / "whole")
    losses = [event.loss for event in expected if isinstance(event, Step)]
    first = train(ActiveParts(cut, ["law"], "law"), texts, CONFIG, tmp_path / "cut")
    seen: list[float] = []
    for event in first:
        seen += [event.loss] if isinstance(event, Step) else []
        if len(seen) == stop_after:
            break
    first.close()
    rest = learning(ActiveParts(again, ["law"], "law"), texts, tmp_path / "cut")
    assert seen + [event.loss for event in rest if isinstance(event, Step)] == losses
    assert not changed(again, copies(full))


@pytest.mark.parametrize("frozen", [True, False])
def test_composing_trains_the_gates_and_the_experts_unless_frozen(make_texts, tmp_path: Path, frozen: bool) -> None:
    model = mode_model(["law", "code", "news"])
    before = copies(model)
    texts = make_texts(["law", "code"])
    composed = ActiveParts(model, ["law", "code"], "both", "gates" if frozen else "experts")
    events = learning(composed, texts, tmp_path)
    steps = [event for event in events if isinstance(event, Step)]
    assert all(set(step.loss_by_domain) == {"domain law", "domain code"} for step in steps)  # equal samples of each
    wanted = names_of(model, "law") | names_of(model, "code")
    layers = {name for name in wanted if not name.endswith((".slope", ".odds"))}
    assert changed(model, before) == (wanted - layers if frozen else wanted)


def test_gates_trained_separately_learn_to_choose(tmp_path: Path) -> None:
    model, texts = ModeModel(backbone(), 2), rounds()
    for text, key in zip(texts, ("law", "code"), strict=True):
        model.add_expert(key, SHAPE)
        learning(ActiveParts(model, [key], key), [text], tmp_path / key, LONG)
    composed = ActiveParts(model, ["law", "code"], "both", "gates")
    before = held_out(model, composed, texts)
    learning(composed, texts, tmp_path / "both", LONG)
    assert held_out(model, composed, texts) < before - 0.2


def held_out(model: ModeModel, active: ActiveParts, texts) -> float:
    """The mean loss on all held-out text."""
    model.eval()
    excerpts = [eval_sample(text.dev.array.astype("int64"), 16) for text in texts]
    return -sum(float(score_text(active, active.keys[0], excerpt).mean()) for excerpt in excerpts) / len(excerpts)


def test_a_training_in_bf16_learns_too(make_texts, tmp_path: Path) -> None:
    model = new_model(config=replace(SHAPE, start="even"))
    config = replace(LONG, num_steps=30, precision="bf16")
    losses = [
        e.loss
        for e in learning(ActiveParts(model, ["law"], "law"), make_texts(["law"]), tmp_path, config)
        if isinstance(e, Step)
    ]
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize("family", FAMILIES)
def test_generations_distribution_is_the_scorers(family: str) -> None:  # L13
    model, ids = mode_model(["law", "code"], family), some_ids(1, 10)[0].tolist()
    for keys in ([], ["law"], ["law", "code"]):
        active = ActiveParts(model, keys, "chosen")
        mixing = Mixing(active, ["chosen"], build_gate(SINGLE, [1.0]))  # type: ignore[arg-type]
        observed = [float(after[0]) for token in ids for _, after in mixing.read([token])]
        torch.testing.assert_close(
            torch.tensor(observed),
            torch.from_numpy(score_text(active, "chosen", eval_sample(ids, 16))),
            atol=1e-5,
            rtol=0,
        )  # type: ignore[arg-type]
        assert float(mixing.distribution()[1].exp().sum()) == pytest.approx(1, abs=1e-5)


def test_generation_draws_from_the_active_experts_and_shows_their_weights(tokenizer) -> None:
    model = mode_model(["law", "code"])
    message = {}
    for keys in ((), ("law",), ("law", "code")):
        active = ActiveParts(model, keys, "chosen")
        events = generate(
            active, ["chosen"], build_gate(SINGLE, [1.0]), tokenizer, "the court", SamplingConfig(8, temperature=0)
        )
        message[keys] = [event.logprob for event in events if isinstance(event, Token)]
        assert active.weights is not None
        assert active.weights.shape == (2, 1 + len(keys), 1, 1)  # of the last token that was read
    assert len(set(map(tuple, message.values()))) == 3


def test_rows_of_another_name_are_refused() -> None:
    active = ActiveParts(mode_model(["law"]), ["law"], "chosen")
    with pytest.raises(ModelError, match=r"no expert “law”\. Known: chosen"):
        active(some_ids(), Rows.all_to("law", 3))
