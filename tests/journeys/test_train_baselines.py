"""The paper's baselines are choices of the same job, and what they make is scored, mixed and extended like experts."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from safetensors.torch import load_file

from engine.config import SamplingConfig
from engine.events import Token
from engine.loading.host import Host
from jobs.queue.submit import submit
from workbench.analysis import perplexity_tables
from workbench.answers.cards import ExpertCard
from workbench.errors import BadSpecError, InUseError
from workbench.job_records import jobs
from workbench.kinds.training.train_joint import TrainJoint
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.perplexities import mix_scores
from workbench.registry import corpora, experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.requests import planning
from workbench.store.storage import get_storage

METHODS = ["demix", "dense", "dense-balanced", "domain-token"]
TWO = ["court", "kitchen"]
BASELINE: dict[str, Any] = {
    "kind": "train-joint",
    "name": "base",
    "seed_model": "seed",
    "domains": TWO,
    "training": {"num_steps": 30, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0, "evaluate_every": 15},
}
SCORE = {"kind": "evaluate", "mixture": "base", "block_size": 32, "max_tokens": 400}
LATE = {
    "kind": "train-expert",
    "name": "sailor",
    "domain": "sea",
    "mixture": "base",
    "training": {"num_steps": 40, "block_size": 32, "learning_rate": 2e-2, "clip": 1.0},
}


def made(names: list[str]) -> list[ExpertCard]:
    with reading() as session:
        return [experts.get_expert(session, name) for name in names]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_experts_that_are_scored_mixed_and_used_alike(trained, method: str) -> None:
    card = trained({**BASELINE, "method": method})
    assert card.state == "done", (card.error, card.next_step)
    names = list(TrainJoint(**{**BASELINE, "method": method}).experts)
    assert (card.result["mixture"], card.result["experts"]) == ("base", names)
    cards = made(names)
    assert [one.method for one in cards] == [method] * len(names)
    assert all(1 < one.metrics["dev_perplexity"] < 320 for one in cards)
    assert trained(SCORE).result["scored"] == 3 * len(names)
    with reading() as session:
        mixed = mix_scores(session, get_storage(), "base")
        modes = InferenceModesRequest(mixture="base", num_blocks=2).answer(session, get_storage())
        table = perplexity_tables.perplexity_table(session, "base")
        plan = planning.plan(session, get_storage(), "base")
        curve = {point.name for point in jobs.metrics(session, card.id)}
    assert {row.domain for row in mixed.domains} == {"court", "kitchen", "sea"}
    own = {row.domain: row.label for row in modes.domains}
    home = dict(zip(table.domains, zip(*table.perplexity, strict=True), strict=True))
    at_home = {one.domain: i for i, one in enumerate(cards) if one.domain}
    assert own == {"sea": None, **{d: pytest.approx(home[d][at_home[d]]) if d in at_home else None for d in TWO}}
    assert curve >= {"loss", "loss/court", "loss/kitchen", "dev_loss/court", "dev_loss/kitchen"}
    shown = list(Host(device="cpu").stream(plan, "the court", SamplingConfig(max_tokens=4, seed=1)))
    assert all(set(event.weights) == set(names) for event in shown if isinstance(event, Token))


@pytest.mark.parametrize("method", ["dense", "dense-balanced"])
def test_a_dense_model_is_one_expert_that_keeps_the_names_of_its_domains(trained, method: str) -> None:
    trained({**BASELINE, "method": method})
    (card,) = made(["base/dense"])
    with reading() as session:
        hashes = sorted(corpora.get_domain(session, name).data_sha256 for name in TWO)
        assert mixtures.get_mixture(session, "base").members[0].expert == "base/dense"
    assert (card.domain, card.domains) == ("", TWO)
    assert card.data_sha256 == hashlib.sha256("".join(hashes).encode()).hexdigest()
    with pytest.raises(InUseError, match="needed by expert “base/dense”"), transaction() as session:
        mixtures.delete_mixture(session, "small")
        for name in ("small/court", "small/kitchen"):
            experts.delete_expert(session, name)
        corpora.delete_corpus(session, "court")


def test_dense_text_comes_as_it_is_and_balanced_text_does_not(trained) -> None:
    for method in ("dense", "dense-balanced"):
        trained({**BASELINE, "name": method, "method": method})
    one, two = made(["dense/dense", "dense-balanced/dense"])
    assert one.sha256 != two.sha256
    assert one.data_sha256 == two.data_sha256
    assert one.num_parameters == two.num_parameters


def test_domains_of_a_token_model_differ_by_one_vector_and_each_knows_its_own_best(trained) -> None:
    trained({**BASELINE, "method": "domain-token"})
    trained(SCORE)
    cards = made(["base/court", "base/kitchen"])
    assert [(card.domain, card.num_parameters) for card in cards] == [("court", 32), ("kitchen", 32)]
    vectors = [load_file(get_storage().path(card.id) / "expert.safetensors") for card in cards]
    assert [{name: tuple(t.shape) for name, t in v.items()} for v in vectors] == [{"domain_token.weight": (1, 32)}] * 2
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, "base")
    (court, kitchen), columns = table.perplexity, table.domains
    assert court[columns.index("court")] < kitchen[columns.index("court")]
    assert kitchen[columns.index("kitchen")] < court[columns.index("kitchen")]


@pytest.mark.parametrize(("method", "kind"), [("dense", "demix"), ("domain-token", "domain-token")])
def test_an_expert_added_to_a_baseline_trains_what_its_experts_have_of_their_own(
    trained, method: str, kind: str
) -> None:
    parents = list(TrainJoint(**{**BASELINE, "method": method}).experts)
    trained({**BASELINE, "method": method})
    card = trained({**LATE, "parent": parents[0]})
    assert card.state == "done", (card.error, card.next_step)
    parent, late = made([parents[0], "sailor"])
    assert (late.method, late.domain, late.num_parameters) == (kind, "sea", parent.num_parameters)
    trained(SCORE)
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, "base")
    sea = dict(zip(table.experts, (row[table.domains.index("sea")] for row in table.perplexity), strict=True))
    assert min(sea, key=sea.__getitem__) == "sailor"


def test_the_name_of_a_dense_expert_is_taken_from_the_moment_of_submission(trained) -> None:
    submit({**BASELINE, "method": "dense"})
    with pytest.raises(BadSpecError, match="An expert called “base/dense” exists already"):
        submit({**LATE, "name": "base/dense", "mixture": "small"})
