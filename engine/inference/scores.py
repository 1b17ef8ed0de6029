"""Stored token log-likelihoods of experts on held-out text, which can be mixed any number of times (law L19).

A score folder holds `logprobs.npy`, float32 [tokens], and `hits.npy`, bool [tokens]: whether the token was the most
probable one. Both are in the order of the excerpt's blocks; where each of these begins is in `starts.npy`, in which
document in `documents.npy`; and `scores.json` has the block size and the text's hash. Older folders have no hits.
Of conversations `counted.npy`, bool [tokens], says which tokens perplexities are of: those of answers. The others are
evidence for a gate as they are in generation; what only fills a block has the log-likelihood 0, as no token has.
The blocks are independent: each token is predicted from what precedes it in its block; the last block may be shorter.
Log-likelihoods of several experts can be mixed, hits cannot: what a mixture finds most probable depends on all tokens.
Shapes: E experts, N blocks, T positions.
"""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.device import preserve_threads
from engine.errors import ScoresError, TrainingError
from engine.events import Progress
from engine.files import read_own
from engine.mixing.base import Gate
from engine.models.expert_model import ExpertModel
from engine.models.rows import Rows
from engine.statistics.perplexity import perplexity_of
from engine.text.blocks import COUNTED, PADDING, EvalSample, Tokens, evenly_spaced
from engine.training.data import no_answers

if TYPE_CHECKING:
    from engine.clusters.distances import Distances


_LOGPROBS, _HITS, _COUNTED = "logprobs.npy", "hits.npy", "counted.npy"

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Item = TypeVar("Item")
Answer = TypeVar("Answer")


def score_tokens(
    model: ExpertModel, key: str, text: EvalSample, folder: Path, *, batch_size: int = 8
) -> Iterator[Progress]:
    """Writes one expert's log-likelihood and hit of every token of a text into a folder.

    Raises ScoresError when there is nothing to predict.
    """
    yield from score_together(model, {key: folder}, text, batch_size=batch_size)


def score_together(
    model: ExpertModel, folders: Mapping[str, Path], text: EvalSample, *, batch_size: int = 8
) -> Iterator[Progress]:
    """The same of experts by their keys; several read a block at a time, and compute layers that they share once."""
    total = text.num_tokens
    if total < 1:
        raise ScoresError("The text has fewer than 2 tokens.", "Import more text for this domain.")
    files = [
        [
            np.lib.format.open_memmap(folder / name, mode="w+", dtype=dtype, shape=(total,))
            for name, dtype in ((_LOGPROBS, np.float32), (_HITS, np.bool_))
        ]
        for folder in folders.values()
    ]
    done = 0
    for scores_of_kinds in _score(model, [*folders], text, batch_size):
        these = slice(done, done + scores_of_kinds[0].shape[1])
        for of_expert, *some in zip(files, *scores_of_kinds, strict=True):
            for file, values_X in zip(of_expert, some, strict=True):
                file[these] = values_X
        done = these.stop
        yield Progress(done, total, "tokens")
    for of_expert, folder in zip(files, folders.values(), strict=True):
        for file in of_expert:
            file.flush()
        if (marks_X := text.marks_X) is not None:
            np.save(folder / _COUNTED, marks_X == COUNTED)
        np.save(folder / "starts.npy", text.starts_N)
        np.save(folder / "documents.npy", text.documents_N)
        card = {"block_size": text.block_size, "num_tokens": total, "text_sha256": text.sha256}
        (folder / "scores.json").write_text(json.dumps(card), encoding="utf-8")


def score_text(model: ExpertModel, key: str, text: EvalSample, batch_size: int = 8, *, in_turn: bool = False) -> Floats:
    """One expert's log-likelihood of every token of a text; `in_turn` computes one forward pass at a time."""
    parts = [logprobs_1X[0] for logprobs_1X, _ in _score(model, [key], text, batch_size, in_turn=in_turn)]
    return np.concatenate([np.zeros(0, dtype=np.float32), *parts])


