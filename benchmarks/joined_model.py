"""Claims: a joined model of 8 experts (ridge routers, one network for each token) decodes 3 times faster than their
posterior mixture.

Both take turns token by token, on one thread whose processor time is counted; one expert by itself is the third. The
experts are DEMix experts of one base, small and freshly made: what they say does not matter here. Summing is compared
with reading the same blocks without sums.
Run: python benchmarks/joined_model.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process(1)

import statistics  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from engine.config import ModelConfig  # noqa: E402
from engine.inference.ensemble import Ensemble, group_of  # noqa: E402
from engine.inference.mixing import Mixing  # noqa: E402
from engine.methods.moe.checkpoint import as_sparse_moe, set_routers  # noqa: E402
from engine.methods.multi_expert_files import new_placement  # noqa: E402
from engine.methods.ridge.router import Sums, gather, solve  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.text.blocks import EvalSample, eval_sample  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

VOCAB, NUM_EXPERTS, BLOCK = 4096, 8, 128
SIZES = {"runs": (7, 1), "tokens": (64, 4), "width": (512, 32), "layers": (8, 1), "blocks": (8, 2, "to sum over")}


def experts_of(shape: ModelConfig) -> MultiExpertModel:
    """Eight experts whose networks differ a little."""
    model = MultiExpertModel(fresh_model(shape, VOCAB), [f"e{n}" for n in range(NUM_EXPERTS)], new_placement())
    for number, key in enumerate(model.keys):
        draw = torch.Generator().manual_seed(number)
        for parameter in model.expert_parameters(key).values():
            parameter.data += 0.02 * torch.randn(parameter.shape, generator=draw)
    return model.eval()


def last(events: Any) -> Any:
    """What a generator of progress yields in the end."""
    *_, result = events
    return result


@torch.inference_mode()
def read(lm: Any, sample: EvalSample) -> None:
    """Reads blocks, as summing does."""
    for ids_NT, _ in sample.batches(4):
        lm.base_model(input_ids=torch.from_numpy(ids_NT), use_cache=False)


def sums_of(lms: list[Any], num_blocks: int) -> tuple[list[Sums], list[float]]:
    """The sums of each expert over random text, and the time of summing over that of only reading."""
    sums, ratios = list[Sums](), list[float]()
    for number, lm in enumerate(lms):
        ids = np.random.default_rng(number).integers(0, VOCAB, num_blocks * BLOCK + 1)
        sample = eval_sample(ids, BLOCK)
        reading = seconds_of(partial(read, lm, sample), time.thread_time)
        started = time.thread_time()
        sums.append(last(gather(lm, [sample])))
        ratios.append((time.thread_time() - started) / reading)
    return sums, ratios


def stream_of(lm: Any) -> Callable[[list[int]], None]:
    """Takes tokens in and gives the distribution of the next, with one model."""
    model = MultiExpertModel(lm, ["one"], new_placement()).eval()
    ensemble = Ensemble((group_of(model, ["one"]),))
    return _stepping(Mixing(ensemble, ["one"], PosteriorGate([1.0])))


def _stepping(mixing: Mixing) -> Callable[[list[int]], None]:
    def step(ids: list[int]) -> None:
        mixing.feed(ids)
        mixing.distribution()

    return step


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    width = options.width
    shape = ModelConfig(num_layers=options.layers, width=width, num_heads=4, ffn_width=4 * width, max_positions=512)
    model = experts_of(shape)
    lms = [experts_of(shape).full_model(key) for key in model.keys]  # each of a model of its own, which it changes
    sums, ratios = sums_of(lms, options.blocks)
    started = time.thread_time()
    routers = solve(sums, 0.01)
    solving = time.thread_time() - started
    joined = last(as_sparse_moe({key: (lambda lm=lm: lm) for key, lm in zip(model.keys, lms, strict=True)}, 1))
    set_routers(joined, routers.weights_LEH)
    mixtures, single = list[float](), list[float]()
    for run in range(options.runs + 1):
        ids = np.random.default_rng(run).integers(0, VOCAB, 32 + options.tokens).tolist()
        mixing = Mixing(Ensemble((group_of(model, model.keys),)), model.keys, PosteriorGate([1.0] * NUM_EXPERTS))
        steps = [_stepping(mixing), stream_of(joined), stream_of(lms[0])]
        for step in steps:
            step(ids[:32])
        times = [[seconds_of(partial(step, [one]), time.thread_time) for step in steps] for one in ids[32:]]
        mixed, sparse, reading = (statistics.median(column) for column in zip(*times, strict=True))
        if run:
            mixtures.append(mixed / sparse)
            single.append(sparse / reading)
    figures = [
        Figure("the posterior mixture of 8 experts over the joined model, time of a token", mixtures, at_least=3),
        Figure("the joined model over one expert, time of a token", single),
        Figure("summing over only reading", ratios),
    ]
    report(options, figures, seconds_to_solve=solving)


if __name__ == "__main__":
    main()
