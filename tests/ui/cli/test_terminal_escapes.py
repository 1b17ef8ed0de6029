"""A terminal shows what somebody else wrote and does nothing else: no title, link or order of its own."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from honcho.printer import Message

from engine.errors import Problem
from ui.cli.app import main
from ui.cli.commands.generate import Palette
from ui.cli.output import print_fields, print_json, print_note, print_problem, print_table, print_text, say
from ui.present.charts.colours import Looks
from ui.present.terminal import harmless
from ui.serving.up import printer

CLI = Path(__file__).parents[3] / "ui" / "cli"
HOSTILE = {
    "colour": "\x1b[31mred",
    "cursor": "\x1b[2J\x1b[Hgone",
    "title": "\x1b]0;pwned\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\safe\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "c1": "\x9b31m \x9d0;title\x9c \x90q\x9c \x85",
    "overwrite": "rm -rf\rls    \b\b\b",
    "bell and delete": "\x07\x7f\x00",
    "override": "user\u202e\u2066// admin\u2069\u2066",
    "embedding": "a\u202ab\u202bc\u202cd\u202de\u2067f\u2068g",
}
FORBIDDEN = {*map(chr, [*range(32), 127, *range(128, 160)])} - {"\n", "\t"} | set("\u202a\u202b\u202c\u202d\u202e")
FORBIDDEN |= set("\u2066\u2067\u2068\u2069")
each = pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


@each
def test_no_printer_lets_a_control_character_through(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(hostile)
    print_text(hostile)
    print_note(hostile)
    print_table([hostile], [[hostile], [{hostile: [hostile]}]], empty="none")
    print_table(["Name"], [], empty=hostile)
    print_fields({hostile: hostile, "paths": [{"path": Path("/tmp") / hostile.replace("\x00", "")}] * 9})
    print_problem(Problem(hostile, hostile), as_json=False)
    assert not FORBIDDEN & set(printed(capsys))


@each
def test_json_holds_the_same_text_escaped(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({hostile: hostile})
    out = printed(capsys)
    assert not FORBIDDEN & set(out)
    assert json.loads(out) == {hostile: hostile}


def test_plain_text_of_any_language_stays() -> None:
    text = "שלום\u200f, مرحبا\u200e, naïve 👩‍👩‍👧 — “so”\n\tx"
    assert harmless(text) == text


@each
def test_the_log_of_a_job_is_only_text(hostile: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = home / "jobs" / ("a" * 32) / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text(f"before {hostile} after", encoding="utf-8")
    for options in ([], ["--json"]):
        assert main(["job", "log", "a" * 32, *options]) == 0
        out = printed(capsys)
        assert "before" in out
        assert not FORBIDDEN & set(out)


@each
def test_what_was_typed_wrongly_is_repeated_only_as_text(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["expert", "show", hostile], [hostile], ["corpus", "import", hostile, hostile], ["job", hostile]):
        assert main(arguments) == 2
        assert not FORBIDDEN & set(printed(capsys))


@each
def test_the_lines_of_servers_are_only_text(hostile: str) -> None:
    output = StringIO()
    printer(output).write(Message("line", f"> {hostile}".encode(), datetime(2026, 1, 1), "worker", None))
    assert "worker" in output.getvalue()
    assert not FORBIDDEN & set(output.getvalue())


@each
def test_a_name_in_the_colour_of_its_expert_brings_no_codes_of_its_own(hostile: str) -> None:
    palette = Palette(Looks({}, {}), plain=True)
    assert not FORBIDDEN & set(palette.name(hostile))


def direct_writes(source: str) -> Iterator[str]:
    """The places of a module that write to the terminal by themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            if (
                name in ("print", "os.write")
                or last in ("echo", "secho", "writelines")
                or ("sys.std" in name and last == "write")
            ):
                yield name


def test_only_one_module_writes_to_the_terminal() -> None:
    result = {
        str(file.relative_to(CLI)): list(direct_writes(file.read_text(encoding="utf-8"))) for file in CLI.rglob("*.py")
    }
    # start.py names an extra that is not installed, before anything is imported.
    assert {name for name, writes in result.items() if writes} == {"output.py", "start.py"}


@pytest.mark.parametrize("source", ["print(x)", "sys.stdout.write(x)", "typer.echo(x)", "click.secho(x)"])
def test_the_test_sees_writers(source: str) -> None:
    assert list(direct_writes(source))
