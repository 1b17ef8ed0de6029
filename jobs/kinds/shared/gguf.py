"""GGUF files by llama.cpp's own converter, a program of its own.

Sources: https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py,
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.events import Event, Note, Progress
from engine.files import new_file
from jobs.attempt.job_log import last_line
from workbench.settings import Settings

_PROGRAM = "convert_hf_to_gguf.py"
_OUTTYPES = {"float16": "f16", "bfloat16": "bf16"}
_MAGIC = b"GGUF"
_LOST_FLAGS = ("lstrip", "rstrip", "single_word")  # of an added token; llama.cpp finds each wherever its text stands
_LOST_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip")
_MOST_NAMED = 5
_ANY_PYTHON, _LONGEST_LINE = (b"env python3", b"env python"), 200  # at the end of a script's first line
_PERIOD_SECONDS = 1.0  # between two looks at the converter, so that a cancel stops it


def find_converter(settings: Settings) -> Path:
    """The converter of this machine; raises ModelError if there is none."""
    given = settings.gguf_converter
    path = Path(given).expanduser() if given else Path(shutil.which(_PROGRAM) or "")
    if not path.is_file():
        missing = f"The program {given} does not exist" if given else f"llama.cpp's {_PROGRAM} is not in the PATH"
        raise ModelError(
            f"{missing}, so no GGUF can be written.",
            "Install llama.cpp and set WORKBENCH_GGUF_CONVERTER to its convert_hf_to_gguf.py, or export as hf.",
        )
    return path


def convert(converter: Path, model: Path, target: Path) -> Generator[Event, None, None]:
    """Converts a model folder, in its own precision; `target` gets its name when it is complete.

    Says first what of the tokenizer a GGUF cannot hold. Raises ModelError with the converter's last line.
    """
    yield from map(Note, describe_gguf_losses(model))
    dtype = str(json.loads((model / "config.json").read_text(encoding="utf-8")).get("dtype"))
    log = model.with_name(f"{model.name}.log")
    with new_file(target) as unfinished:
        options = ["--outfile", str(unfinished), "--outtype", _OUTTYPES.get(dtype, "f32")]
        code = yield from _run([*_program(converter, model), str(model), *options], log)
        if code or not _is_gguf(unfinished):
            reason = last_line(log)[:300] or "it wrote no GGUF file and no message."
            raise ModelError(
                f"llama.cpp's converter could not convert the model: {reason}",
                "Install what its requirements.txt names, or export as hf."
                if "ModuleNotFoundError" in reason
                else "Update llama.cpp, or export as hf.",
            )


def _program(converter: Path, model: Path) -> list[str]:
    """How the converter is run: by this Python and with the name of the splitting of words, where it is a script for
    any Python; else as it is."""
    with converter.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    is_own = os.access(converter, os.X_OK) and not (first.startswith(b"#!") and first.rstrip().endswith(_ANY_PYTHON))
    if is_own or converter.suffix != ".py":
        return [str(converter)] if os.access(converter, os.X_OK) else [sys.executable, str(converter)]
    runner = Path(__file__).with_name("gguf_runner.py")
    return [sys.executable, "-P", str(runner), str(converter), _splitting(model)]


def _splitting(model: Path) -> str:
    """What llama.cpp calls the way in which a tokenizer cuts text before its merges; empty: the converter must know.

    The converter recognises it by a hash of one text's tokens, so it knows no vocabulary that was trained here.
    """
    file = model / "tokenizer.json"
    state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    cuts = state.get("pre_tokenizer") or {}
    is_gpt2 = cuts.get("type") == "ByteLevel" and cuts.get("use_regex", True) and not cuts.get("add_prefix_space", True)
    is_plain = not state.get("normalizer") and (state.get("model") or {}).get("type") == "BPE"
    return "gpt-2" if is_gpt2 and is_plain else ""


def describe_gguf_losses(model: Path) -> Iterator[str]:
    """The parts of a model folder's tokenizer that llama.cpp leaves out, in sentences: its tokens can then differ."""
    file = model / "tokenizer.json"
    state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    added = state.get("added_tokens") or []
    lost = [token["content"] for token in added if any(token.get(flag) for flag in _LOST_FLAGS)]
    if lost:
        named = ", ".join(map(repr, lost[:_MOST_NAMED])) + (", …" if len(lost) > _MOST_NAMED else "")
        yield (
            f"GGUF cannot hold {', '.join(_LOST_FLAGS)} of added tokens: text around {len(lost)} of {len(added)} "
            f"({named}) can get other tokens in llama.cpp. Export as hf to keep them."
        )
    if names := [name for name in _normalizers(state.get("normalizer")) if name in _LOST_NORMALIZERS]:
        yield (
            f"llama.cpp does not normalize text as this tokenizer does ({', '.join(names)}): text that this changes "
            "gets other tokens there. Export as hf to keep it."
        )
    file = model / "generation_config.json"
    ends = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else None
    if isinstance(ends, list) and len(ends) > 1:
        texts = {token.get("id"): token["content"] for token in added}
        yield (
            f"GGUF holds one of the {len(ends)} tokens that end an answer, and llama.cpp finds others only by usual "
            f"names: {', '.join(repr(texts.get(end, end)) for end in ends)}. If it runs on, give it the rest as stop "
            "texts."
        )


def _normalizers(normalizer: Any) -> list[str]:
    """The types of a normalizer and of those in it."""
    if not isinstance(normalizer, dict):
        return []
    inner = [name for one in normalizer.get("normalizers") or [] for name in _normalizers(one)]
    return [str(normalizer.get("type")), *inner]


def _run(command: list[str], log: Path) -> Generator[Event, None, int]:
    """Runs the converter with its output in a log; returns its exit code. Closing it ends the converter."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                try:
                    process.wait(_PERIOD_SECONDS)
                except subprocess.TimeoutExpired:
                    yield Progress(0, 1, "folders", "converting")
            return process.returncode
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _is_gguf(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC
