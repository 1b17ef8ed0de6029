"""Claims: 8 experts with a vocabulary of 128k read a prompt at 8x the tokens per second of the way before; the first
token comes within 1.3x the time of one batched forward pass (of processor time, all of them).

The way before computed every logit of every position, a few positions at a time: so many as fit 64 MiB of
log-probabilities. It is kept here. The batched forward pass reads the whole prompt at once into an empty cache and
computes the logits of only the last position; with --all-logits also those of all positions, as a model of
transformers does when it is called. Each gate's way is measured: a fixed gate needs one distribution, a
posterior the likelihood of each token too, whose head is work that no order of computing saves. All run in turns.
Run: python benchmarks/prompts.py --tokens 512
"""

from __future__ import annotations

from engine.device import prepare_process
from engine.methods.multi_expert_files import new_placement

prepare_process()

import time  # noqa: E402
from collections.abc import Callable  # noqa: E402

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.config import ModelConfig  # noqa: E402
from engine.inference.mixing import Mixing  # noqa: E402
from engine.mixing.base import FixedGate, Gate, mix  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

SIZES = {
    "tokens": (512, 16),
    "width": (128, 32),
    "layers": (4, 1),
    "vocabulary": (128_000, 1000),
    "rounds": (3, 1),
    "all_logits": (False, True, "also against a pass with the logits of all positions"),
}
ELEMENTS = 1 << 24  # log-probabilities held at once by the way before


@torch.inference_mode()
def before(model: MultiExpertModel, ids: list[int], gate: Gate) -> Tensor:
    """The mixture's log-probabilities [V] after a prompt, with all logits of a few positions at a time."""
    rows, cache, stream = Rows.one_each(model.keys), model.new_cache(), gate.start()
    chunk = max(1, ELEMENTS // (len(model.keys) * model.vocab_size))
    last_EV = None
    for start in range(0, len(ids), chunk):
        piece = ids[start : start + chunk]
        logits_ETV = model(torch.tensor([piece] * len(model.keys)), rows, cache)
        logprobs_ETV = logits_ETV.float().log_softmax(-1)
        for place, token in enumerate(piece):
            if last_EV is not None:
                stream.observe(last_EV[:, token], token)
            last_EV = logprobs_ETV[:, place]
    return mix(stream.log_weights(), last_EV)


def now(model: MultiExpertModel, ids: list[int], gate: Gate) -> Tensor:
    """The same, as generation does it."""
    mixing = Mixing(model, model.keys, gate)
    mixing.feed(ids)
    return mixing.distribution()[1]


@torch.inference_mode()
def one_pass(model: MultiExpertModel, ids: list[int]) -> Tensor:
    """One batched forward pass, and the logits of the last position."""
    rows = Rows.one_each(model.keys)
    with_cache = model.read(torch.tensor([ids] * len(model.keys)), rows, model.new_cache())
    return model.logits(with_cache[:, -1:], rows)


@torch.inference_mode()
def pass_with_all_logits(model: MultiExpertModel, ids: list[int]) -> Tensor:
    """One batched forward pass with the logits of all positions."""
    return model(torch.tensor([ids] * len(model.keys)), Rows.one_each(model.keys), model.new_cache())


def seconds(work: Callable[[], object]) -> float:
    """Of processor time: on the clock, other work of the machine counts."""
    return seconds_of(work, time.process_time)


def main() -> None:
    given = Options(__doc__, SIZES).parse_args()
    torch.manual_seed(0)
    shape = ModelConfig("llama", given.layers, given.width, 4, 4 * given.width, max_positions=given.tokens + 1)
    keys = [f"e{number}" for number in range(8)]
    model = MultiExpertModel(fresh_model(shape, given.vocabulary), keys, new_placement()).eval()
    ids = torch.randint(0, given.vocabulary, (given.tokens,)).tolist()
    gates: dict[str, Gate] = {"fixed": FixedGate([1.0] * 8), "posterior": PosteriorGate([1.0] * 8)}
    over_before: dict[str, list[float]] = {name: [] for name in gates}
    over_pass: dict[str, list[float]] = {name: [] for name in gates}
    over_all_logits: dict[str, list[float]] = {name: [] for name in gates}
    for number in range(given.rounds + 1):
        batched = seconds(lambda: one_pass(model, ids))
        all_logits = seconds(lambda: pass_with_all_logits(model, ids)) if given.all_logits else 0.0
        for name, gate in gates.items():
            ours = seconds(lambda gate=gate: now(model, ids, gate))  # type: ignore[misc]
            theirs = seconds(lambda gate=gate: before(model, ids, gate))  # type: ignore[misc]
            if number:
                over_before[name].append(theirs / ours)
                over_pass[name].append(ours / batched)
                if given.all_logits:
                    over_all_logits[name].append(ours / all_logits)
            else:
                torch.testing.assert_close(now(model, ids, gate), before(model, ids, gate), atol=1e-3, rtol=1e-4)
    figures = [
        Figure("speed over before, fixed gate", over_before["fixed"], at_least=8),
        Figure("time over one batched pass, fixed gate", over_pass["fixed"], at_most=1.3),
        Figure("speed over before, posterior", over_before["posterior"]),
        Figure("time over one batched pass, posterior", over_pass["posterior"]),
    ]
    if given.all_logits:
        figures += [Figure(f"time over a pass with all logits, {name}", over_all_logits[name]) for name in gates]
    report(given, figures)


if __name__ == "__main__":
    main()
