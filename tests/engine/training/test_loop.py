"""Training resumes to the bit, touches only what it may, and leaves whole checkpoints."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.config import TrainingConfig
from engine.errors import NonFiniteLossError, TrainingError
from engine.events import Evaluated, Requirements, Saved, Step, TrainingFinished
from engine.files import write_manifest
from engine.methods.joint_training import Recipe
from engine.methods.registry import methods
from engine.models.expert_model import require_context, trainable
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import EvalSample, Tokens
from engine.training.data import BlockSampler
from engine.training.loop import train
from engine.training.optimizer import GradientGroup, clip_and_step, learning_rate, make_optimizer, total_norm

KEYS = ["law", "code", "news", "verse"]
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


def losses(events) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def weights(model: MultiExpertModel) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("stop_after", [1, 5, 7, 11])
@pytest.mark.parametrize(
    ("family", "method"),
    [("llama", "demix"), ("gpt2", "demix"), ("llama", "dense"), ("gpt2", "domain-token"), ("gpt2", "lora")],
)
def test_training_resumed_is_training_uninterrupted(
    make_model, make_texts, tmp_path: Path, stop_after, family, method
) -> None:  # L17
    choice = methods()[method]
    texts = make_texts(KEYS)
    if choice.only_expert:
        texts = [replace(text, expert="law") for text in texts]
    keys = list(dict.fromkeys(text.expert for text in texts))

    shown = {"balanced": choice.balanced, "only_experts": Recipe(method).learns(keys)}

    def fresh() -> MultiExpertModel:
        return make_model(keys, family, experts_in=choice.experts_in)

    full = fresh()
    expected = losses(train(full, texts, CONFIG, tmp_path / "whole", **shown))
    first = train(fresh(), texts, CONFIG, tmp_path / "cut", **shown)
    seen: list[float] = []
    for event in first:
        seen += losses([event])
        if len(seen) == stop_after:
            break
    first.close()
    again = fresh()
    seen += losses(train(again, texts, CONFIG, tmp_path / "cut", **shown))
    assert seen == expected
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in weights(full).items())


def test_a_crash_between_checkpoints_repeats_the_same_steps(make_model, make_texts, tmp_path: Path) -> None:  # L17
    texts = make_texts(KEYS)
    expected: list[float] = []
    for event in train(make_model(KEYS), texts, CONFIG, tmp_path / "whole"):
        expected += losses([event])
        if isinstance(event, Saved) and event.step == 5:
            shutil.copytree(tmp_path / "whole", tmp_path / "crashed")  # what a later crash would have left
    assert losses(train(make_model(KEYS), texts, CONFIG, tmp_path / "crashed")) == expected[5:]


def test_a_damaged_checkpoint_is_passed_over_for_the_last_good_one(make_model, make_texts, tmp_path: Path) -> None:
    texts = make_texts(KEYS)
    expected = losses(train(make_model(KEYS), texts, CONFIG, tmp_path))
    newest = sorted(tmp_path.glob("step-*"))[-1] / "parameters.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    assert losses(train(make_model(KEYS), texts, CONFIG, tmp_path)) == expected[10:]


def test_a_checkpoint_of_other_settings_is_not_continued(make_model, make_texts, tmp_path: Path) -> None:
    texts = make_texts(KEYS)
    list(train(make_model(KEYS), texts, CONFIG, tmp_path))
    with pytest.raises(TrainingError, match="other settings"):
        list(train(make_model(KEYS), texts, replace(CONFIG, learning_rate=1e-3), tmp_path))


def test_training_learns_and_each_expert_knows_its_own_domain_best(make_model, make_texts, tmp_path: Path) -> None:
    texts = make_texts(KEYS)
    model = make_model(KEYS, noise=0.0)
    events = list(train(model, texts, replace(CONFIG, num_steps=40, clip=1.0), tmp_path))
    assert losses(events)[-1] < losses(events)[0] - 0.5
    sampler = BlockSampler(texts, 16, 2, 0)
    for text in texts:
        batch = sampler.held_out(text, 4)
        by_key = {key: _loss(model, batch, key) for key in KEYS}
        assert min(by_key, key=by_key.__getitem__) == text.expert


@torch.no_grad()
def _loss(model: MultiExpertModel, batch, key: str) -> float:
    logits = model(batch.inputs_BT, Rows.all_to(key, len(batch.inputs_BT)))
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets_BT.flatten()))


def test_training_one_expert_leaves_every_other_tensor_as_it_was(make_model, make_texts, tmp_path: Path) -> None:  # L8
    model = make_model(KEYS)
    model.add_expert("new", copy_of="law")
    before = weights(model)
    (text,) = make_texts(["new"])
    list(train(model, [text], CONFIG, tmp_path, only_experts=["new"]))
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(".experts.new." in name for name in changed)


def test_every_domain_has_the_same_number_of_sequences_and_every_block_its_turn(make_texts) -> None:
    sampler = BlockSampler(make_texts(KEYS), 16, 2, seed=0)
    assert sampler.batch(0).rows.num_rows == (2, 2, 2, 2)
    first = sampler.texts[0]
    num_blocks = first.train.num_blocks(16)
    drawn = [sampler._drawn(first.name, num_blocks, i) for i in range(2 * num_blocks)]
    assert sorted(drawn[:num_blocks]) == sorted(drawn[num_blocks:]) == list(range(num_blocks))
    assert drawn[:num_blocks] != drawn[num_blocks:]


def test_text_of_the_full_size_comes_from_all_domains_in_proportion_each_block_once_an_epoch(make_texts) -> None:
    small, large = make_texts(["law", "code"])
    large = replace(large, train=Tokens(np.tile(large.train.array, 3), large.train.starts), expert="law")
    sampler = BlockSampler([small, large], 16, 2, seed=0, balanced=False)
    sizes = {text.name: text.train.num_blocks(16) for text in (small, large)}
    num_batches = 2 * sum(sizes.values()) // 4
    batches = [sampler.batch(number) for number in range(num_batches)]
    assert all(batch.rows == sampler.rows == Rows(("law",), (4,)) for batch in batches)
    names = [name for batch in batches for name in batch.domains]
    assert Counter(names) == {name: 2 * size for name, size in sizes.items()}
    assert len({batch.domains for batch in batches}) > 2  # not the same shares in each
    of_small = [
        row.tobytes() for b in batches for row, n in zip(b.inputs_BT.numpy(), b.domains, strict=True) if n == small.name
    ]
    assert set(Counter(of_small).values()) == {2}


@pytest.mark.parametrize("balanced", [True, False])
def test_a_limit_of_sequences_draws_the_same_ones_again_and_again_from_all_over_the_text(make_texts, balanced) -> None:
    texts = [replace(text, expert="one") for text in make_texts(["law", "code"])]
    sampler = BlockSampler(texts, 16, 2, seed=0, balanced=balanced, max_sequences=3)
    batches = [sampler.batch(number) for number in range(9)]  # 36 sequences: each of six 6 times
    drawn = Counter(row.tobytes() for batch in batches for row in batch.inputs_BT.numpy())
    assert set(drawn.values()) == {6}
    for text in texts:
        places = [one * text.train.num_blocks(16) // 3 for one in range(3)]
        assert {text.train.block(place, 16)[0].astype("int64").tobytes() for place in places} <= set(drawn)
    full = BlockSampler(texts, 16, 2, seed=0, balanced=balanced, max_sequences=10**6)
    free = BlockSampler(texts, 16, 2, seed=0, balanced=balanced)
    assert all(torch.equal(full.batch(n).inputs_BT, free.batch(n).inputs_BT) for n in range(3))


def test_a_dense_step_reports_the_mean_over_tokens_and_only_domains_that_it_saw(
    make_model, make_texts, tmp_path: Path
) -> None:
    texts = [replace(text, expert="one") for text in make_texts(KEYS)]
    config = replace(CONFIG, sequences_per_domain=1, accumulate=2)
    steps = [e for e in train(make_model(["one"]), texts, config, tmp_path, balanced=False) if isinstance(e, Step)]
    sampler = BlockSampler(texts, 16, 1, config.seed, balanced=False)
    for number, step in enumerate(steps):
        counts = Counter(sampler.batch(2 * number).domains) + Counter(sampler.batch(2 * number + 1).domains)
        assert set(step.loss_by_domain) == set(counts)
        total = sum(step.loss_by_domain[name] * count for name, count in counts.items())
        assert step.loss == pytest.approx(total / 8)
    assert any(len(step.loss_by_domain) < len(KEYS) for step in steps)


def test_gradients_are_means_over_all_for_what_is_shared_and_over_its_domain_for_an_expert(
    make_model, make_texts, tmp_path: Path, monkeypatch
) -> None:
    texts = make_texts(KEYS)

    monkeypatch.setattr(torch.optim.AdamW, "zero_grad", lambda *_, **__: None)  # leaves what the update saw
    model = make_model(KEYS)
    next(one for one in train(model, texts, replace(CONFIG, clip=0.0), tmp_path) if isinstance(one, Step))
    seen = {name: p.grad for name, p in trainable(model, None).items()}
    means = [_gradients_of_one_domain(make_model(KEYS), texts, text.expert) for text in texts]
    for name, gradient in seen.items():
        own = [mean[name] for mean in means if name in mean]
        assert len(own) == (1 if ":" in name else len(KEYS))
        torch.testing.assert_close(gradient, torch.stack(own).mean(0), atol=1e-6, rtol=1e-4)


def _gradients_of_one_domain(model: MultiExpertModel, texts, key: str) -> dict[str, torch.Tensor]:
    """Of the mean loss over the first batch's sequences of one domain alone."""
    batch = BlockSampler(texts, 16, 2, CONFIG.seed).batch(0)
    first = 2 * batch.rows.keys.index(key)
    logits = model.train()(batch.inputs_BT[first : first + 2], Rows.all_to(key, 2))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets_BT[first : first + 2].flatten())
    loss.backward()
    named = {**model.shared_parameters(), **model.expert_parameters(key)}
    return {name: p.grad for name, p in named.items()}


