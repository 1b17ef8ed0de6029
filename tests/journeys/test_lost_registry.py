"""A lost registry: its rows are made again from what lies beside the artifacts, or come back from a backup."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from jobs import garbage_collection
from jobs.attempt.attempt import run_here
from tests.journeys.conftest import Do
from workbench.analysis import perplexity_tables
from workbench.analysis.changes.retrained_baselines import what_stays
from workbench.job_records import jobs, leases
from workbench.kinds.kind import parse_spec
from workbench.questions.perplexities import mix_scores
from workbench.registry import corpora, database, experts, mixtures, seeds
from workbench.registry.backups import back_up
from workbench.registry.clusters import clusterings
from workbench.registry.database import reading, transaction
from workbench.schema import database_clock
from workbench.schema.base import Base
from workbench.schema.tables import Artifact
from workbench.settings import get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store.rebuild import Rebuilt, rebuild
from workbench.store.storage import get_storage

EVALUATE = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 500}
SAILOR = {
    "kind": "train-expert",
    "name": "sailor",
    "domain": "sea",
    "mixture": "small",
    "parent": "small/court",
    "training": {"num_steps": 5, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0},
}


def lose_registry(home: Path) -> None:
    database.close_engines()
    for file in home.glob("registry.db*"):
        file.unlink()
    database.migrate()


def forget_records(home: Path) -> None:
    """The artifacts are as the version before left them."""
    shutil.rmtree(home / "artifacts" / "records")
    (home / "artifacts" / "registry.json").unlink()


def known() -> dict[str, Any]:
    """All that pages show, but for what only jobs wrote."""
    with reading() as session:
        return {
            "corpora": corpora.list_corpora(session),
            "domains": corpora.list_domains(session),
            "seeds": seeds.list_seeds(session),
            "experts": experts.list_experts(session),
            "mixtures": mixtures.list_mixtures(session),
            "evaluations": perplexity_tables.list_evaluations(session),
            "lineage": [experts.lineage(session, card.name) for card in experts.list_experts(session)],
            "scores": mix_scores(session, get_storage(), "small").domains,
            "artifacts": [
                (row.id, row.kind, row.key, row.sha256)
                for row in session.scalars(select(Artifact).order_by(Artifact.id))
            ],
        }


def rebuilt(dry_run: bool = False) -> Rebuilt:
    with transaction() as session:
        return rebuild(session, get_storage(), dry_run=dry_run)


def num_rows() -> dict[str, int]:
    with reading() as session:
        return {name: len(session.execute(select(table)).all()) for name, table in Base.metadata.tables.items()}


def test_a_rebuilt_registry_knows_and_computes_what_the_lost_one_did(trained: Do, home: Path) -> None:
    assert trained(EVALUATE).result["scored"] == 6
    assert trained(SAILOR).state == "done"
    with transaction() as session:
        experts.rename(session, "sailor", "boat/swain")
        experts.describe(session, "boat/swain", notes="learned at sea", tags=["salt"])
        mixtures.set_active(session, "small", "small/kitchen", False)
    assert trained(EVALUATE).result["scored"] == 3
    before = known()
    lose_registry(home)
    empty = num_rows()

    shown = rebuilt(dry_run=True)
    assert (shown.made["expert"], shown.left) == (3, [])
    assert num_rows() == empty

    assert rebuilt() == shown
    assert known() == before
    assert trained(EVALUATE).result["scored"] == 0  # no score is lost
    assert rebuilt().made == {}
    garbage_collection.sweep(get_settings())  # the rebuilt registry is the artifacts' own
    assert known() == before


def test_a_rebuilt_registry_knows_what_trained_the_shared_parameters(trained: Do, home: Path) -> None:
    assert trained(SAILOR).state == "done"
    lose_registry(home)
    trained({"kind": "import-corpus", "name": "court", "path": str(next(home.glob("sea.jsonl")))})
    rebuilt()
    with reading() as session:
        court, sailor = (experts.expert_row(session, name) for name in ("small/court", "sailor"))
        assert court.domain is not None
        assert court.domain.name == "court.2"
        shown = what_stays(session, "small", court)
        assert shown.startswith("Removing this expert is not unlearning")
        assert "All that this expert learned on “sea” is removed" in what_stays(session, "small", sailor)


def test_a_backup_with_a_rebuild_of_later_records_is_the_full_registry(trained: Do, home: Path) -> None:
    trained(EVALUATE)
    copy = back_up(get_settings()).path
    assert copy.stat().st_mode & 0o777 == 0o600
    assert trained(SAILOR).state == "done"
    before = known()
    database.close_engines()
    for file in home.glob("registry.db*"):
        file.unlink()
    shutil.copy(copy, home / "registry.db")
    assert rebuilt().made["expert"] == 1
    assert known() == before


@pytest.mark.parametrize("state", ["running", "queued", "paused"])
def test_a_job_that_ended_after_the_backup_does_not_run_again(
    do: Do, home: Path, corpora: dict[str, Path], state: str
) -> None:
    with transaction() as session:
        spec = parse_spec({"kind": "import-corpus", "name": "sea", "path": str(corpora["sea"])})
        job_id = jobs.create_job(session, spec)
        if state == "paused":
            jobs.request_stop(session, job_id, "pause")
    if state == "running":
        events = run_here(job_id)
        next(events)
    copy = back_up(get_settings()).path
    if state == "running":
        for _ in events:
            pass
    else:
        if state == "paused":
            with transaction() as session:
                jobs.resume(session, job_id)
        list(run_here(job_id))
    with reading() as session:
        before = jobs.get_job(session, job_id)
    assert before.state == "done", before.error
    database.close_engines()
    for file in home.glob("registry.db*"):
        file.unlink()
    shutil.copy(copy, home / "registry.db")
    with reading() as session:
        assert jobs.get_job(session, job_id).state == state
    assert rebuilt(dry_run=True).made["job"] == 1
    with reading() as session:
        assert jobs.get_job(session, job_id).state == state
    assert rebuilt().made == {"artifact": 1, "corpus": 1, "domain": 1, "job": 1}
    with transaction() as session:
        assert leases.expire(session, database_clock.now(session) + 3600, 3) == []
        after = jobs.get_job(session, job_id)
        assert jobs.due(session, database_clock.now(session)) == []
        assert "results were recorded" in jobs.events(session, job_id)[-1].message
    assert (after.state, after.result, after.owner) == ("done", before.result, "")
    assert rebuilt().made == {}


def test_what_a_new_registry_has_taken_the_name_of_comes_back_under_another(trained: Do, home: Path) -> None:
    lose_registry(home)
    trained({"kind": "import-corpus", "name": "sea", "path": str(next(home.glob("sea.jsonl")))})
    shown = rebuilt()
    assert {one.why for one in shown.left} == {"rebuilt as “sea.2”, because the name is taken"}
    with reading() as session:
        assert {"sea", "sea.2"} <= {card.name for card in corpora.list_domains(session)}
        assert mixtures.get_mixture(session, "small").members[0].domain == "court"


def test_artifacts_of_the_version_before_come_back_as_far_as_their_files_say(trained: Do, home: Path) -> None:
    forget_records(home)
    lose_registry(home)
    shown = rebuilt()
    assert shown.made == {"artifact": 7, "corpus": 3, "domain": 3, "seed model": 1, "expert": 2}
    assert {one.why for one in shown.left} == {
        "its files do not say what it belongs to: run the job that made it again"  # packed tokens
    }
    with transaction() as session:
        names = [card.name for card in experts.list_experts(session)]
        mixtures.compose_mixture(session, MixtureSpec(name="again", experts=names))
    assert trained({**EVALUATE, "mixture": "again"}).result["scored"] == 2 * 3


def test_an_expert_of_mode_of_the_version_before_comes_back_with_its_parts(trained: Do, home: Path) -> None:
    shape = {"num_blocks": 2, "expert_layers": 1}
    training = {"num_steps": 2, "block_size": 32}
    job_spec = {"kind": "train-mode", "name": "law", "seed_model": "seed", "domains": ["court"]}
    assert trained({**job_spec, "shape": shape, "training": training}).state == "done"
    with reading() as session:
        before = experts.get_expert(session, "law/court")
    forget_records(home)
    lose_registry(home)
    rebuilt()
    with transaction() as session:
        [card] = [expert for expert in experts.list_experts(session) if expert.method == "mode"]
        mixtures.compose_mixture(session, MixtureSpec(name="again", experts=[card.name]))
    assert (card.id, card.parts, card.sha256, card.num_parameters) == (
        before.id,
        before.parts,
        before.sha256,
        before.num_parameters,
    )
    assert trained({**EVALUATE, "mixture": "again"}).result["scored"] == 3


def test_clusters_come_back_with_their_domains_and_the_gate_that_weighs_by_them(clustered: Do, home: Path) -> None:
    def known_clusters() -> list[object]:
        with reading() as session:
            cards = clusterings.list_clusterings(session)
            return [cards, corpora.list_corpora(session), mixtures.get_mixture(session, "ensemble")]

    before = known_clusters()
    lose_registry(home)
    assert rebuilt().left == []
    assert known_clusters() == before


def test_what_a_job_left_that_did_not_end_gets_no_row(trained: Do) -> None:
    with reading() as session:
        full = get_storage().path(experts.get_expert(session, "small/court").id)
    shutil.copytree(full, full.with_name("a" * 32))
    shown = rebuilt()
    assert (shown.made, [one.why for one in shown.left]) == (
        {},
        ["it was never registered: an unfinished job left it"],
    )


def test_a_damaged_artifact_gets_no_row(trained: Do, home: Path) -> None:
    with reading() as session:
        card = experts.get_expert(session, "small/court")
    lose_registry(home)
    manifest = get_storage().path(card.id) / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    shown = rebuilt()
    assert ("artifact", card.id, "its manifest is not the one that was recorded") in [
        (one.thing, one.name, one.why) for one in shown.left
    ]
    with reading() as session:
        assert [expert.name for expert in experts.list_experts(session)] == ["small/kitchen"]


def test_a_deleted_expert_can_be_restored_from_the_trash_with_its_base(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = known()
    with transaction() as session:
        mixtures.delete_mixture(session, "small")
        for name in ("small/court", "small/kitchen"):
            experts.delete_expert(session, name)
    monkeypatch.setattr(garbage_collection, "GRACE_SECONDS", -10.0)
    garbage_collection.sweep(get_settings())
    entries = garbage_collection.trash_entries(get_settings())
    assert len(entries) == 3
    for card in before["experts"]:
        garbage_collection.restore(get_settings(), [entry for entry in entries if entry.id == card.id])
    with reading() as session:
        outcome = experts.list_experts(session)
    assert [(card.name, card.sha256) for card in outcome] == [(card.name, card.sha256) for card in before["experts"]]
    assert garbage_collection.trash_entries(get_settings()) == []
