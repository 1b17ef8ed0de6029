"""A search finds what holds every word, says how much more there is, and reads a sign of SQL as itself."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from tests.ui.clusterings import fill_clustering
from tests.ui.studio.conftest import fill
from workbench.analysis.search import MOST_HITS, search
from workbench.job_records.jobs import create_job
from workbench.kinds.analysis import Evaluate
from workbench.registry import experts
from workbench.registry.aliases import set_alias
from workbench.registry.clusters.clusterings import change_cluster
from workbench.registry.database import reading, transaction
from workbench.registry.reports import register_report
from workbench.schema.tables import Mixture
from workbench.settings import get_settings
from workbench.store.storage import get_storage


def names(query: str) -> dict[str, list[str]]:
    """The names of all hits, by kind."""
    with reading() as session:
        return {group.kind: [hit.name for hit in group.hits] for group in search(session, query).groups}


def add_mixtures(session: Session, *new: str) -> None:
    session.add_all(Mixture(name=name, gate={}) for name in new)


@pytest.mark.usefixtures("home")
def test_names_notes_tags_and_aliases_of_experts_are_searched() -> None:
    fill(get_settings())
    with transaction() as session:
        experts.describe(session, "first/code", notes="Read by Anna.", tags=["café", "civil"])
        set_alias(session, "court@production", "first/code")
    for query in ("FIRST code", "anna", "café", "civ", "court@prod", "first/co"):
        assert names(query).get("expert") == ["first/code"], query
    assert names("code anna nobody") == {}
    for query in ("", "  ", '","', '["', "%", "first_code"):
        assert "expert" not in names(query), query
    assert names("first")["mixture"] == ["first"]
    assert names("poems")["domain"] == ["poems"]
    assert names("tiny")["seed"] == ["tiny"]


@pytest.mark.usefixtures("home")
def test_clusters_jobs_and_reports_are_hits_with_their_details() -> None:
    with transaction() as session:
        card = fill_clustering(session, get_storage(get_settings()), num_documents=60)
        change_cluster(session, card.name, "0", name="zebra crossing", notes=None)
        job = create_job(session, Evaluate(mixture="first"), title="Score the zebra")
        report = register_report(session, "removal", "Removing zebra", {})
    with reading() as session:
        hits = {group.kind: group.hits for group in search(session, "zebra").groups}
        by_id = search(session, report.id[:12]).groups
    assert list(hits) == ["cluster", "job", "report"]
    assert (hits["cluster"][0].detail, hits["cluster"][0].clustering_id) == (card.name, card.id)
    assert (hits["job"][0].id, hits["job"][0].detail) == (job, "queued")
    assert hits["report"][0].detail == "removal"
    assert [(group.kind, group.hits[0].id) for group in by_id] == [("report", report.id)]


@pytest.mark.usefixtures("home")
def test_of_many_hits_ten_are_listed_and_all_counted_the_names_that_begin_so_first() -> None:
    with transaction() as session:
        add_mixtures(session, *(f"a part of law {number:04}" for number in range(3000)), "law")
    with reading() as session:
        [group] = search(session, "LAW").groups
    assert (group.total, len(group.hits)) == (3001, MOST_HITS)
    assert group.hits[0].name == "law"


@pytest.mark.usefixtures("home")
def test_signs_of_sql_and_broken_text_are_read_as_they_stand() -> None:
    odd = ("100 %", "a_b", "a\\b", "'; DROP TABLE mixtures; --", "<img src=x onerror=ran(1)>")
    with transaction() as session:
        add_mixtures(session, *odd, "1000", "axb")
    for name in odd:
        assert names(name) == {"mixture": [name]}
    assert names("_") == {"mixture": ["a_b"]}
    assert names("%") == {"mixture": ["100 %"]}
    assert names("\udce4\x00") == {}
    assert names("x " * 500) == names(" ".join(["x"] * 20))
