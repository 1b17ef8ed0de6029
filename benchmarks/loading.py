"""Claim: loading takes at most 1.15 times the bytes of the parameters, for a seed and for a DEMix model of two experts.

The peer is transformers' own `AutoModelForCausalLM.from_pretrained` on the same folder. Every loading is a process of
its own, and its memory is the kernel's peak of resident memory above what it was before; a tiny model was loaded
before that, so that code is no part of it. transformers maps the files: what nobody reads of them is not resident, so
all weights are read once in both. Models are random, in bfloat16 and float32.
Run: python benchmarks/loading.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import argparse  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from engine.config import ModelConfig  # noqa: E402
from engine.files import ArtifactRef, new_folder  # noqa: E402
from engine.loading.loaded_base import load_base  # noqa: E402
from engine.methods.registry import get_method  # noqa: E402
from engine.models.families import fresh_model, load_model  # noqa: E402

KEYS = ("one", "two")
GOAL = 1.15


def make(root: Path, config: ModelConfig, vocab_size: int, dtype: torch.dtype) -> None:
    """A seed, and a DEMix model of it with two experts."""
    lm = fresh_model(config, vocab_size).to(dtype)
    with new_folder(root / "seed") as folder:
        lm.save_pretrained(folder)
    method = get_method("demix")
    model = method.build(root / "seed", KEYS)
    with new_folder(root / "base") as folder:
        method.save_base(model, folder)
    base_sha256 = ArtifactRef(root / "base").check()
    for key in KEYS:
        with new_folder(root / key) as folder:
            method.save_expert(model, key, folder, base_sha256=base_sha256, tokenizer_sha256="")


def read_all(tensors: Iterable[torch.Tensor]) -> int:
    """Reads every weight once; answers with their bytes."""
    return sum(one.nbytes for one in tensors if not one.detach().flatten().view(torch.uint8)[::4096].sum().isnan())


def load(what: str, root: Path) -> int:
    """Loads, and answers with the bytes of the parameters."""
    if what == "transformers":
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(root / "seed")
        return read_all(model.parameters())
    if what == "seed":
        return read_all(load_model(root / "seed").parameters())
    base = ArtifactRef(root / "base", ArtifactRef(root / "base").check())
    loaded = load_base(base, {key: ArtifactRef(root / key, ArtifactRef(root / key).check()) for key in KEYS})
    read_all(loaded.tensors().values())
    return loaded.num_bytes()


def resident(which: str) -> int:
    """Bytes of resident memory: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(which)).split()[1])


def measure(what: str, root: Path) -> None:
    """Prints the ratio of peak memory to the parameters' bytes, and these."""
    load(what, root / "tiny")
    before = resident("VmRSS")
    num_bytes = load(what, root)
    print((resident("VmHWM") - before) / num_bytes, num_bytes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", choices=["transformers", "seed", "demix"])
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure, args.folder)
        return
    config = ModelConfig(num_layers=8, width=768, num_heads=12, ffn_width=3072)
    tiny, worst = ModelConfig(num_layers=2, width=64, num_heads=2, ffn_width=128), 0.0
    for dtype in (torch.float32, torch.bfloat16):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            make(root, config, 32_000, dtype)
            make(root / "tiny", tiny, 300, dtype)
            for what in ("transformers", "seed", "demix"):
                command = [sys.executable, __file__, "--measure", what, "--folder", name]
                printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                ratio, num_bytes = printed.split()[-2:]
                print(f"{dtype}, {what}: {float(ratio):.3f} times {int(num_bytes) / 1e6:.0f} MB at the peak")
                worst = max(worst, float(ratio)) if what != "transformers" else worst
    print(f"worst of ours: {worst:.3f}, goal: at most {GOAL}")
    sys.exit(worst > GOAL)


if __name__ == "__main__":
    main()