def test_accumulated_batches_are_one_update_of_their_mean(make_model, make_texts, tmp_path: Path) -> None:
    texts = make_texts(KEYS)
    events = list(train(make_model(KEYS), texts, replace(CONFIG, accumulate=3, num_steps=2), tmp_path))
    steps = [event for event in events if isinstance(event, Step)]
    assert len(steps) == 2
    assert steps[0].num_tokens == 3 * 4 * 2 * 16


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_evaluation_is_of_the_held_out_tokens_and_no_pass_holds_all_logits(
    make_model, make_texts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    model, texts, passes_with_all = make_model(KEYS), make_texts(KEYS), []
    config = replace(CONFIG, num_steps=1, evaluate_every=1, precision=precision)
    real = MultiExpertModel.forward

    def forward(*shown) -> torch.Tensor:
        passes_with_all.append(torch.is_grad_enabled())
        return real(*shown)

    monkeypatch.setattr(MultiExpertModel, "forward", forward)
    _, result = (
        event.loss_by_domain for event in train(model, texts, config, tmp_path / "t") if isinstance(event, Evaluated)
    )
    assert not passes_with_all
    for text in texts:
        starts = EvalSample.of_blocks(text.dev, 16, CONFIG.evaluation_blocks).starts_N
        ids = torch.from_numpy(np.stack([text.dev.array[at : at + 17] for at in starts]).astype("int64"))
        with torch.no_grad():
            logits = real(model, ids[:, :-1], Rows.all_to(text.expert, len(ids)))
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        assert result[text.name] == pytest.approx(float(expected), rel=1e-5 if precision == "fp32" else 2e-2)


def test_a_loss_that_is_no_number_stops_before_anything_is_updated(make_model, make_texts, tmp_path: Path) -> None:
    model = make_model(KEYS)
    with torch.no_grad():
        next(iter(model.expert_parameters("code").values())).fill_(float("nan"))
    before = weights(model)
    with pytest.raises(NonFiniteLossError, match="nothing was updated"):
        list(train(model, make_texts(KEYS), CONFIG, tmp_path))
    assert all(
        torch.equal(tensor.nan_to_num(), before[name].nan_to_num()) for name, tensor in model.state_dict().items()
    )
    assert not list(tmp_path.glob("step-*"))


def test_a_last_update_that_breaks_the_weights_is_no_training(make_model, make_texts, tmp_path: Path) -> None:
    config = replace(CONFIG, num_steps=1)
    object.__setattr__(config, "learning_rate", math.inf)  # nobody may ask for it
    with pytest.raises(NonFiniteLossError, match="after step 1 is "):
        list(train(make_model(["law"]), make_texts(["law"]), config, tmp_path))
    assert not list(tmp_path.glob("step-*"))


def test_a_domain_with_too_little_text_is_refused_by_name(make_model, make_texts, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"“domain law” has .* less than one block of 500"):
        train(make_model(KEYS), make_texts(KEYS), replace(CONFIG, block_size=500), tmp_path)


def test_blocks_longer_than_the_context_are_refused(model: MultiExpertModel) -> None:
    context = {"ffn": 64, "token": 63, "adapter": 64}[model.experts_in]
    require_context(model, context)
    with pytest.raises(
        TrainingError, match=f"block_size {context + 1} is above the model.s context of {context} tokens"
    ):
        require_context(model, context + 1)


def test_events_come_in_order_and_the_last_step_is_evaluated_and_saved(make_model, make_texts, tmp_path: Path) -> None:
    events = list(train(make_model(KEYS), make_texts(KEYS), CONFIG, tmp_path))
    assert [event.step for event in events if isinstance(event, Evaluated)] == [0, 4, 8, 12]
    assert [event.step for event in events if isinstance(event, Saved)] == [5, 10, 12]
    assert isinstance(events[0], Requirements)
    assert set(events[2].loss_by_domain) == {f"domain {key}" for key in KEYS}
    assert len(list(tmp_path.glob("step-*"))) == 2


# early stopping --------------------------------------------------------------------------------------

PATIENT = replace(CONFIG, num_steps=60, learning_rate=0.1, clip=1.0, evaluate_every=2, patience=3)  # soon too much


def test_with_patience_training_stops_early_and_the_model_holds_the_best_weights(
    make_model, make_texts, tmp_path: Path
) -> None:
    texts, model, seen = make_texts(KEYS), make_model(KEYS), {}
    for event in train(model, texts, PATIENT, tmp_path):
        if isinstance(event, Evaluated):
            seen[event.step] = (sum(event.loss_by_domain.values()), weights(model))
    assert isinstance(event, TrainingFinished)
    steps = list(seen)
    best = min(steps, key=lambda step: seen[step][0])
    assert (event.step, event.num_steps, event.max_steps) == (best, steps[-1], 60)
    assert 0 < best == steps[-1 - PATIENT.patience] < steps[-1] < 60
    assert all(torch.equal(tensor, seen[best][1][name]) for name, tensor in weights(model).items())
    again = make_model(KEYS)
    assert list(train(again, texts, PATIENT, tmp_path)) == [event]  # the last checkpoint is those weights
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in weights(model).items())


