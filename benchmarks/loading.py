"""Claim: loading takes at most 1.15 times the bytes of the parameters: a seed, two experts of each method, two bases.

The peer is transformers' own `AutoModelForCausalLM.from_pretrained` on the same folder. Every loading is a process of
its own, and its memory is the kernel's peak of resident memory above what it was before; a tiny model was loaded
before that, so that code does not count. transformers maps the files: what nobody reads of them is not resident, so
all weights are read once in both. Models are random, in bfloat16 and float32.
`tests/engine/loading/test_peak_memory.py` guards the goal on smaller ones.
Run: python benchmarks/loading.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import tempfile  # noqa: E402
from collections.abc import Iterable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from engine.config import ModelConfig  # noqa: E402
from engine.files import ArtifactRef, new_folder  # noqa: E402
from engine.loading.loaded_base import HostedBase, load_base  # noqa: E402
from engine.methods.base import Method  # noqa: E402
from engine.methods.registry import get_method  # noqa: E402
from engine.models.families import fresh_model, load_model  # noqa: E402
from harness.benchmark import Figure, Options, in_own_process, report, resident_bytes  # noqa: E402

KEYS = ("one", "two")
BASES = {"demix": ["demix"], "lora": ["lora"], "moe": ["moe"], "mode": ["mode"], "two bases": ["demix", "again"]}
SIZES = {
    "width": (768, 64),
    "layers": (8, 3),
    "vocabulary": (32_000, 300),
    "dtypes": (["float32", "bfloat16"], ["bfloat16"]),
    "what": (["transformers", "seed", *BASES], ["transformers", "moe"]),
}
GOAL = 1.15


def make(root: Path, config: ModelConfig, vocab_size: int, dtype: torch.dtype) -> None:
    """A seed, a model of each method with two experts or its only one, and DEMix on a second base."""
    lm = fresh_model(config, vocab_size).to(dtype)
    with new_folder(root / "seed") as folder:
        lm.save_pretrained(folder)
    for name in {one for names in BASES.values() for one in names}:
        method = get_method("demix" if name == "again" else name)
        keys = [method.only_expert] if method.only_expert else list(KEYS)
        for group in [keys] if method.is_joint else [[key] for key in keys]:
            save(method, group, root / "seed", root / name)


def save(method: Method, keys: Sequence[str], seed: Path, root: Path) -> None:
    """Builds a model of a method, and saves its base, unless that is the seed, and its experts."""
    model = method.build(seed, keys)
    base = seed if method.base_is_frozen else root / "base"
    if not method.base_is_frozen:
        with new_folder(base) as folder:
            method.save_base(model, folder)
    base_sha256 = ArtifactRef(base).check()
    for key in keys:
        with new_folder(root / "experts" / key) as folder:
            method.save_expert(model, key, folder, base_sha256=base_sha256, tokenizer_sha256="")


def read_all(tensors: Iterable[torch.Tensor]) -> int:
    """Reads every weight once; answers with their bytes."""
    return sum(
        tensor.nbytes for tensor in tensors if not tensor.detach().flatten().view(torch.uint8)[::4096].sum().isnan()
    )


def load(what: str, root: Path) -> int:
    """Loads, and answers with the bytes of the parameters."""
    if what == "transformers":
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(root / "seed")
        return read_all(model.parameters())
    if what == "seed":
        return read_all(load_model(root / "seed").parameters())
    loaded = [load_experts(root, name) for name in BASES[what]]
    for one in loaded:
        read_all(one.tensors().values())
    return sum(one.num_bytes() for one in loaded)


def load_experts(root: Path, name: str) -> HostedBase:
    """A base with its experts, every byte checked."""
    base = root / name / "base"
    base = base if base.is_dir() else root / "seed"
    experts = {folder.name: checked(folder) for folder in sorted((root / name / "experts").iterdir())}
    return load_base(checked(base), experts)


def checked(folder: Path) -> ArtifactRef:
    return ArtifactRef(folder, ArtifactRef(folder).check())


def measure(what: str, root: Path) -> tuple[float, int]:
    """The ratio of peak memory to the parameters' bytes, and these; the tiny model lies in the folder `tiny`."""
    load(what, root / "tiny")
    before = resident_bytes("VmRSS")
    num_bytes = load(what, root)
    return (resident_bytes() - before) / num_bytes, num_bytes


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    width = options.width
    config = ModelConfig(num_layers=options.layers, width=width, num_heads=width // 64, ffn_width=4 * width)
    tiny = ModelConfig(num_layers=3, width=64, num_heads=2, ffn_width=128)
    ours, peers = list[float](), list[float]()
    for dtype in options.dtypes:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            make(root, config, options.vocabulary, getattr(torch, dtype))
            make(root / "tiny", tiny, 300, getattr(torch, dtype))
            for what in options.what:
                ratio, num_bytes = in_own_process(measure, what, root)
                print(f"{dtype}, {what}: {ratio:.3f} times {num_bytes / 1e6:.0f} MB at the peak", flush=True)
                (peers if what == "transformers" else ours).append(ratio)
    name = "peak of memory over the parameters' bytes"
    figures = [
        Figure(f"{name}, worst of ours", ours, at_most=GOAL, statistic=max),
        Figure(f"{name}, worst of transformers", peers, statistic=max),
    ]
    report(options, figures)


if __name__ == "__main__":
    main()
