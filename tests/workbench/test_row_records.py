"""Beside every artifact lies what the registry knows of it, as it knows it now; on both databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import delete, event
from sqlalchemy.orm import Session

from engine.mixing.gates.fixed import FixedGateConfig
from tests.workbench.conftest import World
from workbench.registry import experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.schema.base import Base
from workbench.schema.tables import RegistryIdentity
from workbench.settings import get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store import ownership
from workbench.store.rebuild import rebuild
from workbench.store.row_records import write_records
from workbench.store.storage import DELETED_AT, Record, Records, Storage, get_storage


def lose_all_rows(session: Session, but: str = "") -> None:
    """Deletes every row but those of a table, and the audit log, which cannot be deleted."""
    for table in reversed(Base.metadata.sorted_tables):
        if table.name not in ("audit_entries", but):
            session.execute(table.delete())


@pytest.fixture
def storage(registry: str) -> Storage:
    """Two experts of a mixture, in a registry of either kind."""
    with transaction() as session:
        World(session, get_storage()).experts("law", "sea")
        mixtures.create_mixture(session, MixtureSpec(name="both", experts=["law", "sea"]))
    return get_storage()


def artifact_id(expert: str) -> str:
    with reading() as session:
        return experts.expert_row(session, expert).artifact_id


def test_a_record_follows_its_rows(storage: Storage) -> None:
    id = artifact_id("law")
    with transaction() as session:
        experts.rename(session, "law", "court")
        mixtures.remove_member(session, "both", "sea")
    rows = (storage.records.read(id) or {})["rows"]
    assert [row["name"] for row in rows["experts"]] == ["court"]
    assert [row["name"] for row in rows["mixtures"]] == ["both"]
    assert "mixtures" not in (storage.records.read(artifact_id("sea")) or {})["rows"]


def test_what_was_never_committed_is_not_recorded(storage: Storage) -> None:
    before = storage.records.read(artifact_id("law"))
    with pytest.raises(ZeroDivisionError), transaction() as session:
        experts.rename(session, "law", "court")
        session.flush()
        raise ZeroDivisionError
    assert storage.records.read(artifact_id("law")) == before


def test_a_deletion_is_noted_and_what_it_was_stays_written(storage: Storage) -> None:
    id = artifact_id("law")
    with transaction() as session:
        mixtures.delete_mixture(session, "both")
        experts.delete_expert(session, "law")
    record = storage.records.read(id) or {}
    assert DELETED_AT in record
    assert [row["name"] for row in record["rows"]["experts"]] == ["law"]
    with reading() as session:
        assert id not in ownership.state_of(session, storage).missing


def test_a_disk_that_takes_no_record_does_not_undo_the_work(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.store.storage.Records.write", full)
    with transaction() as session:
        experts.rename(session, "law", "court")
    assert artifact_id("court")


def test_rows_come_back_from_records_on_either_database(storage: Storage) -> None:
    with reading() as session:
        before = (experts.list_experts(session), mixtures.list_mixtures(session))
    with transaction() as session:
        lose_all_rows(session)
    with transaction() as session:
        shown = rebuild(session, storage)
        assert (shown.left, shown.made["expert"], shown.made["mixture"]) == ([], 2, 1)
    with reading() as session:
        assert (experts.list_experts(session), mixtures.list_mixtures(session)) == before
        assert ownership.refusal(ownership.state_of(session, storage), storage) is None


def test_a_record_from_before_gates_had_settings_of_their_own_gives_a_mixture_that_opens(storage: Storage) -> None:
    flat = {"kind": "fixed", "evidence": "prefix", "update_every": 256, "top_k": 1, "clustering": None}
    with transaction() as session:
        mixtures.mixture_row(session, "both").gate = flat
    assert (storage.records.read(artifact_id("law")) or {})["rows"]["mixtures"][0]["gate"] == flat
    with transaction() as session:
        lose_all_rows(session)
    with transaction() as session:
        rebuild(session, storage)
    with reading() as session:
        assert mixtures.members_of(session, "both")[1] == FixedGateConfig(top_k=1)


def test_an_expert_that_comes_back_keeps_its_colour_and_gets_another_mark_only_if_its_own_is_taken(
    storage: Storage,
) -> None:
    law, sea = artifact_id("law"), artifact_id("sea")
    record = storage.records.read(sea) or {}
    for field in ("colour_number", "mark"):  # as a version before colours recorded it
        del record["rows"]["experts"][0][field]
    storage.records.write(sea, record)
    with transaction() as session:
        lose_all_rows(session)
    with transaction() as session:
        World(session, storage).experts("lark")  # it has law's mark now
        rebuild(session, storage, only=[law, sea, *(id for id in storage.records.ids() if id not in (law, sea))])
    with reading() as session:
        looks = {look.name: (look.colour_number, look.mark) for look in experts.list_looks(session)}
    assert looks["lark"] == (0, "La")
    assert looks["law"] == (0, "Lw")
    assert looks["sea"] == (1, "Se")


class CutOffError(Exception):
    pass


def cut_off(session: Session) -> None:
    if not session.in_nested_transaction():
        raise CutOffError


def test_a_commit_that_fails_leaves_records_as_they_were(storage: Storage) -> None:
    ids = {name: artifact_id(name) for name in ("law", "sea")}
    before = {id: storage.records.read(id) for id in storage.records.ids()}
    with pytest.raises(CutOffError), transaction() as session:
        mixtures.delete_mixture(session, "both")
        experts.delete_expert(session, "law")
        experts.rename(session, "sea", "ocean")
        new = World(session, storage).artifact().id
        event.listen(session, "before_commit", cut_off)
    assert {id: storage.records.read(id) for id in before} == before
    assert set(ids.values()) <= set(before)
    assert storage.records.read(new) is None


def test_no_registry_owns_artifacts_before_its_id_is_committed(registry: str) -> None:
    with transaction() as session:
        session.execute(delete(RegistryIdentity))
    with pytest.raises(CutOffError), transaction() as session:
        World(session, get_storage()).artifact()
        event.listen(session, "before_commit", cut_off)
    with reading() as session:
        assert get_storage().owner() in (None, ownership.find_registry_id(session))


def test_a_refresh_does_not_undo_a_deletion_that_is_not_committed_yet(storage: Storage, registry: str) -> None:
    if registry == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    id = artifact_id("law")

    def refresh(_: Session) -> None:
        with transaction() as other:
            write_records(other, storage, [id])

    with transaction() as session:
        mixtures.delete_mixture(session, "both")
        experts.delete_expert(session, "law")
        event.listen(session, "before_commit", refresh)
    assert not storage.records.is_live(id)


def test_a_record_that_cannot_be_written_skips_no_other(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sorted(["law", "sea"], key=artifact_id)
    ids, write = (artifact_id(first), artifact_id(second)), Records.write

    def refuse_first(self: Records, id: str, record: Record) -> None:
        if id == ids[0]:
            raise PermissionError(13, "Permission denied")
        write(self, id, record)

    monkeypatch.setattr(Records, "write", refuse_first)
    with transaction() as session:
        experts.rename(session, first, "one")
        experts.rename(session, second, "two")
    rows = [(storage.records.read(id) or {})["rows"]["experts"][0]["name"] for id in ids]
    assert rows == [first, "two"]


def test_a_transaction_may_change_more_rows_than_a_query_may_name(home: Path) -> None:
    with transaction() as session:
        world = World(session, get_storage())
        world.corpus("many", *(f"domain-{n}" for n in range(600)))
        session.flush()
        connection = session.connection().connection.driver_connection
        assert connection is not None
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 500)
    [id] = get_storage().records.ids()
    assert len((get_storage().records.read(id) or {})["rows"]["domains"]) == 600


def test_a_rebuild_needs_no_more_queries_for_more_rows(home: Path) -> None:
    def selects(num_seeds: int) -> int:
        with transaction() as session:
            for n in range(num_seeds):
                World(session, get_storage()).seed(f"{num_seeds}-{n}")
        with transaction() as session:
            lose_all_rows(session, but="registry_identity")
        requested: list[str] = []
        with transaction() as session:
            engine = session.get_bind()
            event.listen(engine, "before_cursor_execute", lambda *shown: requested.append(shown[2]))
            rebuild(session, get_storage())
        return sum(one.startswith("SELECT") for one in requested)

    assert selects(3) == selects(12)


def test_a_registry_has_one_id(registry: str) -> None:
    with transaction() as session:
        made = ownership.registry_id(session)
    with transaction(get_settings()) as session:
        assert ownership.registry_id(session) == made
