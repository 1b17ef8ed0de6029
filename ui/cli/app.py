"""The command line: `workbench VERB …`.

The commands are modules of ui/cli/commands, imported when they are used. Errors become exit codes here.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from engine.errors import Problem
from ui.cli.output import print_problem, tell
from ui.errors import BadUsage

PROBLEM = 2
INTERRUPTED = 130
VERBS = {  # what each says of itself, for the list of all of them
    "up": "Start everything: studio, API with the playground, worker and clock. Ctrl-C stops all of it.",
    "login-link": "Print a link that logs one browser in to the studio: it works once, within ten minutes.",
    "migrate": "Create the registry, or bring an older one to this version.",
    "registry": "The registry: back it up, rebuild what was lost, restore from the trash.",
    "say": "Go on from a prompt; words are coloured by the expert with the greatest weight.",
    "doctor": "Check Python, PyTorch, disk, registry, queue, worker, ports and browser; say what to do about each.",
    "selfcheck": "Check the laws of mixing, caching and resuming on a tiny model here; it takes less than a minute.",
    "corpus": "Bring in text, look at what came of it.",
    "cluster": "Clusters: find, look at, change, make domains of, train a model on each.",
    "seed": "Seed models: make a fresh one, or take one that exists.",
    "train": "Train experts: several at once, or one more beside those you have.",
    "mode": "MoDE: experts of layers beside a frozen model, trained and put together.",
    "expert": "Experts: list, look at, switch on and off, rename, certify, delete.",
    "mix": "Mixtures: compose experts, switch them on and off, see what it does.",
    "prior": "Priors: estimate them on held-out text, give them by hand, list them.",
    "eval": "Evaluate: perplexities and specialization of experts, and why they differ.",
    "report": "Reports: certificates and measurements that jobs left.",
    "reproduce": "Reproduce a paper: its jobs, its claims, one report.",
    "jobs": "Jobs: watch, stop, resume, retry, hurry, delete.",
}
_MODULES = {
    "up": "up_migrate",
    "login-link": "up_migrate",
    "migrate": "up_migrate",
    "say": "generate",
    "eval": "evaluate",
}

Command = TyperCommand | TyperGroup


class _Verbs(UserDict[str, Command]):
    """Every verb by its name: its sentence alone, and the whole of it for who takes it out."""

    def __init__(self) -> None:
        super().__init__({name: TyperCommand(name, help=sentence) for name, sentence in VERBS.items()})
        self._whole: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name in self.data and name not in self._whole:
            self._whole[name] = _whole(name)
        return self._whole[name]


def _whole(name: str) -> Command:
    """A verb with its options, or a group of verbs."""
    module = import_module(f"ui.cli.commands.{_MODULES.get(name, name)}")
    alone = typer.Typer()
    if hasattr(module, "app"):
        alone.add_typer(module.app, name=name)
    else:
        alone.command(name)(getattr(module, name.replace("-", "_")))
    found: Command = get_group(alone).commands[name]  # type: ignore[assignment]
    return found


class _Top(TyperGroup):
    """The group of all verbs."""

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self.commands: Any = _Verbs()

    def format_help(self, *told: Any) -> None:
        """The list of all verbs, of each its sentence alone."""
        listed = copy(self)
        listed.commands = self.commands.data
        super(_Top, listed).format_help(*told)


app = typer.Typer(
    name="workbench",
    cls=_Top,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, keep, mix, compare, switch off and explain domain experts of language models.",
    epilog="Terms are explained in docs/glossary.md, the first steps in docs/first_expert.md.",
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; gives its exit code. A problem is one sentence on stderr, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        _require_unicode(given)
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


def _require_unicode(arguments: Sequence[str]) -> None:
    """Bytes that are no text come as half characters; only a file may be called so."""
    for one in arguments:
        readable = one.encode("utf-8", "replace").decode()
        if one != readable and not Path(one).exists():
            raise BadUsage(f"Each argument must be Unicode, but “{readable}” is not.", "Type it in UTF-8.")


def _run(arguments: list[str]) -> Any:
    try:
        return app(arguments, standalone_mode=False, prog_name="workbench")
    except typer.TyperException as error:
        raise _usage(error) from None


def _usage(error: typer.TyperException) -> BadUsage:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "workbench"
    return BadUsage(error.format_message().strip(), f"See `{path} --help`.")
