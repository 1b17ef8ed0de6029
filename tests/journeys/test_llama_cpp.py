"""GGUF files that leave the workbench, by llama.cpp's own converter, are read by llama.cpp itself (`make llama`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.journeys.conftest import Do, done
from tests.journeys.test_export_mixture import full_model
from ui.cli.app import main
from workbench.settings import get_settings

LLAMA = Path(__file__).parents[2] / ".venv" / "llama"
ENGINE = LLAMA / "node_modules" / "node-llama-cpp" / "dist" / "index.js"
PROMPT = [0, 60, 45, 70]
TEXTS = ["The court held 12345 naïve costs — 你好 🙂\n\n  x's  y\t", "don't STOP 3.14\r\n\u00a0end", " "]
MARKUP = ["a <tool> b", "<|user|>hello<|user|>"]
TEMPLATE = "{% for message in messages %}<|user|>{{ message['content'] }}{% endfor %}"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (LLAMA.parent / "installed-llama").exists(), reason="llama.cpp is not installed: make llama"
    ),
]


@pytest.fixture(autouse=True)
def _converter(trained: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained
    monkeypatch.setenv("WORKBENCH_GGUF_CONVERTER", str(LLAMA / "llama.cpp" / "convert_hf_to_gguf.py"))
    get_settings.cache_clear()


def read_by_llama(folder: Path, texts: list[str]) -> dict[str, Any]:
    """What llama.cpp says of the GGUF file in an exported folder."""
    program = [str(LLAMA / "bin" / "node"), str(Path(__file__).with_name("llama_cpp.mjs")), str(ENGINE)]
    command = [*program, str(folder / "model.gguf"), json.dumps(PROMPT), json.dumps(texts)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


@torch.inference_mode()
def greedy(lm: Any) -> list[int]:
    """16 tokens by plain forward passes."""
    ids = list(PROMPT)
    for _ in range(16):
        ids.append(int(lm.eval()(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


def tokens_of(folder: Path, texts: list[str]) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def test_an_expert_with_a_tokenizer_made_here_writes_the_same_text_in_llama_cpp(tmp_path: Path) -> None:
    assert main(["expert", "export", "small/court", str(tmp_path / "hf"), "--here"]) == 0
    assert main(["expert", "export", "small/court", str(tmp_path / "gguf"), "--format", "gguf", "--here"]) == 0
    read = read_by_llama(tmp_path / "gguf", TEXTS)
    assert read["written"] == greedy(full_model("small/court"))
    assert read["tokens"] == tokens_of(tmp_path / "hf", TEXTS)
    assert (read["bos"], read["eos"], read["hasBosBefore"], read["template"]) == (0, 0, True, None)


def test_the_average_of_a_mixture_runs_in_llama_cpp(tmp_path: Path) -> None:
    assert main(["mixture", "export", "small", str(tmp_path / "hf"), "--here"]) == 0
    assert main(["mixture", "export", "small", str(tmp_path / "gguf"), "--format", "gguf", "--here"]) == 0
    lm = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    assert read_by_llama(tmp_path / "gguf", TEXTS)["written"] == greedy(lm)


def test_added_tokens_and_the_chat_template_are_in_the_file(trained: Do, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    assert main(["expert", "export", "small/court", str(seed), "--here"]) == 0
    tokenizer, lm = AutoTokenizer.from_pretrained(seed), AutoModelForCausalLM.from_pretrained(seed)
    tokenizer.add_tokens(["<tool>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    tokenizer.chat_template = TEMPLATE
    lm.resize_token_embeddings(len(tokenizer))
    lm.save_pretrained(seed)
    tokenizer.save_pretrained(seed)
    assert main(["seed", "add", "marked", str(seed), "--here"]) == 0
    training = {"num_steps": 2, "block_size": 32, "learning_rate": 1e-3}
    spec = {"kind": "train-joint", "name": "marked", "seed_model": "marked", "domains": ["court"], "training": training}
    done(trained(spec))
    assert main(["expert", "export", "marked/court", str(tmp_path / "gguf"), "--format", "gguf", "--here"]) == 0
    read = read_by_llama(tmp_path / "gguf", [*TEXTS, *MARKUP])
    assert read["tokens"] == tokens_of(seed, [*TEXTS, *MARKUP])
    assert read["template"] == TEMPLATE
    assert read["written"] == greedy(full_model("marked/court"))
