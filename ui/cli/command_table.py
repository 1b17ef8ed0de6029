"""The commands of `workbench`: the modules below ui/cli/commands, and entry points of `expert_workbench.commands`.

A module `login_link` is the command `login-link`: a Typer called `app` with several commands, or one function of the
module's name. Its help is read from its source, so that a list of all commands imports none of them. Another package
offers a command in its pyproject.toml:

    [project.entry-points."expert_workbench.commands"]
    word-count = "word_count.command"
"""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from engine.plugins import BadPluginError

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
    for point in _plugins():
        if point.name in modules:
            raise BadPluginError(
                f"The plug-in {point.value} offers the command “{point.name}”, which exists.", "Rename it."
            )
        modules[point.name] = point.value
    return dict(sorted(modules.items()))


def _plugins() -> list[EntryPoint]:
    return sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)


def help_of(name: str, module: str) -> str:
    """The first line of a command's docstring: its function's or, of several commands, its module's."""
    tree = ast.parse(_source(name, module))
    documented: ast.FunctionDef | ast.Module = tree
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _function(name):
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
        parent.command(name)(getattr(source, _function(name)))
    command: Command = get_group(parent).commands[name]  # type: ignore[assignment]
    return command


def _function(name: str) -> str:
    return name.replace("-", "_")
