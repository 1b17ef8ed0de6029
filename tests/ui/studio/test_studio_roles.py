"""The matrix of roles of the pages: every action needs the role of its routes, and the registry refuses all others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import ui
from jobs.queue.submit import delete, request_stop, resume, retry, submit
from tests.ui.studio.action_twins import ACTIONS, Twin
from tests.ui.studio.test_action_twins import STREAMLIT, calls_in, label_of
from tests.ui.studio.visits import named, open_page, output
from ui.api.route_roles import ROLES
from ui.present.forms.readable_folders import keep_uploads
from ui.widgets import job_form
from workbench.access.actor import NOBODY, Actor, Role, acting_as, set_source
from workbench.access.users import add_user
from workbench.errors import ForbiddenError
from workbench.kinds.analysis import SelfCheck
from workbench.registry.database import reading, transaction
from workbench.registry.experts import list_experts

ROOT = Path(ui.__file__).parent


def role_of_action(action: Twin) -> Role:
    roles = {route.replace(":path", ""): role for route, role in ROLES.items()}  # as OpenAPI writes them
    return max(roles[route] for route in action.routes)


def test_every_action_of_the_pages_has_a_role() -> None:
    roles = {
        (module, label): role_of_action(action)
        for module, labels in ACTIONS.items()
        for label, action in labels.items()
        if isinstance(action, Twin)
    }
    assert roles["studio/experts/expert_card.py", "Delete"] is Role.EDITOR
    assert roles["playground/app.py", "Generate"] is roles["playground/app.py", "label"] is Role.VIEWER
    assert len(roles) > 40
    playground = {role for (module, _), role in roles.items() if module.startswith("playground")}
    assert playground == {Role.VIEWER}


def test_what_a_viewer_may_not_do_is_drawn_disabled() -> None:
    """By its source: whatever action needs an editor is disabled by `cannot_change`."""
    enabled = [
        (module, label_of(call))
        for module, labels in ACTIONS.items()
        if not module.startswith("playground")
        for call in calls_in((ROOT / module).read_text("utf-8"), STREAMLIT)
        if isinstance(action := labels[label_of(call)], Twin) and role_of_action(action) is Role.EDITOR
        if not any(
            keyword.arg == "disabled" and "cannot_change()" in ast.unparse(keyword.value) for keyword in call.keywords
        )
    ]
    assert enabled == []


def test_no_page_reaches_the_registry_but_through_what_checks_the_role() -> None:
    """SQLAlchemy and Celery are refused by a contract of imports; the engines of the registry are refused here."""
    unchecked = {"get_engine", "make_engine", "_writing"}
    for path in (file for place in ("studio", "widgets") for file in (ROOT / place).rglob("*.py")):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)}
        assert not names & unchecked, path


@pytest.fixture
def viewer() -> Iterator[Actor]:
    """The user of every script, callback and fragment of the studio."""
    actor = Actor("ben", Role.VIEWER, "1")
    set_source(lambda: actor)
    yield actor
    set_source(None)


@pytest.mark.usefixtures("home", "viewer")
@pytest.mark.parametrize(
    "change",
    [
        lambda: submit(SelfCheck()),
        lambda: request_stop("x", "cancel"),
        lambda: resume("x"),
        lambda: retry("x"),
        lambda: delete("x"),
        lambda: keep_uploads([], Path("nowhere")),
        lambda: transaction().__enter__(),
    ],
    ids=["submit", "stop", "resume", "retry", "delete", "upload", "transaction"],
)
def test_a_viewers_change_is_refused(change: Callable[[], Any]) -> None:
    with pytest.raises(ForbiddenError, match="needs the role editor, but ben has the role viewer"):
        change()


@pytest.mark.usefixtures("viewer")
def test_a_viewers_form_is_not_measured() -> None:
    assert job_form.advance([SelfCheck()]) is False


def save_button(page: AppTest) -> Any:
    return next(one for one in page.button if one.label == "Save")


@pytest.mark.usefixtures("filled_home")
def test_a_viewer_reads_every_number_and_changes_none(viewer: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page("experts", experts__chosen=["first/code"])
    assert "You are logged in as ben, with the role viewer: changes are refused." in output(page)
    assert save_button(page).disabled
    monkeypatch.setattr("ui.studio.experts.expert_card.cannot_change", lambda: False)  # as for a forged click
    page.run()
    named(page.text_area, "Notes").set_value("notes of a viewer")
    refused = save_button(page).click().run()
    assert "This needs the role editor, but ben has the role viewer." in output(refused)
    with acting_as(Actor("anna", Role.EDITOR)), reading() as session:
        assert not any(expert.notes for expert in list_experts(session))


@pytest.mark.usefixtures("filled_home")
def test_admins_see_the_audit_log_and_editors_do_not() -> None:
    with transaction() as session:
        add_user(session, "anna", "editor")
    assert audit_of(open_page("jobs_page")) == ["anna"]
    set_source(lambda: Actor("anna", Role.EDITOR))
    try:
        assert audit_of(open_page("jobs_page")) == []
    finally:
        set_source(None)


def audit_of(page: AppTest) -> list[str]:
    """The names of the users that the log shows as added."""
    tables = [one.value for one in page.dataframe if "Details" in one.value]
    return [row["Name"] for table in tables for _, row in table.iterrows() if row["Kind"] == "user"]


@pytest.mark.usefixtures("filled_home")
def test_whose_login_has_ended_sees_nothing() -> None:
    set_source(lambda: NOBODY)
    try:
        page = open_page("experts")
    finally:
        set_source(None)
    assert "The login has ended." in output(page)
    assert "first/code" not in output(page)
