"""Processes write their parts of one checkpoint: nothing twice, nothing full, and all of it or none."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))  # for ranks, here and in the processes of the tests

from ranks import by_itself, together
from test_distributed import CONFIG, make_run  # noqa: F401 (a fixture)

from engine.files import MANIFEST, verify_folder, write_manifest
from engine.training.checkpoint import checkpoint_folder, newest_step, state_at

STEP = 6


def test_each_process_writes_what_it_holds_and_nothing_is_written_twice(make_run) -> None:  # noqa: F811
    run, reference = make_run("ab", "many", shard=True), make_run("ab", "one")
    assert not together(3, replace(run, stop_after=STEP))[0].error
    by_itself(replace(reference, stop_after=STEP))
    folder = checkpoint_folder(run.folder, STEP)
    parts = [load_file(file) for file in sorted(folder.glob("part-*.safetensors"))]
    full, expected = state_at(run.folder, STEP), state_at(reference.folder, STEP)
    assert len(parts) == 3
    assert full.keys() == expected.keys()
    assert all(tensor.shape == expected[name].shape for name, tensor in full.items())
    sizes = [sum(tensor.nbytes for tensor in part.values()) for part in parts]
    assert sum(sizes) == sum(tensor.nbytes for tensor in expected.values())
    assert max(sizes) < 0.6 * sum(sizes)  # one of three has an expert of its own, and a third of what is shared
    divided = [name for name in full if name.startswith("parameters/") and all(name in part for part in parts)]
    assert divided
    assert all(torch.equal(full[name], torch.cat([part[name] for part in parts])) for name in divided)


def test_copies_are_written_by_the_first_process_that_has_them(make_run) -> None:  # noqa: F811
    run = make_run("ab", "many")
    together(4, replace(run, stop_after=STEP))
    parts = [load_file(file) for file in sorted(checkpoint_folder(run.folder, STEP).glob("part-*.safetensors"))]
    names = [name for part in parts for name in part]
    assert len(names) == len(set(names)) == len(state_at(run.folder, STEP))
    assert [bool(part) for part in parts] == [True, False, True, False]


def test_the_manifest_names_the_bytes_that_each_process_wrote(make_run) -> None:  # noqa: F811
    run = make_run("ab", "many", shard=True)
    together(2, replace(run, stop_after=STEP))
    folder = checkpoint_folder(run.folder, STEP)
    verify_folder(folder)
    written = (folder / MANIFEST).read_text()
    assert set(json.loads(written)["files"]) == {
        "checkpoint.json",
        *(f"part-{rank:05d}.{suffix}" for rank in range(2) for suffix in ("json", "safetensors")),
    }
    write_manifest(folder)
    assert (folder / MANIFEST).read_text() == written


@pytest.mark.parametrize("fault", ["damaged", "missing"])
def test_after_a_part_is_lost_all_resume_from_the_checkpoint_before(make_run, fault: str) -> None:  # noqa: F811
    run = make_run("ab", "many", shard=True, checkpoint_every=2)
    expected = together(2, replace(run, stop_after=CONFIG.num_steps))[0].losses
    part = checkpoint_folder(run.folder, CONFIG.num_steps) / "part-00001.safetensors"
    if fault == "missing":
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert newest_step(run.folder, run.config) == 8
    assert [one.losses for one in together(2, run)] == [expected[8:]] * 2


def test_a_checkpoint_of_one_process_is_in_full_files_and_is_resumed_on_several(make_run) -> None:  # noqa: F811
    run = make_run("ab", "one", shard=True)
    first = by_itself(replace(run, stop_after=STEP)).losses
    files = {path.name for path in checkpoint_folder(run.folder, STEP).glob("*.safetensors")}
    assert files == {"parameters.safetensors", "optimizer.safetensors"}
    rest = together(3, run)[0].losses
    expected = by_itself(make_run("ab", "reference")).losses
    assert first + rest == pytest.approx(expected, rel=1e-6)


def test_a_process_that_cannot_write_leaves_the_checkpoint_before(make_run) -> None:  # noqa: F811
    run = replace(make_run("ab", "many", shard=True, checkpoint_every=3), cannot_write=STEP)
    shown = together(2, run)
    assert shown[1].error == "OSError: no space left"
    assert newest_step(run.folder, run.config) == 3
    assert not checkpoint_folder(run.folder, STEP).exists()
