"""An adapter of a few updates on real weights: its export to peft, and a mixture with its seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.journeys.test_export import base_folder, logits_of, our_logits
from ui.cli.app import main

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # of peft
]
FEW = ["--steps", "2", "--block-size", "64", "--evaluate-every", "2", "--here"]


def add_corpus(folder: Path, name: str) -> None:
    file = folder / f"{name}.jsonl"
    texts = [f"{name} {number}: the tide comes in and the oven is warm. " * 12 for number in range(40)]
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    assert main(["corpus", "add", name, str(file), "--here"]) == 0


@pytest.mark.usefixtures("smol")
def test_an_adapter_is_the_same_in_peft_and_speaks_next_to_its_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_corpus(tmp_path, "harbour")
    assert (
        main(["train", "joint", "few", "--seed-model", "smol", "--method", "lora", "--domains", "harbour", *FEW]) == 0
    )
    assert main(["expert", "export", "few/harbour", str(tmp_path / "adapter"), "--format", "peft", "--here"]) == 0
    seed = AutoModelForCausalLM.from_pretrained(base_folder("few/harbour"), dtype=torch.float32)
    bare, adapted = logits_of(seed), logits_of(PeftModel.from_pretrained(seed, tmp_path / "adapter"))
    assert not torch.equal(adapted, bare)
    assert torch.equal(adapted, our_logits("few/harbour"))
    assert main(["mixture", "create", "near", "--experts", "seed:smol,few/harbour"]) == 0
    capsys.readouterr()
    assert main(["generate", "near", "The capital of France is", "--max-tokens", "4", "--temperature", "0"]) == 0
    assert "Paris" in capsys.readouterr().out
