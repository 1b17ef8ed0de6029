"""A prompt is read in large pieces with the head where a number is used: the numbers are those of one pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.inference.ensemble import Ensemble
from engine.inference.mixing import Mixing
from engine.mixing.base import FixedGate
from engine.mixing.posterior import PosteriorGate
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.conftest import KEYS, VOCAB, model_with

IDS = torch.randint(1, VOCAB, (41,), generator=torch.Generator().manual_seed(5)).tolist()


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 9 tokens, whose log-probabilities are computed for 2 positions at once."""
    monkeypatch.setattr("engine.inference.mixing.CHUNK_POSITIONS", 9)
    monkeypatch.setattr("engine.inference.mixing._CHUNK_ELEMENTS", 2 * len(KEYS) * VOCAB)
    monkeypatch.setattr("engine.inference.mixing._FEW_ELEMENTS", len(KEYS) * VOCAB)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many rows of logits each way of asking has computed."""
    counts = {"logits": 0, "likelihoods": 0}

    def count(name: str) -> None:
        plain = getattr(MultiExpertModel, name)

        def counting(self: MultiExpertModel, hidden: Tensor, *more: object) -> object:
            counts[name] += hidden.shape[0] * hidden.shape[1]
            return plain(self, hidden, *more)

        monkeypatch.setattr(MultiExpertModel, name, counting)

    count("logits")
    count("likelihoods")
    return counts


@torch.no_grad()
def expected(model: MultiExpertModel, weigh: PosteriorGate | FixedGate, ids: Sequence[int]) -> Tensor:
    """Weights [E] after a text, by one forward pass with all logits."""
    logprobs_ETV = model(torch.tensor([list(ids)] * len(KEYS)), Rows.one_each(KEYS)).log_softmax(-1)
    stream = weigh.start()
    stream.begin(ids[0])
    for position, token in enumerate(ids[1:]):
        stream.observe(logprobs_ETV[:, position, token], token)
    return stream.log_weights().exp()


@pytest.mark.parametrize("first", [1, 9, 10, 41])
@pytest.mark.parametrize("experts_in", ["ffn", "token", "adapter"])
def test_a_prompt_in_pieces_weighs_as_one_pass_with_all_logits(pieces, experts_in: str, first: int) -> None:
    model, gate = model_with(KEYS, experts_in=experts_in), PosteriorGate([1, 2, 3, 4])
    mixing = Mixing(model, KEYS, gate)
    mixing.feed(IDS[:first])
    mixing.feed(IDS[first:])
    torch.testing.assert_close(mixing.distribution()[0], expected(model, gate, IDS), atol=1e-5, rtol=0)


def test_a_text_read_in_pieces_has_the_log_probabilities_of_one_pass(pieces) -> None:
    model, gate = model_with(KEYS), PosteriorGate([1] * 4)
    observed = torch.stack([one for _, one in Mixing(model, KEYS, gate).read(IDS)], 1)
    with torch.no_grad():
        logprobs_ETV = model(torch.tensor([IDS] * 4), Rows.one_each(KEYS)).log_softmax(-1)
    every = logprobs_ETV[:, :-1].gather(-1, torch.tensor(IDS[1:]).expand(4, -1)[..., None])[..., 0]
    torch.testing.assert_close(observed, every, atol=1e-4, rtol=1e-5)


def test_a_gate_without_evidence_computes_only_the_head_of_the_last_token(pieces, counted) -> None:
    mixing = Mixing(model_with(KEYS), KEYS, FixedGate([1] * 4))
    mixing.feed(IDS)
    assert counted == {"logits": 0, "likelihoods": 0}
    mixing.distribution()
    assert counted == {"logits": 4, "likelihoods": 0}


def test_a_single_expert_needs_no_evidence(pieces, counted) -> None:
    mixing = Mixing(model_with(["law"]), ["law"], PosteriorGate([1.0]))
    mixing.feed(IDS)
    assert mixing.distribution()[0].tolist() == [1.0]
    mixing.feed([5])
    assert mixing.distribution()[0].tolist() == [1.0]
    assert counted["likelihoods"] == 0


def test_evidence_takes_the_likelihood_of_the_prompts_own_tokens(pieces, counted) -> None:
    mixing = Mixing(model_with(KEYS), KEYS, PosteriorGate([1] * 4))
    mixing.feed(IDS)
    mixing.distribution()
    assert counted["likelihoods"] == 4 * (len(IDS) - 5)  # all but the last of each piece of 9
    assert counted["logits"] == 4 * 5


def test_several_bases_read_a_prompt_in_pieces(pieces) -> None:
    from engine.inference.ensemble import group_of

    one, two = model_with(KEYS[:2]), model_with(KEYS[2:])
    both = Ensemble((group_of(one, KEYS[:2]), group_of(two, KEYS[2:])))
    gate = PosteriorGate([1] * 4)
    mixing = Mixing(both, KEYS, gate)
    mixing.feed(IDS)
    full = Mixing(both, KEYS, gate)
    for token in IDS:
        full.feed([token])
    torch.testing.assert_close(mixing.distribution()[0], full.distribution()[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(mixing.distribution()[1], full.distribution()[1], atol=1e-5, rtol=1e-5)
