"""The command line: `workbench COMMAND …`. Errors become exit codes here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from engine.errors import Problem
from engine.plugins import missing_package
from ui.cli.command_table import CommandTable
from ui.cli.output import print_note, print_problem, say
from ui.errors import BadUsageError

PROBLEM = 2
INTERRUPTED = 130


class _Commands(TyperGroup):
    """The group of all commands; its help and its completion import none of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = CommandTable()

    def format_help(self, *arguments: Any) -> None:
        """Lists all commands with their help."""
        super(_Commands, self._summary()).format_help(*arguments)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The names of commands that begin so."""
        context = copy(ctx)
        context.command = self._summary()
        return super(_Commands, context.command).shell_complete(context, incomplete)

    def _summary(self) -> Any:
        summary = copy(self)
        summary.commands = self.commands.summaries
        return summary


app = typer.Typer(
    name="workbench",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, store, combine, compare, disable and explain domain experts of language models.",
    epilog="Terms are explained in docs/glossary.md, the first steps in docs/first_expert.md.",
)


def _print_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        say(version("expert-workbench"))
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; prints a problem as one line on stderr, without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    try:
        _require_unicode(words)
        return int(_run(words) or 0)
    except Problem as problem:
        print_problem(problem, as_json)
        return PROBLEM
    except (KeyboardInterrupt, typer.Abort):
        print_note("Stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left, as `| head` does; Python would complain once more at its exit.
        sys.stdout = None
        return PROBLEM


def _require_unicode(arguments: Sequence[str]) -> None:
    """Bytes that are not UTF-8 arrive as unpaired surrogates; only the name of an existing file may contain them."""
    for word in arguments:
        readable = word.encode("utf-8", "replace").decode()
        if word != readable and not Path(word).exists():
            raise BadUsageError(f"The argument “{readable}” is not valid Unicode.", "Type it in UTF-8.")


def _run(arguments: list[str]) -> Any:
    try:
        return app(arguments, standalone_mode=False, prog_name="workbench")
    except typer.TyperException as error:
        raise _usage(error, arguments) from None


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> BadUsageError:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "workbench"
    message = error.format_message().strip().replace("Value error, ", "", 1)  # Typer's word before a wrong choice
    missing = missing_package(arguments[0]) if path == "workbench" and arguments else ""
    return BadUsageError(message, missing or f"See `{path} --help`.")
