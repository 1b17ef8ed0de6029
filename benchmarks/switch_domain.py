"""Claim: switching the domain of a loaded MoDE model, by loading one expert onto its backbone, takes at most half the
time and the bytes of loading a whole fine-tuned model of the same backbone, when the expert has a third of its layers.

Both read safetensors whose every byte is checked against its manifest first, and each loading ends with a forward pass
of one token. The peer is a folder of the backbone's shape, loaded as any whole model is. Loadings alternate, so drift
hits both, and every one reads another folder; `--cold` drops the files from the page cache before (where the system
allows it), else both are read from memory. Models are freshly made: what they say does not matter here.
Run: python benchmarks/switch_domain.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import os  # noqa: E402
import tempfile  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from engine.config import ModelConfig  # noqa: E402
from engine.files import ArtifactRef, folder_size, new_folder  # noqa: E402
from engine.loading.loaded_base import HostedBase  # noqa: E402
from engine.methods.mode.config import ModeConfig  # noqa: E402
from engine.methods.mode.model import ModeModel  # noqa: E402
from engine.methods.parts.files import save_parts  # noqa: E402
from engine.models.families import fresh_model, load_model  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

SIZES = {
    "rounds": (9, 1),
    "layers": (9, 3, "of the backbone; the expert has a third of them"),
    "blocks": (3, 1),
    "width": (384, 32),
    "vocabulary": (8192, 512),
    "device": ("cpu", "cpu"),
    "cold": (False, False, "read from the disk and not from memory"),
}


def save_full(lm: Any, folder: Path) -> ArtifactRef:
    """A whole model's folder, as fine-tuning leaves one."""
    with new_folder(folder) as new:
        lm.save_pretrained(new)
    return ArtifactRef(folder, ArtifactRef(folder).check())


def save_expert(lm: Any, base: ArtifactRef, config: ModeConfig, folder: Path) -> ArtifactRef:
    """An expert of MoDE next to the backbone `base`."""
    model = ModeModel(lm, config.num_blocks)
    model.add_expert("part", config)
    with new_folder(folder) as new:
        save_parts(model, {"part": "part"}, new, base_sha256=str(base.sha256), tokenizer_sha256="")
    return ArtifactRef(folder, ArtifactRef(folder).check())


def forget(kept: ArtifactRef) -> None:
    """Drops a folder's files from the page cache."""
    for file in kept.folder.iterdir():
        with file.open("rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@torch.inference_mode()
def load_full(kept: ArtifactRef, device: str) -> None:
    """A whole model, checked, on the device, after its first answer."""
    kept.check()
    model = load_model(kept.folder).to(device).eval()
    model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False).logits.sum().item()


@torch.inference_mode()
def switch(hosted: HostedBase, key: str, kept: ArtifactRef, device: str) -> None:
    """One expert more on a backbone in memory, checked, after its first answer."""
    hosted.add({key: kept})
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    hosted.view([key])(ids, Rows.one_each([key])).sum().item()


def measure(root: Path, requested: Any) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of every loading, and the bytes that each reads; the first round is left out."""
    shape = ModelConfig(
        num_layers=requested.layers,
        width=requested.width,
        num_heads=4,
        ffn_width=4 * requested.width,
        max_positions=256,
    )
    config = ModeConfig(requested.blocks, requested.layers // (3 * requested.blocks), start="even")
    base = save_full(fresh_model(shape, requested.vocabulary, seed=0), root / "base")
    # Every round has folders of its own: a domain that was there before would be no switch.
    wholes, experts = [], []
    for number in range(requested.rounds + 1):
        wholes.append(save_full(fresh_model(shape, requested.vocabulary, seed=1 + number), root / f"whole-{number}"))
        experts.append(save_expert(load_model(base.folder), base, config, root / f"expert-{number}"))
    hosted = HostedBase(base, requested.device)
    seconds: dict[str, list[float]] = {"whole": [], "expert": []}
    for number, (full, expert) in enumerate(zip(wholes, experts, strict=True)):
        if requested.cold:
            forget(full), forget(expert)
        took = {
            "whole": seconds_of(partial(load_full, full, requested.device)),
            "expert": seconds_of(partial(switch, hosted, f"domain-{number}", expert, requested.device)),
        }
        for name, one in took.items():
            seconds[name] += [one] if number else []  # the first switch also loads the backbone
    return seconds, {"whole": folder_size(wholes[0].folder), "expert": folder_size(experts[0].folder)}


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    with tempfile.TemporaryDirectory(prefix="workbench-switch-") as folder:
        seconds, num_bytes = measure(Path(folder), options)
    ratios = [b / a for a, b in zip(seconds["whole"], seconds["expert"], strict=True)]
    figures = [
        Figure("seconds of loading an expert over a whole model", ratios, at_most=0.5),
        Figure("bytes of an expert over a whole model", [num_bytes["expert"] / num_bytes["whole"]], at_most=0.5),
    ]
    report(options, figures, seconds={name: median(each) for name, each in seconds.items()}, bytes=num_bytes)


if __name__ == "__main__":
    main()
