"""Experts that read one text share the layers that none of them changes, and say what each says without."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.config import DemixConfig, LoraConfig, SamplingConfig
from engine.events import Token
from engine.inference import read_together
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate
from engine.inference.scores import open_scores, score_together, score_tokens, token_hits
from engine.inference.shared_passes import SharedPasses
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.multi_expert_files import new_placement
from engine.mixing.posterior import PosteriorGate
from engine.models import shared_layers
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import EvalSample
from tests.engine.models.decoders import decoder
from tests.engine.models.test_lora import disturbed
from tests.engine.models.tiny_families import tiny_model

NUM_LAYERS = 4
FIRST_LAYERS = {"low": 0, "seed": shared_layers.NEVER, "high": 3, "middle": 1, "bare": shared_layers.NEVER, "other": 1}
KEYS = [*FIRST_LAYERS]
TEXT = torch.randint(1, 300, (17,), generator=torch.Generator().manual_seed(1))
PIECES = (TEXT[:9], TEXT[9:16], TEXT[16:])


def adapted(lm: Any, first_layers: dict[str, int] = FIRST_LAYERS) -> MultiExpertModel:
    """Adapters that begin at these layers, and the bare seed where one changes no layer."""
    states = {
        first: fresh_adapter(lm, LoraConfig(2, first_layer=first)) for first in {*first_layers.values()} if first < 9
    }
    model = MultiExpertModel(lm, [], new_placement("adapter"))
    for key, first in first_layers.items():
        model.add_expert(key, state=states.get(first, {}))
    return disturbed(model)


def read(model: MultiExpertModel, keys: Sequence[str], *, is_one_text: bool = True) -> tuple[Tensor, list[int]]:
    """Logits and states of the text in pieces, and the number of rows that each layer caches."""
    rows, cache, other, parts = Rows.one_each(keys), model.new_cache(), model.new_cache(), []
    with torch.inference_mode():
        for piece_T in PIECES:
            ids_ET = piece_T.expand(len(keys), -1)
            ids_ET = ids_ET if is_one_text else ids_ET.contiguous()
            parts.append(torch.cat([model(ids_ET, rows, cache), model.read(ids_ET, rows, other)], -1))
    return torch.cat(parts, 1), [len(layer.keys) for layer in cache.layers]


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gpt_neox", "mistral", "qwen2"])
def test_experts_of_one_text_have_rows_of_their_own_from_the_layer_that_they_change(family: str) -> None:
    model = adapted(decoder(family, NUM_LAYERS))
    shared, rows = read(model, KEYS)
    separate, all_rows = read(model, KEYS, is_one_text=False)
    assert (rows, all_rows) == ([2, 4, 4, 5], [6, 6, 6, 6])
    torch.testing.assert_close(shared, separate, atol=1e-5, rtol=1e-4)


def test_any_order_and_any_choice_of_experts_gives_the_same() -> None:
    model = adapted(decoder("llama", NUM_LAYERS))
    separate, _ = read(model, KEYS, is_one_text=False)
    for keys in (KEYS[::-1], KEYS[1:4], ["bare", "seed"], ["seed", "high"]):
        places = [KEYS.index(key) for key in keys]
        torch.testing.assert_close(read(model, keys)[0], separate[places], atol=1e-5, rtol=1e-4)


def test_demix_experts_in_every_second_layer_share_the_first() -> None:
    model = disturbed(new_placement("ffn").build(decoder("llama", NUM_LAYERS), ["a", "b"], DemixConfig(2)))
    shared, rows = read(model, ["a", "b"])
    assert rows == [1, 2, 2, 2]
    torch.testing.assert_close(shared, read(model, ["a", "b"], is_one_text=False)[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("placement", ["ffn", "token"])
def test_experts_that_change_the_first_layer_or_stand_before_it_share_nothing(placement: str) -> None:
    model = disturbed(new_placement(placement).build(decoder("llama"), ["a", "b"], None))
    shared, rows = read(model, ["a", "b"])
    assert rows == [2, 2]
    assert torch.equal(shared, read(model, ["a", "b"], is_one_text=False)[0])


@pytest.mark.parametrize("family", ["gemma3_text", "gemma2", "recurrent_gemma", "bloom", "gemma3n_text", "jamba"])
@pytest.mark.filterwarnings("ignore")
def test_a_family_whose_rows_cannot_part_computes_all_of_them(family: str) -> None:
    model = adapted(tiny_model(family), {"a": 1, "b": shared_layers.NEVER})
    ids_ET, rows = TEXT.remainder(60).expand(2, -1), Rows.one_each(["a", "b"])
    with torch.inference_mode():
        shared, separate = model.read(ids_ET, rows), model.read(ids_ET.contiguous(), rows)
    torch.testing.assert_close(shared, separate, atol=1e-5, rtol=1e-4)


def test_a_model_that_computes_something_between_its_layers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted(decoder("llama", NUM_LAYERS), {"a": 1, "b": 2})
    expected, _ = read(model, ["a", "b"], is_one_text=False)
    monkeypatch.setattr(shared_layers.Levels, "_expand", lambda *_: None)  # loses an input
    shared_layers._alike.pop(model, None)
    shared, rows = read(model, ["a", "b"])
    assert rows == [2, 2, 2, 2]
    assert torch.equal(shared, expected)


def test_texts_that_differ_and_gradients_share_nothing() -> None:
    model = adapted(decoder("llama", NUM_LAYERS), {"a": 2, "b": 2})
    ids_ET, rows = torch.stack([TEXT, TEXT.flip(0)]), Rows.one_each(["a", "b"])
    by_itself = torch.cat(
        [model.read(ids_ET[index : index + 1], Rows.all_to(key, 1)) for index, key in enumerate("ab")]
    )
    torch.testing.assert_close(model.read(ids_ET, rows), by_itself, atol=1e-5, rtol=1e-4)
    sizes: list[int] = []
    first: nn.Module = model.lm.model.layers[0]
    first.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    model.read(TEXT.expand(2, -1), rows)
    with torch.no_grad():
        model.read(TEXT.expand(2, -1), rows)
    assert sizes[0] == 2
    assert sizes[-1] == 1


REQUESTS = [
    (KEYS, [3, 5, 7, 11, 13], SamplingConfig(9, seed=1)),
    (["middle", "high"], list(range(2, 23)), SamplingConfig(5, seed=2)),
    (["bare"], [9], SamplingConfig(12, temperature=0)),
    (KEYS[1:], [8, 4, 2], SamplingConfig(20, temperature=0, speculate=True)),
]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_streams_that_share_passes_and_layers_say_what_each_says_by_itself(tokenizer, family) -> None:
    model = adapted(decoder(family, NUM_LAYERS))
    shared = SharedPasses()

    def tokens_of(request: Any, view: Any) -> list[tuple[int, float]]:
        keys, ids, sampling = request
        group = Group(tuple(keys), lambda: view(model), model.max_positions, model.vocab_size)
        gate = PosteriorGate([1.0] * len(keys))
        events = generate(Ensemble((group,)), keys, gate, tokenizer, ids, sampling, stop_ids=())
        return [(event.id, event.logprob) for event in events if isinstance(event, Token)]

    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        together = [*threads.map(lambda request: tokens_of(request, shared.view), REQUESTS)]
    assert read_together._parting[model]
    shared_layers._alike[model] = False
    for ours, request in zip(together, REQUESTS, strict=True):
        expected = tokens_of(request, lambda model: model)
        assert [token for token, _ in ours] == [token for token, _ in expected]
        assert [nats for _, nats in ours] == pytest.approx([nats for _, nats in expected], abs=1e-3)


def test_an_expert_that_is_added_under_the_key_of_another_begins_at_its_own_layer() -> None:
    model = adapted(decoder("llama", NUM_LAYERS), {"a": 1, "b": 3})
    assert [model.first_layer(key) for key in "ab"] == [1, 3]
    state = model.expert_state("a")
    model.remove_expert("b")
    model.add_expert("b", state=state)
    assert model.first_layer("b") == 1


def test_experts_scored_together_have_the_scores_of_each_by_itself(tmp_path: Path, make_tokens: Any) -> None:
    model = adapted(decoder("llama", NUM_LAYERS))
    sample = EvalSample.of(make_tokens(3, 75), 16)
    for key in KEYS:
        for folder in (tmp_path / key, tmp_path / f"{key} too"):
            folder.mkdir()
        assert [*score_tokens(model, key, sample, tmp_path / key)][-1].done == sample.num_tokens
    assert [*score_together(model, {key: tmp_path / f"{key} too" for key in KEYS}, sample)][
        -1
    ].done == sample.num_tokens
    separate, together = (open_scores([tmp_path / f"{key}{end}" for key in KEYS])[0] for end in ("", " too"))
    torch.testing.assert_close(together, separate, atol=1e-5, rtol=1e-5)
    assert all((token_hits(tmp_path / key) == token_hits(tmp_path / f"{key} too")).all() for key in KEYS)
