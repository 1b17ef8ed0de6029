"""A DEMix pair of one update on real weights: each expert leaves as a model of the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.journeys.test_export import logits_of, our_logits
from tests.real.test_experts import add_corpus
from ui.cli.app import main

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # of torch
]


@pytest.mark.usefixtures("smol")
def test_an_expert_of_a_pair_leaves_with_its_bits(tmp_path: Path) -> None:
    for name in ("kitchen", "garden"):
        add_corpus(tmp_path, name)
    train = ["train", "joint", "pair", "--seed-model", "smol", "--domains", "kitchen,garden", "--steps", "1"]
    assert main([*train, "--block-size", "64", "--here"]) == 0
    assert main(["expert", "export", "pair/garden", str(tmp_path / "model"), "--here"]) == 0
    theirs = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32))
    assert torch.equal(theirs, our_logits("pair/garden"))
    assert not torch.equal(theirs, our_logits("pair/kitchen"))
