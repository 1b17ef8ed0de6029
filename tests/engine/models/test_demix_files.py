"""DEMix models on disk: what comes back is what was saved, and what was changed is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from engine.errors import DamagedFileError, ModelError
from engine.files import ArtifactRef, new_folder, verify_folder
from engine.methods.multi_expert_files import load_multi_expert, read_limits, save_base, save_expert
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows


def save(model: MultiExpertModel, root: Path) -> tuple[ArtifactRef, dict[str, ArtifactRef]]:
    with new_folder(root / "base") as folder:
        save_base(model, folder)
    base_sha256 = verify_folder(root / "base")
    for key in model.keys:
        with new_folder(root / key) as folder:
            save_expert(model, key, folder, base_sha256=base_sha256, tokenizer_sha256="t")
    return ArtifactRef(root / "base", base_sha256), {
        key: ArtifactRef(root / key, verify_folder(root / key)) for key in model.keys
    }


@torch.no_grad()
def test_a_saved_model_answers_as_before_to_the_last_bit(model: MultiExpertModel, tmp_path: Path) -> None:
    loaded = load_multi_expert(*save(model, tmp_path))
    ids = torch.randint(0, 300, (4, 12))
    rows = Rows.one_each(model.keys)
    assert torch.equal(loaded(ids, rows), model(ids, rows))


@pytest.mark.parametrize("victim", ["base/shared.safetensors", "law/expert.safetensors", "law/expert.json"])
def test_a_flipped_bit_is_detected_before_use(model: MultiExpertModel, tmp_path: Path, victim: str) -> None:
    base, experts = save(model, tmp_path)
    data = bytearray((tmp_path / victim).read_bytes())
    data[-1] ^= 1
    (tmp_path / victim).write_bytes(data)
    with pytest.raises(DamagedFileError, match="bytes changed"):
        load_multi_expert(base, experts)


@pytest.mark.parametrize(
    "config", [None, "{", "{}", '{"model_type": "nosuch"}', '{"model_type": "llama", "vocab_size": []}']
)
def test_a_base_that_is_gone_or_has_no_readable_config_is_damaged(
    model: MultiExpertModel, tmp_path: Path, config: str | None
) -> None:
    base = save(model, tmp_path)[0].folder
    if config is None:
        shutil.rmtree(base)
    else:
        (base / "config.json").write_text(config)
    with pytest.raises(DamagedFileError, match="no valid base of a model"):
        read_limits(base)


def test_an_expert_of_another_base_is_refused(model: MultiExpertModel, tmp_path: Path) -> None:
    base, experts = save(model, tmp_path / "one")
    with torch.no_grad():
        next(iter(model.shared_parameters().values())).add_(1.0)
    _, others = save(model, tmp_path / "two")
    with pytest.raises(ModelError, match="another base"):
        load_multi_expert(base, {**experts, "law": others["law"]})


def test_two_experts_of_one_base_that_changed_places_are_refused(model: MultiExpertModel, tmp_path: Path) -> None:
    base, experts = save(model, tmp_path)
    (tmp_path / "law").rename(tmp_path / "aside")
    (tmp_path / "code").rename(tmp_path / "law")
    (tmp_path / "aside").rename(tmp_path / "code")
    with pytest.raises(DamagedFileError, match="not the one that was recorded"):
        load_multi_expert(base, experts)


def test_no_expert_at_all_is_refused(model: MultiExpertModel, tmp_path: Path) -> None:
    base, _ = save(model, tmp_path)
    with pytest.raises(ModelError, match="No expert was given"):
        load_multi_expert(base, {})
