"""Every button is a command: each action of the pages is in one table, with its command and its HTTP route."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup

import ui
from tests.ui.studio.action_twins import ACTIONS, PLANNED_KINDS, PLAYGROUND, STUDIO, WIDGETS, Twin, ViewOnly
from ui.api.app import create_app
from ui.cli.app import CommandTable
from ui.kinds.catalog import command_of
from ui.pages.catalog import all_pages
from workbench.kinds.kind import known_kinds
from workbench.settings import Settings

ROOT = Path(ui.__file__).parent
PLACES = (STUDIO, WIDGETS, PLAYGROUND)
STREAMLIT = {"button", "form_submit_button", "toggle", "download_button", "link_button"}
GRADIO = {"Button", "Checkbox", "CheckboxGroup", "ClearButton", "DownloadButton", "UploadButton"}
HOW_TO_MEND = (
    "Add each to ACTIONS in tests/ui/studio/action_twins.py, under its module and its label: a Twin with the command "
    "and the route that do the same, or ViewOnly with the reason why nothing is stored or sent. "
    "Remove what is no longer drawn."
)


def label_of(call: ast.Call) -> str:
    """The label of an action as its source has it: a text, a text with {…} for what is filled in, or the expression."""
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("label", "value")]
    label = call.args[0] if call.args and not _is_flag(call.args[0]) else named[0] if named else None
    if isinstance(label, ast.Call) and ast.unparse(label.func) == "plain":
        label = label.args[0]
    if isinstance(label, ast.Constant):
        return str(label.value)
    if isinstance(label, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in label.values)
    return "" if label is None else ast.unparse(label)


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.List) or (isinstance(node, ast.Constant) and isinstance(node.value, bool))


def calls_in(source: str, names: set[str]) -> Iterator[ast.Call]:
    """The calls that draw the actions of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node


def actions_in(source: str, names: set[str]) -> Iterator[str]:
    """The labels of all actions that a module draws."""
    return map(label_of, calls_in(source, names))


def drawn() -> Counter[tuple[str, str]]:
    """Every action of the pages, as its module and its label, with how often it stands there."""
    return Counter(
        (path.relative_to(ROOT).as_posix(), label)
        for place in PLACES
        for path in sorted((ROOT / place).rglob("*.py"))
        for label in actions_in(path.read_text(encoding="utf-8"), GRADIO if place == PLAYGROUND else STREAMLIT)
    )


def listed() -> dict[tuple[str, str], Twin | ViewOnly]:
    return {(module, label): action for module, labels in ACTIONS.items() for label, action in labels.items()}


def twins() -> list[Twin]:
    return [action for action in listed().values() if isinstance(action, Twin)]


def is_command(table: CommandTable, line: str) -> bool:
    """Whether `expert rename` or `selfcheck` is a command of `workbench`."""
    first, *rest = line.split()
    if first not in table:
        return False
    command = table[first]
    return set(command.list_commands(None)) >= set(rest) if isinstance(command, TyperGroup) else not rest


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every route as `METHOD /path`, from the OpenAPI schema."""
    schema = create_app(Settings(home=tmp_path_factory.mktemp("home")), playground=False).openapi()
    return {f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods}


def test_every_action_is_in_the_table_and_nothing_else() -> None:
    missing, gone = sorted(drawn().keys() - listed().keys()), sorted(listed().keys() - drawn().keys())
    assert not missing, f"Actions without a command and a route: {missing}. {HOW_TO_MEND}"
    assert not gone, f"Actions of the table that no page draws: {gone}. {HOW_TO_MEND}"


def test_no_two_actions_of_a_module_have_one_label() -> None:
    twice = sorted(place for place, number in drawn().items() if number > 1)
    assert not twice, f"These stand for more than one action, so the table cannot list them apart: {twice}. Rename one."


def test_every_command_of_the_table_exists() -> None:
    table = CommandTable()
    unknown = sorted({command for twin in twins() for command in twin.commands if not is_command(table, command)})
    assert not unknown, f"The table names commands that `workbench` does not have: {unknown}."


def test_every_route_of_the_table_exists(routes: set[str]) -> None:
    unknown = sorted({route for twin in twins() for route in twin.routes} - routes)
    assert not unknown, f"The table names routes that the API does not have: {unknown}."


def test_a_twin_names_both_and_a_view_its_reason() -> None:
    for place, action in listed().items():
        if isinstance(action, Twin):
            assert bool(action.commands) is not bool(action.gap), place
            assert action.routes, place
        else:
            assert len(action.reason) > 10, place


BUILT_IN = [name for name, kind in known_kinds().items() if kind.spec.__module__.startswith("workbench.")]


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_kind_of_job_has_a_command(kind: str) -> None:
    command = command_of(kind)
    line = command({}).removeprefix("workbench ") if command else PLANNED_KINDS.get(kind, "")
    words = " ".join(word for word in line.split()[:2] if not word.startswith("-"))
    assert is_command(CommandTable(), words), f"Name the command of “{kind}” in its KIND, or in its FORM."


def test_every_page_has_a_command_which_the_documents_name() -> None:
    assert [page.address for page in all_pages() if not is_command(CommandTable(), page.command)] == []
    document = (ROOT.parent / "docs" / "pages.md").read_text(encoding="utf-8")
    assert {f"| {page.title} | `workbench {page.command}` |" for page in all_pages()} <= set(document.splitlines())


def test_a_new_button_is_seen() -> None:
    source = 'left.button(plain(f"Delete {name}"))\nst.toggle(label)\nst.form_submit_button(label="Save")\nst.text("x")'
    assert list(actions_in(source, STREAMLIT)) == ["Delete {…}", "label", "Save"]
