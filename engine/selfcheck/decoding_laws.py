"""Laws of decoding: what generation says, with its caches and toggles, is what the model and the scorer say.

Shapes: E experts, T positions, V vocabulary, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.events import Token
from engine.inference.generate import Mixing, generate
from engine.inference.sampling import sampling_distribution
from engine.inference.scores import mix_scores, score_text
from engine.methods.row_registry import load_demix
from engine.mixing.base import Gate
from engine.mixing.combine import mix
from engine.models.expert_model import ExpertModel
from engine.models.multi_expert import MultiExpertModel
from engine.selfcheck.law import Finding, gap, relative_gap
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
from engine.text.eval_sample import eval_sample

LEFT = ("law", "news", "verse")  # without the second
SEEDS = (1, 2)


def removed_is_never_loaded(ground: TestBed) -> Iterator[Finding]:
    """L7: switched off, taken out and never loaded are one; the control has the expert in."""
    for family in FAMILIES:
        model = ground.model(family)
        base, experts = save_model(model, ground.new_folder())
        never = load_demix(base, {key: experts[key] for key in LEFT}).to(ground.device)
        never_TV, off_TV = (_decoded(one, LEFT, plain_gate(EVEN[:3]), ground.ids) for one in (never, model))
        with_TV = _decoded(model, KEYS, plain_gate(EVEN), ground.ids)
        model.remove_expert("code")
        gone_TV = _decoded(model, LEFT, plain_gate(EVEN[:3]), ground.ids)
        for one_TV in (off_TV, gone_TV):
            yield Finding(gap(one_TV, never_TV), gap(with_TV, never_TV))


def probabilities_sum_to_one(ground: TestBed) -> Iterator[Finding]:
    """L13, the sum and what is drawn from; the controls leave out the most probable token, and flatten the rest."""
    model, one = ground.model(), torch.ones((), device=ground.device)
    for config in every_gate():
        logprobs_V = mixed_logprobs(model, KEYS, ground.gate(config, PRIOR), ground.ids)
        probabilities_V = logprobs_V.exp()
        yield Finding(gap(probabilities_V.sum(), one), gap(probabilities_V.sum() - probabilities_V.max(), one))
        drawn_V, flat_V = (sampling_distribution(logprobs_V, SamplingConfig(temperature=t)).log() for t in (1.0, 2.0))
        yield Finding(relative_gap(drawn_V, logprobs_V), relative_gap(flat_V, logprobs_V))
    yield from _generation_is_the_scorer(ground, model)


def _generation_is_the_scorer(ground: TestBed, model: MultiExpertModel) -> Iterator[Finding]:
    """L13, for tokens that are drawn; the control takes one expert's word for the mixture's, and counts tokens."""
    num_drawn = 0
    for config in every_gate():
        gate = ground.gate(config, PRIOR)
        for seed in SEEDS:
            ids, said_T = _generated(ground, model, gate, seed)
            size, new = len(ids) - 1, len(said_T)
            if not new:  # the end of the document was drawn at once
                continue
            num_drawn += new
            text = eval_sample(ids, size)
            scores_EX = torch.stack([torch.from_numpy(score_text(model, key, text)) for key in KEYS])
            scored_T = mix_scores(gate, scores_EX, size, ground.measure(text))[-new:]
            yield Finding(relative_gap(said_T, scored_T), relative_gap(said_T, scores_EX[0, -new:]))
    yield Finding(0.0, num_drawn)


def _generated(ground: TestBed, model: MultiExpertModel, gate: Gate, seed: int) -> tuple[np.ndarray, Tensor]:
    """A prompt with what was drawn after it, within one block, and the log-probabilities [T] said of that."""
    tokenizer = ground.tokenizer
    prompt = [tokenizer.bos_id, *tokenizer.encode(PROMPT)]
    sampling = SamplingConfig(max_tokens=BLOCK - len(prompt), seed=seed)
    drawn = [one for one in generate(model, KEYS, gate, tokenizer, PROMPT, sampling) if isinstance(one, Token)]
    ids = [*prompt, *(one.id for one in drawn)]
    return np.array(ids, dtype=np.uint16), torch.tensor([one.logprob for one in drawn])


def cached_is_plain(ground: TestBed) -> Iterator[Finding]:
    """L18, one token at a time in every family and with parts of MoDE; the control forgets all but the last token."""
    models: Iterator[ExpertModel] = (
        make(family) for family in FAMILIES for make in (ground.model, ground.parts_together)
    )
    for model in models:
        gate = plain_gate(PRIOR[: len(model.keys)])
        cached_TV = _decoded(model, model.keys, gate, ground.ids)
        plain_TV = _without_cache(model, gate, ground.ids)
        forgetful_V = mixed_logprobs(model, model.keys, gate, ground.ids[-1:])
        yield Finding(relative_gap(cached_TV, plain_TV), relative_gap(forgetful_V, plain_TV[-1]))


def _decoded(model: ExpertModel, keys: Sequence[str], gate: Gate, ids: Sequence[int]) -> Tensor:
    """The mixture's log-probabilities [T, V] after each token, read one by one through the caches."""
    mixing, found = Mixing(model, keys, gate), []
    for token in ids:
        for _ in mixing.read([token]):
            pass
        found.append(mixing.distribution()[1])
    return torch.stack(found)


def _without_cache(model: ExpertModel, gate: Gate, ids: Sequence[int]) -> Tensor:
    """The same from one forward pass without a cache."""
    logprobs_ETV, stream, found = plain_logprobs(model, model.keys, ids), gate.start(), []
    for position in range(len(ids)):
        if position:
            stream.observe(logprobs_ETV[:, position - 1, ids[position]], ids[position])
        else:
            stream.begin(ids[0])
        found.append(mix(stream.log_weights(), logprobs_ETV[:, position]))
    return torch.stack(found)
