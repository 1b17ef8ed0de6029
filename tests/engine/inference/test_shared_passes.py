"""Streams that share forward passes say what each says solo; who leaves or fails harms nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.events import Token
from engine.inference import read_together as one_pass
from engine.inference import shared_passes
from engine.inference.cancellation import CancelledError, cancel_scope
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate
from engine.inference.read_together import Slot, why_separate
from engine.inference.shared_passes import SharedPasses
from engine.methods.multi_expert_files import new_placement
from engine.methods.parts.parts_model import ActiveParts
from engine.mixing.base import FixedGate, Gate
from engine.mixing.posterior import PosteriorGate
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.conftest import KEYS, model_with
from tests.engine.models.tiny_families import tiny_model

Request = tuple[Sequence[str], Gate, list[int], SamplingConfig]
REQUESTS: list[Request] = [
    (KEYS, PosteriorGate([1, 2, 3, 4]), [3, 5, 7, 11, 13], SamplingConfig(max_tokens=9, seed=1)),
    (["news", "law"], FixedGate([1, 3]), list(range(2, 33)), SamplingConfig(max_tokens=5, seed=2)),
    (["verse"], PosteriorGate([1.0]), [9], SamplingConfig(max_tokens=12, temperature=0)),
    (KEYS[1:], PosteriorGate([1, 1, 2], top_k=2), [8, 4, 2], SamplingConfig(max_tokens=7, top_p=0.8, seed=3)),
]


def tokens_of(models: Any, request: Request, tokenizer: Any) -> list[tuple[int, float]]:
    keys, gate, ids, sampling = request
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
def test_each_stream_gives_what_it_gives_by_itself(
    passes, tokenizer, monkeypatch, family: str, experts_in: str
) -> None:
    monkeypatch.setattr(shared_passes, "_PROMPT_ROWS", 16)  # a prompt is read in pieces
    model, shared = model_with(KEYS, family=family, experts_in=experts_in), SharedPasses()
    separate = [tokens_of(sharing(model, request[0], SharedPasses()), request, tokenizer) for request in REQUESTS]
    plain = [tokens_of(model, request, tokenizer) for request in REQUESTS]
    assert [[token for token, _ in one] for one in separate] == [[token for token, _ in one] for one in plain]
    passes.clear()
    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        asking = [
            threads.submit(tokens_of, sharing(model, request[0], shared), request, tokenizer) for request in REQUESTS
        ]
        together = [one.result() for one in asking]
    for ours, theirs in zip(together, plain, strict=True):
        assert [token for token, _ in ours] == [token for token, _ in theirs]
        assert [nats for _, nats in ours] == pytest.approx([nats for _, nats in theirs], abs=1e-3)
    assert max(passes) > 1


def test_a_long_prompt_takes_its_share_of_a_pass_beside_a_short_stream_and_a_piece_of_one_without_it(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_passes, "_PROMPT_ROWS", 8)  # two positions of four experts
    monkeypatch.setattr("engine.inference.mixing.CHUNK_POSITIONS", 10)
    passes: list[dict[int, int]] = []  # tokens that each pass reads, by the length of what was to be read
    compute, take = shared_passes._compute_together, shared_passes.PassQueue._take

    def recorded(model: Any, taken: Any) -> None:
        passes.append({one.ids_ET.shape[1]: number for one, number in taken})
        compute(model, taken)

    def both_first(queue: Any) -> Any:
        if not passes:
            assert queue._complete.wait_for(lambda: len(queue._waiting) == 2, 30)
        return take(queue)

    monkeypatch.setattr(shared_passes, "_compute_together", recorded)
    monkeypatch.setattr(shared_passes.PassQueue, "_take", both_first)
    model, shared = model_with(KEYS), SharedPasses()
    requests: list[Request] = [
        (["verse"], PosteriorGate([1.0]), [9], SamplingConfig(max_tokens=12, temperature=0)),
        (KEYS, PosteriorGate([1, 1, 1, 1]), list(range(2, 42)), SamplingConfig(max_tokens=2, temperature=0)),
    ]
    with ThreadPoolExecutor(2) as threads:
        running = [
            threads.submit(tokens_of, sharing(model, request[0], shared), request, tokenizer) for request in requests
        ]
        assert [len(one.result()) for one in running] == [12, 2]
    assert passes[0] == {1: 1, 10: 2}
    assert all(pass_.get(10, 0) <= (2 if 1 in pass_ else 10) for pass_ in passes)
    assert sum(pass_.get(10, 0) for pass_ in passes) == 40


def all_logprobs(models: Any, request: Request, tokenizer: Any, vocab_size: int) -> list[tuple[int, dict[int, float]]]:
    """Each token with the log-probabilities of all in its place."""
    keys, gate, ids, sampling = request
    sampling = replace(sampling, num_candidates=vocab_size, temperature=0)
    events = generate(models, keys, gate, tokenizer, ids, sampling, stop_ids=())
    return [(event.id, {c.id: c.logprob for c in event.candidates}) for event in events if isinstance(event, Token)]


NEAR_TIE = 0.1  # nats


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_shared_bf16_stream_has_the_tokens_of_its_solo_run_but_for_near_ties(passes, tokenizer, family) -> None:
    model, shared = model_with(KEYS, family=family).to(torch.bfloat16), SharedPasses()
    assert not why_separate(model)
    vocab_size = model.vocab_size
    solo = [all_logprobs(model, request, tokenizer, vocab_size) for request in REQUESTS]
    passes.clear()
    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        running = [
            threads.submit(all_logprobs, sharing(model, request[0], shared), request, tokenizer, vocab_size)
            for request in REQUESTS
        ]
        together = [one.result() for one in running]
    assert max(passes) > 1
    for ours, theirs in zip(together, solo, strict=True):
        for (token, own), (other, known) in zip(ours, theirs, strict=True):
            assert max(abs(own[place] - known[place]) for place in known) < NEAR_TIE
            if token != other:
                assert known[other] - known[token] < NEAR_TIE
                break  # the texts differ from here on


SHARE = dict.fromkeys(("llama", "gpt2", "qwen2", "gpt_neox", "phi"), True)
SEPARATE = dict.fromkeys(("mistral", "bloom", "recurrent_gemma"), False)  # windows, other attention, recurrent layers


@pytest.mark.parametrize(("family", "expected"), [*SHARE.items(), *SEPARATE.items()])
@pytest.mark.filterwarnings("ignore")
def test_which_families_share(family: str, expected: bool) -> None:
    SharedPasses()
    lm = tiny_model(family)
    assert (not why_separate(MultiExpertModel(lm, ["whole"], new_placement()).eval())) is expected


ROUNDING = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.05}  # of a state's length, and ten times more
FAR_OFF = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.15}


@pytest.mark.parametrize(("off_by", "expected"), [(ROUNDING, True), (FAR_OFF, False)])
@pytest.mark.parametrize("precision", [torch.float32, torch.float16, torch.bfloat16])
def test_states_that_differ_by_rounding_in_their_precision_are_alike(monkeypatch, off_by, expected, precision) -> None:
    SharedPasses()
    model, plain, noise = model_with(KEYS).to(precision), one_pass.read_together, torch.Generator().manual_seed(5)

    def rounded(*args: Any) -> list[torch.Tensor]:
        states = plain(*args)
        lengths = [off_by[precision] * state.norm(dim=-1, keepdim=True) for state in states]
        offs = [torch.nn.functional.normalize(torch.randn(state.shape, generator=noise), dim=-1) for state in states]
        return [state + length * off.to(state) for state, length, off in zip(states, lengths, offs, strict=True)]

    monkeypatch.setattr(one_pass, "read_together", rounded)
    assert (not why_separate(model)) is expected


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_pass_that_leaves_out_one_token_is_noticed_in_every_precision(monkeypatch, precision) -> None:
    SharedPasses()
    append = Slot.append

    def forgetful(self: Any, *args: Any) -> Any:
        keys, values = append(self, *args)
        return keys, torch.cat([torch.zeros_like(values[:, :, :1]), values[:, :, 1:]], 2)

    model = model_with(KEYS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    monkeypatch.setattr(Slot, "append", forgetful)
    assert why_separate(model.to(precision)) == "its states come out otherwise in a shared pass"


def test_experts_before_the_text_or_with_parts_decode_separately() -> None:
    shared, before = SharedPasses(), model_with(KEYS, experts_in="token")
    assert shared.view(before) is before
    parts: Any = ActiveParts.__new__(ActiveParts)
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
        request = REQUESTS[0]
        models = sharing(model, KEYS, shared)
        cut = generate(models, KEYS, request[1], tokenizer, request[2], request[3], stop_ids=())
        next(cut)
        next(cut)
        assert slots[0]() is not None
        assert slots[0]().num_bytes() > 0
        cut.close()
        assert slots[0]() is None
        tokens_of(models, request, tokenizer)  # does not wait for who has left: patience is a minute here
    finally:
        shared_passes.SharedModel.new_cache = make  # type: ignore[method-assign]


def test_a_stream_goes_on_when_its_model_was_loaded_again(tokenizer) -> None:
    one, again, shared = model_with(KEYS), model_with(KEYS), SharedPasses()
    request, models = REQUESTS[0], iter([one, again] * 20)
    group = Group(tuple(KEYS), lambda: shared.view(next(models)), one.max_positions, one.vocab_size)
    assert tokens_of(Ensemble((group,)), request, tokenizer) == tokens_of(one, request, tokenizer)


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


def test_a_cancelled_prompt_that_is_read_in_pieces_beside_another_ends_after_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_passes, "_PROMPT_ROWS", 4)  # two positions of each
    monkeypatch.setattr(shared_passes, "_PATIENCE", 60)  # so that nobody may wait for who was cancelled
    model, shared, left, stayed, is_cancelled = model_with(KEYS), SharedPasses(), Slot(), Slot(), Event()
    (expected,) = at_a_time(SharedPasses(), model, [Slot()], [[*range(3, 23)]])
    num_read: list[int] = []
    compute, take = shared_passes._compute_together, shared_passes.PassQueue._take

    def leave_after_three(model: Any, taken: Any) -> None:
        compute(model, taken)
        num_read.append(left.length)
        if len(num_read) == 3:
            is_cancelled.set()

    def both_first(queue: Any) -> Any:
        if not num_read:
            assert queue._complete.wait_for(lambda: len(queue._waiting) == 2, 30)
        return take(queue)

    def read(slot: Slot, cancelled: Callable[[], bool]) -> Any:
        with cancel_scope(cancelled):
            return shared.view(model).read(torch.tensor([[*range(3, 23)]]), Rows.one_each(["law"]), slot)

    monkeypatch.setattr(shared_passes, "_compute_together", leave_after_three)
    monkeypatch.setattr(shared_passes.PassQueue, "_take", both_first)
    with ThreadPoolExecutor(2) as threads:
        leaving, staying = threads.submit(read, left, is_cancelled.is_set), threads.submit(read, stayed, lambda: False)
        with pytest.raises(CancelledError):
            leaving.result(30)
        torch.testing.assert_close(staying.result(30), expected, atol=1e-4, rtol=1e-4)
    assert num_read == [2, 4, 6, 6]  # the rest of the other is read in one piece


def test_many_streams_take_turns_in_any_order_of_threads(tokenizer) -> None:
    model, shared = model_with(KEYS), SharedPasses()
    requests = [
        (KEYS, PosteriorGate([1, 2, 3, 4]), [*range(2, 4 + number)], SamplingConfig(max_tokens=3 + number, seed=number))
        for number in range(12)
    ]
    solo = [tokens_of(model, request, tokenizer) for request in requests]
    with ThreadPoolExecutor(len(requests)) as threads:
        together = list(
            threads.map(lambda request: tokens_of(sharing(model, KEYS, shared), request, tokenizer), requests)
        )
    assert [[token for token, _ in one] for one in together] == [[token for token, _ in one] for one in solo]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_ran_out_does_not_separate_a_models_streams_for_good(monkeypatch, error) -> None:
    model, passes = model_with(KEYS), SharedPasses()

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as short, pytest.raises(type(error)):
        short.setattr(one_pass, "read_together", fail)
        passes.view(model)
    assert isinstance(passes.view(model), shared_passes.SharedModel)
