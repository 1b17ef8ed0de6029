"""Laws of scores and decoding: generation with caches and toggles agrees with the model and the scorer.

Shapes: E experts, T positions, V vocabulary, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.clusters.distances import Distances
from engine.config import SamplingConfig
from engine.events import Token
from engine.inference.generate import generate
from engine.inference.mixing import Mixing
from engine.inference.sampling import sampling_distribution
from engine.inference.scores import as_blocks, mix_scores, mixed_perplexity, perplexity, score_text
from engine.methods.multi_expert_files import load_multi_expert
from engine.mixing.base import Gate, Stream, mix
from engine.mixing.posterior import UpdatingGate
from engine.models.expert_model import ExpertModel
from engine.models.multi_expert import MultiExpertModel
from engine.selfcheck.law import LawFinding, gap, relative_gap
from engine.selfcheck.test_bed import (
    BLOCK,
    EVEN,
    FAMILIES,
    KEYS,
    PRIOR,
    PROMPT,
    TestBed,
    every_gate,
    mixed_logprobs,
    plain_gate,
    plain_logprobs,
    save_model,
)
from engine.text.blocks import eval_sample

LEFT = ("law", "news", "verse")  # without the second
SEEDS = (1, 2)


def removed_is_never_loaded(bed: TestBed) -> Iterator[LawFinding]:
    """L7: an expert switched off, removed or never loaded gives the same; the control keeps the expert."""
    for family in FAMILIES:
        model = bed.model(family)
        base, experts = save_model(model, bed.new_folder())
        never = load_multi_expert(base, {key: experts[key] for key in LEFT}).to(bed.device)
        never_TV, off_TV = (_decode(model, LEFT, plain_gate(EVEN[:3]), bed.ids) for model in (never, model))
        with_TV = _decode(model, KEYS, plain_gate(EVEN), bed.ids)
        model.remove_expert("code")
        gone_TV = _decode(model, LEFT, plain_gate(EVEN[:3]), bed.ids)
        for one_TV in (off_TV, gone_TV):
            yield LawFinding(gap(one_TV, never_TV), gap(with_TV, never_TV))


def probabilities_sum_to_one(bed: TestBed) -> Iterator[LawFinding]:
    """L13, sum and sampling distribution; the controls omit the most probable token and raise the temperature."""
    model, unit = bed.model(), torch.ones((), device=bed.device)
    for config in every_gate():
        logprobs_V = mixed_logprobs(model, KEYS, bed.gate(config, PRIOR), bed.ids)
        probabilities_V = logprobs_V.exp()
        yield LawFinding(gap(probabilities_V.sum(), unit), gap(probabilities_V.sum() - probabilities_V.max(), unit))
        drawn_V, flat_V = (sampling_distribution(logprobs_V, SamplingConfig(temperature=t)).log() for t in (1.0, 2.0))
        yield LawFinding(relative_gap(drawn_V, logprobs_V), relative_gap(flat_V, logprobs_V))
    yield from _generation_is_the_scorer(bed, model)


def _generation_is_the_scorer(bed: TestBed, model: MultiExpertModel) -> Iterator[LawFinding]:
    """L13, for sampled tokens; the controls use one expert's scores, and the number of tokens."""
    num_drawn = 0
    for config in every_gate():
        gate = bed.gate(config, PRIOR)
        for seed in SEEDS:
            ids, generated_T = _generate(bed, model, gate, seed)
            size, new = len(ids) - 1, len(generated_T)
            if not new:  # the end of the document was drawn at once
                continue
            num_drawn += new
            text = eval_sample(ids, size)
            scores_EX = torch.stack([torch.from_numpy(score_text(model, key, text)) for key in KEYS])
            scored_T = mix_scores(gate, scores_EX, size, bed.measure(text))[-new:]
            yield LawFinding(relative_gap(generated_T, scored_T), relative_gap(generated_T, scores_EX[0, -new:]))
    yield LawFinding(0.0, num_drawn)


def _generate(bed: TestBed, model: MultiExpertModel, gate: Gate, seed: int) -> tuple[np.ndarray, Tensor]:
    """A prompt with generated tokens within one block, and the log-probabilities [T] reported for them."""
    tokenizer = bed.tokenizer
    prompt = [tokenizer.bos_id, *tokenizer.encode(PROMPT)]
    sampling = SamplingConfig(max_tokens=BLOCK - len(prompt), seed=seed)
    drawn = [token for token in generate(model, KEYS, gate, tokenizer, PROMPT, sampling) if isinstance(token, Token)]
    ids = [*prompt, *(token.id for token in drawn)]
    return np.array(ids, dtype=np.uint16), torch.tensor([token.logprob for token in drawn])


