"""Reports outlive what they speak of, and are found by kind and by what they are about."""

from __future__ import annotations

import pytest

from workbench.errors import NotFoundError
from workbench.registry import reports
from workbench.registry.database import reading, transaction

pytestmark = pytest.mark.usefixtures("home")


def test_a_report_is_retrieved_by_its_kind_its_subject_and_the_start_of_its_id() -> None:
    with transaction() as session:
        kept = reports.register_report(session, "addition", "Adding law", {"unchanged": True}, about_id="e" * 32)
        reports.register_report(session, "removal", "Removing law", {})
    with reading() as session:
        assert reports.get_report(session, kept.id[:8]) == kept
        assert reports.list_reports(session, kind="addition") == [kept]
        assert reports.list_reports(session, about_id="e" * 32) == [kept]
        assert len(reports.list_reports(session)) == 2


def test_an_id_that_is_none_or_that_fits_several_is_refused_with_those_there_are() -> None:
    with transaction() as session:
        kept = [reports.register_report(session, "addition", "again", {}) for _ in range(2)]
    with reading() as session:
        for unclear in ("", "%", "none"):
            with pytest.raises(NotFoundError, match=kept[0].id):
                reports.get_report(session, unclear)


def test_a_deleted_report_is_gone() -> None:
    with transaction() as session:
        kept = reports.register_report(session, "addition", "again", {})
        reports.delete_report(session, kept.id)
        assert reports.list_reports(session) == []
