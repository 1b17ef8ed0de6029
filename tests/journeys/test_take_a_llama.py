"""A Llama from a folder: its tokenizer's files stay as they are, and what it says ends where it says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from engine.config import ModelConfig, SamplingConfig
from engine.events import Done, Token
from engine.loading.host import Host
from engine.models.families import fresh_model
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.engine.tokenizer_shapes import byte_level, llama_like
from tests.journeys.conftest import SHAPE, Do, done
from ui.api.app import create_app
from ui.cli.app import main
from workbench.questions.token_comparison import ContrastRequest
from workbench.registry import experts, seeds
from workbench.registry.database import reading
from workbench.requests import planning
from workbench.settings import Settings
from workbench.store.storage import get_storage

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
FILES = {
    "tokenizer_config.json": {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": TEMPLATE,
    },
    "special_tokens_map.json": {"bos_token": {"content": "<s>"}, "eos_token": "</s>"},
    "generation_config.json": {"bos_token_id": 1, "eos_token_id": [2, 260], "temperature": 0.6},
}
TRAINING = {"num_steps": 2, "block_size": 32}
WORD = Tokenizer(llama_like(), 1).encode("ab")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model's folder, with files that nobody here would write like this."""
    folder = tmp_path / "llama"
    shape = ModelConfig(**{**SHAPE, "family": "llama"})
    fresh_model(shape, 300).save_pretrained(folder)
    inner = llama_like()
    inner.enable_truncation(3)
    inner.save(str(folder / "tokenizer.json"), pretty=False)
    for name, content in FILES.items():
        (folder / name).write_text(json.dumps(content, indent=7) + "\n\n")
    (folder / "tokenizer.model").write_bytes(b"\0pieces\xff")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": 1, "eos_token_id": 2}))
    return folder


@pytest.fixture
def taken(trained: Do, folder: Path) -> Do:
    done(trained({"kind": "make-seed", "name": "llama", "source": "folder", "location": str(folder)}))
    return trained


def seed_folder(name: str) -> Path:
    with reading() as session:
        return get_storage().path(seeds.seed_row(session, name).artifact_id)


def base_of(expert: str) -> Path:
    with reading() as session:
        return get_storage().path(experts.expert_row(session, expert).base_id)


def answer(model: str) -> list[Token | Done]:
    with reading() as session:
        plan = planning.plan(session, get_storage(), model)
    return list(Host(device="cpu").stream(plan, "ab", SamplingConfig(max_tokens=5)))


def scripted(monkeypatch: pytest.MonkeyPatch, ids: list[int]) -> None:
    """Makes every model say these tokens, again and again."""

    def endless() -> Iterator[int]:
        while True:
            yield from ids

    drawn = endless()
    monkeypatch.setattr("engine.inference.generate.sample_token", lambda *_: next(drawn))


def test_it_keeps_its_files_and_ends_where_it_says(taken: Do, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = {"kind": "train-joint", "seed_model": "llama", "domains": ["court", "kitchen"], "training": TRAINING}
    done(taken({**train, "name": "again"}))
    done(taken({**train, "name": "low", "domains": ["court"], "method": "lora"}))
    shape = {"num_blocks": 1, "expert_layers": 1}
    mode = {"kind": "train-mode", "name": "beside", "seed_model": "llama", "domains": ["court"]}
    done(taken({**mode, "training": TRAINING, "shape": shape}))
    done(taken({"kind": "make-seed", "name": "copy", "source": "expert", "expert": "again/court"}))
    for kept in (seed_folder("llama"), base_of("again/court"), seed_folder("copy")):
        for name in (*FILES, "tokenizer.json", "tokenizer.model", "chat_template.jinja"):
            assert (kept / name).read_bytes() == (folder / name).read_bytes(), name
        assert json.loads((kept / "config.json").read_text())["eos_token_id"] == [2, 260]
        assert load_tokenizer(kept).sha256 == load_tokenizer(folder).sha256
    for end in (1, 2, 260):
        for model in ("again", "again/court", "low", "beside"):
            scripted(monkeypatch, [*WORD, end])
            token, last = answer(model)
            assert (token.text, last) == (" ab", Done("stop", 2, 1)), (model, end)


def test_what_nobody_set_is_not_made_up_when_it_is_kept(trained: Do, folder: Path) -> None:
    byte_level("<|end|>").save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    for name in ("special_tokens_map.json", "generation_config.json"):
        (folder / name).unlink()
    config = json.loads((folder / "config.json").read_text())
    bare = {name: value for name, value in config.items() if not name.endswith("_token_id")}
    (folder / "config.json").write_text(json.dumps(bare))  # transformers would say 1 and 2
    done(trained({"kind": "make-seed", "name": "bare", "source": "folder", "location": str(folder)}))
    kept = load_tokenizer(seed_folder("bare"))
    assert (kept.bos_id, kept.prefix, kept.stop_ids) == (256, (), {256})
    assert kept.sha256 == load_tokenizer(folder).sha256
    for name in ("config.json", "generation_config.json"):
        shown = json.loads((seed_folder("bare") / name).read_text())
        assert (shown["bos_token_id"], shown["eos_token_id"]) == (256, 256), name


def test_passages_that_are_compared_keep_their_first_blank(taken: Do) -> None:
    train = {"kind": "train-joint", "name": "again", "seed_model": "llama", "domains": ["court", "kitchen"]}
    done(taken({**train, "training": TRAINING}))
    done(taken({"kind": "evaluate", "mixture": "again", "block_size": 32, "max_tokens": 700}))
    with reading() as session:
        result = ContrastRequest(domain="court", expert="again/court", rival="again/kitchen", num_passages=9).answer(
            session, get_storage()
        )
    assert any(passage.tokens[0].startswith(" ") for passage in result.worst + result.best)


def test_api_and_command_line_report_that_it_ended(
    taken: Do, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = {"kind": "train-joint", "name": "again", "seed_model": "llama", "domains": ["court"]}
    done(taken({**train, "training": TRAINING}))
    ask = {"model": "again", "prompt": "ab ab", "max_tokens": 9, "temperature": 0}
    app = create_app(Settings(home=home), Host(device="cpu"), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        scripted(monkeypatch, [*WORD, *WORD, 2])
        (choice,) = api.post("/v1/completions", json={**ask, "logprobs": 1}).json()["choices"]
        lines = api.post("/v1/completions", json={**ask, "stream": True}).text.split("\n\n")
    assert (choice["text"], choice["finish_reason"]) == (" ab ab", "stop")
    assert choice["logprobs"]["tokens"] == [" ab", " ab"]
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines if line.startswith("data: {")]
    assert "".join(chunk["text"] for chunk in chunks) == " ab ab"
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert main(["generate", "again", "ab ab", "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert (message["text"], message["finish_reason"]) == (" ab ab", "stop")
