"""Commands that are shown can be copied into a shell, whatever the names in them hold."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from ui.present.forms.options import command_line
from workbench.formatting.shell_command import evaluate_command, shell_command
from workbench.kinds.training.train_joint import TrainJoint

ROOT = Path(__file__).parents[3]
UNQUOTED = re.compile(r"[`:] ?workbench [a-z -]+⟨(?!(job_|card\.)id⟩|card\.result)")  # ids need no quotes
NAMES = ["sea law", "d'oh", "$HOME", "a;b", "“law”"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_a_name_as_one_word(name: str) -> None:
    assert shlex.split(shell_command("mixture", "show", name)) == ["workbench", "mixture", "show", name]
    assert shlex.split(evaluate_command(name, "dev", "--domains", name)) == [
        *("workbench", "evaluate", "run", name),
        *("--split", "dev", "--domains", name),
    ]
    assert name in shlex.split(command_line("train joint", TrainJoint, ["name"], {("name",): name}))


def test_the_default_split_is_not_named() -> None:
    assert evaluate_command("law") == "workbench evaluate run law"


@pytest.mark.parametrize("package", ["workbench", "jobs", "ui"])
def test_no_text_puts_a_name_into_a_command_unquoted(package: str) -> None:
    unquoted = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr) and UNQUOTED.search(_with_values(node))
    ]
    assert unquoted == []


def _with_values(text: ast.JoinedStr) -> str:
    """The text, with the source of each value between ⟨ and ⟩."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"⟨{ast.unparse(part.value)}⟩"
        for part in text.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )
