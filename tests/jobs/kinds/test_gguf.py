"""What llama.cpp cannot hold of a tokenizer is sentence before a GGUF is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.events import Note
from jobs.kinds.shared.gguf import convert, describe_gguf_losses

PLAIN = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def lost(folder: Path, added: list[dict[str, Any]], normalizer: dict[str, Any] | None = None) -> list[str]:
    state = {"added_tokens": added, "normalizer": normalizer}
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    return list(describe_gguf_losses(folder))


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_an_added_token_that_takes_in_what_is_around_it_is_named(tmp_path: Path, flag: str) -> None:
    [sentence] = lost(tmp_path, [PLAIN | {"content": "<a>"}, PLAIN | {"content": "<b>", flag: True}])
    assert "1 of 2 ('<b>')" in sentence


def test_of_many_such_tokens_the_first_and_the_count_are_named(tmp_path: Path) -> None:
    [sentence] = lost(tmp_path, [PLAIN | {"content": f"<{number}>", "lstrip": True} for number in range(40)])
    assert "40 of 40 ('<0>', '<1>', '<2>', '<3>', '<4>', …)" in sentence


def test_a_normalizer_that_llama_cpp_does_not_run_is_named_also_inside_a_sequence(tmp_path: Path) -> None:
    [sentence] = lost(tmp_path, [], {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace"}]})
    assert "(NFC)" in sentence


def test_plain_added_tokens_and_the_marks_of_spaces_are_kept_without_a_word(tmp_path: Path) -> None:
    marks = {"type": "Sequence", "normalizers": [{"type": "Prepend"}, {"type": "Replace"}]}
    assert lost(tmp_path, [PLAIN | {"content": "two words", "special": True}], marks) == []


def test_a_folder_without_a_tokenizer_file_loses_nothing(tmp_path: Path) -> None:
    assert list(describe_gguf_losses(tmp_path)) == []


def test_more_ends_of_an_answer_than_a_gguf_holds_are_named(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    [sentence] = lost(tmp_path, [PLAIN | {"id": 8, "content": "<user>"}])
    assert "one of the 2 tokens" in sentence
    assert "7, '<user>'" in sentence
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert list(describe_gguf_losses(tmp_path)) == []


def test_what_is_lost_is_reported_before_the_converter_runs(tmp_path: Path) -> None:
    [sentence] = lost(tmp_path, [PLAIN | {"content": "<a>", "rstrip": True}])
    assert next(convert(tmp_path / "missing", tmp_path, tmp_path / "model.gguf")) == Note(sentence)
