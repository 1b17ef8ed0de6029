"""Beside every artifact lies what the registry knows of it, as it knows it now; on both databases."""

from __future__ import annotations

import pytest

from tests.workbench.conftest import World
from workbench.database import reading, transaction
from workbench.records import DELETED_AT
from workbench.services import experts, mixtures, stores
from workbench.services.rebuild import rebuild
from workbench.settings import get_settings
from workbench.specs import MixtureSpec
from workbench.storage import Storage, get_storage
from workbench.tables import Base


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
        assert id not in stores.state_of(session, storage).missing


def test_a_disk_that_takes_no_record_does_not_undo_the_work(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.records.Records.write", full)
    with transaction() as session:
        experts.rename(session, "law", "court")
    assert artifact_id("court")


def test_rows_come_back_from_records_on_either_database(storage: Storage) -> None:
    with reading() as session:
        before = (experts.list_experts(session), mixtures.list_mixtures(session))
    with transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
    with transaction() as session:
        told = rebuild(session, storage)
        assert (told.left, told.made["expert"], told.made["mixture"]) == ([], 2, 1)
    with reading() as session:
        assert (experts.list_experts(session), mixtures.list_mixtures(session)) == before
        assert stores.refusal(stores.state_of(session, storage), storage) is None


def test_a_registry_has_one_id(registry: str) -> None:
    with transaction() as session:
        made = stores.registry_id(session)
    with transaction(get_settings()) as session:
        assert stores.registry_id(session) == made
