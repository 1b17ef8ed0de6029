"""What dies of itself is started again; what ends well, or cannot start, is not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

KEEP = """
import sys
from ui.serving import supervise as supervising
supervising.PAUSE_SECONDS, supervising.STABLE_SECONDS = 0.01, {stayed}
sys.exit(supervising.supervise(sys.argv[1:]))
"""
# Writes a line, then ends with the code that stands in the line's place of the list.
CHILD = """
import sys
from pathlib import Path
log = Path(sys.argv[1])
log.write_text(log.read_text() + "x" if log.exists() else "x")
sys.exit([1, 1, 0][min(2, len(log.read_text()) - 1)] if sys.argv[2] == "recovers" else 1)
"""


def keep(log: Path, how: str, stayed: float) -> int:
    command = [sys.executable, "-c", KEEP.format(stayed=stayed), sys.executable, "-c", CHILD, str(log), how]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_one_that_dies_is_started_again_until_it_ends_well(tmp_path: Path) -> None:
    assert keep(tmp_path / "log", "recovers", stayed=0) == 0
    assert (tmp_path / "log").read_text() == "xxx"


def test_one_that_cannot_start_is_given_up(tmp_path: Path) -> None:
    assert keep(tmp_path / "log", "dies", stayed=60) == 1
    assert (tmp_path / "log").read_text() == "xxx"


def test_a_request_to_end_ends_its_child_and_starts_no_other() -> None:
    command = [
        sys.executable,
        "-c",
        KEEP.format(stayed=60),
        sys.executable,
        "-c",
        "import time; print('on', flush=True); time.sleep(3600)",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGTERM)
        assert holder.stdout.read() == b""  # which both had open

    assert holder.returncode == 128 + signal.SIGTERM


def test_a_request_to_end_between_two_lives_starts_no_other(tmp_path: Path) -> None:
    log = tmp_path / "log"
    pausing = "from ui.serving.supervise import supervise; import sys; "  # until a line comes, sent after the signal
    pausing += "sys.exit(supervise(sys.argv[1:], lambda _: sys.stdin.readline()))"
    command = [sys.executable, "-c", pausing, sys.executable, "-c", CHILD, str(log), "dies"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stderr is not None
        holder.stderr.readline()  # "… crashed"
        holder.send_signal(signal.SIGTERM)
        holder.stdin.write(b"go on\n")

    assert log.read_text() == "x"


def test_the_command_of_another_program_is_run_as_it_is(tmp_path: Path) -> None:
    command = ["-P", "-m", "ui.serving.supervise", "--", "sh", "-c", f"echo $0 > {tmp_path}/word", "a word"]
    assert subprocess.run([sys.executable, *command], check=False).returncode == 0
    assert (tmp_path / "word").read_text() == "a word\n"