def cached_is_plain(bed: TestBed) -> Iterator[LawFinding]:
    """L18, one token at a time in every family and with parts of an expert; the control sees only the last token."""
    models: Iterator[ExpertModel] = (make(family) for family in FAMILIES for make in (bed.model, bed.parts_together))
    for model in models:
        gate = plain_gate(PRIOR[: len(model.keys)])
        cached_TV = _decode(model, model.keys, gate, bed.ids)
        plain_TV = _without_cache(model, gate, bed.ids)
        forgetful_V = mixed_logprobs(model, model.keys, gate, bed.ids[-1:])
        yield LawFinding(relative_gap(cached_TV, plain_TV), relative_gap(forgetful_V, plain_TV[-1]))


def _decode(model: ExpertModel, keys: Sequence[str], gate: Gate, ids: Sequence[int]) -> Tensor:
    """The mixture's log-probabilities [T, V] after each token, read one by one through the caches."""
    mixing, distributions = Mixing(model, keys, gate), []
    for token in ids:
        for _ in mixing.read([token]):
            pass
        distributions.append(mixing.distribution()[1])
    return torch.stack(distributions)


def _without_cache(model: ExpertModel, gate: Gate, ids: Sequence[int]) -> Tensor:
    """The mixture's log-probabilities [T, V] from one forward pass without a cache."""
    logprobs_ETV, stream, distributions = plain_logprobs(model, model.keys, ids), gate.start(), []
    for position in range(len(ids)):
        if position:
            stream.observe(logprobs_ETV[:, position - 1, ids[position]], ids[position])
        else:
            stream.begin(ids[0])
        distributions.append(mix(stream.log_weights(), logprobs_ETV[:, position]))
    return torch.stack(distributions)


IN_THE_PADDING = -40.0  # nats


def batches_and_padding(bed: TestBed) -> Iterator[LawFinding]:
    """L9, in shares of the perplexity, from tokens and from sums of blocks; the control has half the context."""
    model = bed.model()
    halves_EX = bed.score(model, block_size=BLOCK // 2)
    batched = [bed.score(model, batch_size) for batch_size in (1, 3)]
    for config in every_gate():
        gate, near = bed.gate(config, PRIOR), bed.distances
        expected = perplexity(mix_scores(gate, bed.scores_EX, BLOCK, near))
        control = _relative_difference(perplexity(mix_scores(gate, halves_EX, BLOCK, near)), expected)
        for other_EX in batched:
            yield LawFinding(
                _relative_difference(perplexity(mix_scores(gate, other_EX, BLOCK, near)), expected), control
            )
        yield LawFinding(_relative_difference(mixed_perplexity(gate, bed.scores_EX, BLOCK, near), expected), control)
        yield _padding(gate, bed.scores_EX, near, expected)


def _padding(gate: Gate, scores_EX: Tensor, distances: Distances, expected: float) -> LawFinding:
    """Changes numbers in the padding of the last block; the control changes the number of a token."""
    padded_ENT, size = as_blocks(scores_EX, BLOCK), scores_EX.shape[1]
    other_ENT, token_ENT = padded_ENT.clone(), padded_ENT.clone()
    other_ENT[:, -1, size % BLOCK :] = token_ENT[:, -1, 0] = IN_THE_PADDING
    other, token = (
        perplexity(mix(gate.block(blocks_ENT, distances), blocks_ENT.double()).flatten()[:size])
        for blocks_ENT in (other_ENT, token_ENT)
    )
    return LawFinding(_relative_difference(other, expected), _relative_difference(token, expected))


def stored_is_live(bed: TestBed) -> Iterator[LawFinding]:
    """L19, token by token in every mode; the control mixes the stored scores with another prior."""
    model = bed.model()
    for config in every_gate():
        gate, other = bed.gate(config, PRIOR), bed.gate(config, PRIOR[::-1])
        live_X = _live(bed, model, gate)
        stored_X, other_X = (mix_scores(one, bed.scores_EX, BLOCK, bed.distances) for one in (gate, other))
        yield LawFinding(relative_gap(stored_X, live_X), gap(other_X, live_X))


def _live(bed: TestBed, model: MultiExpertModel, gate: Gate) -> Tensor:
    """The mixture's log-likelihood [X] of every token, from whole distributions, block after block.

    The experts read each block on its own; a gate that looks at text has read what stands before it.
    """
    ids, logprobs, stream = bed.array.tolist(), [], bed.stream(gate)
    for start in range(0, len(ids) - 1, BLOCK):
        block = ids[start : start + BLOCK + 1]
        logprobs_ETV = plain_logprobs(model, KEYS, block[:-1]).cpu().double()
        stream = stream if isinstance(gate, UpdatingGate) else _after(gate, ids[: start + 1])
        for position, target in enumerate(block[1:]):
            logprobs.append(mix(stream.log_weights(), logprobs_ETV[:, position])[target])
            stream.observe(logprobs_ETV[:, position, target], target)
    return torch.stack(logprobs)


def _after(gate: Gate, ids: Sequence[int]) -> Stream:
    """A fresh stream that has read a text, which is not evidence."""
    stream = gate.start()
    for token in ids:
        stream.begin(token)
    return stream


def _relative_difference(first: float, second: float) -> float:
    return abs(first / second - 1)
