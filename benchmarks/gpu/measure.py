"""What has to be tried and measured on a GPU, by one command, as one JSON file.

Each step is a process of its own with at most ten minutes; one that fails or takes longer is reported as such, and
the others go on. Models are random, of DEMix's smallest size (125M: 12 layers, width 768) with 8 experts.

- laws: every law of the self-check on the device.
- training, the same compiled, in Llama's layout, and 350M compiled: tokens per second of a DEMix update of 65,536
  tokens in bf16, its share of the matrix products per second that the same device reaches in the same process (goal:
  45 % of the published peak, which is given where it is known), and the most memory that PyTorch took.
- low_bits: the peak and the speed of the same update with AdamW's moments in 8 bits, and of LoRA's update on a frozen
  Llama in bf16 against the same in 4 bits. They need bitsandbytes.
- memory: the peak of an update with and without activation checkpointing. The first losses must be the same bits;
  later ones differ a little on a GPU, whose attention adds up gradients in no fixed order.
- decoding: tokens per second of the 8-expert mixture against one dense model, alternating (float32).
- streams: tokens per second of 16 streams of the mixture that share passes, against one stream's (float32).
- scoring: tokens times experts per second.
- device_tests: how many of tests/gpu passed. They need pytest.
- replication: DEMix of size small on a folder of text (`--text`), as far as it comes in ten minutes; the next run
  goes on. It needs the whole workbench, and keeps its work in `gpu-home`.

For the others the engine and its libraries are enough. `--small --device cpu` tries the steps without a GPU; those
figures say nothing.
Run: make gpu, or python -m benchmarks.gpu.measure --out gpu.json
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import argparse  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402
from unittest.mock import patch  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from benchmarks.gpu.programs import LIMIT_SECONDS, ROOT, device_tests, replication  # noqa: E402
from engine.config import LoraConfig, ModelConfig, TrainingConfig  # noqa: E402
from engine.device import choose_device  # noqa: E402
from engine.errors import Problem  # noqa: E402
from engine.events import Step  # noqa: E402
from engine.inference.ensemble import Ensemble, Group  # noqa: E402
from engine.inference.mixing import Mixing  # noqa: E402
from engine.inference.scores import score_text  # noqa: E402
from engine.inference.shared_passes import SharedPasses  # noqa: E402
from engine.methods.multi_expert_files import new_placement  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.selfcheck.laws import run_laws  # noqa: E402
from engine.text.blocks import Tokens, eval_sample  # noqa: E402
from engine.training.data import DomainText  # noqa: E402
from engine.training.loop import train  # noqa: E402

KEYS = [f"expert{number}" for number in range(8)]
PUBLISHED_BF16 = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense, operations per second; data sheets of NVIDIA
Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """The model and the batch of the steps."""

    shape: ModelConfig
    vocab_size: int
    block_size: int
    rows: int  # of each domain
    num_steps: int
    num_tokens: int  # that are decoded
    larger: ModelConfig
    frozen: ModelConfig  # under adapters

    def config(self, **changes: Any) -> TrainingConfig:
        return TrainingConfig(
            num_steps=self.num_steps,
            learning_rate=1e-3,  # of new weights
            block_size=self.block_size,
            sequences_per_domain=self.rows,
            precision="bf16",
            evaluate_every=10**6,
            checkpoint_every=10**6,
            **changes,
        )

    def model(self, keys: list[str], device: torch.device) -> MultiExpertModel:
        torch.manual_seed(0)
        return MultiExpertModel(fresh_model(self.shape, self.vocab_size), keys, new_placement()).to(device)


SIZES = {
    "125M": Size(
        ModelConfig("gpt2", 12, 768, 12, 3072, 1024),
        50_304,
        1024,
        8,
        12,
        128,
        larger=ModelConfig("gpt2", 24, 1024, 16, 4096, 1024),
        frozen=ModelConfig("llama", 24, 2048, 16, 5632, 1024),
    ),
    "small": Size(
        ModelConfig("gpt2", 2, 64, 2, 128, 128),
        512,
        64,
        1,
        3,
        4,
        larger=ModelConfig("gpt2", 3, 64, 2, 128, 128),
        frozen=ModelConfig("llama", 3, 64, 2, 128, 128),
    ),
}


def laws(_: Size, device: torch.device) -> Figures:
    checked = list(run_laws(str(device)))
    return {
        "held": [one.law for one in checked if one.passed],
        "failed": [one.law for one in checked if not one.passed],
    }


def training(size: Size, device: torch.device) -> Figures:
    return speed_of(size, device)


def compiled_training(size: Size, device: torch.device) -> Figures:
    return speed_of(size, device, compile=True)


def llama_training(size: Size, device: torch.device) -> Figures:
    """Of three maps in a feed-forward network, each with two thirds of GPT-2's width."""
    shape = replace(size.shape, family="llama", ffn_width=size.shape.ffn_width * 2 // 3)
    return speed_of(replace(size, shape=shape), device, compile=True)


def larger_training(size: Size, device: torch.device) -> Figures:
    return speed_of(replace(size, shape=size.larger), device, compile=True)


def speed_of(size: Size, device: torch.device, **changes: Any) -> Figures:
    with updates(size.model(KEYS, device), size.config(**changes)) as steps:
        measured = [*steps]
    timed = measured[4:] or measured  # the first ones are slower
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    operations = statistics.median(step.num_flops / step.num_tokens * step.tokens_per_second for step in timed)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    published = next((peak for part, peak in PUBLISHED_BF16.items() if part in name), None)
    reached = products_per_second(device)
    return {
        "tokens_per_second": statistics.median(step.tokens_per_second for step in timed),
        "operations_per_second": operations,
        "share_of_measured_products": operations / reached,
        "measured_products_per_second": reached,
        "share_of_published_peak": operations / published if published else None,
        "peak_bytes": peak if device.type == "cuda" else None,
    }


def low_bits(size: Size, device: torch.device) -> Figures:
    figures = {
        "adamw": peak_and_speed(size.model(KEYS, device), size.config(), device),
        "adamw_8bit": peak_and_speed(size.model(KEYS, device), size.config(optimizer="adamw_8bit"), device),
    }
    for name, is_short in (("lora_on_bf16", False), ("lora_on_4bit", True)):
        torch.manual_seed(0)
        lm = fresh_model(size.frozen, size.vocab_size).to(torch.bfloat16)
        model = new_placement("adapter").build(lm, KEYS[:1], LoraConfig()).to(device)
        figures[name] = peak_and_speed(model, size.config(load_in_4bit=is_short), device, KEYS[:1])
    return {f"{name}_{what}": value for name, figure in figures.items() for what, value in figure.items()}


def peak_and_speed(
    model: MultiExpertModel, config: TrainingConfig, device: torch.device, only: list[str] | None = None
) -> Figures:
    """The peak of memory from the second update on, in bytes of a CUDA device, and the tokens per second."""
    peak, speeds = None, []
    with updates(model, config, only) as steps:
        for step in steps:
            speeds.append(step.tokens_per_second)
            if device.type == "cuda":
                peak = torch.cuda.max_memory_allocated()
                torch.cuda.reset_peak_memory_stats()
    return {"peak_bytes": peak, "tokens_per_second": statistics.median(speeds[2:] or speeds)}


def memory(size: Size, device: torch.device) -> Figures:
    """Bytes at the peak are of a CUDA device; elsewhere only the losses are compared."""
    peaks, losses = [], []
    for again in (False, True):
        model = size.model(KEYS, device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with updates(model, size.config(activation_checkpointing=again)) as steps:
            losses.append([step.loss for step in steps])
        peaks.append(torch.cuda.max_memory_allocated() if device.type == "cuda" else None)
    most = max(abs(one / other - 1) for one, other in zip(*losses, strict=True))
    return {
        "peak_bytes": peaks[0],
        "peak_bytes_checkpointed": peaks[1],
        "same_first_loss": losses[0][0] == losses[1][0],
        "largest_difference_of_a_loss": most,
    }


@torch.inference_mode()
def decoding(size: Size, device: torch.device) -> Figures:
    model, prompt = size.model(KEYS, device).eval(), list(range(1, 33))
    pairs = []
    for _ in range(4):
        pairs.append([tokens_per_second(model, keys, prompt, size.num_tokens, device) for keys in (KEYS, KEYS[:1])])
    mixture, dense = (statistics.median(speeds) for speeds in zip(*pairs[1:], strict=True))
    return {"mixture_tokens_per_second": mixture, "dense_tokens_per_second": dense, "ratio": mixture / dense}


def tokens_per_second(
    model: MultiExpertModel, keys: list[str], prompt: list[int], num_tokens: int, device: torch.device
) -> float:
    """Greedy decoding; the prompt is read before."""
    mixing, ids = Mixing(model, keys, PosteriorGate([1.0] * len(keys))), prompt
    for _ in mixing.read(ids):
        pass
    start = seconds(device)
    for _ in range(num_tokens):
        ids = [int(mixing.distribution()[1].argmax())]
        for _ in mixing.read(ids):
            pass
    return num_tokens / (seconds(device) - start)


def streams(size: Size, device: torch.device) -> Figures:
    model, number = size.model(KEYS, device).eval(), 16
    shared = SharedPasses()
    group = Group(tuple(KEYS), lambda: shared.view(model), size.block_size, size.vocab_size)
    prompts = [list(range(1, 33 + one)) for one in range(number)]

    def run(some: list[list[int]]) -> float:
        start = seconds(device)
        with ThreadPoolExecutor(len(some)) as threads:
            list(threads.map(lambda prompt: decode(Ensemble((group,)), prompt, size.num_tokens), some))
        return len(some) * size.num_tokens / (seconds(device) - start)

    pairs = [(run(prompts), run(prompts[:1])) for _ in range(4)]
    together, one = (statistics.median(speeds) for speeds in zip(*pairs[1:], strict=True))
    return {"together_tokens_per_second": together, "one_tokens_per_second": one, "ratio": together / one}


@torch.inference_mode()
def decode(models: Ensemble, prompt: list[int], num_tokens: int) -> None:
    """Greedy decoding, with the reading of the prompt."""
    mixing, ids = Mixing(models, models.keys, PosteriorGate([1.0] * len(models.keys))), prompt
    for _ in range(num_tokens):
        mixing.feed(ids)
        ids = [int(mixing.distribution()[1].argmax())]


def scoring(size: Size, device: torch.device) -> Figures:
    model = size.model(KEYS, device).eval()
    tokens = np.random.default_rng(0).integers(0, size.vocab_size, 16 * size.block_size + 1, dtype=np.uint16)
    text = eval_sample(tokens, size.block_size)
    score_text(model, KEYS[0], text)
    start = seconds(device)
    number = sum(len(score_text(model, key, text)) for key in KEYS)
    return {"expert_tokens_per_second": number / (seconds(device) - start)}


STEPS: dict[str, Callable[[Size, torch.device], Figures]] = {
    one.__name__: one
    for one in (
        laws,
        training,
        compiled_training,
        llama_training,
        larger_training,
        low_bits,
        memory,
        decoding,
        streams,
        scoring,
    )
}


@contextmanager
def updates(model: MultiExpertModel, config: TrainingConfig, only: list[str] | None = None) -> Iterator[Iterator[Step]]:
    """The updates of a training on random tokens; what it would save is not written."""
    texts = []
    for number, key in enumerate(model.keys):
        ids = np.random.default_rng(number).integers(1, model.vocab_size, 40 * config.block_size).astype(np.uint32)
        tokens = Tokens(ids, np.zeros(1, dtype=np.int64))
        texts.append(DomainText(key, key, tokens, tokens))
    with tempfile.TemporaryDirectory() as name, patch("engine.training.run_state.save_checkpoint"):
        events = train(model, texts, config, Path(name), only_experts=only)
        yield (event for event in events if isinstance(event, Step))


def products_per_second(device: torch.device, width: int = 8192) -> float:
    """Operations per second of large matrix products in bf16, as this device reaches them."""
    width = width if device.type == "cuda" else 512
    left, right = (torch.randn(width, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    start, number = seconds(device), 20
    for _ in range(number):
        left @ right
    return number * 2 * width**3 / (seconds(device) - start)


def seconds(device: torch.device) -> float:
    """The time, when the device has finished what was queued on it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def of_its_own_process(step: str, arguments: argparse.Namespace) -> Figures:
    """The figures of a step, or why there are none."""
    command = [sys.executable, "-m", "benchmarks.gpu.measure", "--step", step, "--device", arguments.device]
    command += ["--small"] if arguments.small else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"It took longer than {LIMIT_SECONDS} s."}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the file of figures")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the steps")
    parser.add_argument("--text", type=Path, help="a folder with train/ and novel/, for the replication")
    parser.add_argument("--step", choices=list(STEPS), help="only this step, in this process; prints its figures")
    arguments = parser.parse_args()
    try:
        device = choose_device(arguments.device)
    except Problem as problem:
        sys.exit(f"{problem.cause} Nothing was measured. To try the steps without a GPU: --small --device cpu")
    size = SIZES["small" if arguments.small else "125M"]
    if arguments.step:
        print(json.dumps(STEPS[arguments.step](size, device)))
        return
    figures: Figures = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "size": "small" if arguments.small else "125M",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    home = arguments.out.absolute().parent / "gpu-home"
    programs = {
        "device_tests": device_tests,
        "replication": lambda: replication(
            arguments.text, "smoke" if arguments.small else "small", arguments.device, home
        ),
    }
    for step in (*STEPS, *programs):
        start = time.monotonic()
        figures[step] = programs[step]() if step in programs else of_its_own_process(step, arguments)
        figures[step]["seconds"] = round(time.monotonic() - start, 1)
        print(f"{step}: {json.dumps(figures[step])}", flush=True)
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    ended = [figures[step] for step in (*STEPS, *programs)]
    sys.exit(any("error" in one or one.get("failed") or one.get("same_first_loss") is False for one in ended))


if __name__ == "__main__":
    main()
