"""Users have a role and a token of which only the hash is stored; the audit log names them and cannot be changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from tests.workbench.conftest import World
from workbench.access import users
from workbench.access.actor import NOBODY, Actor, Role, acting_as, current_actor, may, require, set_source
from workbench.access.audit import list_entries
from workbench.access.users import actor_of_id, actor_of_token, add_user, list_users, revoke_user, user_id_of
from workbench.errors import BadSpecError, ForbiddenError, NameTakenError, NotFoundError
from workbench.job_records.jobs import create_job, request_stop, retry
from workbench.kinds.analysis import SelfCheck
from workbench.registry.aliases import delete_alias, set_alias
from workbench.registry.comparisons import delete_history
from workbench.registry.database import reading, transaction
from workbench.registry.experts import delete_expert, set_enabled
from workbench.registry.mixtures import create_mixture, delete_mixture, mixture_row, remove_member
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

ANNA = Actor("anna", Role.EDITOR, "1")


def entries() -> list[tuple[str, str, str, str, str]]:
    """The log, the oldest first."""
    with reading() as session:
        rows = list_entries(session)
    return [(row.user, row.action, row.kind, row.name, row.details) for row in reversed(rows)]


def test_a_token_names_its_user_until_the_user_is_revoked(home: Path) -> None:
    with transaction() as session:
        anna, ben = add_user(session, "anna", "editor"), add_user(session, "ben", "viewer")
        assert anna.token.startswith(users.TOKEN_START)
        actor = actor_of_token(session, anna.token)
        assert actor is not None
        assert (actor.name, actor.role, actor) == ("anna", Role.EDITOR, actor_of_id(session, actor.user_id))
        revoke_user(session, "anna")
        assert (actor_of_token(session, anna.token), actor_of_id(session, actor.user_id)) == (None, None)
        assert actor_of_token(session, ben.token) is not None
        assert actor_of_token(session, "wb_another") is None
        assert [(user.name, user.revoked_at is None) for user in list_users(session)] == [
            ("anna", False),
            ("ben", True),
        ]


def test_no_token_is_stored(home: Path) -> None:
    with transaction() as session:
        token = add_user(session, "anna", "admin").token
    for file in home.rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes()


def test_a_name_is_free_again_once_its_user_is_revoked_and_old_logins_stay_out(home: Path) -> None:
    with transaction() as session:
        add_user(session, "anna", "admin")
        old = user_id_of(session, "anna")
        with pytest.raises(NameTakenError):
            add_user(session, "anna", "viewer")
        revoke_user(session, "anna")
        with pytest.raises(NotFoundError):
            user_id_of(session, "anna")
        add_user(session, "anna", "viewer")
        assert actor_of_id(session, old) is None
        assert user_id_of(session, "anna") != old


@pytest.mark.parametrize("name", ["owner", "command line (root)", "job 7", "", "a,b"])
def test_a_user_cannot_be_called_as_others_in_the_log(home: Path, name: str) -> None:
    with transaction() as session, pytest.raises(BadSpecError):
        add_user(session, name, "viewer")
    with transaction() as session, pytest.raises(BadSpecError, match="viewer, editor, admin"):
        add_user(session, "anna", "root")


def test_a_role_allows_what_lower_ones_do_and_no_more() -> None:
    for own in Role:
        with acting_as(Actor("anna", own)):
            assert [may(needed) for needed in Role] == [own >= needed for needed in Role]
    with (
        acting_as(Actor("anna", Role.VIEWER)),
        pytest.raises(ForbiddenError, match="editor, but anna has the role viewer"),
    ):
        require(Role.EDITOR)
    with acting_as(NOBODY), pytest.raises(ForbiddenError, match="login has ended"):
        require(Role.VIEWER)


def test_outside_of_a_request_the_source_of_the_process_says_who_acts() -> None:
    assert current_actor().name.startswith("command line (")
    set_source(lambda: ANNA)
    try:
        assert current_actor() is ANNA
        with acting_as(NOBODY):
            assert current_actor() is NOBODY
    finally:
        set_source(None)


def test_the_registry_itself_refuses_a_viewers_changes_and_nobodys_look(home: Path) -> None:
    with acting_as(Actor("ben", Role.VIEWER)):
        with pytest.raises(ForbiddenError), transaction():
            pass
        with transaction(needs=Role.VIEWER), reading():
            pass
        for read in (list_users, list_entries):
            with reading() as session, pytest.raises(ForbiddenError):
                read(session)
    with acting_as(NOBODY):
        with pytest.raises(ForbiddenError), reading():
            pass
        with pytest.raises(ForbiddenError), transaction(needs=Role.VIEWER):
            pass
    with acting_as(ANNA), transaction() as session:
        for change in (lambda: add_user(session, "eve", "admin"), lambda: revoke_user(session, "ben")):
            with pytest.raises(ForbiddenError):
                change()


def test_the_log_names_who_added_changed_and_deleted_what(home: Path) -> None:
    with transaction() as session:
        experts = [expert.name for expert in World(session, get_storage()).experts("law", "code", "news")]
    before = len(entries())
    with acting_as(ANNA):
        with transaction() as session:
            create_mixture(session, MixtureSpec(name="both", experts=experts))
            set_alias(session, "law@production", "both")
        with transaction() as session:
            set_enabled(session, ["law"], False)
            remove_member(session, "both", "code")
            mixture_row(session, "both").members[0].active = False
        with transaction() as session:
            set_enabled(session, ["law"], False)  # as it is: nothing changes
            delete_alias(session, "law@production")
            delete_mixture(session, "both")
            delete_expert(session, "code")
    with transaction() as session:
        add_user(session, "ben", "viewer")
    log = entries()[before:]
    assert {one[0] for one in log[:-1]} == {"anna"}
    assert [one[1:] for one in log[:-1]] == [
        ("add", "mixture", "both", ""),
        ("add", "alias", "law@production", ""),
        ("change", "expert", "law", "enabled"),
        ("change", "mixture", "both", "code: removed"),
        ("change", "mixture", "both", "law: active"),
        ("delete", "alias", "law@production", ""),
        ("delete", "mixture", "both", ""),
        ("delete", "expert", "code", ""),
    ]
    assert (log[-1][0].startswith("command line ("), log[-1][1:]) == (True, ("add", "user", "ben", ""))


def test_jobs_are_in_the_log_with_their_kind_and_who_stopped_them(home: Path) -> None:
    with acting_as(ANNA), transaction() as session:
        job = create_job(session, SelfCheck(), title="laws")
        request_stop(session, job, "cancel")
        request_stop(session, job, "cancel")  # it has stopped already
        retry(session, job)
    assert entries() == [("anna", action, "selfcheck", "laws", "") for action in ("submit", "cancel", "retry")]


def test_what_is_rolled_back_leaves_no_entry(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), transaction() as session:
        add_user(session, "anna", "viewer")
        _ = 1 / 0
    assert entries() == []


@pytest.mark.usefixtures("registry")
def test_no_entry_can_be_changed_or_deleted() -> None:
    with transaction() as session:
        add_user(session, "anna", "viewer")
        assert delete_history(session).num_comparisons == 0
    for statement in ("UPDATE audit_entries SET name = 'x'", "DELETE FROM audit_entries"):
        with pytest.raises(DatabaseError, match="append-only"), transaction() as session:
            session.execute(text(statement))
    with reading() as session:
        [entry] = list_entries(session)
        assert (entry.action, entry.kind, entry.name) == ("add", "user", "anna")
        assert list_entries(session, user="eve") == list_entries(session, action="delete") == []
