"""Of conversations only answers are in the loss, normalised as transformers' Trainer does."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.events import Evaluated, Step
from engine.inference.scores import (
    counted_tokens,
    losses_mixed,
    losses_of,
    mixed_perplexity,
    open_scores,
    perplexity,
    score_tokens,
    watched_blocks,
)
from engine.mixing.posterior import PosteriorGate
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import CONTEXT, COUNTED, MASK_RULE, PADDING, EvalSample, Tokens
from engine.training.data import BlockSampler, DomainText, counted_rows
from engine.training.loop import train
from engine.training.optimizer import clip_and_step, gradient_groups, make_optimizer

BLOCK = 16
CONFIG = TrainingConfig(
    num_steps=1,
    block_size=BLOCK,
    sequences_per_domain=2,
    accumulate=2,
    learning_rate=3e-3,
    evaluation_blocks=3,
    evaluate_every=1,
)


def marked(tokens: Tokens, seed: int, share: float) -> Tokens:
    """The tokens with marks: a share of them counts, and a few are padding."""
    drawn = np.random.default_rng(seed).random(len(tokens))
    marks = np.where(drawn < share, COUNTED, np.where(drawn > 0.95, PADDING, CONTEXT)).astype(np.uint8)
    return Tokens(tokens.array, tokens.starts, marks, np.zeros(1, np.int32))


def marked_texts(make_texts, keys: list[str]) -> list[DomainText]:
    shares = [0.2 + 0.6 * n / len(keys) for n in range(len(keys))]
    return [
        replace(text, train=marked(text.train, n, share), dev=marked(text.dev, n + 50, share))
        for n, (text, share) in enumerate(zip(make_texts(keys), shares, strict=True))
    ]


def labels_of(tokens: Tokens, blocks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of a block and one token more, and transformers' labels of them: -100 is left out."""
    windows = np.stack([tokens.array[b * BLOCK : (b + 1) * BLOCK + 1].astype(np.int64) for b in blocks])
    marks = np.stack([tokens.marks[b * BLOCK : (b + 1) * BLOCK + 1] for b in blocks])
    return torch.from_numpy(windows), torch.from_numpy(np.where(marks == COUNTED, windows, -100))


def test_a_step_is_that_of_transformers_with_labels_of_minus_100(make_model, make_texts, tmp_path: Path) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    model = make_model(["law"], "llama")
    theirs = copy.deepcopy(model)
    event = next(e for e in train(model, [text], CONFIG, tmp_path) if isinstance(e, Step))

    sampler = BlockSampler([text], BLOCK, 2, CONFIG.seed)
    drawn = [[sampler._drawn(text.name, 24, number * 2 + i) for i in range(2)] for number in range(2)]
    micro = [labels_of(text.train, blocks) for blocks in drawn]
    num_items = sum(int((labels[:, 1:] != -100).sum()) for _, labels in micro)
    theirs.requires_grad_(True).train()
    total = 0.0
    for windows, labels in micro:
        loss = _their_loss(theirs, windows, labels, num_items)
        loss.backward()
        total += float(loss.detach())
    assert event.loss == pytest.approx(total, rel=1e-6)
    optimizer = make_optimizer(dict(theirs.named_parameters()), CONFIG)
    clip_and_step(optimizer, gradient_groups(theirs, sampler.rows), 0, CONFIG)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, dict(theirs.named_parameters())[name]), name


def _their_loss(model: MultiExpertModel, windows: torch.Tensor, labels: torch.Tensor, num_items: int) -> torch.Tensor:
    """The loss of transformers' own model; ours only chooses the rows' expert."""
    logits = model(windows, Rows.all_to("law", len(windows)))
    return model.lm.loss_function(
        logits=logits, labels=labels, vocab_size=model.lm.config.vocab_size, num_items_in_batch=num_items
    )


def test_the_loss_of_a_block_is_cross_entropy_that_ignores_what_does_not_count(make_model, make_texts) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    model = make_model(["law"], "llama")
    sample = EvalSample.of_blocks(text.dev, BLOCK, 1)
    windows, labels = labels_of(text.dev, [0])
    with torch.no_grad():
        expected = float(_their_loss(model, windows, labels, int((labels[:, 1:] != -100).sum())))
    assert losses_of(model, "law", {"a": sample})["a"] == pytest.approx(expected, rel=3e-7)


