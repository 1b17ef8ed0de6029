"""The command line: `workbench COMMAND …`. Errors become exit codes here.

Commands are the modules below ui/cli/commands, and entry points of `expert_workbench.commands`. A module `login_link`
is the command `login-link`: a Typer called `app` with several verbs, or one function of the module's name. Its help is
read from its source, so that a list of all commands imports none of them. Another package offers a command in its
pyproject.toml:

    [project.entry-points."expert_workbench.commands"]
    word-count = "word_count.command"
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from engine.errors import Problem
from engine.plugins import BadPluginError, missing_package
from ui.cli.output import print_note, print_problem, say
from ui.errors import BadUsageError

BUILT_IN = "ui.cli.commands"
ENTRY_POINTS = "expert_workbench.commands"

Command = TyperCommand | TyperGroup


class CommandTable(Mapping[str, Command]):
    """Every command by its name; it is imported when it is looked up."""

    def __init__(self) -> None:
        self._modules = find_commands()
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded[name] = load_command(name, self._modules[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    @cached_property
    def summaries(self) -> dict[str, Command]:
        """Every command by its name, with nothing but its help."""
        return {name: TyperCommand(name, help=help_of(name, module)) for name, module in self._modules.items()}


def find_commands() -> dict[str, str]:
    """The module of every command, by the command's name."""
    package = import_module(BUILT_IN)
    names = [one.name for one in pkgutil.walk_packages(package.__path__, f"{BUILT_IN}.") if not one.ispkg]
    modules = {name.rpartition(".")[2].replace("_", "-"): name for name in names}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        if point.name in modules:
            sentence = f"Plug-in {point.value} defines the command “{point.name}”, which already exists."
            raise BadPluginError(sentence, "Rename it.")
        modules[point.name] = point.value
    return dict(sorted(modules.items()))


def help_of(name: str, module: str) -> str:
    """The first line of a command's docstring: its function's or, of several commands, its module's."""
    tree = ast.parse(_source(name, module))
    documented: ast.FunctionDef | ast.Module = tree
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name.replace("-", "_"):
            documented = node
    return (ast.get_docstring(documented) or "").partition("\n")[0]


def _source(name: str, module: str) -> str:
    try:
        loader: Any = getattr(find_spec(module), "loader", None)
        source: str = loader.get_source(module)
    except (ImportError, AttributeError) as error:
        raise BadPluginError(
            f"The module {module} of the command “{name}” cannot be read.", "Repair or uninstall it."
        ) from error
    return source


def load_command(name: str, module: str) -> Command:
    """A command with its options, or with the commands below it."""
    try:
        source = import_module(module)
    except ImportError as error:
        if module.startswith(f"{BUILT_IN}."):
            raise
        raise BadPluginError(f"The command “{name}” ({module}) cannot be imported: {error}", "Uninstall it.") from error
    parent = typer.Typer()
    if hasattr(source, "app"):
        parent.add_typer(source.app, name=name)
    else:
        parent.command(name)(getattr(source, name.replace("-", "_")))
    command: Command = get_group(parent).commands[name]  # type: ignore[assignment]
    return command


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
    epilog="Help: /help/ of the studio, whose address `workbench up` prints. A document that a message names, such as "
    "docs/glossary.md, is also its page glossary.html. First steps: docs/first_expert.md.",
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
        return int(app(words, standalone_mode=False, prog_name="workbench") or 0)
    except typer.TyperException as error:
        print_problem(_usage(error, words), as_json)
        return PROBLEM
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


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> BadUsageError:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "workbench"
    message = error.format_message().strip().replace("Value error, ", "", 1)  # Typer's word before a wrong choice
    missing = missing_package(arguments[0]) if path == "workbench" and arguments else ""
    return BadUsageError(message, missing or f"See `{path} --help`.")
