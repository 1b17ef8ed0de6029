"""The hook for commit messages refuses what nobody could read in the log."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BODY = "\n\nThe last answer's end was not in the loss.\n"


def check(message: str, tmp_path: Path) -> tuple[int, str]:
    """The exit status of the hook for this message and what it printed."""
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(message, encoding="utf-8")
    ended = subprocess.run([ROOT / ".githooks/commit-msg", path], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("message", ["Fix the loss mask" + BODY, "Embed “ä” once" + BODY, "Merge branch 'fix'\n"])
def test_a_plain_message_passes(message: str, tmp_path: Path) -> None:
    assert check("# a comment\n" + message, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("# only a comment\n", "the first line is empty"),
        ("F" + "i" * 72 + BODY, "has 73 characters"),
        ("Fix the loss mask." + BODY, "ends with a period"),
        ("fix the loss mask" + BODY, "a capital letter"),
        ("Fixed the loss mask" + BODY, "not an imperative"),
        ("Fixing the loss mask" + BODY, "not an imperative"),
        ("Fix the loss mask\nfor templates" + BODY, "second line"),
        ("Fix the loss mask\n", "no body"),
        ("Fix the loss mask\n\nSigned-off-by: Ada <ada@example.org>\n", "no body"),
    ],
)
def test_another_message_is_refused_with_the_reason(message: str, reason: str, tmp_path: Path) -> None:
    status, output = check(message, tmp_path)
    assert status == 1
    assert reason in output
