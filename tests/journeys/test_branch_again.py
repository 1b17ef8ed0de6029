"""Clusters within clusters and a second iteration: models that branch from experts that are trained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.clusters.documents import hex_of, load_documents
from jobs.plans.clusterings import ClusterModel, plan_training, submit_training
from tests.journeys.conftest import BRANCHES, Do, branch_train_merge, done
from ui.cli.app import main
from workbench.errors import BadSpecError
from workbench.formatting.number_format import share
from workbench.job_records import jobs
from workbench.kinds.kind import parse_as
from workbench.questions.perplexities import mix_scores
from workbench.registry import experts, mixtures
from workbench.registry.clusters.clusterings import clustering_row, get_clustering
from workbench.registry.database import reading, transaction
from workbench.specs.requests import TrainClusters
from workbench.store.storage import get_storage

EVALUATE = {"kind": "evaluate", "block_size": 32, "max_tokens": 200}
FIND = {"kind": "find-clusters", "dimension": 5, "map_size": 0, "scaling": "unit_rows"}
STANDING_STILL = 1e-9  # a learning rate at which a model stays what it began as


def job_spec(clustering: str, name: str, branch_from: str, **training: float) -> TrainClusters:
    output = {"clustering": clustering, "name": name, "branch_from": branch_from}
    return parse_as(TrainClusters, {**output, "training": {**BRANCHES, **training}})


def members(clustering: str) -> list[set[str]]:
    """The ids of each cluster's documents."""
    with reading() as session:
        row = clustering_row(session, clustering)
        outcome, number = load_documents(get_storage().path(row.artifact_id)), len(row.clusters)
    return [set(hex_of(outcome.ids_N[outcome.members(one)])) for one in range(number)]


