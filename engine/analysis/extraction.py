"""Measures how much training text a mixture reproduces when it continues prefixes of it.

A piece lies within one document: a prefix and its true continuation. This measures what greedy or sampled decoding
reproduces from such prefixes; it bounds neither what other prompts extract nor what was memorised.
Shapes: N pieces, P tokens of a prefix, C tokens of a continuation, E experts, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import CorpusError, MixtureError
from engine.events import Progress
from engine.inference.ensemble import Group, Models, as_ensemble
from engine.inference.sampling import only_tokens, sample_token
from engine.mixing.base import Gate, Stream, mix
from engine.models.rows import Rows
from engine.statistics.estimates import Interval, bootstrap_mean
from engine.text.blocks import PADDING, Tokens

_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × N × P × V) held at once: 64 MiB


@dataclass(frozen=True)
class Pieces:
    """Prefixes [N, P] with their true continuations [N, C], and the number of their documents."""

    prefixes_NP: Tensor
    continuations_NC: Tensor
    num_documents: int


@dataclass(frozen=True)
class MixtureSampler:
    """A mixture: its models, the active experts in the order of the gate's weights, and the gate."""

    models: Models
    keys: Sequence[str]
    gate: Gate


@dataclass(frozen=True)
class Extraction:
    """Means over the pieces with their intervals, by mixture and measure (see `MEASURES`).

    `changes` are the means of the paired differences to the first mixture.
    """

    means: Mapping[str, Mapping[str, Interval]]
    changes: Mapping[str, Mapping[str, Interval]]


def choose_pieces(tokens: Tokens, num_pieces: int, prefix_length: int, continuation_length: int, seed: int) -> Pieces:
    """Random pieces, spread over the documents: every document gives a first piece before any gives a second.

    Pieces do not overlap. Raises CorpusError when there are too few.
    """
    span = prefix_length + continuation_length
    lengths = np.diff(tokens.starts, append=len(tokens))
    if tokens.marks is not None:  # after its last token a conversation may have padding
        lengths = lengths - np.add.reduceat(tokens.marks == PADDING, tokens.starts)
    counts = lengths // span
    documents = np.repeat(np.arange(len(counts)), counts)
    if len(documents) < num_pieces:
        raise CorpusError(
            f"There are {len(documents)} pieces of {span} tokens within one document; {num_pieces} are needed.",
            "Choose fewer or shorter prefixes, or import more text.",
        )
    within = np.concatenate([np.arange(count) for count in counts])
    chosen = _spread(documents, np.random.default_rng(seed))[:num_pieces]
    first_N = tokens.starts[documents[chosen]] + within[chosen] * span
    pieces_NS = torch.from_numpy(np.stack([tokens.array[at : at + span] for at in first_N]).astype(np.int64))
    return Pieces(pieces_NS[:, :prefix_length], pieces_NS[:, prefix_length:], len(np.unique(documents[chosen])))


