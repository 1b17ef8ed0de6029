"""Scripts and styles are files of their own, which editors and linters read; none stands in a string of Python."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import playwright
import pytest

from ui.serving.help_site import FOLDER

UI = Path(__file__).parents[2] / "ui"
SCRIPT_OR_STYLE = re.compile(r"=> \{|addEventListener|createElement|^[.#\w][\w. >-]* \{ *[a-z-]+:", re.MULTILINE)
NODE = Path(playwright.__file__).parent / "driver" / "node"  # its package brings one
SCRIPTS = sorted(set(UI.rglob("*.js")) - set(FOLDER.rglob("*")))  # those of the help are its generator's


def test_no_string_holds_a_script_or_a_style() -> None:
    strings = [
        (path.relative_to(UI), node.lineno)
        for path in UI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count("\n") > 1
        if SCRIPT_OR_STYLE.search(node.value)
    ]
    assert strings == []


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_every_script_can_be_parsed(script: Path, tmp_path: Path) -> None:
    module = tmp_path / f"{script.stem}.mjs"
    shutil.copy(script, module)
    subprocess.run([NODE, "--check", module], check=True, capture_output=True)
