"""Claims: an 8-expert DEMix mixture decodes at least 1.5x the tokens per second of the loop over 8 separate models and
takes at most 5x the time of one dense model; the posterior's arithmetic takes at most 2 % of the forward passes.

The peer is what one would write without the workbench: 8 `transformers` models of the same weights, each with its own
cache, their probabilities mixed by the same posterior. Both give the same distributions (checked). The dense model is
one of the 8, which decodes without the others. Runs alternate; the posterior is timed on the log-likelihoods of the
tokens just decoded.
Run: python benchmarks/decoding.py
"""

from __future__ import annotations

from engine.device import prepare_process
from engine.methods.multi_expert_files import new_placement

prepare_process()

import time  # noqa: E402
from typing import Any, get_args  # noqa: E402

import torch  # noqa: E402
from transformers import DynamicCache  # noqa: E402

from engine.config import Family, ModelConfig  # noqa: E402
from engine.inference.mixing import Mixing  # noqa: E402
from engine.mixing.base import mix  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

SHAPE = {"width": (256, 32), "layers": (6, 1), "vocabulary": (8192, 512)}


def separate_models(shape: ModelConfig, model: MultiExpertModel) -> list[Any]:
    """Each expert as a plain model with weights of its own."""
    models = []
    for key in model.keys:
        lm = fresh_model(shape, model.vocab_size).eval()
        lm.load_state_dict({**model.shared_state(), **model.expert_state(key)}, strict=False)
        models.append(lm)
    return models


def different_experts(shape: ModelConfig, vocab_size: int) -> MultiExpertModel:
    """A model whose 8 experts really differ."""
    model = MultiExpertModel(fresh_model(shape, vocab_size), [f"e{i}" for i in range(8)], new_placement()).eval()
    with torch.no_grad():
        for key in model.keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn_like(parameter) * 0.02)
    return model


@torch.inference_mode()
def loop_decode(models: list[Any], prompt: list[int], num_tokens: int) -> tuple[list[int], torch.Tensor]:
    """Greedy decoding by the loop over separate models."""
    caches = [DynamicCache() for _ in models]
    stream = PosteriorGate([1.0] * len(models)).start()
    ids, text = torch.tensor([prompt]), []
    logprobs = None
    for _ in range(num_tokens):
        outs = [
            lm(input_ids=ids, past_key_values=cache, use_cache=True).logits
            for lm, cache in zip(models, caches, strict=True)
        ]
        every = torch.stack([out[0].float().log_softmax(-1) for out in outs])
        for position, token in enumerate(ids[0].tolist()):
            if logprobs is not None:
                stream.observe(logprobs[:, token], token)
            logprobs = every[:, position]
        mixed = mix(stream.log_weights(), logprobs)
        text.append(int(mixed.argmax()))
        ids = torch.tensor([[text[-1]]])
    return text, mixed


def mixture_decode(model: MultiExpertModel, prompt: list[int], num_tokens: int) -> tuple[list[int], torch.Tensor]:
    """Greedy decoding by the workbench."""
    mixing = Mixing(model, model.keys, PosteriorGate([1.0] * len(model.keys)))
    text: list[int] = []
    ids = prompt
    for _ in range(num_tokens):
        for _ in mixing.read(ids):
            pass
        _, mixed = mixing.distribution()
        text.append(int(mixed.argmax()))
        ids = [text[-1]]
    return text, mixed


@torch.inference_mode()
def dense_decode(lm: Any, prompt: list[int], num_tokens: int) -> None:
    """Greedy decoding by one model."""
    cache, ids = DynamicCache(), torch.tensor([prompt])
    for _ in range(num_tokens):
        logits = lm(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1]
        ids = logits.float().log_softmax(-1).argmax().view(1, 1)


@torch.inference_mode()
def posterior_seconds(num_experts: int, num_tokens: int) -> float:
    """The posterior's own arithmetic, as decoding asks for it: a weight and an observation at each token."""
    logprobs_TE = torch.randn(num_tokens, num_experts) - 5
    stream = PosteriorGate([1.0] * num_experts).start()
    began = time.perf_counter()
    for logprobs_E in logprobs_TE:
        stream.log_weights()
        stream.observe(logprobs_E, 0)
    return time.perf_counter() - began


def requested_models(
    description: str | None, sizes: dict[str, tuple[Any, ...]]
) -> tuple[Any, MultiExpertModel, list[Any]]:
    """The options, and 8 experts of the requested size: as one DEMix model, and as separate models."""
    parser = Options(description, {**sizes, **SHAPE})
    parser.add_argument("--family", choices=get_args(Family), default="gpt2", help="the paper's is that of GPT")
    options = parser.parse_args()
    torch.manual_seed(0)
    width = options.width
    shape = ModelConfig(options.family, options.layers, width, 4, 4 * width, max_positions=512)
    model = different_experts(shape, options.vocabulary)
    return options, model, separate_models(shape, model)


def main() -> None:
    options, model, models = requested_models(__doc__, {"pairs": (5, 1), "tokens": (48, 4)})
    prompt = torch.randint(0, model.vocab_size, (32,)).tolist()
    ratios, loop_speed, mixture_speed, dense_ratios, shares = [], [], [], [], []
    for number in range(options.pairs + 1):
        began = time.perf_counter()
        loop_text, loop_last = loop_decode(models, prompt, options.tokens)
        middle = time.perf_counter()
        mixture_text, mixture_last = mixture_decode(model, prompt, options.tokens)
        ended = time.perf_counter()
        dense = seconds_of(lambda: dense_decode(models[0], prompt, options.tokens))
        assert loop_text == mixture_text
        assert torch.allclose(loop_last, mixture_last, atol=1e-4)
        if number:
            loop_speed.append(options.tokens / (middle - began))
            mixture_speed.append(options.tokens / (ended - middle))
            ratios.append(mixture_speed[-1] / loop_speed[-1])
            dense_ratios.append((ended - middle) / dense)
            posterior = posterior_seconds(len(models), len(prompt) + options.tokens)
            shares.append(posterior / (ended - middle - posterior))
    figures = [
        Figure("tokens per second over the loop over 8 models", ratios, at_least=1.5),
        Figure("time over one dense model", dense_ratios, at_most=5),
        Figure("the posterior's arithmetic over the forward passes", shares, at_most=0.02),
        Figure("mixture", mixture_speed, "tokens/s"),
        Figure("loop over 8 models", loop_speed, "tokens/s"),
    ]
    report(options, figures)


if __name__ == "__main__":
    main()
