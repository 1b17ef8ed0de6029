"""Whole models on clusters, mixed by nearness; and one mixture across methods: asked, scored, extended, certified."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import asdict, replace
from typing import Any

import pytest
from sqlalchemy import select

from engine.config import SamplingConfig
from engine.errors import MixtureError, ScoresError
from engine.events import Token
from engine.inference.mixing import Mixing
from engine.loading.host import Host
from engine.mixing.base import mix
from engine.mixing.gate_type import GateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.text.blocks import EvalSample, Tokens
from tests.journeys.conftest import BRANCHES, Do, branch_train_merge, done, planned
from ui.cli.app import main
from ui.present.text.measures import describe_unrouted
from workbench.answers.posteriors import Manifest
from workbench.job_records import jobs
from workbench.questions.cluster_grid import (
    TEMPERATURES,
    ClusterGridRequest,
    SavedGate,
    propose_temperature,
)
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.perplexities import mix_scores
from workbench.registry import corpora, experts, mixtures, reports
from workbench.registry.clusters.clusterings import get_clustering
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Artifact
from workbench.specs.gates import load_gate
from workbench.specs.requests import MixtureRequest, MixtureSpec
from workbench.store.artifacts import find_artifact
from workbench.store.storage import get_storage

CLUSTERS = [f"topics/{number}" for number in range(3)]
SAMPLING = SamplingConfig(max_tokens=12, seed=4)
EVALUATE = {"kind": "evaluate", "mixture": "ensemble", "block_size": 32, "max_tokens": 200}


def elms() -> list[str]:
    return [f"ensemble/{domain[-1]}/dense" for domain in CLUSTERS]


def expert_of(word: str) -> int:
    """The number of the cluster that a word stands for."""
    with reading() as session:
        (number,) = [
            cluster.number for cluster in get_clustering(session, "topics").clusters if word in cluster.terms[:8]
        ]
    return number


def test_what_was_trained_on_clusters_is_weighed_by_nearness_to_them_from_the_command_line_too(
    clustered: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    with reading() as session:
        clustering, card = get_clustering(session, "topics"), mixtures.get_mixture(session, "ensemble")
    assert [member.expert for member in card.members] == elms()
    assert (card.gate["kind"], card.gate["clustering"]) == ("cluster", clustering.id)
    assert main(["evaluate", "run", "ensemble", "--domains", "court", "--block-size", "32", "--here", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["scored"] == 3
    assert main(["generate", "ensemble", "the court held", "--max-tokens", "3", "--seed", "1", "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in message["manifest"]["experts"]} == set(elms())


def test_trained_anew_a_mixture_keeps_how_sharp_its_gate_is(clustered: Do) -> None:
    done(clustered({"kind": "split-cluster", "clustering": "topics", "cluster": "1"}))
    branch_train_merge("topics", "ensemble", num_steps=8)
    with reading() as session:
        card = mixtures.get_mixture(session, "ensemble")
    assert (len(card.members), card.gate["kind"], card.gate["temperature"]) == (4, "cluster", 0.2)


def test_one_cluster_is_the_dense_model_to_the_last_bit(clustered: Do) -> None:  # L2
    find = {"name": "whole", "num_clusters": 1, "dimension": 5, "map_size": 0, "domains": ["court", "kitchen", "sea"]}
    done(clustered({"kind": "find-clusters", **find}))
    branch_train_merge("whole", "plain", num_steps=12)
    dense = {"name": "dense", "seed_model": "seed", "domains": ["whole/0"], "method": "dense"}
    done(clustered({"kind": "train-joint", **dense, "training": {**BRANCHES, "num_steps": 12}}))
    done(clustered({**EVALUATE, "mixture": "plain", "domains": ["court"]}))
    done(clustered({**EVALUATE, "mixture": "dense", "domains": ["court"]}))
    host = Host(device="cpu")
    one, other = (list(host.stream(planned(name), "the court", SAMPLING)) for name in ("plain", "dense"))
    assert [_bare(event) for event in one] == [_bare(event) for event in other]
    with reading() as session:
        (mixed,), (by_itself,) = (mix_scores(session, get_storage(), name).domains for name in ("plain", "dense"))
    assert mixed.perplexity == by_itself.perplexity == by_itself.perplexity_by_expert["dense/dense"]


def _bare(event: Any) -> Any:
    """A token without the names of the experts behind it."""
    return replace(event, weights={}) if isinstance(event, Token) else event


def test_an_edit_leaves_no_distances_to_what_was(clustered: Do) -> None:
    done(clustered({**EVALUATE, "domains": CLUSTERS}))
    assert len(stored_distances()) == 3
    done(clustered({"kind": "pin-documents", "clustering": "topics", "cluster": "1", "documents": [_document()]}))
    assert not stored_distances()
    done(clustered({**EVALUATE, "domains": CLUSTERS}))
    assert len(stored_distances()) == 3


def test_distances_of_blocks_by_themselves_serve_until_the_next_evaluation(clustered: Do) -> None:
    done(clustered({**EVALUATE, "domains": CLUSTERS}))
    with transaction() as session:
        for row in session.scalars(select(Artifact).where(Artifact.kind == "distances")):
            row.key = str(row.key).replace("distances-in-documents:", "distances:")  # as they once were
    with reading() as session:
        assert mix_scores(session, get_storage(), "ensemble").domains
    done(clustered({**EVALUATE, "domains": CLUSTERS}))
    assert len(stored_distances()) == 6


def test_an_edit_takes_no_mixture_down_before_its_models_are_trained_anew(clustered: Do) -> None:
    text, domain = "the appeal is dismissed with costs", {**EVALUATE, "domains": ["court"]}
    sharp = {"gate": load_gate({**asdict_of("ensemble"), "temperature": 0.5})}
    before = Host(device="cpu").posterior(planned("ensemble", **sharp), text)
    done(clustered({"kind": "pin-documents", "clustering": "topics", "cluster": "1", "documents": [_document()]}))
    done(clustered({"kind": "make-cluster-domains", "clustering": "topics"}))
    with reading() as session:
        clusters = get_clustering(session, "topics").clusters
    assert [cluster.domain for cluster in clusters] == ["topics/0.2", "topics/1.2", "topics/2"]
    assert Host(device="cpu").posterior(planned("ensemble", **sharp), text) == before  # a pin moves no centre
    mixed = planned("ensemble", gate=load_gate({**asdict_of("ensemble"), "kind": "cluster-posterior"})).route
    assert mixed is not None
    assert mixed.clusters == (0, 1, 2)
    done(clustered(domain))
    done(clustered({"kind": "merge-clusters", "clustering": "topics", "clusters": ["0", "1"]}))
    done(clustered({"kind": "make-cluster-domains", "clustering": "topics"}))
    route = planned("ensemble").route
    assert route is not None
    assert route.clusters == (0, 0, 1)
    first, second, _ = Host(device="cpu").posterior(planned("ensemble"), text).weights[-1]
    assert first == pytest.approx(second)  # both are of the one cluster now
    done(clustered(domain))


def stored_distances() -> list[str]:
    with reading() as session:
        return list(session.scalars(select(Artifact.id).where(Artifact.kind == "distances")))


def _document() -> str:
    """One that is typical of the first cluster."""
    with reading() as session:
        return get_clustering(session, "topics").clusters[0].representatives[0]


def test_the_expert_of_the_texts_cluster_speaks(clustered: Do) -> None:
    host = Host(device="cpu")
    for text, word in (("the appeal is dismissed with costs", "statute"), ("bake in a hot oven until", "flour")):
        message = host.posterior(planned("ensemble"), text)
        assert message.experts == elms()
        for weights in message.weights:
            assert math.fsum(weights) == pytest.approx(1, abs=1e-6)
        assert max(range(3), key=message.weights[-1].__getitem__) == expert_of(word)


def test_only_the_nearest_is_loaded_and_the_manifest_names_every_base(clustered: Do) -> None:
    host = Host(device="cpu")
    sharp = load_gate({**asdict_of("ensemble"), "top_k": 1})
    events = list(host.stream(planned("ensemble", gate=sharp), "the court held the appeal", SAMPLING))
    led = {max(event.weights, key=event.weights.__getitem__) for event in events if isinstance(event, Token)}
    assert {id for base in host.use().bases for id in base.experts} == {
        expert.id for expert in planned("ensemble").experts if expert.name in led
    }
    assert len(led) < 3
    manifest = Manifest.of(planned("ensemble")).model_dump()
    assert len({one["base_sha256"] for one in manifest["experts"]}) == 3
    assert manifest["clustering_sha256"] == planned("ensemble").route.clustering.sha256  # type: ignore[union-attr]


def asdict_of(mixture: str) -> dict[str, Any]:
    with reading() as session:
        return mixtures.get_mixture(session, mixture).gate


def test_a_host_with_little_memory_gives_the_same(clustered: Do) -> None:
    roomy, tight = Host(device="cpu"), Host(cache_bytes=1, device="cpu")
    assert list(tight.stream(planned("ensemble"), "the court", SAMPLING)) == list(
        roomy.stream(planned("ensemble"), "the court", SAMPLING)
    )
    assert (len(tight.use().bases), len(roomy.use().bases)) == (1, 3)


def live_perplexity(model: str, domain: str) -> float:
    """The perplexity of a scored text, token by token through the loaded models."""
    return math.exp(live_loss(model, EvalSample.of(packed_text(model, domain, "test"), 32, 200)))


def packed_text(model: str, domain: str, split: str) -> Tokens:
    with reading() as session:
        domain_id = corpora.get_domain(session, domain).id
        packed = find_artifact(session, f"tokens:{domain_id}:{planned(model).tokenizer_sha256}")
        assert packed is not None
        return Tokens.open(get_storage().path(packed.id), split)


def live_loss(model: str, text: EvalSample) -> float:
    """The mean loss in nats, block by block: the experts read the block alone, the gate its document from the start."""
    host, total, requested = Host(device="cpu"), 0.0, planned(model)
    for start, (inputs, targets) in zip(text.starts_N, map(text.block, range(len(text.starts_N))), strict=True):
        mixing = Mixing(host._models(requested), [expert.id for expert in requested.experts], host._gate(requested))
        first = max(one for one in text.tokens.starts.tolist() if one <= start)
        for token in text.tokens.array[first:start].tolist():
            mixing._stream.begin(token)  # text, and no evidence
        total += sum(float(mix(*pair)) for pair in mixing.read([*inputs.tolist(), int(targets[-1])]))
    return -total / text.num_tokens


def test_stored_scores_say_what_live_text_says(clustered: Do) -> None:  # L19
    domain = CLUSTERS[0]
    assert done(clustered({**EVALUATE, "domains": CLUSTERS})).result["scored"] == 9
    with reading() as session:
        table = mix_scores(session, get_storage(), "ensemble")
    (row,) = [row for row in table.domains if row.domain == domain]
    assert row.perplexity == pytest.approx(live_perplexity("ensemble", domain), rel=1e-5)
    assert row.perplexity <= 1.2 * min(row.perplexity_by_expert.values())
    assert done(clustered({**EVALUATE, "domains": CLUSTERS})).result["scored"] == 0  # and no distance again
    with reading() as session:
        modes = InferenceModesRequest(mixture="ensemble", num_blocks=2).answer(session, get_storage())
    assert {row.domain: row.mixture for row in modes.domains}[domain] == row.perplexity


def test_scores_without_distances_say_what_is_missing(clustered: Do) -> None:
    with transaction() as session:
        gate = mixtures.get_mixture(session, "ensemble").gate
        mixtures.set_gate(session, "ensemble", PosteriorGateConfig())
    done(clustered({**EVALUATE, "domains": CLUSTERS[:1]}))
    with reading() as session, pytest.raises(ScoresError, match="are not measured") as caught:
        mix_scores(session, get_storage(), MixtureRequest("ensemble", gate=asdict(load_gate(gate))))
    assert "workbench evaluate run ensemble" in str(caught.value)
    with transaction() as session:
        mixtures.set_gate(session, "ensemble", load_gate(gate))
    done(clustered({**EVALUATE, "domains": CLUSTERS[1:2]}))  # with its distances
    with reading() as session:
        table = mix_scores(session, get_storage(), "ensemble")
        modes = InferenceModesRequest(mixture="ensemble", num_blocks=2).answer(session, get_storage())
    for answer in (table, modes):
        assert [row.domain for row in answer.domains] == CLUSTERS[1:2]
        assert answer.unrouted == CLUSTERS[:1]
    assert CLUSTERS[0] in describe_unrouted(table.unrouted)


def test_one_mixture_across_methods(clustered: Do) -> None:
    with transaction() as session:
        job_spec = MixtureSpec(name="all", experts=["small/court", *elms(), "small/kitchen"], weights=[1, 2, 3, 4, 5])
        card = mixtures.create_mixture(session, job_spec)
    assert len(card.base_ids) == 4
    host = Host(device="cpu")
    assert [len(experts) for experts in planned("all").by_base().values()] == [2, 1, 1, 1]
    events = list(host.stream(planned("all"), "the court", SAMPLING))
    first = next(event for event in events if isinstance(event, Token))
    assert list(first.weights) == job_spec.experts
    assert done(clustered({**EVALUATE, "mixture": "all", "domains": ["court", "sea"]})).result["scored"] == 10
    with reading() as session:
        table = mix_scores(session, get_storage(), "all")
        by_itself = mix_scores(session, get_storage(), MixtureRequest("all", active=["small/court"]))
    assert all(row.perplexity <= max(row.perplexity_by_expert.values()) for row in table.domains)
    assert [row.perplexity for row in by_itself.domains] == pytest.approx(
        [row.perplexity_by_expert["small/court"] for row in table.domains]
    )
    off = list(host.stream(planned("all", active=["small/court"]), "the court", SAMPLING))
    assert off == list(host.stream(planned("small/court"), "the court", SAMPLING))  # L2


def combined(**changes: Any) -> GateConfig:
    """The gate for experts with and without a cluster."""
    return load_gate({**asdict_of("ensemble"), "kind": "cluster-posterior", **changes})


@pytest.fixture
def across(clustered: Do) -> list[str]:
    """The mixture “all” of DEMix experts, models of clusters and one of a domain that somebody named, by one gate."""
    sea = {"name": "seafarer", "seed_model": "seed", "domains": ["sea"], "method": "dense"}
    done(clustered({"kind": "train-joint", **sea, "training": BRANCHES}))
    names = ["small/court", *elms(), "seafarer/dense", "small/kitchen"]
    with transaction() as session:
        job_spec = MixtureSpec(name="all", experts=names, weights=[1, 2, 3, 4, 5, 6], gate=combined())
        assert len(mixtures.create_mixture(session, job_spec).base_ids) == 5
    done(clustered({**EVALUATE, "mixture": "all", "domains": ["court", "sea"]}))
    return names


def test_metadata_and_clusters_weigh_together_in_one_mixture_across_methods(across: list[str]) -> None:
    message = Host(device="cpu").posterior(planned("all"), "the ships sailed over the grey rocks")
    nearness = Host(device="cpu").posterior(planned("ensemble"), "the ships sailed over the grey rocks")
    assert message.experts == across
    for position, weights in enumerate(message.weights):
        assert math.fsum(weights) == pytest.approx(1, abs=1e-6)  # L5
        assert position or [weights[0], *weights[4:]] == pytest.approx([1 / 21, 5 / 21, 6 / 21])  # a share of their own
    weighed = [weight * near for weight, near in zip((2, 3, 4), nearness.weights[0], strict=True)]
    expected = [9 / 21 * one / math.fsum(weighed) for one in weighed]
    assert message.weights[0][1:4] == pytest.approx(expected)  # Eq. 3 within what the models of clusters have
    led = across[max(range(6), key=message.weights[-1].__getitem__)]
    assert led in ("seafarer/dense", elms()[expert_of("gulls")])
    with reading() as session:
        table = mix_scores(session, get_storage(), "all")
    assert all(row.perplexity <= 1.3 * min(row.perplexity_by_expert.values()) for row in table.domains)


@pytest.mark.usefixtures("across")
def test_a_gate_is_changed_from_the_command_line_and_keeps_what_is_not_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = [
        "mixture",
        "gate",
        "all",
        "--temperature",
        "3",
        "--evidence",
        "last_token",
        "--clustering",
        "topics",
        "--json",
    ]
    assert main(line) == 0
    gate = json.loads(capsys.readouterr().out)["gate"]
    assert gate == asdict_of("ensemble") | {"kind": "cluster-posterior", "temperature": 3.0, "evidence": "last_token"}
    assert main(["mixture", "perplexity", "all", "--gate", "posterior", "--json"]) == 0
    posterior = [row["perplexity"] for row in json.loads(capsys.readouterr().out)["domains"]]
    assert main(["mixture", "perplexity", "all", "--json"]) == 0
    assert [row["perplexity"] for row in json.loads(capsys.readouterr().out)["domains"]] != posterior
    assert main(["mixture", "gate", "all", "--gate", "cluster"]) != 0
    assert "“small/court” cannot be weighed by nearness: it is not of a cluster of “topics”" in capsys.readouterr().err


@pytest.mark.usefixtures("across")
def test_stored_and_live_weights_across_methods_are_the_same() -> None:  # L19
    with reading() as session:
        (row,) = [domain for domain in mix_scores(session, get_storage(), "all").domains if domain.domain == "sea"]
    assert row.perplexity == pytest.approx(live_perplexity("all", "sea"), rel=1e-5)


def test_what_leaves_a_mixture_across_methods_was_never_there(clustered: Do, across: list[str]) -> None:  # L7
    host, text = Host(device="cpu"), "the court"
    for gone in ("small/court", elms()[0]):
        left = [one for one in across if one != gone]
        weights = [float(1 + across.index(one)) for one in left]
        with transaction() as session:
            job_spec = MixtureSpec(name=f"never {gone[-5:]}", experts=left, weights=weights, gate=combined())
            mixtures.create_mixture(session, job_spec)
        off = list(host.stream(planned("all", active=left), text, SAMPLING))
        assert off == list(Host(device="cpu").stream(planned(job_spec.name), text, SAMPLING))
        with reading() as session:
            without, never = (
                mix_scores(session, get_storage(), MixtureRequest(name, active=left)).domains
                for name in ("all", job_spec.name)
            )
        assert without == never
    named = ["small/court", "small/kitchen"]  # nobody of a cluster: the posterior itself
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="two", experts=named, weights=[1, 6]))
    expected = list(host.stream(planned("two"), text, SAMPLING))
    assert list(host.stream(planned("all", active=named), text, SAMPLING)) == expected
    certified = done(
        clustered(
            {
                "kind": "certify-removal",
                "expert": elms()[0],
                "mixture": "all",
                "block_size": 32,
                "num_blocks": 3,
                "num_prefixes": 10,
                "prefix_length": 16,
                "continuation_length": 8,
                "max_tokens": 100,
            }
        )
    )
    assert certified.result["ok"]
    with transaction() as session:
        assert len(mixtures.remove_member(session, "all", elms()[0]).members) == 5


def test_a_new_expert_joins_on_the_base_of_its_parent(clustered: Do) -> None:
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="all", experts=["small/court", *elms()]))
    late = {"kind": "train-expert", "name": "late", "domain": "sea", "mixture": "all", "training": BRANCHES}
    card = done(clustered(late))
    with reading() as session:
        parent, new = (experts.get_expert(session, name) for name in (card.result["parent"], "late"))
        assert mixtures.get_mixture(session, "all").members[-1].expert == "late"
    assert set(card.result["parent_posterior"]) == {"small/court", *elms()}
    assert parent.name == elms()[expert_of("gulls")]
    assert new.base_id == parent.base_id
    watched = {**late, "name": "watched", "watch": ["court"]}
    assert done(clustered(watched)).result["expert"] == "watched"


def test_the_removal_of_a_full_model_is_certified(clustered: Do) -> None:
    court = expert_of("statute")
    with transaction() as session:
        others = [elm for elm in elms() if elm != elms()[court]]
        experts_named = ["small/court", elms()[court], "small/kitchen", *others]
        mixtures.create_mixture(session, MixtureSpec(name="all", experts=experts_named))
    job_spec = {
        "kind": "certify-removal",
        "expert": "small/court",
        "mixture": "all",
        "block_size": 32,
        "num_blocks": 3,
        "num_prefixes": 10,
        "prefix_length": 16,
        "continuation_length": 8,
        "max_tokens": 100,
    }
    for expert in ("small/court", elms()[court]):  # one shares its base, the other has one of its own
        card = done(clustered({**job_spec, "expert": expert}))
        with reading() as session:
            outcome = reports.get_report(session, card.result["report"]).findings
        assert outcome["ok"], outcome["sentence"]
        assert outcome["identity"]["num_different"] == 0
        assert outcome["identity"]["num_numbers"] > 10_000
        assert len(outcome["shares"]["without_expert"]) == 4


def test_an_addition_to_a_full_model_is_certified_with_all_that_lies_beside(clustered: Do) -> None:
    late = {"kind": "train-expert", "name": "late", "domain": CLUSTERS[0], "mixture": "ensemble", "parent": elms()[0]}
    done(clustered({**late, "training": BRANCHES}))
    card = done(clustered({**EVALUATE, "kind": "certify-addition", "expert": "late"}))
    with reading() as session:
        outcome = reports.get_report(session, card.result["report"]).findings
    assert outcome["ok"]
    assert [one["what"] for one in outcome["folders"]] == [
        "the base",
        f"expert {elms()[0]}",
        *(f"the base of {elm}" for elm in elms()[1:]),
        *(f"expert {elm}" for elm in elms()[1:]),
    ]
    assert outcome["num_tensors"] > 0
    assert all(one["recorded_before"] for one in outcome["folders"])
    assert {one["domain"] for one in outcome["domains"]} >= {CLUSTERS[0]}


def test_an_expert_that_the_gate_cannot_weigh_is_refused_before_it_is_trained(clustered: Do) -> None:
    late = {"kind": "train-expert", "name": "late", "domain": "sea", "mixture": "ensemble", "training": BRANCHES}
    card = clustered(late)
    assert card.state == "failed"
    assert "“late” cannot be weighed by nearness: it is not of a cluster of “topics”." in card.error
    assert done(clustered({**late, "join": False})).result["mixture"] is None


def test_what_is_watched_beside_a_new_expert_of_a_cluster_is_the_mixture_that_holds_it(clustered: Do) -> None:
    training = {**BRANCHES, "evaluation_blocks": 4}
    late = {"kind": "train-expert", "name": "late", "domain": CLUSTERS[0], "mixture": "ensemble", "training": training}
    card = done(clustered({**late, "parent": elms()[0], "watch": [CLUSTERS[1]]}))
    with reading() as session:
        watched = {metric.step: metric.value for metric in jobs.metrics(session, card.id, f"dev_loss/{CLUSTERS[1]}")}
    text = EvalSample.of_blocks(packed_text("ensemble", CLUSTERS[1], "dev"), 32, 4)
    assert watched[30] == pytest.approx(live_loss("ensemble", text), rel=1e-5)
    assert len(set(watched.values())) > 1


def test_what_a_request_may_not_set_on_the_gate_is_refused(clustered: Do) -> None:
    with pytest.raises(MixtureError, match="it is not of a cluster of “topics”"):
        planned("small", gate=load_gate(asdict_of("ensemble")))


def test_the_grid_holds_the_result_of_each_single_gate_and_the_command_prints_it(
    clustered: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    done(clustered(EVALUATE))
    with reading() as session:
        outcome = ClusterGridRequest(mixture="ensemble", temperatures=[0.05, 0.2, 2.0]).answer(session, get_storage())
        gate = mixtures.get_mixture(session, "ensemble").gate
    assert (outcome.top_ks, outcome.saved) == ([1, 2, 3], SavedGate(temperature=0.2, top_k=3))
    assert_each_cell_is_the_mixtures_own(outcome, gate)
    assert main(["evaluate", "grid", "ensemble", "--temperature", "0.1", "--temperature", "1"]) == 0
    shown = capsys.readouterr().out
    assert "The paper's temperature of 0.1 is" in shown
    assert "Proposed temperature: 0.1, the default, since the dev text" in shown


def test_the_temperature_proposed_is_the_best_of_the_grid_on_dev_text_and_never_on_test(
    clustered: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    done(clustered(EVALUATE))
    with reading() as session:
        missing = propose_temperature(session, get_storage(), "ensemble")
    assert (missing.temperature, missing.perplexity, missing.domains) == (missing.default, None, [])
    assert main([*shlex.split(missing.command)[1:], "--block-size", "32", "--max-tokens", "200", "--here"]) == 0
    with reading() as session:
        proposed = propose_temperature(session, get_storage(), "ensemble")
        dev = ClusterGridRequest(mixture="ensemble", split="dev").answer(session, get_storage())
    column = {t: row[dev.top_ks.index(3)] for t, row in zip(dev.temperatures, dev.perplexity, strict=True)}
    assert proposed.perplexity == pytest.approx(min(column[t] for t in TEMPERATURES))
    assert proposed.default_perplexity == pytest.approx(column[0.1])
    assert column[proposed.temperature] == pytest.approx(proposed.perplexity)
    assert dev.proposed == proposed
    capsys.readouterr()
    assert main(shlex.split(proposed.command)[1:]) == 0
    assert f"Proposed temperature: {proposed.temperature:g}" in capsys.readouterr().out
    assert main(["mixture", "show", "ensemble"]) == 0
    assert f"Proposed temperature: {proposed.temperature:g}" in (shown := capsys.readouterr().out)
    assert "It is set." in shown
    assert asdict_of("ensemble")["temperature"] == proposed.temperature


def assert_each_cell_is_the_mixtures_own(outcome: dict[str, Any], gate: dict[str, Any]) -> None:
    """As `mixture perplexity` tells it, experts alike in their prior."""
    alike = dict.fromkeys(outcome.experts, 1.0)
    assert len(outcome.domains) > 1
    for row, temperature in enumerate(outcome.temperatures):
        for column, top_k in enumerate(outcome.top_ks):
            job_spec = load_gate({**gate, "temperature": temperature, "top_k": top_k})
            with reading() as session:
                request = MixtureRequest(outcome.mixture, weights=alike, gate=asdict(job_spec))
                shown = mix_scores(session, get_storage(), request).domains
            by_itself = {one.domain: one.perplexity for one in shown}
            for domain in outcome.domains:
                assert domain.perplexity[row][column] == pytest.approx(by_itself[domain.domain], rel=1e-5)
            total = sum(one.num_tokens for one in shown)
            nats = sum(math.log(one.perplexity) * one.num_tokens for one in shown)
            assert outcome.perplexity[row][column] == pytest.approx(math.exp(nats / total), rel=1e-5)


def test_nearness_with_evidence_has_a_grid_of_its_own(clustered: Do) -> None:
    done(clustered(EVALUATE))
    with transaction() as session:
        nearness = ClusterGridRequest(mixture="ensemble", temperatures=[0.05, 2.0]).answer(session, get_storage())
        mixtures.set_gate(session, "ensemble", combined())
        outcome = ClusterGridRequest(mixture="ensemble", temperatures=[0.05, 2.0]).answer(session, get_storage())
    assert_each_cell_is_the_mixtures_own(outcome, asdict_of("ensemble"))
    assert outcome.perplexity != nearness.perplexity


@pytest.mark.parametrize("changes", [{}, {"evidence": "last_token", "freeze_after": 9}])
def test_a_grid_holds_experts_without_a_cluster_too(across: list[str], changes: dict[str, Any]) -> None:
    with transaction() as session:
        mixtures.set_gate(session, "all", combined(**changes))
        outcome = ClusterGridRequest(mixture="all", temperatures=[0.2, 2.0]).answer(session, get_storage())
    assert (outcome.experts, outcome.top_ks) == (across, [1, 2, 4, 6])
    assert_each_cell_is_the_mixtures_own(outcome, asdict_of("all"))


def test_a_grid_of_another_gate_is_refused_with_what_to_do(clustered: Do) -> None:
    with (
        reading() as session,
        pytest.raises(MixtureError, match="must have a cluster gate, but its gate is “posterior”"),
    ):
        ClusterGridRequest(mixture="small").answer(session, get_storage())
