"""Training on conversations that are kept apart: each is in the gradient as if it were alone in its block.

What is compared in fp32 agrees within 1e-5: a block with a mask is computed by another kernel than a text by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.config import TrainingConfig
from engine.errors import ModelError, TrainingError
from engine.events import Evaluated, Step
from engine.methods.multi_expert_files import new_placement
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import CONTEXT, COUNTED, PADDING, Tokens
from engine.text.chat.blocks import layout
from engine.training.data import Batch, BlockSampler, DomainText
from engine.training.loop import train
from engine.training.optimizer import clip_and_step, gradient_groups, make_optimizer
from tests.engine.conftest import VOCAB
from tests.engine.models.tiny_families import tiny_model

BLOCK = 16
CONFIG = TrainingConfig(
    num_steps=1,
    block_size=BLOCK,
    sequences_per_domain=2,
    accumulate=2,
    learning_rate=3e-3,
    evaluation_blocks=3,
    evaluate_every=1,
    separate_conversations=True,
)
OFF = replace(CONFIG, separate_conversations=False)


def conversations(lengths: list[int], seed: int, block_size: int = BLOCK, filler: int = 0) -> Tokens:
    """Conversations of these lengths in blocks, as `pack_conversations` writes them; half of their tokens count."""
    random = np.random.default_rng(seed)
    ids, marks, starts, documents = [], [], [], []
    blocks = layout(lengths, block_size)
    for number, block in enumerate(blocks, 1):
        for piece in block:
            if piece.first == 0:
                starts.append(len(ids))
                documents.append(piece.number)
            size = piece.stop - piece.first
            ids += random.integers(1, VOCAB, size).tolist()
            counts = random.random(size) < 0.5
            counts[0] &= piece.first > 0
            marks += np.where(counts, COUNTED, CONTEXT).tolist()
        missing = number * block_size - len(ids)
        ids += [filler] * missing
        marks += [PADDING] * missing
    arrays = (np.array([*ids, filler], np.uint16), np.array(starts, np.int64), np.array([*marks, PADDING], np.uint8))
    return Tokens(*arrays, np.array(documents, np.int32))


def chats(keys: list[str], filler: int = 0) -> list[DomainText]:
    return [
        DomainText(
            f"domain {key}",
            key,
            conversations([7, 5, 4, 9, 6, 3, 8, 2, 37, 6, 6] * 3, n, filler=filler),
            conversations([5, 6, 4, 9, 6, 11, 3], 50 + n, filler=filler),
        )
        for n, key in enumerate(keys)
    ]


def spans(positions_T: np.ndarray) -> Iterator[slice]:
    """The texts of a row, of what fills it also."""
    starts = [*np.flatnonzero(positions_T == 0).tolist(), len(positions_T)]
    yield from (slice(*both) for both in pairwise(starts))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(2, 16))
def test_positions_count_in_each_conversation(lengths: list[int], block_size: int) -> None:
    tokens = conversations(lengths, 0, block_size)
    blocks = layout(lengths, block_size)
    assert tokens.num_blocks(block_size) == len(blocks)
    for number, block in enumerate(blocks):
        sizes = [piece.stop - piece.first for piece in block]
        expected = [place for size in (*sizes, block_size - sum(sizes)) for place in range(size)]
        assert tokens.positions(number, block_size).tolist() == expected


def test_positions_of_a_text_are_those_in_its_block(make_tokens) -> None:
    tokens = make_tokens(0, 100)
    assert tokens.positions(1, BLOCK).tolist() == list(range(BLOCK))


def sampler_of(texts: list[DomainText], config: TrainingConfig = CONFIG) -> BlockSampler:
    return BlockSampler(texts, BLOCK, 2, config.seed, separate=config.separate_conversations)


def test_only_conversations_that_are_kept_apart_have_positions(make_texts) -> None:
    (text,), (chat,) = make_texts(["law"]), chats(["code"])
    assert sampler_of([text]).batch(0).position_ids_BT is None
    assert sampler_of([chat], OFF).batch(0).position_ids_BT is None
    batch = sampler_of([text, chat]).batch(2)
    is_text = torch.tensor([name == text.name for name in batch.domains])
    assert batch.position_ids_BT[is_text].tolist() == [list(range(BLOCK))] * 2
    assert (batch.position_ids_BT[~is_text] == 0).sum() > 2


def train_by_conversation(model, batches: list[Batch]) -> float:
    """Gradients of every conversation alone, by the model of transformers; returns the sum of the losses."""
    num_counted = sum(int(batch.counted_NT.sum()) for batch in batches)
    total = 0.0
    for batch in batches:
        for row, positions_T in enumerate(batch.position_ids_BT.numpy()):
            for span in spans(positions_T):
                labels = batch.targets_BT[row, span].masked_fill(~batch.counted_BT[row, span], -100)
                logits = model(batch.inputs_BT[row : row + 1, span], Rows.all_to("law", 1))[0]
                loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / num_counted
                loss.backward()
                total += float(loss.detach())
    return total


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_a_step_is_the_sum_of_steps_on_each_conversation(make_model, tmp_path: Path, family: str) -> None:
    texts, config = chats(["law"]), replace(CONFIG, epsilon=1e-3)  # else Adam makes tiny gradients as large as others
    ours = make_model(["law"], family)
    theirs = copy.deepcopy(ours).requires_grad_(True).train()
    (loss,) = [event.loss for event in train(ours, texts, config, tmp_path) if isinstance(event, Step)]
    sampler = sampler_of(texts)
    assert loss == pytest.approx(train_by_conversation(theirs, [sampler.batch(0), sampler.batch(1)]), rel=1e-5)
    groups = gradient_groups(theirs, sampler.rows)
    assert max(float(gradient.norm()) for group in groups for gradient in group.gradients) > 0.1
    clip_and_step(make_optimizer(dict(theirs.named_parameters()), config), groups, 0, config)
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter, dict(theirs.named_parameters())[name], atol=1e-6, rtol=1e-5)


def test_held_out_losses_keep_conversations_apart(make_model, tmp_path: Path) -> None:
    texts = chats(["law"])
    model = make_model(["law"])
    config = replace(CONFIG, patience=1)  # evaluates before the first step
    first = next(e for e in train(model, texts, config, tmp_path) if isinstance(e, Evaluated))
    sampler = sampler_of(texts)
    batch = sampler.held_out(texts[0], 3)
    assert first.loss_by_domain[texts[0].name] == pytest.approx(train_by_conversation(model, [batch]), rel=1e-5)


def weights_after(model, texts: list[DomainText], config: TrainingConfig, folder: Path) -> dict[str, torch.Tensor]:
    for _ in train(model, texts, replace(config, num_steps=3), folder):
        pass
    return model.state_dict()


def test_what_fills_a_block_changes_nothing(make_model, tmp_path: Path) -> None:
    ours, theirs = (
        weights_after(make_model(["law"]), chats(["law"], filler), CONFIG, tmp_path / str(filler)) for filler in (0, 9)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_texts_train_to_the_bit_as_without_the_option(make_model, make_texts, tmp_path: Path) -> None:
    keys = ["law", "code"]
    ours, theirs = (
        weights_after(make_model(keys), make_texts(keys), config, tmp_path / str(n))
        for n, config in enumerate((CONFIG, OFF))
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_conversations_train_otherwise_with_it(make_model, tmp_path: Path) -> None:
    ours, theirs = (
        weights_after(make_model(["law"]), chats(["law"]), config, tmp_path / str(n))
        for n, config in enumerate((CONFIG, OFF))
    )
    assert not all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_seed_that_cannot_keep_them_apart_is_refused_before_the_first_step(make_tokens, tmp_path: Path) -> None:
    model = MultiExpertModel(tiny_model("bloom"), ["law"], new_placement())
    with pytest.raises(TrainingError, match="“bloom” cannot keep the conversations of a block apart") as refused:
        next(train(model, chats(["law"]), CONFIG, tmp_path))
    assert "separate_conversations" in refused.value.next_step
    text = DomainText("a text", "law", make_tokens(0, 400, high=64), make_tokens(1, 100, high=64))
    assert any(isinstance(one, Step) for one in train(model, [text], CONFIG, tmp_path))


def test_experts_before_the_text_are_refused(make_model, tmp_path: Path) -> None:
    model = make_model(["law"], experts_in="token")
    with pytest.raises(ModelError, match="stand before the text"):
        list(train(model, chats(["law"]), CONFIG, tmp_path))
