"""The weights of the gates inside a MoDE expert are given at every token, as one plain pass computes them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.events import GateWeights, Token
from engine.inference.ensemble import Ensemble, group_of
from engine.inference.generate import generate, read_text
from engine.methods.parts.parts_model import ActiveParts
from engine.mixing.base import FixedGate
from engine.mixing.gate_type import build_gate, gate_type
from engine.models.expert_model import CompositeModel, ExpertModel
from engine.models.rows import Rows
from engine.text.tokenizer import Tokenizer
from tests.engine.conftest import model_with
from tests.engine.methods.mode.backbones import SHAPE, mode_model, some_ids

PROMPT = "the court held that"
PARTS = ["law", "code"]


def both(active: Sequence[str] = PARTS) -> ActiveParts:
    return ActiveParts(mode_model(PARTS), active, "both", names=[f"part {key}" for key in active])


@torch.inference_mode()
def plain(ids: Sequence[int], active: Sequence[str] = PARTS) -> Tensor:
    """Weights [K, 1 + P, T] by one pass without a cache."""
    return mode_model(PARTS)(torch.tensor([list(ids)]), active)[1][:, :, 0]


def as_tensor(gates: GateWeights) -> Tensor:
    return torch.tensor([gates.backbone, *gates.parts.values()]).T


def shown(
    model: ExpertModel | Ensemble, keys: list[str], tokenizer: Tokenizer, kind: str = "posterior"
) -> tuple[list[int], list[Token]]:
    """A prompt's tokens with what was drawn after it, and those drawn."""
    events = generate(
        model,
        keys,
        build_gate(gate_type(kind).config(kind), [1.0] * len(keys)),
        tokenizer,
        PROMPT,  # type: ignore[arg-type]
        SamplingConfig(max_tokens=12, seed=3),
    )
    tokens = [one for one in events if isinstance(one, Token)]
    return [tokenizer.bos_id, *tokenizer.encode(PROMPT), *(one.id for one in tokens)], tokens


@pytest.mark.parametrize("kind", ["posterior", "fixed"])
def test_every_drawn_token_carries_the_gates_that_predicted_it(tokenizer: Tokenizer, kind: str) -> None:
    ids, tokens = shown(both(), ["both"], tokenizer, kind)
    expected_KPT = plain(ids)
    assert expected_KPT.std(-1).max() > 1e-3  # they do differ from token to token
    for place, token in enumerate(tokens, len(ids) - len(tokens)):
        gates = token.gates["both"]
        assert list(gates.parts) == ["part law", "part code"]
        assert len(gates.backbone) == SHAPE.num_blocks
        torch.testing.assert_close(as_tensor(gates), expected_KPT[:, :, place - 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize("kind", ["posterior", "fixed"])
def test_a_scored_text_has_them_too_in_any_chunks(
    tokenizer: Tokenizer, kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.inference.mixing._CHUNK_ELEMENTS", chunk * 300)
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT)]
    result = read_text(both(), ["both"], build_gate(gate_type(kind).config(kind), [1.0]), tokenizer, PROMPT)["gates"]  # type: ignore[arg-type]
    gates_KPT = torch.stack([as_tensor(gates["both"]) for gates in result], -1)
    torch.testing.assert_close(gates_KPT, plain(ids)[:, :, :-1], atol=1e-5, rtol=0)


def test_beside_experts_without_parts_only_theirs_are_shown(tokenizer: Tokenizer) -> None:
    layers = model_with(["news", "verse"])
    mixed = CompositeModel([layers, both()])
    ids, tokens = shown(mixed, ["both", "news", "verse"], tokenizer)
    assert all(list(token.gates) == ["both"] for token in tokens)
    torch.testing.assert_close(as_tensor(tokens[-1].gates["both"]), plain(ids)[:, :, len(ids) - 2], atol=1e-5, rtol=0)
    assert all(token.gates == {} for token in shown(layers, ["news", "verse"], tokenizer)[1])


class TakingTurns(FixedGate):
    """All weight on the second expert for some tokens, then on the first, and so on: one sleeps."""

    def __init__(self, turn: int) -> None:
        super().__init__([1.0, 1.0])
        self.turn, self.num_read = turn, 0

    def start(self) -> TakingTurns:  # type: ignore[override]
        return TakingTurns(self.turn)

    def log_weights(self) -> Tensor:
        first = (self.num_read // self.turn) % 2
        return torch.tensor([float(first), 1.0 - first], dtype=torch.float64).log()

    def begin(self, _: int) -> None:
        self.num_read += 1

    def observe(self, *_: object) -> None:
        self.num_read += 1


@pytest.mark.parametrize("turn", [1, 4])
def test_an_expert_that_sleeps_has_none_and_after_waking_those_it_would_have_had(
    tokenizer: Tokenizer, turn: int
) -> None:
    other = model_with(["news"])
    ensemble = Ensemble((group_of(both(), ["both"]), group_of(other, ["news"])))
    events = generate(
        ensemble, ["both", "news"], TakingTurns(turn), tokenizer, PROMPT, SamplingConfig(max_tokens=14, seed=1)
    )
    tokens = [one for one in events if isinstance(one, Token)]
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT), *(one.id for one in tokens)]
    expected_KPT, num_awake = plain(ids), 0
    for place, token in enumerate(tokens, len(ids) - len(tokens)):
        assert list(token.gates) == (["both"] if token.weights["both"] else [])
        if token.gates:
            num_awake += 1
            torch.testing.assert_close(as_tensor(token.gates["both"]), expected_KPT[:, :, place - 1], atol=1e-5, rtol=0)
    assert 0 < num_awake < len(tokens)
    read = read_text(ensemble, ["both", "news"], TakingTurns(turn), tokenizer, PROMPT)
    assert [list(gates) for gates in read["gates"]] == [["both"] if one[0] else [] for one in read["weights"]]


@pytest.mark.parametrize("active", [PARTS, ["code"], []])
@torch.inference_mode()
def test_a_text_goes_on_where_the_model_came_back_with_its_experts_in_other_places(active: list[str]) -> None:
    ids, rows = some_ids(1), Rows.all_to("both", 1)
    expected = both(active)(ids, rows)
    cache, logits = both(active).new_cache(), []
    for place, company in enumerate((["news", "law", "code"], ["code", "law"], ["law", "verse", "code"], PARTS)):
        there = ActiveParts(mode_model(company), active, "both")
        logits.append(there(ids[:, 3 * place : 3 * place + 3], rows, cache))
    torch.testing.assert_close(torch.cat(logits, 1), expected, atol=1e-5, rtol=1e-5)
