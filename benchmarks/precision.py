"""Reports how fast an 8-expert DEMix mixture decodes and reads with weights in float32 and in bf16, and how near memory
allows.

Claim: weights in bf16 take at most 0.55 of the bytes. Whether they are faster depends on the processor. The limit is
the bytes of all weights, which each token reads (the table of embeddings only where the head shares it), over the speed
at which this machine sums as many bytes of float32. All three take turns. A prompt is read by all experts; scoring is a
pass of one over four blocks. `ONEDNN_MAX_CPU_ISA=AVX2` stands for a CPU without instructions for bf16.
Run: python benchmarks/precision.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import copy  # noqa: E402
import statistics  # noqa: E402
from collections.abc import Callable  # noqa: E402

import torch  # noqa: E402

from decoding import mixture_decode, requested_models  # noqa: E402
from engine.loading.loaded_base import computes_in, hold_in  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from harness.benchmark import Figure, report, seconds_of  # noqa: E402

SIZES = {"pairs": (5, 1), "tokens": (32, 2), "prompt": (256, 32, "tokens of the prompt that is read")}


def num_bytes(model: MultiExpertModel) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def bytes_per_token(model: MultiExpertModel) -> int:
    """Bytes of the weights that a token of all experts reads."""
    inputs, head = model.lm.get_input_embeddings().weight, model.lm.get_output_embeddings().weight
    return num_bytes(model) - (0 if inputs is head else inputs.nbytes)


def reading_ratios(full: MultiExpertModel, half: MultiExpertModel, prompt: list[int], pairs: int) -> dict[str, float]:
    """The median time in bf16 over that in float32, of reading a prompt and of scoring; the two take turns."""
    blocks, rows = torch.tensor([prompt[:128]] * 4), Rows.all_to(full.keys[0], 4)
    works: dict[str, Callable[[MultiExpertModel], object]] = {
        "prompt": lambda model: mixture_decode(model, prompt, 1),
        "scoring": lambda model: model(blocks, rows).float().log_softmax(-1),
    }
    ratios: dict[str, list[float]] = {name: [] for name in works}
    with torch.inference_mode():
        for number in range(pairs + 1):
            for name, work in works.items():
                taken = [seconds_of(lambda work=work, model=model: work(model)) for model in (half, full)]
                ratios[name] += [taken[0] / taken[1]] if number else []  # the first is a warm-up
    return {name: statistics.median(some) for name, some in ratios.items()}


def main() -> None:
    options, full, _ = requested_models(__doc__, SIZES)
    half = copy.deepcopy(full)
    hold_in([half], "bf16")
    plain = torch.ones(bytes_per_token(full) // 4)
    text = torch.randint(0, full.vocab_size, (options.prompt,)).tolist()
    prompt = text[:16]
    models = {"float32": full, "bf16": half}
    speeds: dict[str, list[float]] = {name: [] for name in models}
    bandwidths = []
    for number in range(options.pairs + 1):
        taken = {
            name: seconds_of(lambda model=model: mixture_decode(model, prompt, options.tokens))
            for name, model in models.items()
        }
        bandwidth = plain.nbytes / seconds_of(plain.sum)
        if number:  # the first is a warm-up
            bandwidths.append(bandwidth)
            for name, one in taken.items():
                speeds[name].append(options.tokens / one)
    limits = {name: statistics.median(bandwidths) / bytes_per_token(model) for name, model in models.items()}
    ratios = [a / b for a, b in zip(speeds["bf16"], speeds["float32"], strict=True)]
    figures = [
        Figure("bytes of weights in bf16 over float32", [num_bytes(half) / num_bytes(full)], at_most=0.55),
        Figure("tokens per second in bf16 over float32", ratios),
    ]
    report(
        options,
        figures,
        bf16_over_float32_time_of=reading_ratios(full, half, text, options.pairs),
        has_bf16_instructions=computes_in(torch.bfloat16, torch.device("cpu")),
        tokens_per_second=speeds,
        limit_tokens_per_second=limits,
        share_of_limit={name: statistics.median(speed) / limits[name] for name, speed in speeds.items()},
        gigabytes_per_second=statistics.median(bandwidths) / 1e9,
        megabytes_per_token=bytes_per_token(full) / 1e6,
    )


if __name__ == "__main__":
    main()
