"""What is written for vLLM: the script's own exports make folders that transformers and PEFT load."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.journeys.conftest import Do, done
from tests.journeys.test_export import LORA, logits_of, our_logits
from ui.cli.app import main

SUM_TOLERANCE = 1e-5


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
def test_the_script_exports_what_its_servers_load(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done(trained(LORA))
    assert main(["mixture", "add", "small", "thin/court"]) in (0, None)
    folder = tmp_path / "it's for vLLM"
    capsys.readouterr()
    assert main(["mixture", "serve-config", "small", str(folder), "--json"]) in (0, None)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer == json.loads((folder / "serve.json").read_text())
    assert [one["model"] for one in answer["servers"]] == ["seed:seed", "small/court", "small/kitchen"]
    script = (folder / "serve.sh").read_text()
    assert "the posterior that follows the text are lost" in script
    exports = [shlex.split(line.partition("|| ")[2])[1:] for line in script.splitlines() if "|| workbench" in line]
    assert [export[2] for export in exports] == ["seed:seed", "thin/court", "small/court", "small/kitchen"]
    for command in exports:
        assert main(command) in (0, None)
    started = [shlex.split(line.removesuffix(" &")) for line in script.splitlines() if line.startswith("vllm")]
    assert started == [one["command"] for one in answer["servers"]]
    with_adapters, court, _ = started
    place = option(with_adapters, "--lora-modules").removeprefix("thin/court=")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(with_adapters[2]), place)
    torch.testing.assert_close(logits_of(loaded), our_logits("thin/court"), atol=SUM_TOLERANCE, rtol=0)
    rank = LORA["lora"]["rank"]
    assert int(option(with_adapters, "--max-lora-rank")) == min(one for one in (1, 8, 16, 32) if one >= rank)
    assert torch.equal(logits_of(AutoModelForCausalLM.from_pretrained(court[2])), our_logits("small/court"))
    assert len({option(one, "--port") for one in started}) == len(started)
    assert [option(one, "--gpu-memory-utilization") for one in started] == ["0.30"] * 3  # of one GPU, for all of them


def test_a_single_server_has_the_gpu_to_itself(trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mixture", "create", "one", "--experts", "small/court"]) in (0, None)
    capsys.readouterr()
    assert main(["mixture", "serve-config", "one", str(tmp_path / "one"), "--json"]) in (0, None)
    [server] = json.loads(capsys.readouterr().out)["servers"]
    assert "--gpu-memory-utilization" not in server["command"]


def test_nothing_is_written_over_and_nothing_served_is_an_error(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mixture", "serve-config", "small", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["mixture", "serve-config", "none", str(tmp_path / "new")]) != 0
    assert not (tmp_path / "new").exists()
