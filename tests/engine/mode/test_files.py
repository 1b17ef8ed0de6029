"""MoDE experts on disk: what comes back is what was saved, only what was added is saved, and strangers are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.errors import DamagedFile, ModelError
from engine.files import Kept, new_folder, verify_folder
from engine.mode.config import ModeConfig
from engine.mode.files import load_mode, read_expert, save_expert
from engine.mode.model import ModeModel
from engine.models.demix import DemixModel
from engine.models.demix_files import save_expert as save_demix_expert
from tests.engine.mode.backbones import FAMILIES, SHAPE, backbone, mode_model, some_ids


def kept(folder: Path) -> Kept:
    return Kept(folder, verify_folder(folder))


def save(root: Path, keys: Sequence[str] = ("law", "code"), family: str = "llama") -> tuple[Kept, dict[str, Kept]]:
    """A backbone's folder, and those of the experts."""
    with new_folder(root / "backbone") as folder:
        backbone(family).save_pretrained(folder)
    base, model = kept(root / "backbone"), mode_model(keys, family)
    for key in keys:
        with new_folder(root / key) as folder:
            save_expert(model, key, folder, backbone_sha256=str(base.sha256), tokenizer_sha256="t")
    return base, {key: kept(root / key) for key in keys}


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_saved_model_answers_as_before_to_the_last_bit(tmp_path: Path, family: str) -> None:
    loaded, model, ids = load_mode(*save(tmp_path, family=family), "t"), mode_model(["law", "code"], family), some_ids()
    assert not loaded.training
    for keys in (["law", "code"], ["code"]):
        for one, other in zip(loaded(ids, keys), model(ids, keys), strict=True):
            assert torch.equal(one, other)


@torch.no_grad()
def test_moving_the_folders_changes_nothing(tmp_path: Path) -> None:  # L16
    base, experts = save(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = {key: Kept(tmp_path / "there" / key, one.sha256) for key, one in experts.items()}
    loaded = load_mode(Kept(tmp_path / "there" / "backbone", base.sha256), moved)
    assert torch.equal(loaded(some_ids(), ["law"])[0], mode_model(["law"])(some_ids(), ["law"])[0])


def test_only_what_was_added_is_saved(tmp_path: Path) -> None:
    save(tmp_path)
    names = set(load_file(tmp_path / "law/expert.safetensors"))
    assert {name.split(".")[1] for name in names} == {"0", "1"}
    assert {name.split(".")[2] for name in names} == {"layers", "slope", "odds"}
    per_layer = sum(parameter.numel() for parameter in backbone().model.layers[0].parameters())
    stored = sum(tensor.numel() for tensor in load_file(tmp_path / "law/expert.safetensors").values())
    assert stored == mode_model(["law"]).num_added("law") == 2 * (2 * per_layer + 32 + 1)


def test_switching_domain_reads_an_expert_alone(tmp_path: Path) -> None:
    base, experts = save(tmp_path)
    model = load_mode(base, {"law": experts["law"]})
    (tmp_path / "backbone/model.safetensors").unlink()
    model.remove_expert("law")
    model.add_expert("code", *read_expert(experts["code"], str(base.sha256)))
    assert torch.equal(model(some_ids(), ["code"])[0], mode_model(["code"])(some_ids(), ["code"])[0])


@pytest.mark.parametrize("victim", ["backbone/model.safetensors", "law/expert.safetensors", "law/expert.json"])
def test_a_folder_cut_short_is_found_before_use(tmp_path: Path, victim: str) -> None:
    base, experts = save(tmp_path)
    file = tmp_path / victim
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DamagedFile, match="bytes changed"):
        load_mode(base, experts)


@pytest.mark.parametrize("card", ["", "{}", '{"method": "mode", "shape": {"num_blocks": 0}}', '{"method": "mode"}'])
def test_an_expert_without_a_card_that_can_be_read_is_damaged(tmp_path: Path, card: str) -> None:
    base, _ = save(tmp_path)
    with new_folder(tmp_path / "odd") as folder:
        (folder / "expert.json").write_text(card)
    with pytest.raises(DamagedFile, match=r"must hold an expert's expert\.json"):
        load_mode(base, {"odd": kept(tmp_path / "odd")})


def test_an_expert_of_another_backbone_is_refused_and_nothing_is_added(tmp_path: Path) -> None:
    base, experts = save(tmp_path / "one")
    _, others = save(tmp_path / "two", ["news"], "gpt2")
    with pytest.raises(ModelError, match="another backbone"):
        load_mode(base, experts | others)
    model = load_mode(base, experts)
    with pytest.raises(ModelError, match="another backbone"):
        model.add_expert("news", *read_expert(others["news"], str(base.sha256)))
    assert model.keys == ["law", "code"]


def test_an_expert_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    base, experts = save(tmp_path)
    with pytest.raises(ModelError, match="another tokenizer"):
        load_mode(base, experts, "another")


def test_an_expert_of_another_method_is_refused(tmp_path: Path) -> None:
    base, _ = save(tmp_path)
    with new_folder(tmp_path / "ffn") as folder:
        model = DemixModel(backbone(), ["a"])
        save_demix_expert(model, "a", folder, base_sha256=str(base.sha256), tokenizer_sha256="t")
    with pytest.raises(ModelError, match="must be one of MoDE, but is one of “demix”"):
        load_mode(base, {"a": kept(tmp_path / "ffn")})


def test_experts_of_different_numbers_of_blocks_are_refused(tmp_path: Path) -> None:
    base, experts = save(tmp_path)
    model = ModeModel(backbone(), 3)
    model.add_expert("three", ModeConfig(3, 1))
    with new_folder(tmp_path / "three") as folder:
        save_expert(model, "three", folder, backbone_sha256=str(base.sha256), tokenizer_sha256="t")
    with pytest.raises(ModelError, match="as many blocks as the model, 2, but has 3"):
        load_mode(base, experts | {"three": kept(tmp_path / "three")})


def test_no_expert_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="at least one expert"):
        load_mode(save(tmp_path, [])[0], {})


def test_an_expert_remembers_what_it_was_made_with(tmp_path: Path) -> None:
    base, _ = save(tmp_path)
    model, config = ModeModel(backbone(), 2), replace(SHAPE, init="random", start="even", seed=4)
    model.add_expert("fresh", config)
    with new_folder(tmp_path / "fresh") as folder:
        save_expert(model, "fresh", folder, backbone_sha256=str(base.sha256), tokenizer_sha256="t")
    assert json.loads((tmp_path / "fresh/expert.json").read_text())["backbone_sha256"] == base.sha256
    assert load_mode(base, {"fresh": kept(tmp_path / "fresh")}).shape_of("fresh") == config