def _spread(documents: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """All pieces in random order, the first of every document before the second of any."""
    shuffled, num_seen, turns = rng.permutation(len(documents)), Counter[int](), []
    for piece in shuffled:
        num_seen[int(documents[piece])] += 1
        turns.append(num_seen[int(documents[piece])])
    return shuffled[np.argsort(turns, kind="stable")]


def generate_continuations(
    mixed: MixtureSampler, pieces: Pieces, sampling: SamplingConfig, unused_rows: Sequence[int] = ()
) -> Iterator[Progress | Tensor]:
    """Yields progress while a mixture continues every prefix, then the continuations [N, C].

    At temperature 0 the most probable token is taken; else tokens are sampled with the seed. `unused_rows` of the
    vocabulary have no token and are never taken.
    """
    parts: list[Tensor] = []
    for part in _continue_batches(mixed, pieces, sampling, unused_rows):
        parts.append(part)
        done = sum(map(len, parts))
        yield Progress(done, len(pieces.prefixes_NP), "continuations", "trying to extract training text")
    yield torch.cat(parts)


def compare(generated: Mapping[str, Tensor], pieces: Pieces) -> Extraction:
    """Compares the continuations of mixtures (by name) with the true ones."""
    values = {
        name: {
            measure: np.array(list(map(similarity, generated_NC.tolist(), pieces.continuations_NC.tolist())))
            for measure, similarity in MEASURES.items()
        }
        for name, generated_NC in generated.items()
    }
    first, *others = values
    return Extraction(
        {name: {measure: bootstrap_mean(some) for measure, some in values[name].items()} for name in values},
        {
            name: {measure: bootstrap_mean(some - values[first][measure]) for measure, some in values[name].items()}
            for name in others
        },
    )


def _continue_batches(
    mixed: MixtureSampler, pieces: Pieces, sampling: SamplingConfig, unused_rows: Sequence[int]
) -> Iterator[Tensor]:
    """Continuations [n, C] in batches that fit into memory."""
    length, longest = pieces.continuations_NC.shape[1], mixed.models.max_positions
    if pieces.prefixes_NP.shape[1] + length > longest:
        raise MixtureError(
            f"Prefix and continuation have {pieces.prefixes_NP.shape[1] + length} tokens together; the models read at "
            f"most {longest}.",
            "Choose shorter ones.",
        )
    generator = torch.Generator().manual_seed(sampling.seed or 0)
    per_piece = len(mixed.keys) * pieces.prefixes_NP.shape[1] * mixed.models.vocab_size
    for prefixes_nP in pieces.prefixes_NP.split(max(1, _CHUNK_ELEMENTS // per_piece)):
        yield _continue_batch(mixed, prefixes_nP, length, sampling, generator, unused_rows)


@torch.inference_mode()
def _continue_batch(
    mixed: MixtureSampler,
    prefixes_NP: Tensor,
    length: int,
    sampling: SamplingConfig,
    generator: torch.Generator,
    unused_rows: Sequence[int],
) -> Tensor:
    """Continues all prefixes in one batch of E rows each, with the same result as `engine.inference.generate`."""
    ensemble = as_ensemble(mixed.models, mixed.keys)
    caches = [group.model().new_cache() for group in ensemble.groups]
    streams = [mixed.gate.start() for _ in prefixes_NP]
    for stream, first in zip(streams, prefixes_NP[:, 0].tolist(), strict=True):
        stream.begin(first)
    ids_NT, drawn = prefixes_NP, list[Tensor]()
    while True:
        parts = [_forward(group, ids_NT, cache) for group, cache in zip(ensemble.groups, caches, strict=True)]
        logprobs_ENTV = ensemble.together(parts, mixed.keys)
        for position in range(1, ids_NT.shape[1]):  # by what the position before gave the token
            _observe(streams, logprobs_ENTV[:, :, position - 1], ids_NT[:, position])
        log_weights_EN = torch.stack([stream.log_weights() for stream in streams], 1)
        mixed_NV = mix(log_weights_EN, logprobs_ENTV[:, :, -1])
        possible_NV = only_tokens(mixed_NV, unused_rows)
        drawn.append(torch.tensor([sample_token(logprobs_V, sampling, generator) for logprobs_V in possible_NV]))
        if len(drawn) == length:
            return torch.stack(drawn, 1)
        _observe(streams, logprobs_ENTV[:, :, -1], drawn[-1])
        ids_NT = drawn[-1][:, None]


def _forward(group: Group, ids_NT: Tensor, cache: Any) -> Tensor:
    """Log-probabilities [E, N, T, V] of one base's experts after each token."""
    model, num_experts = group.model(), len(group.keys)
    rows = Rows(group.keys, (len(ids_NT),) * num_experts)
    input_BT = ids_NT.repeat(num_experts, 1).to(model.device)
    logits_BTV: Tensor = model(input_BT, rows, cache)
    return logits_BTV.float().log_softmax(-1).view(num_experts, len(ids_NT), *logits_BTV.shape[1:])


def _observe(streams: Sequence[Stream], logprobs_ENV: Tensor, ids_N: Tensor) -> None:
    index_EN1 = ids_N.to(logprobs_ENV.device).expand(len(logprobs_ENV), -1)[..., None]
    observed_EN = logprobs_ENV.gather(-1, index_EN1)[..., 0].cpu()
    for piece, (stream, token) in enumerate(zip(streams, ids_N.tolist(), strict=True)):
        stream.observe(observed_EN[:, piece], token)


# similarity ------------------------------------------------------------------------------------------


def match(first: Sequence[int], second: Sequence[int]) -> float:
    """The share of places at which the tokens are the same."""
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(second)


def longest_run(first: Sequence[int], second: Sequence[int]) -> float:
    """The length of the longest run of tokens that is in both, wherever it stands."""
    return float(SequenceMatcher(None, first, second, autojunk=False).find_longest_match().size)


def rouge_l(first: Sequence[int], second: Sequence[int]) -> float:
    """The longest common subsequence of tokens as a share of the length (Lin, 2004; both are as long)."""
    before = [0] * (len(second) + 1)
    for a in first:
        row = [0]
        for position, b in enumerate(second):
            row.append(before[position] + 1 if a == b else max(row[-1], before[position + 1]))
        before = row
    return before[-1] / len(second)


MEASURES: Mapping[str, Callable[[Sequence[int], Sequence[int]], float]] = {
    "match": match,
    "longest_run": longest_run,
    "rouge_l": rouge_l,
}
