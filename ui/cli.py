"""The command line: `workbench VERB …`.

Every verb stands in ui/verbs; here they meet, and here a problem becomes an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer._click.exceptions import ClickException

from engine.errors import Problem
from ui.errors import BadUsage
from ui.verbs import cluster, corpus, evaluate, expert, jobs, mix, mode, prior, report, reproduce, seed, train
from ui.verbs.doctor import doctor
from ui.verbs.house import migrate, up
from ui.verbs.output import print_problem, tell
from ui.verbs.say import say
from ui.verbs.selfcheck import selfcheck

PROBLEM = 2
INTERRUPTED = 130

app = typer.Typer(
    name="workbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, keep, mix, compare, switch off and explain domain experts of language models.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("expert-workbench"))
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


def _add_verbs() -> None:
    app.command("up")(up)
    app.command("migrate")(migrate)
    groups = {
        "corpus": corpus,
        "cluster": cluster,
        "seed": seed,
        "train": train,
        "mode": mode,
        "expert": expert,
        "mix": mix,
        "prior": prior,
        "eval": evaluate,
        "report": report,
        "reproduce": reproduce,
    }
    for name, module in groups.items():
        app.add_typer(module.app, name=name)
    app.command("say")(say)
    app.add_typer(jobs.app, name="jobs")
    app.command("doctor")(doctor)
    app.command("selfcheck")(selfcheck)


_add_verbs()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; gives its exit code. A problem is one sentence on stderr, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        return int(_run(given) or 0)
    except Problem as problem:
        print_problem(problem, as_json)
        return PROBLEM
    except (KeyboardInterrupt, typer.Abort):
        tell("Stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left, as `| head` does; Python would complain once more at its exit.
        sys.stdout = None
        return PROBLEM


def _run(arguments: list[str]) -> Any:
    try:
        return app(arguments, standalone_mode=False, prog_name="workbench")
    except ClickException as error:
        raise _usage(error) from None


def _usage(error: ClickException) -> BadUsage:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "workbench"
    return BadUsage(error.format_message().strip(), f"See `{path} --help`.")
