"""An expert with its own chat template stops at its base's tokens and at its own, here and where it is exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import ChatTemplateError
from engine.files import EXPERT_CARD
from engine.text.chat.own_template import add_turn_ends, copy_template, stop_ids, template_folder
from engine.text.chat.template import load_chat_template
from engine.text.tokenizer import load_tokenizer
from tests.engine.chat_shapes import chat_folder

OWN = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def own_folder(folder: Path, source: str = OWN, **tokens: str) -> Path:
    """An expert's folder with a chat template, and the special tokens that it names."""
    folder.mkdir()
    (folder / EXPERT_CARD).write_text("{}")
    (folder / "chat_template.jinja").write_text(source)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    return folder


def stops(base: Path, expert: Path) -> set[str]:
    tokenizer = load_tokenizer(base)
    return {tokenizer.written(id) for id in stop_ids(tokenizer, base, template_folder(base, expert))}


def test_an_expert_stops_at_the_tokens_of_its_base_and_at_its_own(tmp_path: Path) -> None:
    base = chat_folder(tmp_path / "base")
    of_base = stops(base, tmp_path)
    assert "<|im_end|>" in of_base
    assert stops(base, own_folder(tmp_path / "own", eos_token="<|im_start|>")) == of_base | {"<|im_start|>"}


def test_a_template_that_names_no_token_stops_at_those_of_the_base(tmp_path: Path) -> None:
    base = chat_folder(tmp_path / "base")
    assert stops(base, own_folder(tmp_path / "own")) == stops(base, tmp_path)


def test_an_export_names_all_of_them(tmp_path: Path) -> None:
    base, expert = chat_folder(tmp_path / "base"), own_folder(tmp_path / "own", PLAIN, eos_token="<|im_start|>")
    tokenizer, file = load_tokenizer(base), base / "generation_config.json"
    ids = {text: tokenizer.encode(text, control_tokens=True)[0] for text in ("<|im_end|>", "<|im_start|>")}
    file.write_text(json.dumps({"eos_token_id": ids["<|im_end|>"]}))
    copy_template(expert, base)
    assert json.loads(file.read_text())["eos_token_id"] == [ids["<|im_end|>"], ids["<|im_start|>"]]


def test_a_model_whose_template_cannot_be_read_is_exported_with_the_stops_it_has(tmp_path: Path) -> None:
    base = chat_folder(tmp_path / "base")
    (base / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((base / "tokenizer_config.json").read_text())
    unnamed = config | {"chat_template": [{"name": "tool_use", "template": "x"}]}
    (base / "tokenizer_config.json").write_text(json.dumps(unnamed))
    with pytest.raises(ChatTemplateError):
        load_chat_template(base)
    (base / "generation_config.json").write_text('{"eos_token_id": 1}')
    add_turn_ends(base)
    assert json.loads((base / "generation_config.json").read_text()) == {"eos_token_id": 1}