def test_a_training_that_only_makes_it_worse_keeps_the_weights_it_began_with(
    make_model, make_texts, tmp_path: Path
) -> None:
    model = make_model(KEYS)
    before, wild = weights(model), replace(PATIENT, learning_rate=3.0, warmup=0.0, clip=0.0, patience=2)
    settled = list(train(model, make_texts(KEYS), wild, tmp_path))[-1]
    assert (settled.step, settled.num_steps) == (0, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(model).items())


def test_with_patience_to_the_end_the_best_weights_are_kept_too(make_model, make_texts, tmp_path: Path) -> None:
    model, seen = make_model(KEYS), {}
    for event in train(model, make_texts(KEYS), replace(PATIENT, patience=50), tmp_path):
        if isinstance(event, Evaluated):
            seen[event.step] = weights(model)
    assert event.num_steps == event.max_steps == 60
    assert event.step < 60
    assert all(torch.equal(tensor, seen[event.step][name]) for name, tensor in weights(model).items())


def cut_before(events, stop_at) -> list:
    """Everything up to the n-th event, at which the caller leaves."""
    seen = []
    for event in events:
        seen.append(event)
        if len(seen) == stop_at:
            events.close()
            break
    return seen


def test_early_stopping_resumed_after_any_event_is_uninterrupted(make_model, make_texts, tmp_path: Path) -> None:  # L17
    texts, full = make_texts(KEYS), make_model(KEYS)
    expected = _shown(train(full, texts, PATIENT, tmp_path / "whole"))
    for stop_at in range(1, len(expected) + 8, 4):  # Saving and Saved come between
        folder = tmp_path / f"cut-{stop_at}"
        first = _shown(cut_before(train(make_model(KEYS), texts, PATIENT, folder), stop_at))
        again = make_model(KEYS)
        second = _shown(train(again, texts, PATIENT, folder))
        assert list(dict.fromkeys([*first, *second])) == expected
        assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in weights(full).items())