def test_a_text_without_marks_trains_as_one_of_which_all_counts(make_model, make_texts, tmp_path: Path) -> None:
    """The mean over all tokens, and over those that count, agree where all do."""
    config = replace(CONFIG, num_steps=3, sequences_per_domain=1)
    texts = make_texts(["law", "code"])
    all_count = [replace(t, train=marked(t.train, 0, 2.0), dev=marked(t.dev, 0, 2.0)) for t in texts]
    losses = []
    for number, some in enumerate((texts, all_count)):
        events = list(train(make_model(["law", "code"]), some, config, tmp_path / str(number)))
        losses.append([list(e.loss_by_domain.values()) for e in events if isinstance(e, Step | Evaluated)])
    for ours, theirs in zip(*losses, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_held_out_blocks_without_an_answer_are_refused(make_texts) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    text = replace(text, dev=marked(text.dev, 0, 0.0))
    with pytest.raises(TrainingError, match="no token of an answer"):
        BlockSampler([text], BLOCK, 2, 0).held_out(text, 3)
    with pytest.raises(TrainingError, match="no token of an answer"):
        watched_blocks("law", text.dev, BLOCK, 3)


def test_an_experts_gradient_is_the_mean_over_its_own_answers(make_texts) -> None:
    texts = marked_texts(make_texts, ["law", "code"])
    sampler = BlockSampler(texts, BLOCK, 2, 0)
    batches = [sampler.batch(0), sampler.batch(1)]
    expected = {
        text.expert: sum(
            int(batch.counted_NT[row].sum())
            for batch in batches
            for row, name in enumerate(batch.domains)
            if name == text.name
        )
        for text in texts
    }
    rows = counted_rows(batches, sampler.rows)
    assert dict(zip(rows.keys, rows.num_rows, strict=True)) == expected


def test_scores_keep_what_counts_and_padding_is_no_evidence(make_model, make_texts, tmp_path: Path) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    model = make_model(["law", "code"])
    sample = EvalSample.of_blocks(text.dev, BLOCK, 4)
    for key in model.keys:
        (tmp_path / key).mkdir()
        list(score_tokens(model, key, sample, tmp_path / key))
    scores_EX, block_size = open_scores([tmp_path / key for key in model.keys])
    counted_X = counted_tokens(tmp_path / "law")
    is_padding_X = torch.from_numpy(sample.marks_X == PADDING)
    assert counted_X.tolist() == (sample.marks_X == COUNTED).tolist()
    assert bool((scores_EX[:, is_padding_X] == 0).all())
    assert bool((scores_EX[:, ~is_padding_X] != 0).all())
    assert math.log(perplexity(scores_EX[0], counted_X)) == pytest.approx(
        losses_of(model, "law", {"a": sample})["a"], rel=1e-6
    )
    gate = PosteriorGate([1.0, 1.0])
    mixed = losses_mixed(gate, {"a": scores_EX[:1]}, model, "code", {"a": sample}, {})["a"]
    assert mixed == pytest.approx(math.log(mixed_perplexity(gate, scores_EX, block_size, None, counted_X)), rel=1e-6)
    assert mixed != pytest.approx(math.log(mixed_perplexity(gate, scores_EX, block_size)), rel=1e-3)


def with_one_answer(tokens: Tokens) -> Tokens:
    """The tokens, of which only the last target of the last block counts."""
    marks = np.full(len(tokens), CONTEXT, np.uint8)
    marks[tokens.num_blocks(BLOCK) * BLOCK] = COUNTED
    return Tokens(tokens.array, tokens.starts, marks, tokens.documents)


def weights_of(model: MultiExpertModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_split_without_an_answer_is_refused_before_the_first_step(
    make_model, make_texts, tmp_path: Path, split: str
) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    text = replace(text, **{split: marked(getattr(text, split), 0, 0.0)})
    with pytest.raises(TrainingError, match="blocks of domain “domain law” hold no token of an answer"):
        next(iter(train(make_model(["law"], "llama"), [text], CONFIG, tmp_path)))


@pytest.mark.parametrize("balanced", [True, False])
def test_packed_blocks_without_an_answer_are_never_drawn(make_texts, balanced: bool) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    packed = marked(text.train, 0, 0.05)
    text = replace(text, train=Tokens(packed.array, packed.starts, packed.marks, packed.documents, MASK_RULE))
    sampler = BlockSampler([text], BLOCK, 2, 0, balanced=balanced)
    assert all(bool(sampler.batch(number).counted_NT.any(1).all()) for number in range(30))


def test_a_training_that_began_under_the_old_masks_draws_and_decays_as_it_did(
    make_model, make_texts, tmp_path: Path
) -> None:
    (text,) = marked_texts(make_texts, ["law"])
    train_ = with_one_answer(text.train)
    text = replace(text, train=Tokens(train_.array, train_.starts, train_.marks, train_.documents, 1))
    model = make_model(["law"], "llama")
    before, config = weights_of(model), replace(CONFIG, accumulate=1, weight_decay=0.5, evaluate_every=9)
    [step] = [event for event in train(model, [text], config, tmp_path) if isinstance(event, Step)]
    assert step.loss is None
    assert any(not torch.equal(one, before[name]) for name, one in weights_of(model).items())
