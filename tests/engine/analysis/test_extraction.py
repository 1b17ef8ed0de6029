"""Going on from training text: pieces are spread, decoding is that of a single text, similarities are counted right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from engine.analysis.extraction import (
    Extraction,
    MixtureSampler,
    Pieces,
    choose_pieces,
    compare,
    generate_continuations,
    longest_run,
    match,
    rouge_l,
)
from engine.config import SamplingConfig
from engine.errors import CorpusError, MixtureError
from engine.events import Progress
from engine.inference.mixing import Mixing
from engine.inference.sampling import sample_token
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.fixed import FixedGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.gates.updating import UpdatingGateConfig
from engine.models.multi_expert import MultiExpertModel
from engine.text.blocks import Tokens

GREEDY = SamplingConfig(temperature=0.0)
KEYS = ["law", "code", "news"]


def documents(*lengths: int) -> Tokens:
    """Documents whose tokens count up: each tells its place."""
    starts = np.cumsum([0, *lengths[:-1]])
    return Tokens(np.arange(sum(lengths), dtype=np.uint16), starts.astype(np.int64))


def extracted(mixtures: dict[str, MixtureSampler], pieces: Pieces, sampling: SamplingConfig = GREEDY) -> Extraction:
    message = {}
    for name, mixed in mixtures.items():
        *progress, result = generate_continuations(mixed, pieces, sampling)
        assert all(isinstance(one, Progress) for one in progress)
        assert isinstance(result, torch.Tensor)
        message[name] = result
    return compare(message, pieces)


def test_pieces_are_spread_over_documents_and_lie_within_one() -> None:
    tokens = documents(25, 7, 11, 10)
    pieces = choose_pieces(tokens, 3, 6, 4, seed=0)
    assert pieces.num_documents == 3
    full = torch.cat([pieces.prefixes_NP, pieces.continuations_NC], 1)
    for row in full.tolist():
        assert row == list(range(row[0], row[0] + 10))
        assert row[0] in (0, 10, 32, 43)
    all_four = choose_pieces(tokens, 4, 6, 4, seed=0)
    assert sorted(all_four.prefixes_NP[:, 0].tolist()) == [0, 10, 32, 43]
    assert all_four.num_documents == 3


def test_the_seed_decides_which_pieces_are_taken() -> None:
    tokens = documents(*[40] * 50)
    one, same, other = (choose_pieces(tokens, 20, 6, 4, seed).prefixes_NP for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_too_few_pieces_are_counted_and_refused() -> None:
    with pytest.raises(CorpusError, match=r"4 pieces of 10 tokens.*5 are needed"):
        choose_pieces(documents(25, 7, 11, 10), 5, 6, 4, seed=0)


def test_many_prefixes_together_continue_as_each_would_by_itself(
    model: MultiExpertModel, make_tokens: Callable[..., Tokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = choose_pieces(make_tokens(3, 200), 7, 8, 6, seed=0)
    sampled = SamplingConfig(temperature=0.7, seed=5)
    for config in (PosteriorGateConfig(), UpdatingGateConfig(update_every=5, evidence="last_token"), FixedGateConfig()):
        mixed = MixtureSampler(model, KEYS, build_gate(config, [1, 2, 3]))
        for sampling in (GREEDY, sampled):
            by_itself = Pieces(pieces.prefixes_NP, continued_separately(mixed, pieces.prefixes_NP, 6, sampling), 1)
            assert extracted({"m": mixed}, by_itself, sampling).means["m"]["match"].mean == 1.0
    monkeypatch.setattr("engine.analysis.extraction._CHUNK_ELEMENTS", 1)
    by_itself = Pieces(pieces.prefixes_NP, continued_separately(mixed, pieces.prefixes_NP, 6, GREEDY), 1)
    assert extracted({"m": mixed}, by_itself).means["m"]["match"].mean == 1.0


def continued_separately(
    mixed: MixtureSampler, prefixes_NP: torch.Tensor, length: int, sampling: SamplingConfig
) -> torch.Tensor:
    """One text after another through `engine.inference.generate`, sampling all texts token by token."""
    generator = torch.Generator().manual_seed(sampling.seed or 0)
    texts = [Mixing(mixed.models, mixed.keys, mixed.gate) for _ in prefixes_NP]
    new: list[Sequence[int]] = prefixes_NP.tolist()
    message: list[list[int]] = []
    for _ in range(length):
        for text, ids in zip(texts, new, strict=True):
            list(text.read(ids))
        message.append([sample_token(text.distribution()[1], sampling, generator) for text in texts])
        new = [[one] for one in message[-1]]
    return torch.tensor(message).T


def test_who_wrote_the_text_gives_back_more_of_it_than_who_did_not(
    make_model: Callable[..., MultiExpertModel], make_tokens: Callable[..., Tokens]
) -> None:
    model = make_model(KEYS)  # whole networks: an untrained token alone changes no greedy choice
    author, other = (MixtureSampler(model, [key], build_gate(PosteriorGateConfig(), [1.0])) for key in ("law", "code"))
    prefixes_NP = choose_pieces(make_tokens(3, 400), 20, 8, 10, seed=0).prefixes_NP
    pieces = Pieces(prefixes_NP, continued_separately(author, prefixes_NP, 10, GREEDY), 1)
    result = extracted({"with": author, "without": other}, pieces)
    assert (result.means["with"]["match"].mean, result.means["with"]["longest_run"].mean) == (1.0, 10.0)
    assert result.means["without"]["match"].mean < 0.5
    for change in result.changes["without"].values():
        assert change.high < 0
    assert "with" not in result.changes


def test_two_mixtures_that_are_one_show_no_difference(
    model: MultiExpertModel, make_tokens: Callable[..., Tokens]
) -> None:
    mixed = MixtureSampler(model, KEYS, build_gate(PosteriorGateConfig(), [1, 1, 1]))
    result = extracted({"a": mixed, "b": mixed}, choose_pieces(make_tokens(3, 200), 5, 8, 6, seed=0))
    assert all(change.low <= 0 <= change.high for change in result.changes["b"].values())


def test_more_tokens_than_the_context_holds_are_refused(
    model: MultiExpertModel, make_tokens: Callable[..., Tokens]
) -> None:
    pieces = choose_pieces(make_tokens(3, 200), 2, 60, 6, seed=0)
    with pytest.raises(MixtureError, match=f"have 66 tokens together; the models read at most {model.max_positions}"):
        extracted({"m": MixtureSampler(model, KEYS, build_gate(PosteriorGateConfig(), [1, 1, 1]))}, pieces)


def test_similarities_on_sequences_counted_by_hand() -> None:
    message, true = [1, 2, 3, 9, 5, 6, 7, 8], [1, 2, 4, 3, 5, 6, 7, 0]
    assert match(message, true) == 5 / 8  # 1 2 . . 5 6 7 .
    assert longest_run(message, true) == 3  # 5 6 7
    assert rouge_l(message, true) == 6 / 8  # 1 2 3 5 6 7
    assert (match(true, true), longest_run(true, true), rouge_l(true, true)) == (1.0, 8.0, 1.0)
    assert longest_run([4, 1, 2, 3], [1, 2, 3, 4]) == 3
    assert match([4, 1, 2, 3], [1, 2, 3, 4]) == 0