def _shown(events) -> list:
    """Steps by their losses, and everything that early stopping says."""
    shown = []
    for event in events:
        match event:
            case Step():
                shown.append((event.step, event.loss))
            case Evaluated() | TrainingFinished():
                shown.append((type(event).__name__, event.step, *event.loss_by_domain.values()))
    return shown


def test_an_evaluation_that_a_stop_cut_off_is_made_up_for(make_model, make_texts, tmp_path: Path) -> None:
    texts = make_texts(KEYS)
    first = cut_before(train(make_model(KEYS), texts, CONFIG, tmp_path), 6)
    assert [event.step for event in first[1:]] == [0, 1, 2, 3, 4]
    second = list(train(make_model(KEYS), texts, CONFIG, tmp_path))
    assert [event.step for event in second if isinstance(event, Evaluated)] == [4, 8, 12]


def test_what_is_watched_is_reported_from_the_start_and_changes_nothing(make_model, make_texts, tmp_path: Path) -> None:
    texts, plain, watched = make_texts(KEYS), make_model(KEYS), make_model(KEYS)
    expected = losses(train(plain, texts, PATIENT, tmp_path / "plain"))
    looks = iter(range(100, 0, -1))  # ever better, while the training gets worse
    events = list(train(watched, texts, PATIENT, tmp_path / "watched", watch=lambda: {"other": float(next(looks))}))
    shown = [event for event in events if isinstance(event, Evaluated)]
    assert losses(events) == expected
    assert [(event.step, event.loss_by_domain["other"]) for event in shown[:3]] == [(0, 100.0), (2, 99.0), (4, 98.0)]
    assert "other" not in events[-1].loss_by_domain
    assert all(torch.equal(tensor, watched.state_dict()[name]) for name, tensor in weights(plain).items())


