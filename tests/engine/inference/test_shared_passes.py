"""Streams that share forward passes say what each says alone; who leaves or fails harms nobody."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.events import Token
from engine.inference import shared_passes
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate
from engine.inference.shared_passes import SharedPasses, Slot, can_share
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.row_registry import new_placement
from engine.mixing.base import Gate
from engine.mixing.fixed import FixedGate
from engine.mixing.posterior import PosteriorGate
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.conftest import KEYS, model_with
from tests.engine.models.tiny_families import tiny_model

Asked = tuple[Sequence[str], Gate, list[int], SamplingConfig]
ASKED: list[Asked] = [
    (KEYS, PosteriorGate([1, 2, 3, 4]), [3, 5, 7, 11, 13], SamplingConfig(max_tokens=9, seed=1)),
    (["news", "law"], FixedGate([1, 3]), list(range(2, 33)), SamplingConfig(max_tokens=5, seed=2)),
    (["verse"], PosteriorGate([1.0]), [9], SamplingConfig(max_tokens=12, temperature=0)),
    (KEYS[1:], PosteriorGate([1, 1, 2], top_k=2), [8, 4, 2], SamplingConfig(max_tokens=7, top_p=0.8, seed=3)),
]


def said(models: Any, asked: Asked, tokenizer: Any) -> list[tuple[int, float]]:
    keys, gate, ids, sampling = asked
    events = generate(models, keys, gate, tokenizer, ids, sampling, stop_ids=())
    return [(event.id, round(event.logprob, 4)) for event in events if isinstance(event, Token)]


def sharing(model: MultiExpertModel, keys: Sequence[str], shared: SharedPasses) -> Ensemble:
    return Ensemble((Group(tuple(keys), lambda: shared.view(model), model.max_positions, model.vocab_size),))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many streams took part in each pass; a pass waits until all who came back did."""
    sizes: list[int] = []
    compute = shared_passes._compute_together

    def counting(model: Any, taken: Any) -> None:
        sizes.append(len(taken))
        compute(model, taken)

    monkeypatch.setattr(shared_passes, "_compute_together", counting)
    monkeypatch.setattr(shared_passes, "_PATIENCE", 60)
    return sizes


@pytest.mark.parametrize(("family", "experts_in"), [("llama", "ffn"), ("gpt2", "ffn"), ("llama", "adapter")])
def test_each_stream_says_what_it_says_alone(passes, tokenizer, monkeypatch, family: str, experts_in: str) -> None:
    monkeypatch.setattr(shared_passes, "_PROMPT_ROWS", 16)  # a prompt is read in pieces
    model, shared = model_with(KEYS, family=family, experts_in=experts_in), SharedPasses()
    alone = [said(sharing(model, asked[0], SharedPasses()), asked, tokenizer) for asked in ASKED]
    plain = [said(model, asked, tokenizer) for asked in ASKED]
    assert [[token for token, _ in one] for one in alone] == [[token for token, _ in one] for one in plain]
    passes.clear()
    with ThreadPoolExecutor(len(ASKED)) as threads:
        asking = [threads.submit(said, sharing(model, asked[0], shared), asked, tokenizer) for asked in ASKED]
        together = [one.result() for one in asking]
    for ours, theirs in zip(together, plain, strict=True):
        assert [token for token, _ in ours] == [token for token, _ in theirs]
        assert [nats for _, nats in ours] == pytest.approx([nats for _, nats in theirs], abs=1e-3)
    assert max(passes) > 1


SHARE = dict.fromkeys(("llama", "gpt2", "qwen2", "gpt_neox", "phi"), True)
ALONE = dict.fromkeys(("mistral", "bloom", "recurrent_gemma"), False)  # windows, other attention, recurrent layers


@pytest.mark.parametrize(("family", "expected"), [*SHARE.items(), *ALONE.items()])
@pytest.mark.filterwarnings("ignore")
def test_which_families_share(family: str, expected: bool) -> None:
    SharedPasses()
    lm = tiny_model(family)
    assert can_share(MultiExpertModel(lm, ["whole"], new_placement()).eval()) is expected


def test_who_stands_before_the_text_or_has_parts_decodes_alone() -> None:
    shared, before = SharedPasses(), model_with(KEYS, experts_in="token")
    assert shared.view(before) is before
    parts: Any = ActiveExperts.__new__(ActiveExperts)
    assert shared.view(parts) is parts


