"""Samples of text are written from a generator of their own: the training does not notice them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import TrainingConfig
from engine.events import Evaluated, Step, TextSample
from engine.inference.text_samples import MOST_EVALUATIONS, MOST_ROWS, TextSampler
from engine.training.loop import train

KEYS = ["law", "code"]
CONFIG = TrainingConfig(
    num_steps=8,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=3,
    evaluate_every=2,
    evaluation_blocks=2,
    sample_tokens=6,
    seed=3,
)


def run(model, texts, folder: Path, tokenizer, *, stop_after: int = 0, samples: bool = True):
    """The losses, samples and final weights; with `stop_after` closed after so many updates."""
    losses, written = [], dict[int, tuple[TextSample, ...]]()
    sampler = TextSampler(model, tokenizer, texts, CONFIG) if samples else None
    events = train(model, texts, CONFIG, folder, sample=sampler)
    for event in events:
        if isinstance(event, Step):
            losses.append(event.loss)
        if isinstance(event, Evaluated) and event.step:  # before the first update nothing is written
            written[event.step] = tuple(event.samples)
        if stop_after and len(losses) == stop_after:
            break
    events.close()  # type: ignore[attr-defined]
    return losses, written, model.state_dict()


@pytest.mark.parametrize("stop_after", [1, 4, 7])
def test_a_training_with_samples_resumes_to_the_bit(  # L17
    make_model, make_texts, tokenizer, tmp_path: Path, stop_after: int
) -> None:
    texts = make_texts(KEYS)
    plain_losses, _, plain = run(make_model(KEYS), texts, tmp_path / "plain", tokenizer, samples=False)
    losses, written, _ = run(make_model(KEYS), texts, tmp_path / "cut", tokenizer, stop_after=stop_after)
    more, later, resumed = run(make_model(KEYS), texts, tmp_path / "cut", tokenizer)
    assert losses + more == plain_losses
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in plain.items())
    _, uninterrupted, _ = run(make_model(KEYS), texts, tmp_path / "whole", tokenizer)
    assert written | later == uninterrupted
    assert list(uninterrupted) == [2, 4, 6, 8]


def test_each_domain_has_a_sample_with_a_prompt_that_stays(make_model, make_texts, tokenizer, tmp_path: Path) -> None:
    _, written, _ = run(make_model(KEYS), make_texts(KEYS), tmp_path, tokenizer)
    assert all({sample.domain for sample in samples} == {"domain law", "domain code"} for samples in written.values())
    assert len({tuple(sample.prompt for sample in samples) for samples in written.values()}) == 1
    assert len({tuple(sample.text for sample in samples) for samples in written.values()}) > 1  # the model changed


def test_sampling_leaves_the_global_random_state_unchanged(make_model, make_texts, tokenizer) -> None:
    sampler = TextSampler(make_model(KEYS).eval(), tokenizer, make_texts(KEYS), CONFIG)
    before = torch.get_rng_state()
    first, second = sampler(2), sampler(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert first == second != ()


def test_the_cost_of_samples_is_bounded(make_model, make_texts, tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"expert {number}" for number in range(MOST_ROWS + 2)]
    model, shapes = make_model(keys), []
    forward = type(model).forward

    def counted(self, input_ids, *args, **more):
        shapes.append(tuple(input_ids.shape))
        return forward(self, input_ids, *args, **more)

    monkeypatch.setattr(type(model), "forward", counted)
    sampler = TextSampler(model.eval(), tokenizer, make_texts(keys), CONFIG)
    assert len(sampler(2)) == MOST_ROWS
    assert len(shapes) == CONFIG.sample_tokens
    assert all(rows == MOST_ROWS and length <= CONFIG.block_size for rows, length in shapes)


def test_a_long_training_samples_at_some_of_its_evaluations(make_model, make_texts, tokenizer) -> None:
    config = replace(CONFIG, num_steps=999, evaluate_every=2)
    sampler = TextSampler(make_model(KEYS), tokenizer, make_texts(KEYS), config)
    due = [step for step in [*range(2, 1000, 2), 999] if sampler.is_due(step)]
    assert 20 < len(due) <= MOST_EVALUATIONS + 1
    assert due[-1] == 999


def test_no_tokens_are_no_samples(make_model, make_texts, tokenizer) -> None:
    sampler = TextSampler(make_model(KEYS), tokenizer, make_texts(KEYS), replace(CONFIG, sample_tokens=0))
    assert sampler(2) == ()
