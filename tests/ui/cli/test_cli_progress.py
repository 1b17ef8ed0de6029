"""Progress without a terminal: plain lines with what is left, ever farther apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ui.cli.app import main
from ui.cli.job_progress import Lines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_ever_farther_apart_with_what_is_left_and_the_last_state_is_printed() -> None:
    clock, lines = Clock(), list[str]()
    progress = Lines(clock, lines.append)
    for second in range(241):
        clock.now = float(second)
        progress.draw(f"step {second}", second / 250)
    progress.end()
    seconds = [int(line.split("step ")[1].split(",")[0]) for line in lines]
    assert seconds == [0, 5, 15, 35, 75, 135, 195, 240]
    assert lines[2] == "[  6%] step 15, about 3 min 55 s left"
    assert "left" not in lines[0]


def test_the_last_state_is_printed_one_time_and_a_pace_is_that_of_this_command() -> None:
    clock, lines = Clock(), list[str]()
    progress = Lines(clock, lines.append)
    progress.draw("resumed", 0.5)
    clock.now = 10.0
    progress.draw("on", 0.6)
    progress.end()
    assert lines == ["[ 50%] resumed", "[ 60%] on, about 40 s left"]


def test_an_import_in_a_pipe_prints_lines_on_stderr_and_only_the_result_on_stdout(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "law.jsonl"
    text.write_text("\n".join(json.dumps({"text": f"Document {number}."}) for number in range(40)), encoding="utf-8")
    assert main(["corpus", "add", "law", str(text), "--here"]) == 0
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if line.startswith("[")]
    assert lines
    assert "100 %" in lines[-1]
    assert "\x1b" not in output.err
    assert "done in" in output.out
    assert "documents 40" in output.out  # not the field's name, and nothing that is not known
    assert not [word for word in ("num_", "cut", "—") if word in output.out]
    plain = tmp_path / "plain.txt"
    plain.write_text("\n\n".join(f"Sentence {number}." for number in range(4000)), encoding="utf-8")
    assert main(["corpus", "add", "plain", str(plain), "--here"]) == 0
    assert "documents 7. Plain text was cut into documents" in capsys.readouterr().out
    assert not [line for line in output.out.splitlines() if line.startswith("[")]
    assert main(["corpus", "add", "law2", str(text), "--here", "--json"]) == 0
    assert capsys.readouterr().err == ""
