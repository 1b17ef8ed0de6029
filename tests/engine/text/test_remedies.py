"""Every remedy that is a command is run as it is printed, and then the import works."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.errors import CorpusError
from engine.text.corpus import ReadOptions, read_documents
from engine.text.import_report import Report

ENGINE = Path(__file__).parents[3] / "engine"
COMMAND = re.compile(r"\b((?:iconv|tr|jq|sed|awk|python3?|git|curl|unzip) -\S.*?)\.?$")
CLONES = {"git lfs pull", "git annex get"}  # they need the server of the clone
TEXT = "text\nBrücken sind alt\nWehre sind flach\n"
FAULTY = {
    "Latin-1": TEXT.encode("latin-1"),
    "UTF-16 with its mark": TEXT.encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-16 without its mark": TEXT.encode("utf-16-le"),
    "UTF-16 without its mark, big end first": TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "NUL bytes in a text": TEXT.replace("alt", "a\0lt").encode(),
}


def documents(path: Path) -> list[str]:
    return [document.text for document in read_documents(path, ReadOptions(), Report())]


@pytest.mark.parametrize("name", FAULTY)
def test_a_command_that_a_refusal_prints_mends_the_file(name: str, tmp_path: Path) -> None:
    suffix = "txt" if "NUL" in name else "csv"
    (tmp_path / f"a.{suffix}").write_bytes(FAULTY[name])
    with pytest.raises(CorpusError) as refusal:
        documents(tmp_path / f"a.{suffix}")
    match = COMMAND.search(refusal.value.next_step)
    assert match, refusal.value.next_step
    if shutil.which(match[1].split()[0]) is None:
        pytest.skip(f"{match[1].split()[0]} is not installed.")

    line = match[1].replace("FILE", f"a.{suffix}").replace("NEW", f"b.{suffix}")
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)

    assert "Brücken sind alt" in "\n".join(documents(tmp_path / f"b.{suffix}"))


def test_no_importer_prints_another_command() -> None:
    files = [*(ENGINE / "text").rglob("*.py"), ENGINE / "path_kinds.py"]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    commands = {match[1].split()[0] for text in texts if (match := COMMAND.search(text))}
    assert commands == {"iconv", "tr"}
    assert {name for text in texts for name in re.findall(r"`(git [a-z ]+)`", text)} == CLONES