def at_a_time(shared: Any, model: MultiExpertModel, slots: Sequence[Slot], ids: Sequence[list[int]]) -> list[Any]:
    """What each slot's stream reads, all in their own threads."""

    def read(slot: Slot, own: list[int]) -> Any:
        try:
            return shared.view(model).read(torch.tensor([own]), Rows.one_each(["law"]), slot)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(slots)) as threads:
        return list(threads.map(read, slots, ids))


def test_an_error_harms_only_the_stream_that_causes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shared = model_with(KEYS), SharedPasses()
    (expected,) = at_a_time(SharedPasses(), model, [Slot()], [[3, 4, 5]])
    bad, good = Slot(), Slot()
    monkeypatch.setattr(bad, "append", lambda *_: (_ for _ in ()).throw(RuntimeError("no memory")))
    first, second = at_a_time(shared, model, [bad, good], [[6, 7, 8], [3, 4, 5]])
    assert isinstance(first, RuntimeError)
    torch.testing.assert_close(second, expected, atol=1e-4, rtol=1e-4)
    assert good.length == 3
    assert bad.length == 0


def test_a_cut_stream_frees_its_rows_before_the_next_step(passes, tokenizer) -> None:
    import weakref

    model, shared, slots = model_with(KEYS), SharedPasses(), []
    make = shared_passes.SharedModel.new_cache

    def kept(self: Any) -> Slot:
        slot = make(self)
        slots.append(weakref.ref(slot))
        return slot

    shared_passes.SharedModel.new_cache = kept  # type: ignore[method-assign]
    try:
        asked = ASKED[0]
        models = sharing(model, KEYS, shared)
        cut = generate(models, KEYS, asked[1], tokenizer, asked[2], asked[3], stop_ids=())
        next(cut)
        next(cut)
        assert slots[0]() is not None
        assert slots[0]().num_bytes() > 0
        cut.close()
        assert slots[0]() is None
        said(models, asked, tokenizer)  # does not wait for who has left: patience is a minute here
    finally:
        shared_passes.SharedModel.new_cache = make  # type: ignore[method-assign]


def test_a_stream_goes_on_when_its_model_was_loaded_again(tokenizer) -> None:
    one, again, shared = model_with(KEYS), model_with(KEYS), SharedPasses()
    asked, models = ASKED[0], iter([one, again] * 20)
    group = Group(tuple(KEYS), lambda: shared.view(next(models)), one.max_positions, one.vocab_size)
    assert said(Ensemble((group,)), asked, tokenizer) == said(one, asked, tokenizer)


def test_a_stream_stopped_within_a_pass_leaves_no_request_behind(monkeypatch: pytest.MonkeyPatch, passes) -> None:
    model, shared, stopped, other = model_with(KEYS), SharedPasses(), Slot(), Slot()
    (expected,) = at_a_time(SharedPasses(), model, [Slot()], [[3, 4, 5]])
    compute = shared_passes._compute

    def stop(*_: Any) -> None:
        monkeypatch.setattr(shared_passes, "_compute", compute)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared_passes, "_compute", stop)
    with pytest.raises(KeyboardInterrupt):
        shared.view(model).read(torch.tensor([[6, 7]]), Rows.one_each(["law"]), stopped)
    passes.clear()
    (read,) = at_a_time(shared, model, [other], [[3, 4, 5]])
    torch.testing.assert_close(read, expected, atol=1e-4, rtol=1e-4)
    assert passes == [1]
    assert stopped.length == 0


def test_many_streams_take_turns_whoever_computes(tokenizer) -> None:
    model, shared = model_with(KEYS), SharedPasses()
    asked = [
        (KEYS, PosteriorGate([1, 2, 3, 4]), [*range(2, 4 + number)], SamplingConfig(max_tokens=3 + number, seed=number))
        for number in range(12)
    ]
    alone = [said(model, one, tokenizer) for one in asked]
    with ThreadPoolExecutor(len(asked)) as threads:
        together = list(threads.map(lambda one: said(sharing(model, KEYS, shared), one, tokenizer), asked))
    assert [[token for token, _ in one] for one in together] == [[token for token, _ in one] for one in alone]
