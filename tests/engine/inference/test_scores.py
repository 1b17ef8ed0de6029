"""Scores are computed once and mixed any number of times: arithmetic equal to live forward passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.errors import ScoresError
from engine.inference.scores import as_blocks, mix_scores, open_scores, perplexity, score_text, score_tokens, token_hits
from engine.mixing.base import mix
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.fixed import FixedGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import EvalSample, Tokens, eval_sample

BLOCK = 16
Score = Callable[..., tuple[Tensor, int]]


@pytest.fixture
def score(model: MultiExpertModel, make_tokens: Callable[..., Tokens], tmp_path: Path) -> Score:
    """Scores of the given experts on 75 tokens: four whole blocks and a rest."""

    def run(keys: list[str], batch_size: int = 8) -> tuple[Tensor, int]:
        folders = []
        for key in keys:
            folder = tmp_path / f"{key}-{batch_size}"
            folder.mkdir(exist_ok=True)
            list(score_tokens(model, key, EvalSample.of(make_tokens(3, 75), BLOCK), folder, batch_size=batch_size))
            folders.append(folder)
        return open_scores(folders)

    return run


def test_scores_are_the_log_likelihoods_of_the_tokens(
    model: MultiExpertModel, make_tokens: Callable[..., Tokens]
) -> None:
    ids = torch.from_numpy(make_tokens(3, BLOCK + 1).array.astype("int64"))
    with torch.no_grad():
        logprobs_TV = model(ids[None, :-1], Rows.all_to("law", 1))[0].log_softmax(-1)
    expected = logprobs_TV.gather(1, ids[1:, None])[:, 0]
    result = torch.from_numpy(score_text(model, "law", eval_sample(ids.numpy(), BLOCK)))
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)


def test_hits_are_the_tokens_that_the_model_finds_most_probable(
    model: MultiExpertModel, make_tokens: Callable[..., Tokens], tmp_path: Path
) -> None:
    ids = _often_right(model, torch.from_numpy(make_tokens(3, 75).array.astype("int64")))
    blocks = [ids[start : start + BLOCK + 1] for start in range(0, 74, BLOCK)]
    wanted = torch.cat([_most_probable(model, block[:-1]) == block[1:] for block in blocks])
    for batch_size in (1, 2, 8):
        folder = tmp_path / str(batch_size)
        folder.mkdir()
        list(score_tokens(model, "law", eval_sample(ids.numpy(), BLOCK), folder, batch_size=batch_size))
        result = token_hits(folder)
        assert result is not None
        assert result.dtype == bool
        assert result.tolist() == wanted.tolist()
    assert 0 < wanted.sum() < 74


def _often_right(model: MultiExpertModel, ids: Tensor) -> Tensor:
    """Every third token, within its block, is the one that the model finds most probable."""
    for place in range(3, len(ids), 3):
        ids[place] = _most_probable(model, ids[(place - 1) // BLOCK * BLOCK : place])[-1]
    return ids


@torch.no_grad()
def _most_probable(model: MultiExpertModel, ids_T: Tensor) -> Tensor:
    return model(ids_T[None], Rows.all_to("law", 1))[0].argmax(-1)


def test_scores_of_before_hits_were_kept_are_mixed_with_those_of_today(
    model: MultiExpertModel, make_tokens: Callable[..., Tokens], tmp_path: Path
) -> None:
    folders = [tmp_path / "before", tmp_path / "today"]
    for folder in folders:
        folder.mkdir()
        list(score_tokens(model, "law", EvalSample.of(make_tokens(3, 75), BLOCK), folder))
    (folders[0] / "hits.npy").unlink()
    assert token_hits(folders[0]) is None
    assert token_hits(folders[1]) is not None
    assert torch.equal(*open_scores(folders)[0])


def test_perplexity_does_not_depend_on_the_batch_size(score: Score, model: MultiExpertModel) -> None:  # L9
    one, eight = (perplexity(score(model.keys, batch_size)[0]) for batch_size in (1, 8))
    assert abs(one - eight) / eight < 1e-5


def test_scores_do_not_depend_on_the_number_of_cores(score: Score, model: MultiExpertModel) -> None:
    before = torch.get_num_threads()
    result = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        result.append(score(model.keys, 2)[0].clone())
    torch.set_num_threads(before)
    assert torch.equal(*result)


def test_mixing_stored_scores_is_mixing_live_forward_passes(
    score: Score, model: MultiExpertModel, make_tokens
) -> None:  # L19
    scores_EX, block_size = score(model.keys)
    ids = torch.from_numpy(make_tokens(3, 75).array.astype("int64"))
    for config in (
        PosteriorGateConfig(),
        PosteriorGateConfig(evidence="last_token"),
        FixedGateConfig(),
        PosteriorGateConfig(top_k=2),
    ):
        gate = build_gate(config, [1, 2, 3, 4])
        stored = mix_scores(gate, scores_EX, block_size)
        live = torch.cat([_live(model, gate, ids[start : start + BLOCK + 1]) for start in range(0, 74, BLOCK)])
        torch.testing.assert_close(stored, live, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def _live(model: MultiExpertModel, gate, ids: Tensor) -> Tensor:
    """The mixture on one block: whole distributions of all experts, one position after another."""
    logprobs_ETV = model(ids[None, :-1].expand(len(model.keys), -1), Rows.one_each(model.keys)).log_softmax(-1)
    stream, result = gate.start(), []
    for position, target in enumerate(ids[1:].tolist()):
        result.append(mix(stream.log_weights(), logprobs_ETV[:, position].double())[target])
        stream.observe(logprobs_ETV[:, position, target], int(target))
    return torch.stack(result)


def test_a_mixture_without_an_expert_is_the_mixture_that_never_scored_it(
    score: Score, model: MultiExpertModel
) -> None:  # L7
    scores_EX, block_size = score(model.keys)
    never, _ = score(["law", "news", "verse"])
    gate = build_gate(PosteriorGateConfig(), [1, 1, 1])
    assert torch.equal(mix_scores(gate, scores_EX[[0, 2, 3]], block_size), mix_scores(gate, never, block_size))


def test_all_weight_on_one_expert_is_that_experts_score_to_the_bit(score: Score, model: MultiExpertModel) -> None:  # L1
    scores_EX, block_size = score(model.keys)
    mixed = mix_scores(build_gate(PosteriorGateConfig(), [0, 0, 1, 0]), scores_EX, block_size)
    assert torch.equal(mixed, scores_EX[2].double())
    assert perplexity(mixed) == perplexity(scores_EX[2])


def test_the_end_of_the_last_block_changes_nothing(score: Score, model: MultiExpertModel) -> None:  # L9
    scores_EX, _ = score(model.keys)
    gate = build_gate(PosteriorGateConfig(), [1, 2, 3, 4])
    full = gate.block(as_blocks(scores_EX, BLOCK))
    short = gate.block(scores_EX[:, None, 64:])
    torch.testing.assert_close(full[:, 4, :10], short[:, 0], atol=1e-9, rtol=0)


def test_scores_of_different_texts_are_not_mixed(model: MultiExpertModel, make_tokens, tmp_path: Path) -> None:
    folders = []
    for length in (40, 50):
        folder = tmp_path / str(length)
        folder.mkdir()
        list(score_tokens(model, "law", EvalSample.of(make_tokens(3, length), BLOCK), folder))
        folders.append(folder)
    with pytest.raises(ScoresError, match="differ in their tokens"):
        open_scores(folders)


def test_text_of_one_token_cannot_be_scored(model: MultiExpertModel, make_tokens, tmp_path: Path) -> None:
    with pytest.raises(ScoresError, match="fewer than 2 tokens"):
        list(score_tokens(model, "law", EvalSample.of(make_tokens(3, 1), BLOCK), tmp_path))