def _score(
    model: ExpertModel, keys: Sequence[str], text: EvalSample, batch_size: int, *, in_turn: bool = False
) -> Iterator[tuple[Floats, Bools]]:
    """Log-likelihoods and hits [E, X] of the batches in order, in the caller's precision; of several experts by blocks.

    On a CPU each batch uses one core: faster than all cores per operation, and bit-identical on any number of cores.
    """
    kind = model.device.type
    is_mixed, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)  # thread-local

    @torch.inference_mode()
    def score(batch: tuple[Any, Any]) -> tuple[Floats, Bools]:
        inputs_NT, targets_NT = (torch.from_numpy(ids).to(model.device) for ids in batch)
        rows = Rows(tuple(keys), (len(inputs_NT),) * len(keys))
        if len(keys) > 1:
            inputs_NT, targets_NT = (ids_1T.expand(len(keys), -1) for ids_1T in (inputs_NT, targets_NT))  # one text
        with torch.autocast(kind, dtype, enabled=is_mixed):
            scores = model.token_scores(inputs_NT, targets_NT, rows)
        logprobs_EX, hits_EX = (part_BT.reshape(len(keys), -1).cpu().numpy() for part_BT in scores)
        return logprobs_EX, hits_EX

    batches = text.batches(batch_size if len(keys) == 1 else 1)
    scored = side_by_side(score, batches) if kind == "cpu" and not in_turn else map(score, batches)
    return scored if text.tokens.marks is None else _without_padding(scored, text)


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """Yields `work(item)` for every item in order, with at most twice as many in flight as torch has threads.

    Each is computed by one thread, so results are bit-identical on any number of cores. Torch's thread count is
    restored when the last result was taken or the iterator was closed.
    """
    ahead: deque[Future[Answer]] = deque()
    with (
        preserve_threads() as threads,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) == 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _without_padding(scored: Iterable[tuple[Floats, Bools]], text: EvalSample) -> Iterator[tuple[Floats, Bools]]:
    """The same, with the log-likelihood 0 where a token only fills a block."""
    marks_X, done = text.marks_X, 0
    assert marks_X is not None
    for logprobs, hits in scored:
        is_padding = marks_X[done : done + hits.shape[1]] == PADDING
        done += hits.shape[1]
        yield np.where(is_padding, np.float32(0), logprobs), hits & ~is_padding


def token_hits(folder: Path) -> Bools | None:
    """True for tokens that were the most probable [tokens], in the order of the scores; None for older folders."""
    path = folder / _HITS
    return np.asarray(np.load(path, allow_pickle=False), dtype=np.bool_) if path.exists() else None


def counted_tokens(folder: Path) -> Tensor | None:
    """A mask of the tokens that count in perplexities [tokens]; None: all."""
    path = folder / _COUNTED
    return torch.from_numpy(np.load(path, allow_pickle=False)) if path.exists() else None


def block_documents(folder: Path) -> NDArray[np.int32]:
    """The index, within its split, of the document in which each scored block begins."""
    return np.asarray(np.load(folder / "documents.npy", allow_pickle=False), dtype=np.int32)


def block_starts(folder: Path) -> NDArray[np.int64]:
    """The position in its split at which each scored block begins."""
    return np.asarray(np.load(folder / "starts.npy", allow_pickle=False), dtype=np.int64)


def open_scores(folders: Sequence[Path]) -> tuple[Tensor, int]:
    """Scores [E, tokens] of several experts on the same text, and their block size."""
    cards = [score_card(folder) for folder in folders]
    require_same_cards(cards)
    shape = np.load(folders[0] / _LOGPROBS, mmap_mode="r", allow_pickle=False).shape
    scores_EX, start = np.empty((len(folders), *shape), dtype=np.float32), io.BytesIO()
    np.lib.format.write_array_header_1_0(start, np.lib.format.header_data_from_array_1_0(scores_EX[0]))
    for folder, row_X in zip(folders, scores_EX, strict=True):
        _read_into(folder / _LOGPROBS, row_X, start.getvalue())
    return torch.from_numpy(scores_EX), int(cards[0]["block_size"])


def score_card(folder: Path) -> dict[str, Any]:
    """Block size, number of tokens and hash of the scored text."""
    return read_own(folder / "scores.json", ["block_size"], "Evaluate again.")


def require_same_cards(cards: Sequence[dict[str, Any]]) -> None:
    """Raises ScoresError unless all scores are of one text in blocks of one size."""
    if not cards or any(card != cards[0] for card in cards):
        problem = "The scores of the experts differ in their tokens or block size."
        raise ScoresError(problem, "Evaluate all experts again together.")


def _read_into(path: Path, row_X: Floats, start: bytes) -> None:
    """Reads a file that begins with these bytes straight into an array; to copy a mapped file takes twice as long."""
    with path.open("rb", buffering=0) as file:
        if file.read(len(start)) == start and file.readinto(row_X.data) == row_X.nbytes:
            return
    array = np.load(path, allow_pickle=False)
    if array.shape != row_X.shape:
        raise ScoresError(f"{path} does not hold {len(row_X):,} numbers.", "Evaluate the expert again.")
    row_X[:] = array


