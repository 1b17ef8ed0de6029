"""Experts leave the workbench: plain transformers and peft load them, and compute the same logits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.loading.loaded_base import load_base
from engine.models.rows import Rows
from jobs.queue.submit import submit
from tests.journeys.conftest import Do, done
from ui.cli.app import main
from workbench.errors import BadSpecError
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.store.storage import get_storage

LORA: dict[str, Any] = {
    "kind": "train-joint",
    "name": "thin",
    "seed_model": "seed",
    "domains": ["court"],
    "method": "lora",
    "training": {"num_steps": 10, "block_size": 32, "learning_rate": 2e-2},
    "lora": {"rank": 4, "alpha": 6.0},
}
IDS = torch.arange(24)[None] % 300


def our_logits(name: str) -> torch.Tensor:
    with reading() as session:
        row, storage = experts.expert_row(session, name), get_storage()
        model = load_base(storage.kept(row.base), {row.id: storage.kept(row.artifact)}).view([row.id])
        key = row.id
    with torch.no_grad():
        return model(IDS, Rows.all_to(key, 1))


def base_folder(name: str) -> Path:
    with reading() as session:
        return get_storage().path(experts.expert_row(session, name).base_id)


@torch.no_grad()
def logits_of(lm: Any) -> torch.Tensor:
    return lm.eval()(input_ids=IDS).logits


@pytest.mark.usefixtures("trained")
def test_an_expert_is_one_model_for_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "court"
    assert main(["expert", "export", "small/court", str(folder), "--here"]) == 0
    assert f"folder {folder}" in capsys.readouterr().out
    lm = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert torch.equal(logits_of(lm), our_logits("small/court"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer("the court held").input_ids, skip_special_tokens=True) == "the court held"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
def test_a_lora_expert_is_an_adapter_for_peft(trained: Do, tmp_path: Path) -> None:
    done(trained(LORA))
    folder = tmp_path / "adapter"
    card = done(trained({"kind": "export-expert", "expert": "thin/court", "folder": str(folder), "format": "peft"}))
    assert card.result["num_bytes"] == sum(
        file.stat().st_size for file in folder.iterdir() if file.name != "manifest.json"
    )
    base = AutoModelForCausalLM.from_pretrained(base_folder("thin/court"), dtype=torch.float32)
    before = logits_of(base)
    adapted = logits_of(peft.PeftModel.from_pretrained(base, folder))
    assert not torch.equal(before, adapted)
    assert torch.equal(adapted, our_logits("thin/court"))
    config = peft.PeftConfig.from_pretrained(folder)
    assert (config.r, config.lora_alpha) == (4, 6.0)
    assert config.base_model_name_or_path == "./seed"  # no path of this machine, and no repository of the hub
    assert "./seed" in (folder / "README.md").read_text()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
def test_peft_finds_the_seed_where_the_card_says(trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(trained(LORA))
    done(trained({"kind": "export-expert", "expert": "thin/court", "folder": str(tmp_path / "it"), "format": "peft"}))
    shutil.copytree(base_folder("thin/court"), tmp_path / "there" / "seed")
    monkeypatch.chdir(tmp_path / "there")
    assert torch.equal(logits_of(peft.AutoPeftModelForCausalLM.from_pretrained("../it")), our_logits("thin/court"))


def test_a_lora_expert_merged_into_its_seed_is_close_to_it(trained: Do, tmp_path: Path) -> None:
    done(trained(LORA))
    folder = tmp_path / "merged"
    done(trained({"kind": "export-expert", "expert": "thin/court", "folder": str(folder)}))
    lm = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.testing.assert_close(logits_of(lm), our_logits("thin/court"), atol=1e-4, rtol=1e-4)  # sums in another order


@pytest.mark.usefixtures("trained")
def test_what_cannot_be_exported_is_refused_immediately(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for change, words in (
        ({"folder": str(tmp_path / "there")}, "exists already"),
        ({"folder": str(tmp_path / "new"), "format": "peft"}, "is not a LoRA adapter"),
        ({"folder": ""}, "must not be empty"),
    ):
        with pytest.raises(BadSpecError, match=words):
            submit({"kind": "export-expert", "expert": "small/court", **change})
    assert [path.name for path in tmp_path.iterdir() if path.name == "new"] == []


def test_a_folder_made_meanwhile_is_not_written_over(trained: Do, tmp_path: Path) -> None:
    job_spec = {"kind": "export-expert", "expert": "small/court", "folder": str(tmp_path / "late")}
    card = done(trained(job_spec))
    (tmp_path / "late" / "config.json").write_text("mine")
    with pytest.raises(BadSpecError, match="exists already"):
        submit(job_spec)
    assert (tmp_path / "late" / "config.json").read_text() == "mine"
    assert card.state == "done"