def test_every_training_is_evaluated_before_its_first_update(make_model, make_texts, tmp_path: Path) -> None:
    events = list(train(make_model(KEYS), make_texts(KEYS), CONFIG, tmp_path))
    assert [type(event) for event in events[:3]] == [Requirements, Evaluated, Step]
    assert events[-1].loss_at_start == events[1].loss_by_domain
    assert isinstance(events[-2], Saved)
    assert not list(tmp_path.glob("step-*/best.safetensors"))


def test_a_training_that_ends_worse_than_it_began_says_so(make_model, make_texts, tmp_path: Path) -> None:
    model, texts, rash = make_model(KEYS), make_texts(KEYS), replace(CONFIG, learning_rate=1.0, clip=0.0)
    *_, good = train(make_model(KEYS), texts, replace(CONFIG, learning_rate=1e-2), tmp_path / "good")
    *_, bad = train(model, texts, rash, tmp_path / "bad")
    assert not good.worse
    assert bad.worse == {name: (bad.loss_at_start[name], loss) for name, loss in bad.loss_by_domain.items()}


def test_where_a_training_began_is_known_when_it_is_resumed(make_model, make_texts, tmp_path: Path) -> None:
    texts = make_texts(KEYS)
    *_, expected = train(make_model(KEYS), texts, CONFIG, tmp_path / "uncut")
    cut_before(train(make_model(KEYS), texts, CONFIG, tmp_path / "cut"), 9)
    *_, resumed = train(make_model(KEYS), texts, CONFIG, tmp_path / "cut")
    assert resumed == expected


