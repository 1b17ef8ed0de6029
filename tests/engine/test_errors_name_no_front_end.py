"""The engine runs in notebooks and on other front ends: its sentences name no command, option or setting of ours."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine.errors import NextStep
from ui.cli.app import find_commands
from ui.present.next_step_text import next_step_text

ENGINE = Path(__file__).parents[2] / "engine"
FRONT_END = re.compile(rf"\bworkbench ({'|'.join(map(re.escape, find_commands()))})\b|WORKBENCH_|`--[a-z]")


def sentences(file: Path) -> list[str]:
    """The string literals of a module, docstrings among them."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_no_sentence_of_the_engine_names_a_command_an_option_or_a_setting() -> None:
    named = {
        f"{file.relative_to(ENGINE)}: {sentence[:80]}"
        for file in ENGINE.rglob("*.py")
        for sentence in sentences(file)
        if FRONT_END.search(sentence) and not (file.name == "config.py" and "`--help`" in sentence)
    }
    assert named == set()


@pytest.mark.parametrize("step", NextStep)
def test_front_ends_know_a_command_option_or_setting_for_each_next_step(step: NextStep) -> None:
    assert not FRONT_END.search(step)
    assert FRONT_END.search(next_step_text(step))
    assert next_step_text(str(step.value)) == next_step_text(step)  # as a job's row holds it
