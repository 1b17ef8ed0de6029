"""What llama.cpp cannot hold of a tokenizer is sentence before a GGUF is written."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelError
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


def run_script(folder: Path, first_line: str, *, is_executable: bool) -> str:
    """Where a script of a converter ended, which fails with what it sees."""
    script = folder / "convert_hf_to_gguf.py"
    script.write_text(f"{first_line}\nimport sys\ndef main():\n    sys.exit(f'{{__name__}} {{sys.argv[0]}}')\n")
    with script.open("a") as file:
        file.write('if __name__ == "__main__":\n    main()\n')
    script.chmod(0o755 if is_executable else 0o644)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        list(convert(script, folder / "model", folder / "model.gguf"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("first_line", "is_executable", "name"),
    [
        ("#!/usr/bin/env python3", True, "convert_hf_to_gguf"),  # by this Python, which has torch
        ("#!/usr/bin/env python3", False, "convert_hf_to_gguf"),
        (f"#!{sys.executable}", True, "__main__"),  # installed with a Python of its own
    ],
)
def test_a_script_for_any_python_is_run_by_this_one(
    tmp_path: Path, first_line: str, is_executable: bool, name: str
) -> None:
    assert f"{name} {tmp_path / 'convert_hf_to_gguf.py'}" in run_script(
        tmp_path, first_line, is_executable=is_executable
    )


def test_a_module_that_the_converter_lacks_is_what_to_install(tmp_path: Path) -> None:
    assert "Install what its requirements.txt names" in run_script(
        tmp_path, "#!/usr/bin/env python3\nimport no_such_module", is_executable=False
    )
