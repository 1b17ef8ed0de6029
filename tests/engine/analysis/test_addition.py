"""Adding an expert is held against every tensor that was there, and every fault of a folder is named."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from engine.analysis.removal import add_and_compare
from engine.errors import ModelError
from engine.files import ArtifactRef, faults_in, new_folder, write_manifest
from engine.loading.loaded_base import HostedBase, load_base
from engine.methods.multi_expert_files import save_base, save_expert
from engine.models.multi_expert import MultiExpertModel


@pytest.fixture
def kept(model: MultiExpertModel, tmp_path: Path) -> dict[str, ArtifactRef]:
    """A base and its experts on disk, by key."""
    with new_folder(tmp_path / "base") as folder:
        save_base(model, folder)
    base = ArtifactRef(tmp_path / "base").check()
    for key in model.keys:
        with new_folder(tmp_path / key) as folder:
            save_expert(model, key, folder, base_sha256=base, tokenizer_sha256="t")
    return {key: ArtifactRef(tmp_path / key) for key in ["base", *model.keys]}


def test_no_tensor_changes_when_an_expert_is_added(kept: dict[str, ArtifactRef], model: MultiExpertModel) -> None:  # L8
    others = {key: kept[key] for key in ("law", "code")}
    result = add_and_compare(kept["base"], others, "new", kept["verse"])
    model.remove_expert("news")
    model.remove_expert("verse")
    assert (result.num_tensors, result.changed) == (len(model.state_dict()), ())


def test_no_more_than_two_experts_are_in_memory(kept: dict[str, ArtifactRef], monkeypatch) -> None:
    alive, seen = weakref.WeakSet(), []

    def watched(base: ArtifactRef, experts: dict[str, ArtifactRef]) -> HostedBase:
        gc.collect()
        seen.append((len(alive), len(experts)))
        model = load_base(base, experts)
        alive.add(model)
        return model

    monkeypatch.setattr("engine.analysis.removal.load_base", watched)
    others = {key: kept[key] for key in ("law", "code", "news")}
    assert add_and_compare(kept["base"], others, "new", kept["verse"]).changed == ()
    assert seen == [(0, 1)] * 3


def test_an_addition_that_touches_another_tensor_is_seen(kept: dict[str, ArtifactRef], monkeypatch) -> None:
    add = MultiExpertModel.add_expert

    def careless(self: MultiExpertModel, key: str, **job_spec) -> None:
        add(self, key, **job_spec)
        if key == "new":
            with torch.no_grad():
                next(iter(self.shared_parameters().values())).view(-1)[0] += 1e-3

    monkeypatch.setattr(MultiExpertModel, "add_expert", careless)
    result = add_and_compare(kept["base"], {"law": kept["law"], "code": kept["code"]}, "new", kept["verse"])
    assert len(result.changed) >= 1
    assert all("experts.new" not in name for name in result.changed)


def test_an_expert_of_another_base_is_not_added(
    kept: dict[str, ArtifactRef], model: MultiExpertModel, tmp_path: Path
) -> None:
    with new_folder(tmp_path / "stranger") as folder:
        save_expert(model, "verse", folder, base_sha256="another", tokenizer_sha256="t")
    with pytest.raises(ModelError, match="another base"):
        add_and_compare(kept["base"], {"law": kept["law"]}, "new", ArtifactRef(tmp_path / "stranger"))


def test_every_fault_of_a_folder_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    sha256 = write_manifest(tmp_path)
    assert not list(faults_in(tmp_path, sha256))
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").unlink()
    assert [name for name, _ in faults_in(tmp_path, sha256)] == ["a", "b"]
    assert [name for name, _ in faults_in(tmp_path, "0" * 64)] == ["manifest.json", "a", "b"]
    (tmp_path / "manifest.json").write_text("{")
    assert [name for name, _ in faults_in(tmp_path)] == ["manifest.json"]