def test_a_training_that_was_over_when_it_was_cut_says_again_how_it_ended(
    make_model, make_texts, tmp_path: Path
) -> None:
    texts, seen = make_texts(KEYS), {}
    for event in train(make_model(KEYS), texts, CONFIG, tmp_path):
        if isinstance(event, Evaluated):
            seen = event.loss_by_domain
    assert event == TrainingFinished(12, 12, 12, seen, event.loss_at_start)
    assert list(train(make_model(KEYS), texts, CONFIG, tmp_path)) == [event]


def test_a_checkpoint_from_before_there_was_patience_is_continued(make_model, make_texts, tmp_path: Path) -> None:
    texts, model = make_texts(KEYS), make_model(KEYS)
    expected = losses(train(make_model(KEYS), texts, CONFIG, tmp_path / "whole"))
    first = train(model, texts, CONFIG, tmp_path / "old")
    cut = losses(cut_before(first, 5))
    card = tmp_path / "old" / "step-00000003" / "checkpoint.json"
    shown = json.loads(card.read_text())
    del shown["course"], shown["config"]["patience"]
    card.write_text(json.dumps(shown))
    write_manifest(card.parent)
    assert cut + losses(train(make_model(KEYS), texts, CONFIG, tmp_path / "old")) == expected


def test_the_rate_rises_over_the_warm_up_and_falls_to_zero_in_a_line() -> None:
    config = TrainingConfig(num_steps=100, learning_rate=1.0, warmup=0.08)
    rates = [learning_rate(step, config) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 8)
    assert max(rates) == rates[7] == rates[8] == pytest.approx(1.0)
    assert rates[54] == pytest.approx(0.5, abs=0.01)
    assert 0 < rates[-1] < 0.02


def test_one_clip_bounds_the_norm_of_all_gradients_together(model: MultiExpertModel) -> None:
    parameters = trainable(model, None)
    for number, parameter in enumerate(parameters.values()):
        parameter.grad = torch.full_like(parameter, 0.1 * (number % 3 + 1))
    halves = list(parameters.values())
    groups = [GradientGroup(halves[:10]), GradientGroup(halves[10:], factor=4.0)]
    expected = torch.cat([(g * group.factor).flatten() for group in groups for g in group.gradients])
    assert total_norm(groups) == pytest.approx(float(expected.double().norm()), rel=1e-5)
    optimizer = make_optimizer(parameters, CONFIG)
    optimizer.zero_grad = lambda **_: None  # type: ignore[method-assign]
    clip_and_step(optimizer, groups, 0, replace(CONFIG, clip=0.5))
    clipped = torch.cat([g.flatten() for group in groups for g in group.gradients])
    assert float(clipped.norm()) == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(clipped / clipped.norm(), expected / expected.norm())