def test_a_cluster_is_split_its_parts_are_trained_from_its_expert_and_the_mixture_follows(
    clustered: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    done(clustered({**EVALUATE, "mixture": "ensemble", "domains": ["court"]}))
    done(clustered({"kind": "split-cluster", "clustering": "topics", "cluster": "1"}))
    with reading() as session:
        assert get_clustering(session, "topics").stale_experts == ["ensemble/1/dense"]
        assert all(one.domain is None or one.number < 3 for one in get_clustering(session, "topics").clusters)
    assert main(["cluster", "show", "topics"]) == 0
    assert "--branch-from MIXTURE" in capsys.readouterr().out

    offered = plan_training(job_spec("topics", "ensemble", "ensemble", num_steps=9))
    names = ["ensemble/0/dense", "ensemble/1.2/topics/1.2", "ensemble/2/dense", "ensemble/3/topics/3"]
    assert [one.expert for one in offered] == names
    assert [one.is_there for one in offered] == [True, False, True, False]  # just what is missing
    assert [one.num_steps for one in offered] == [30, 2, 30, 2]  # what is there keeps its steps
    for part in (offered[1], offered[3]):
        assert part.parent == "ensemble/1/dense"
        assert part.shares == {f"ensemble/{number}/dense": float(number == 1) for number in range(3)}

    cards = branch_train_merge("topics", "ensemble", branch_from="ensemble", num_steps=9)
    assert [one.kind for one in cards] == ["make-cluster-domains", "train-expert", "train-expert", "make-mixture"]
    with reading() as session:
        mixture, clustering = mixtures.get_mixture(session, "ensemble"), get_clustering(session, "topics")
        part = experts.get_expert(session, names[3])
    assert [one.expert for one in mixture.members] == names  # the new in, the stale out
    assert not any(experts_of.stale for experts_of in map(_expert, names))
    assert _expert("ensemble/1/dense").stale
    assert [one.experts for one in clustering.clusters] == [[name] for name in names]
    assert (mixture.gate["kind"], mixture.gate["temperature"]) == ("cluster", 0.2)
    assert (part.parent, part.method, part.metrics["parent_documents"]) == ("ensemble/1/dense", "dense", 1.0)
    assert (part.config["full_model"], part.config["num_steps"], part.config["learning_rate"]) == (True, 2, 5e-3)
    assert part.metrics["parent_posterior"] == {}  # nobody had to look: the plan named it
    assert part.base_id != _expert("ensemble/1/dense").base_id

    done(clustered({**EVALUATE, "mixture": "ensemble", "domains": ["court"]}))  # distances to the new centres
    with reading() as session:
        (row,) = mix_scores(session, get_storage(), "ensemble").domains
    assert set(row.perplexity_by_expert) == set(names)
    assert row.perplexity < 1.3 * min(row.perplexity_by_expert.values())
    again = submit_training(job_spec("topics", "ensemble", "ensemble", num_steps=9))
    assert again == [cards[-1].id]  # nothing is left to do


def test_a_second_request_with_other_knobs_says_what_differs_and_queues_nothing(
    clustered: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    from_seed = {"clustering": "topics", "name": "ensemble", "seed_model": "seed"}
    other = {**BRANCHES, "num_steps": 96, "learning_rate": 1e-2, "seed": 4, "checkpoint_every": 7}
    with pytest.raises(BadSpecError) as refused:
        submit_training(parse_as(TrainClusters, {**from_seed, "training": other}))
    for output in (
        "learning_rate: 0.005 instead of 0.01",
        "seed: 0 instead of 4",
        "num_steps: 30, 30, 30 instead of 32",
    ):
        assert output in refused.value.problem
    assert "checkpoint" not in refused.value.problem
    assert "Choose another name" in refused.value.next_step
    with pytest.raises(BadSpecError, match="parent: not small"):
        plan_training(job_spec("topics", "ensemble", "small", num_steps=90))
    as_before = {**from_seed, "training": {**BRANCHES, "num_steps": 90}}
    with pytest.raises(BadSpecError, match="seed_model: seed instead of moon"):
        plan_training(parse_as(TrainClusters, {**as_before, "seed_model": "moon"}))
    assert [one.is_there for one in plan_training(parse_as(TrainClusters, as_before))] == [True] * 3

    done(clustered({"kind": "split-cluster", "clustering": "topics", "cluster": "1"}))
    again = plan_training(parse_as(TrainClusters, as_before))
    assert [(one.is_there, one.num_steps) for one in again] == [(True, 30), (False, 23), (True, 30), (False, 22)]
    knobs = [
        "--block-size",
        "32",
        "--learning-rate",
        "5e-3",
        "--clip",
        "1",
        "--evaluate-every",
        "15",
        "--warmup",
        "0.08",
    ]
    line = ["train", "clusters", "topics", "ensemble", "--seed-model", "seed", "--steps", "90", *knobs, "--plan"]
    assert main(line) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Existing models were trained for 30 steps each; new ones will be for 22 to 23:" in shown
    slower = job_spec(
        "topics", "ensemble", "ensemble", num_steps=90, learning_rate=1e-4
    )  # the parts begin from experts
    assert [one.is_there for one in plan_training(slower)] == [True, False, True, False]
    with pytest.raises(BadSpecError, match="learning_rate"):
        plan_training(parse_as(TrainClusters, {**from_seed, "training": {**BRANCHES, "learning_rate": 1}}))


def _expert(name: str) -> Any:
    with reading() as session:
        return experts.get_expert(session, name)


def test_a_second_iteration_begins_where_most_documents_were_seen(
    clustered: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    done(clustered({**FIND, "name": "two", "num_clusters": 2, "domains": ["court", "kitchen", "sea"]}))
    line = ["train", "clusters", "two", "second", "--branch-from", "ensemble", "--steps", "5", "--plan"]
    assert main([*line, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert main(line) == 0
    shown = capsys.readouterr().out
    with reading() as session:
        assert not [job for job in jobs.list_jobs(session) if job.title.startswith("second")]  # nothing is queued
    old = {f"ensemble/{number}/dense": ids for number, ids in enumerate(members("topics"))}
    for branch, ids in zip(output, members("two"), strict=True):
        shares = {name: len(ids & theirs) / len(ids) for name, theirs in old.items()}
        assert branch["shares"] == pytest.approx(shares)
        assert branch["parent"] == max(shares, key=shares.__getitem__)
        assert f"{share(shares[branch['parent']])}" in shown
        assert 0.5 <= shares[branch["parent"]] < 1
    assert [branch["num_steps"] for branch in output] == [3, 2]  # as many tokens as one model, as in a first iteration

    branch_train_merge("two", "second", branch_from="ensemble", num_steps=5, learning_rate=STANDING_STILL)
    with reading() as session:
        card = mixtures.get_mixture(session, "second")
        assert card.gate["clustering"] == get_clustering(session, "two").id
    assert [one.expert for one in card.members] == ["second/0/two/0", "second/1/two/1"]
    done(clustered({**EVALUATE, "mixture": "second", "domains": ["sea"], "experts": list(old)}))
    by_itself = {name: _perplexity(name) for name in [*old, *(one.expert for one in card.members)]}
    for branch in output:
        expert = _expert(branch["expert"])
        assert expert.parent == branch["parent"]
        assert expert.metrics["parent_documents"] == pytest.approx(branch["shares"][branch["parent"]])
        assert by_itself[branch["expert"]] == pytest.approx(
            by_itself[branch["parent"]], rel=1e-4
        )  # it began as that one


def _perplexity(expert: str) -> float:
    with reading() as session:
        (row,) = mix_scores(session, get_storage(), expert).domains
    return float(row.perplexity)


def test_a_cluster_that_nobody_saw_begins_from_the_nearest_by_the_posterior(clustered: Do) -> None:
    done(clustered({**FIND, "name": "new", "num_clusters": 1, "domains": ["sea"]}))
    (branch,) = plan_training(job_spec("new", "later", "small"))
    assert (branch.parent, branch.shares) == (None, {"small/court": 0.0, "small/kitchen": 0.0})
    cards = branch_train_merge("new", "later", branch_from="small", num_steps=2)
    result = cards[1].result
    assert set(result["parent_posterior"]) == {"small/court", "small/kitchen"}
    assert result["parent"] == max(result["parent_posterior"], key=result["parent_posterior"].__getitem__)
    assert (result["parent_documents"], _expert("later/0/new/0").parent) == (0.0, result["parent"])


def test_an_expert_of_several_domains_was_trained_on_the_documents_of_all(clustered: Do) -> None:
    both = {"name": "both", "seed_model": "seed", "domains": ["court", "kitchen"], "method": "dense"}
    done(clustered({"kind": "train-joint", **both, "training": {**BRANCHES, "num_steps": 2}}))
    outcome = {one.cluster: one for one in plan_training(job_spec("topics", "third", "both"))}
    assert sorted(one.shares["both/dense"] for one in outcome.values()) == [0.0, 1.0, 1.0]


def test_what_was_trained_on_the_cluster_of_another_clustering_does_not_count_as_there(clustered: Do) -> None:
    done(clustered({**FIND, "name": "other", "num_clusters": 2, "domains": ["court", "sea"]}))
    done(clustered({"kind": "make-cluster-domains", "clustering": "other"}))
    planned: list[ClusterModel] = plan_training(job_spec("other", "ensemble", "ensemble"))
    assert not any(one.is_there for one in planned)
    with pytest.raises(BadSpecError, match="exists already"):
        submit_training(job_spec("other", "ensemble", "ensemble"))


def test_a_deleted_domain_leaves_nothing_to_compare_with(clustered: Do) -> None:
    with transaction() as session:
        gone = experts.expert_row(session, "small/court")
        gone.domain_id = None
        session.flush()
    (first, *_) = plan_training(job_spec("topics", "fourth", "small"))
    assert first.shares["small/court"] == 0.0


@pytest.mark.parametrize("output", [{}, {"seed_model": "seed", "branch_from": "ensemble"}])
def test_models_begin_from_a_seed_or_from_experts(output: dict[str, str]) -> None:
    with pytest.raises(BadSpecError, match="a seed model to start from, or a mixture to branch from, and not both"):
        parse_as(TrainClusters, {"clustering": "topics", "name": "elms", **output})


def test_a_mixture_to_branch_from_must_be_there(clustered: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustered
    assert main(["train", "clusters", "topics", "m", "--branch-from", "nobody", "--plan"]) != 0
    assert "nobody" in capsys.readouterr().err
