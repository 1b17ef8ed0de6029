"""Clusters as domains, changed by hand, and a model trained on each: only what an edit touches becomes stale."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.clusters.artifact import load_clustering
from engine.clusters.documents import ClusteredDocuments, hex_of, load_documents
from engine.errors import EngineError, TrainingError
from engine.text.split import read_split
from engine.text.split_names import SPLITS
from jobs.attempt.attempt import run_here
from jobs.kinds.clusters import domains
from jobs.kinds.training import train_joint
from jobs.plans.clusterings import submit_training
from jobs.queue.submit import run_now
from tests.journeys.conftest import SHAPE, TRAINING, Do
from ui.cli.app import main
from workbench.answers.cards import ClusteringCard, JobCard
from workbench.errors import BadSpecError, InUseError, JobError, NotFoundError
from workbench.job_records import jobs
from workbench.kinds.kind import parse_as
from workbench.registry import corpora as corpora_rows
from workbench.registry import experts, mixtures
from workbench.registry.clusters.clusterings import (
    change_cluster,
    clustering_row,
    delete_clustering,
    get_clustering,
)
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Clustering, Domain
from workbench.specs.requests import TrainClusters
from workbench.store.storage import get_storage

FIND = {"kind": "find-clusters", "name": "topics", "num_clusters": 3, "dimension": 5, "map_size": 0}
DOMAINS = {"kind": "make-cluster-domains", "clustering": "topics"}
SHORT = {**TRAINING, "num_steps": 7, "checkpoint_every": 50, "evaluate_every": 50}


@pytest.fixture
def topics(do: Do, corpora: dict[str, Path]) -> Do:
    """A home with three domains of 60 documents, and the clustering “topics” of three clusters."""
    for name, path in corpora.items():
        do({"kind": "import-corpus", "name": name, "path": str(path), "licence": f"{name} licence"})
    job = do(FIND)
    assert job.state == "done", job.error
    return do


def card() -> ClusteringCard:
    with reading() as session:
        return get_clustering(session, "topics")


def documents() -> ClusteredDocuments:
    with reading() as session:
        return load_documents(get_storage().path(clustering_row(session, "topics").artifact_id))


def in_cluster(number: int) -> set[str]:
    outcome = documents()
    return set(hex_of(outcome.ids_N[outcome.members(number)]))


def in_domain(name: str) -> dict[str, dict[str, Any]]:
    """The documents of a domain by their ids, each with its split."""
    with reading() as session:
        row = corpora_rows.domain_row(session, name)
        folder = get_storage().path(row.artifact_id) / row.folder
    return {one["id"]: {**one, "split": split} for split in SPLITS for one in read_split(folder, split)}


def done(job: JobCard) -> JobCard:
    assert job.state == "done", job.error
    return job


# clusters as domains --------------------------------------------------------------------------------


def test_a_domain_of_a_cluster_holds_its_documents_in_the_splits_they_were_in(topics: Do) -> None:
    before = {id: one for name in ("court", "kitchen", "sea") for id, one in in_domain(name).items()}
    job = done(topics(DOMAINS))
    assert job.result["domains"] == [f"topics/{number}" for number in range(3)]
    seen: set[str] = set()
    for number in range(3):
        outcome = in_domain(f"topics/{number}")
        assert set(outcome) == in_cluster(number)
        assert all(one == before[id] for id, one in outcome.items())  # text, source, group and split
        seen |= set(outcome)
    assert seen == set(before)
    assert {one["split"] for one in before.values()} == set(SPLITS)
    with reading() as session:
        corpus = corpora_rows.get_corpus(session, "topics")
    assert corpus.licence == "court licence; kitchen licence; sea licence"
    assert [one.domain for one in card().clusters] == [f"topics/{number}" for number in range(3)]
    assert topics(DOMAINS).result["sentence"] == "Every cluster has its domain already."


def test_a_cluster_without_held_out_text_holds_some_out_and_nothing_held_out_is_trained_on(topics: Do) -> None:
    before = {id: one["split"] for name in ("court", "kitchen", "sea") for id, one in in_domain(name).items()}
    done(topics({**FIND, "name": "many", "num_clusters": 20}))
    done(topics({**DOMAINS, "clustering": "many"}))
    moved = 0
    for number in range(20):
        after = {id: one["split"] for id, one in in_domain(f"many/{number}").items()}
        assert set(after.values()) == set(SPLITS)
        assert all(split == before[id] for id, split in after.items() if before[id] != "train")
        moved += sum(split != before[id] for id, split in after.items())
    assert 0 < moved <= 40


def test_a_cluster_too_small_to_be_a_domain_is_named(topics: Do) -> None:
    done(topics({**FIND, "name": "tiny", "num_clusters": 100}))
    job = topics({**DOMAINS, "clustering": "tiny"})
    assert job.state == "failed"
    assert "“tiny/" in job.error
    assert "groups of training documents" in job.error
    with reading() as session:
        assert "tiny" not in [one.name for one in corpora_rows.list_corpora(session)]


def test_text_that_changed_under_a_clustering_is_reported_and_nothing_is_made(topics: Do) -> None:
    with transaction() as session:
        corpora_rows.domain_row(session, "sea").data_sha256 = "0" * 64
    job = topics(DOMAINS)
    assert (job.state, "The text of “sea” was deleted or changed" in job.error) == ("failed", True)
    assert "workbench cluster changes topics" in job.next_step


def test_a_missing_document_fails_loudly_with_its_name(topics: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    read_rows = domains.read_rows
    gone: list[str] = []

    def all_but_one(path: Path) -> Any:
        for row in read_rows(path):
            if path.stem == "train" and not gone:
                gone.append(row["id"])
            elif row["id"] not in gone:
                yield row

    monkeypatch.setattr(domains, "read_rows", all_but_one)
    job = topics(DOMAINS)
    assert job.state == "failed"
    assert f"1 of 180 documents are missing: {gone[0][:12]}" in job.error


# by hand --------------------------------------------------------------------------------------------


def test_a_cluster_is_renamed_and_noted_and_retrieved_by_name_or_number(topics: Do) -> None:
    old = card().clusters[1].name
    with transaction() as session:
        change_cluster(session, "topics", "1", name="the law")
        change_cluster(session, "topics", "the law", notes="mostly statutes")
    assert (card().clusters[1].name, card().clusters[1].notes) == ("the law", "mostly statutes")
    assert not any(one.stale for one in card().clusters)
    for cluster, name, error in [(old, "x", NotFoundError), ("0", "the law", BadSpecError), ("0", "7", BadSpecError)]:
        with pytest.raises(error), transaction() as session:
            change_cluster(session, "topics", cluster, name=name)


def test_merging_joins_documents_and_leaves_the_others_unchanged(topics: Do) -> None:
    done(topics(DOMAINS))
    parts = [in_cluster(number) for number in range(3)]
    job = done(topics({"kind": "merge-clusters", "clustering": "topics", "clusters": ["2", "0"]}))
    assert in_cluster(0) == parts[0] | parts[2]
    assert in_cluster(1) == parts[1]
    after = card()
    assert [(one.number, one.domain, one.stale) for one in after.clusters] == [
        (0, "topics/0", True),
        (1, "topics/1", False),
    ]
    assert after.metrics["sizes"] == job.result["sizes"] == [one.num_documents for one in after.clusters]
    done(topics(DOMAINS))
    assert set(in_domain("topics/0.2")) == in_cluster(0)
    assert [(one.domain, one.stale) for one in card().clusters] == [("topics/0.2", False), ("topics/1", False)]
    with reading() as session:
        assert [one.domains for one in corpora_rows.list_corpora(session) if one.name == "topics 2"] == [["topics/0.2"]]


def test_a_split_finds_clusters_within_and_keeps_all_documents(topics: Do) -> None:
    done(topics({**FIND, "name": "all", "num_clusters": 1}))
    done(topics({"kind": "split-cluster", "clustering": "all", "cluster": "0", "num_clusters": 3}))
    with reading() as session:
        row = clustering_row(session, "all")
        outcome = load_documents(get_storage().path(row.artifact_id))
        centres = load_clustering(get_storage().path(row.artifact_id)).clusters
        split = get_clustering(session, "all")
    assert len(outcome) == 180
    assert outcome.sizes(3) == [one.num_documents for one in split.clusters]
    assert split.metrics["overlap"]["normalised_mutual_information"] > 0.9
    assert centres.num_clusters == 3
    assert sum(centres.sizes) == split.num_fitted  # the fit's own labels moved, too
    assert max(centres.sizes) - min(centres.sizes) <= 1  # L11, within the cluster
    fitted = dict(zip(hex_of(outcome.ids_N), outcome.labels_N.tolist(), strict=True))
    with reading() as session:
        ids = load_clustering(get_storage().path(clustering_row(session, "all").artifact_id)).document_ids
    assert [fitted[id] for id in ids] == centres.labels_N.tolist()
    assert len({one.name for one in split.clusters}) == 3


def test_a_pinned_document_goes_where_it_is_put_and_stays_through_a_split(topics: Do) -> None:
    ids = sorted(in_cluster(0))[:2]
    done(topics({"kind": "pin-documents", "clustering": "topics", "cluster": "1", "documents": [ids[0], ids[1][:10]]}))
    assert set(ids) < in_cluster(1)
    assert card().metrics["num_pinned"] == 2
    done(topics({"kind": "split-cluster", "clustering": "topics", "cluster": "1"}))
    assert set(ids) < in_cluster(1)
    assert len(card().clusters) == 4
    assert not set(ids) & {id for one in card().clusters for id in one.representatives}


def test_a_document_that_is_not_there_cannot_be_pinned(topics: Do) -> None:
    job_spec = {"kind": "pin-documents", "clustering": "topics", "cluster": "1", "documents": ["f" * 64, "nonsense"]}
    job = topics(job_spec)
    assert (job.state, "2 of 2 documents are not in the clustering: ffffffffffff, nonsense" in job.error) == (
        "failed",
        True,
    )


def test_an_empty_cluster_is_named_and_never_becomes_a_domain(topics: Do) -> None:
    everything = {"kind": "pin-documents", "clustering": "topics", "cluster": "1", "documents": sorted(in_cluster(0))}
    assert "Cluster 0 is empty and cannot become a domain" in done(topics(everything)).result["sentence"]
    assert "Of the 3 clusters these are empty: 0." in topics(DOMAINS).error
    with reading() as session:
        assert corpora_rows.training_domains(session) == ["court", "kitchen", "sea"]


def test_a_long_term_of_an_earlier_version_is_cut_in_tables(topics: Do) -> None:
    with transaction() as session:
        clustering_row(session, "topics").clusters[0].terms = ["x" * 400]
    assert {len(term) for term in card().clusters[0].terms} == {30}


def test_of_two_concurrent_edits_the_second_is_refused_with_advice_to_retry(topics: Do) -> None:
    job_spec = {"kind": "split-cluster", "clustering": "topics", "cluster": "0"}
    first, events = run_now(job_spec)
    next(events)
    done(topics({**job_spec, "cluster": "1"}))
    with pytest.raises(JobError, match="changed meanwhile"):
        list(events)
    with reading() as session:
        assert jobs.get_job(session, first).state == "failed"
    assert len(card().clusters) == 4


# branch, train, merge -------------------------------------------------------------------------------


def job_spec(name: str = "elms", **training: Any) -> TrainClusters:
    return parse_as(
        TrainClusters,
        {"clustering": "topics", "name": name, "seed_model": "seed", "training": {**SHORT, **training}},
    )


def carry_out(ids: list[str]) -> list[JobCard]:
    for id in ids:
        with reading() as session:
            is_waiting = jobs.get_job(session, id).state == "queued"
        if is_waiting:
            list(run_here(id))
    with reading() as session:
        return [jobs.get_job(session, id) for id in ids]


@pytest.fixture
def seeded(topics: Do) -> Do:
    done(topics({"kind": "make-seed", "name": "seed", "domains": ["sea"], "vocab_size": 320, "shape": SHAPE}))
    return topics


def test_one_cluster_is_the_dense_baseline(seeded: Do) -> None:  # L2
    done(seeded({"kind": "merge-clusters", "clustering": "topics", "clusters": ["0", "1", "2"]}))
    cards = carry_out(submit_training(job_spec()))
    assert [one.kind for one in cards] == ["make-cluster-domains", "train-joint", "make-mixture"]
    assert [one.state for one in cards] == ["done"] * 3
    with reading() as session:
        mixture = mixtures.get_mixture(session, "elms")
        expert = experts.get_expert(session, "elms/0/dense")
    assert [one.expert for one in mixture.members] == ["elms/0/dense"]
    assert (expert.method, expert.domain, expert.config["num_steps"]) == ("dense", "topics/0", 7)
    again = submit_training(job_spec())
    assert again == [cards[-1].id]  # nothing is left to do


def test_each_cluster_is_a_training_of_its_own_and_all_see_as_many_tokens_as_the_dense_model(seeded: Do) -> None:
    ids = submit_training(job_spec())
    with reading() as session:
        cards = [jobs.get_job(session, id) for id in ids]
    models = [one for one in cards if one.kind == "train-joint"]
    assert [one.spec["training"]["num_steps"] for one in models] == [3, 2, 2]
    assert [one.spec["domains"] for one in models] == [["topics/0"], ["topics/1"], ["topics/2"]]
    assert [one.after for one in models] == [[ids[0]]] * 3  # none waits for another
    assert sorted(cards[-1].after) == sorted(one.id for one in models)
    assert cards[-1].spec["experts"] == [f"elms/{number}/dense" for number in range(3)]


def test_after_an_edit_only_the_models_of_what_changed_are_stale_and_trained_anew(seeded: Do) -> None:
    carry_out(submit_training(job_spec())[:4])
    job = done(seeded({"kind": "split-cluster", "clustering": "topics", "cluster": "1"}))
    assert job.result["stale_experts"] == card().stale_experts == ["elms/1/dense"]
    assert "These experts are stale, since their documents changed: elms/1/dense." in job.result["sentence"]
    with reading() as session:
        stale = {one.name: one.stale for one in experts.list_experts(session)}
    ids = submit_training(job_spec())
    assert stale == {"elms/0/dense": False, "elms/1/dense": True, "elms/2/dense": False}
    with reading() as session:
        cards = [jobs.get_job(session, id) for id in ids]
    assert [one.spec.get("domains") for one in cards if one.kind == "train-joint"] == [["topics/1.2"], ["topics/3"]]
    names = ["elms/0/dense", "elms/1.2/dense", "elms/2/dense", "elms/3/dense"]
    assert cards[-1].spec["experts"] == names
    assert [one.state for one in carry_out(ids[:3])] == ["done"] * 3
    assert [one.experts for one in card().clusters] == [[name] for name in names]


def test_only_the_training_that_failed_is_retried(seeded: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = submit_training(job_spec())
    carry_out(ids[:1])
    train = train_joint._train

    def stumbling(work: Any, spec: Any, *more: Any) -> Any:
        if spec.name == "elms/1":
            raise TrainingError("The lamp must burn, but went out.", "Light it.")
        return train(work, spec, *more)

    monkeypatch.setattr(train_joint, "_train", stumbling)
    for id in ids[1:4]:
        with suppress(TrainingError):
            list(run_here(id))
    with reading() as session:
        assert [jobs.get_job(session, id).state for id in ids[1:4]] == ["done", "failed", "done"]
    monkeypatch.undo()
    again = submit_training(job_spec())
    with reading() as session:
        waiting = [jobs.get_job(session, id) for id in again if jobs.get_job(session, id).state == "queued"]
    assert [one.kind for one in waiting] == ["train-joint", "make-mixture"]
    assert waiting[0].id == ids[2]


def test_a_mixture_of_something_else_keeps_its_name(seeded: Do) -> None:
    training = {**TRAINING, "num_steps": 2, "checkpoint_every": 50}
    other = {"kind": "train-joint", "name": "elms", "seed_model": "seed", "domains": ["sea"], "training": training}
    done(seeded(other))
    with pytest.raises(BadSpecError, match="A mixture called “elms” exists already"):
        submit_training(job_spec())


def test_fewer_steps_than_clusters_are_refused_before_anything_is_queued(seeded: Do) -> None:
    with pytest.raises(EngineError, match="2 steps are too few for 3 clusters"):
        submit_training(job_spec(num_steps=2))
    with reading() as session:
        assert not jobs.list_jobs(session, kind="make-cluster-domains")


# the end --------------------------------------------------------------------------------------------


def test_a_clustering_is_not_deleted_under_an_expert_and_its_domains_outlive_it(seeded: Do) -> None:
    carry_out(submit_training(job_spec())[:2])
    with pytest.raises(InUseError, match="expert “elms/0/dense”"), transaction() as session:
        delete_clustering(session, "topics")
    with transaction() as session:
        for job in jobs.list_jobs(session, state="queued"):
            jobs.request_stop(session, job.id, "cancel")
        mixtures.delete_mixture(session, "elms/0")
        experts.delete_expert(session, "elms/0/dense")
        delete_clustering(session, "topics")
    with reading() as session:
        assert session.query(Clustering).count() == 0
        assert session.query(Domain).filter(Domain.name.startswith("topics/")).count() == 3


def test_a_cluster_forgets_a_domain_that_is_deleted(topics: Do) -> None:
    done(topics(DOMAINS))
    with transaction() as session:
        corpora_rows.delete_corpus(session, "topics")
    assert [(one.domain, one.stale) for one in card().clusters] == [(None, False)] * 3
    assert done(topics(DOMAINS)).result["domains"] == ["topics/0", "topics/1", "topics/2"]


# from the command line ------------------------------------------------------------------------------


def test_every_verb_from_finding_to_deleting(seeded: Do, capsys: pytest.CaptureFixture[str]) -> None:
    def output(*line: str) -> str:
        assert main(list(line) if line[0] == "train" else ["cluster", *line]) == 0
        return capsys.readouterr().out

    assert "180 documents in 2 clusters" in output("find", "two", "--clusters", "2", "--map-size", "0", "--here")
    assert output("list").count("balanced") == 2
    assert "normalized mutual information with the domains" in output("show", "two")
    shown = json.loads(output("show", "two", "0", "--json"))
    assert len(shown["documents"]) == 5
    assert shown["documents"][0]["text"] in output("show", "two", "0")
    assert "now called" in output("rename", "two", "0", "first")
    assert "The notes of “first” are saved" in output("note", "two", "first", "a word")
    assert "No expert was trained on what changed" in output("split", "two", "first", "--clusters", "2", "--here")
    assert "2 clusters now" in output("merge", "two", "--clusters", "first,2", "--here")
    id = shown["documents"][0]["id"]
    assert "2 clusters now" in output("pin", "two", "1", "--documents", id[:16], "--here")
    assert "2 domains in the corpus two" in output("domains", "two", "--here")
    output("merge", "two", "--clusters", "0,1", "--here")
    line = ["train", "clusters", "two", "m", "--seed-model", "seed", "--steps", "2", "--block-size", "32", "--json"]
    assert json.loads(output(*line))["state"] == "queued"
    with reading() as session:
        carry_out([job.id for job in reversed(jobs.list_jobs(session, state="queued"))])
    with reading() as session:
        assert [one.expert for one in mixtures.get_mixture(session, "m").members] == ["m/0.2/dense"]
    assert main(["cluster", "delete", "two"]) == 2
    assert "expert “m/0.2/dense”" in capsys.readouterr().err
    assert "deleted" in output("delete", "topics")
