"""Clusterings in the registry: rows stay themselves through edits, names are found, what changed is stale."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workbench.conftest import World
from workbench.answers.cards import ClusteringCard
from workbench.errors import BadSpecError, InUseError, JobError, NotFoundError
from workbench.job_records import jobs
from workbench.kinds.clusters import MergeClusters, SplitCluster
from workbench.kinds.data import MakeDomain
from workbench.registry import corpora, experts, mixtures
from workbench.registry.clusters.cluster_routing import cluster_numbers, corpus_name, domain_names, set_domains
from workbench.registry.clusters.clusterings import (
    ClusterFacts,
    change_cluster,
    clustering_files,
    clustering_row,
    delete_clustering,
    describe_cluster,
    get_clustering,
    list_clusterings,
    register_clustering,
    replace_clusters,
)
from workbench.schema.tables import Artifact, Domain
from workbench.specs.requests import MixtureSpec


def facts(*terms: str, **other: Any) -> ClusterFacts:
    return ClusterFacts(10, list(terms), ["a" * 64], **other)


def clustering(world: World, *clusters: ClusterFacts) -> ClusteringCard:
    """“topics” of the domains law and news."""
    world.corpus("library", "law", "news")
    domains = [corpora.get_domain(world.session, name) for name in ("law", "news")]
    return register_clustering(
        world.session,
        id="c" * 32,
        name="topics",
        config={},
        num_fitted=5,
        metrics={"costs": [1.0]},
        sources=[{"id": domain.id, "name": domain.name, "data_sha256": domain.data_sha256} for domain in domains],
        clusters=clusters or [facts("court", "judge", "law"), facts("vote", "party")],
        artifact=world.artifact(),
    )


def with_domains(world: World) -> dict[int, str]:
    """Makes the domains of its clusters; gives their names."""
    row = clustering_row(world.session, "topics")
    names = domain_names(world.session, row)
    world.corpus(corpus_name(world.session, row), *names.values(), clustering_id=row.id)
    ids = {number: corpora.get_domain(world.session, name).id for number, name in names.items()}
    set_domains(world.session, row, ids)
    return names


def edit(world: World, *clusters: ClusterFacts) -> ClusteringCard:
    row = clustering_row(world.session, "topics")
    return replace_clusters(world.session, row.id, row.artifact_id, world.artifact(), {}, clusters)


def test_clusters_are_called_after_their_terms_and_never_alike(world: World) -> None:
    card = clustering(world, *[facts("law", "court")] * 2, facts(), facts("1984"), facts("a,b", "c"))
    assert [cluster.name for cluster in card.clusters] == ["law court", "law court #1", "#2", "1984 #3", "ab c"]
    assert card.num_documents == 50
    assert list_clusterings(world.session) == [get_clustering(world.session, "topics")]


def test_terms_that_an_earlier_version_stored_are_shown_without_placeholders(world: World) -> None:
    card = clustering(world, facts("#NUMBER", "phone_number", "court"))
    assert card.clusters[0].terms == ["court"]


def test_a_part_whose_numbered_name_another_cluster_has_is_counted_on(world: World) -> None:
    clustering(world, *[facts("law", "court")] * 3)
    merged = edit(world, facts("law", "court", before=0, changed=True), facts("law", "court", before=2))
    assert [cluster.name for cluster in merged.clusters] == ["law court", "law court #2"]
    parts = [facts("law", "court", before=0, changed=True), facts("law", "court", before=1), facts("law", "court")]
    assert [cluster.name for cluster in edit(world, *parts).clusters] == ["law court", "law court #2", "law court #2.2"]


def test_a_cluster_is_retrieved_by_number_and_name(world: World) -> None:
    clustering(world)
    files = clustering_files(world.session, world.storage, "topics")
    assert [files.number(one) for one in ("0", "1", "vote party")] == [0, 1, 1]
    assert [source.name for source in files.sources] == ["law", "news"]
    for wrong in ("2", "-1", "moon", ""):
        with pytest.raises(NotFoundError, match="Known: 0 \\(court judge law\\), 1 \\(vote party\\)"):
            files.number(wrong)
        with pytest.raises(NotFoundError):
            change_cluster(world.session, "topics", wrong, notes="x")


def test_a_name_must_be_a_word_that_no_other_cluster_has(world: World) -> None:
    clustering(world)
    for wrong in ("vote party", "7", "", "a,b"):
        with pytest.raises(BadSpecError):
            change_cluster(world.session, "topics", "0", name=wrong)
    assert change_cluster(world.session, "topics", "0", name="the law").clusters[0].name == "the law"


def test_a_name_that_unfinished_jobs_know_a_cluster_by_stays(world: World) -> None:
    first, second = clustering(world, facts("a"), facts("b")).clusters
    jobs.create_job(world.session, MakeDomain(clustering="others", name="x", clusters=["a", "b"]))
    jobs.create_job(world.session, SplitCluster(clustering="topics", cluster="a"))
    with pytest.raises(InUseError, match="The cluster “a” cannot be renamed: it is needed by job “Split a clus"):
        change_cluster(world.session, "topics", "0", name="first")
    with pytest.raises(InUseError):
        describe_cluster(world.session, first.id, "first", "")
    assert describe_cluster(world.session, first.id, "a", "mine").clusters[0].notes == "mine"
    assert change_cluster(world.session, "topics", "b", name="second").clusters[1].id == second.id


def test_a_cluster_named_by_its_id_is_that_one_whatever_its_number_is_now(world: World) -> None:
    _, second, third = clustering(world, facts("a"), facts("b"), facts("c")).clusters
    edit(world, facts("a", "b", before=0, changed=True), facts("c", before=2))
    card = describe_cluster(world.session, third.id, "third", "mine")
    assert [(cluster.id, cluster.name, cluster.notes) for cluster in card.clusters][1:] == [(third.id, "third", "mine")]
    with pytest.raises(BadSpecError, match="was merged into another one"):
        describe_cluster(world.session, second.id, "second", "")
    with pytest.raises(BadSpecError, match="is already called “third”"):
        describe_cluster(world.session, card.clusters[0].id, "third", "")


def test_an_edit_keeps_the_rows_that_stay_with_names_notes_and_domains(world: World) -> None:
    clustering(world, facts("a"), facts("b"), facts("c"))
    with_domains(world)
    change_cluster(world.session, "topics", "2", name="third")
    change_cluster(world.session, "topics", "2", notes="mine")
    before = get_clustering(world.session, "topics")
    after = edit(world, facts("a", "b", before=0, changed=True), facts("c", before=2), facts("d"))
    assert [cluster.id for cluster in after.clusters[:2]] == [before.clusters[0].id, before.clusters[2].id]
    assert [
        (cluster.number, cluster.name, cluster.notes, cluster.domain, cluster.stale) for cluster in after.clusters
    ] == [
        (0, "a", "", "topics/0", True),
        (1, "third", "mine", "topics/2", False),
        (2, "d", "", None, False),
    ]
    assert after.clusters[0].terms == ["a", "b"]


def test_experts_are_stale_when_their_cluster_changed_or_is_gone_and_no_others(world: World) -> None:
    clustering(world, facts("a"), facts("b"), facts("c"))
    for domain in with_domains(world).values():
        world.expert(f"on {domain}", domain)
    world.expert("on law", "law")
    assert not any(expert.stale for expert in experts.list_experts(world.session))
    card = edit(world, facts("a", "b", before=0, changed=True), facts("c", before=2))  # the second was merged away
    stale = [expert.name for expert in experts.list_experts(world.session) if expert.stale]
    assert stale == card.stale_experts == ["on topics/0", "on topics/1"]
    assert [cluster.experts for cluster in card.clusters] == [["on topics/0"], ["on topics/2"]]


def test_changed_clusters_get_new_domains_under_free_names(world: World) -> None:
    clustering(world)
    assert with_domains(world) == {0: "topics/0", 1: "topics/1"}
    assert domain_names(world.session, clustering_row(world.session, "topics")) == {}
    edit(world, facts("a", before=0, changed=True), facts("b", before=1))
    assert with_domains(world) == {0: "topics/0.2"}
    assert [corpus.name for corpus in corpora.list_corpora(world.session)] == ["library", "topics", "topics 2"]
    assert not any(cluster.stale for cluster in get_clustering(world.session, "topics").clusters)


def test_a_former_domain_is_of_the_cluster_it_was_made_of_and_a_merge_carries_it_over(world: World) -> None:
    id = clustering(world, facts("a"), facts("b"), facts("c")).id
    with_domains(world)
    edit(world, facts("a", before=0), facts("b", before=1, changed=True), facts("c", before=2, changed=True))
    assert with_domains(world) == {1: "topics/1.2", 2: "topics/2.2"}
    assert numbers(world, id) == {"topics/0": 0, "topics/1": 1, "topics/1.2": 1, "topics/2": 2, "topics/2.2": 2}
    edit(world, facts("a", "c", before=0, changed=True, merged=frozenset({2})), facts("b", before=1))
    assert numbers(world, id) == {"topics/0": 0, "topics/1": 1, "topics/1.2": 1, "topics/2": 0, "topics/2.2": 0}
    with_domains(world)
    edit(world, facts("a", "b", "c", before=0, changed=True, merged=frozenset({1})))
    assert set(numbers(world, id).values()) == {0}
    assert len(numbers(world, id)) == 6


def numbers(world: World, id: str) -> dict[str, int]:
    """The number of each domain's cluster by the domain's name."""
    return {
        world.session.get_one(Domain, domain).name: number
        for domain, number in cluster_numbers(world.session, id).items()
    }


def test_an_edit_of_what_changed_meanwhile_is_refused(world: World) -> None:
    card = clustering(world)
    row = clustering_row(world.session, "topics")
    was = row.artifact_id
    edit(world, facts("a", before=0), facts("b", before=1))
    assert world.session.get(Artifact, was) is None
    with pytest.raises(JobError, match="Try again"):
        replace_clusters(world.session, card.id, was, world.artifact(), {}, [facts("a", before=0)])


def test_a_source_whose_text_is_another_is_gone(world: World) -> None:
    clustering(world)
    corpora.domain_row(world.session, "news").data_sha256 = "f" * 64
    files = clustering_files(world.session, world.storage, "topics")
    assert [source.kept is None for source in files.sources] == [False, True]


def test_a_clustering_in_use_says_who_needs_it(world: World) -> None:
    clustering(world)
    with_domains(world)
    expert = world.expert("judge", "topics/0")
    mixtures.create_mixture(world.session, MixtureSpec(name="m", experts=[expert.name]))
    mixtures.mixture_row(world.session, "m").gate = {"kind": "cluster", "clustering": "c" * 32}
    jobs.create_job(world.session, MergeClusters(clustering="topics", clusters=["0", "1"]))
    with pytest.raises(InUseError) as caught:
        delete_clustering(world.session, "topics")
    for user in ("expert “judge”", "mixture “m”", "job “Merge clusters of topics”"):
        assert user in caught.value.problem
    with pytest.raises(InUseError, match="clustering “topics”"):
        corpora.delete_corpus(world.session, "library")


def test_a_clustering_that_nobody_needs_goes_and_its_domains_stay(world: World) -> None:
    clustering(world)
    with_domains(world)
    delete_clustering(world.session, "topics")
    assert list_clusterings(world.session) == []
    assert corpora.get_domain(world.session, "topics/0").name == "topics/0"
    corpora.delete_corpus(world.session, "topics")
    corpora.delete_corpus(world.session, "library")
    assert [one.kind for one in world.session.query(Artifact)] == []


def test_a_cluster_outlives_its_domain(world: World) -> None:
    clustering(world)
    with_domains(world)
    corpora.delete_corpus(world.session, "topics")
    assert [cluster.domain for cluster in get_clustering(world.session, "topics").clusters] == [None, None]