def as_blocks(scores_EX: Tensor, block_size: int) -> Tensor:
    """Scores [E, tokens] as blocks [E, N, T]; the end of the last block is filled with 0."""
    num_experts, total = scores_EX.shape
    if total % block_size:
        padded_EX = scores_EX.new_empty(num_experts, total + -total % block_size)
        padded_EX[:, :total], padded_EX[:, total:] = scores_EX, 0
        scores_EX = padded_EX
    return scores_EX.reshape(num_experts, -1, block_size)


def full_blocks(scores_EX: Tensor, block_size: int) -> Tensor:
    """Scores [E, tokens] as blocks [E, N, T] without an incomplete last block."""
    num_blocks = scores_EX.shape[1] // block_size
    return scores_EX[:, : num_blocks * block_size].view(len(scores_EX), num_blocks, block_size)


def mix_scores(gate: Gate, scores_EX: Tensor, block_size: int, distances: Distances | None = None) -> Tensor:
    """The mixture's log-likelihood [tokens] of every token, each block separately.

    `distances` are those of the same tokens, for a gate that needs them.
    """
    return gate.mixed(as_blocks(scores_EX, block_size), distances).flatten()[: scores_EX.shape[1]]


def perplexity(logprobs: Tensor, counted_X: Tensor | None = None) -> float:
    """exp of the mean negative log-likelihood per token, of those that count."""
    return perplexity_of(-float((logprobs if counted_X is None else logprobs[counted_X]).mean(dtype=torch.float64)))


def mixed_perplexity(
    gate: Gate,
    scores_EX: Tensor,
    block_size: int,
    distances: Distances | None = None,
    counted_X: Tensor | None = None,
) -> float:
    """The perplexity of a mixture: that of `mix_scores`, computed from block sums where all tokens count."""
    if counted_X is not None:
        return perplexity(mix_scores(gate, scores_EX, block_size, distances), counted_X)
    return perplexity_of(-gate.total(as_blocks(scores_EX, block_size), distances) / scores_EX.shape[1])


def watched_blocks(name: str, tokens: Tokens, block_size: int, num_blocks: int) -> EvalSample:
    """Blocks of a domain's held-out text. Raises TrainingError without a full block."""
    if tokens.num_blocks(block_size) < 1:
        problem = f"The held-out text of domain “{name}” has {len(tokens)} tokens, less than one block of {block_size}."
        raise TrainingError(problem, "Watch another domain, or choose a smaller block size.")
    sampled = np.asarray(tokens.sampled_blocks(block_size), dtype=np.int64)
    text = EvalSample(tokens, block_size, sampled[evenly_spaced(len(sampled), num_blocks)] * block_size)
    marks_X = text.marks_X
    if marks_X is not None and COUNTED not in marks_X:
        raise no_answers(name)
    return text


def losses_of(
    model: ExpertModel, key: str, texts: Mapping[str, EvalSample], *, in_turn: bool = False
) -> dict[str, float]:
    """Mean loss (nats per token) of each text under the model with one of its experts.

    `in_turn` computes one forward pass at a time, for models with experts in other processes.
    """
    return {name: _loss(score_text(model, key, text, in_turn=in_turn), text) for name, text in texts.items()}


def _loss(logprobs_X: Floats, text: EvalSample) -> float:
    marks_X = text.marks_X
    return -float((logprobs_X if marks_X is None else logprobs_X[marks_X == COUNTED]).mean())


def losses_mixed(
    gate: Gate,
    others: Mapping[str, Tensor],
    model: ExpertModel,
    key: str,
    texts: Mapping[str, EvalSample],
    distances: Mapping[str, Distances],
) -> dict[str, float]:
    """Mean loss (nats per token) of each text under a mixture whose last expert is the model's.

    `others` holds the log-likelihoods [E, X] of each text under the other experts, `distances` the cluster distances
    for a gate that needs them.
    """
    losses = {}
    for name, text in texts.items():
        newest_1X, near = torch.from_numpy(score_text(model, key, text))[None], distances.get(name)
        scores_EX = torch.cat([others[name], newest_1X])
        if text.tokens.marks is None:
            losses[name] = -gate.total(as_blocks(scores_EX, text.block_size), near) / newest_1X.numel()
        else:
            losses[name] = _loss(mix_scores(gate, scores_EX, text.block_size, near).numpy(), text)
    return losses
