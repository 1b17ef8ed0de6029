"""What a scored mixture tells of itself: posteriors by domain, oracle gap, where two experts differ, its cost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from engine.errors import ScoresError
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.journeys.conftest import Do
from ui.api.app import create_app
from ui.cli.app import main
from workbench.analysis.perplexity_tables import perplexity_table
from workbench.analysis.sample_texts import example, passages
from workbench.questions.costs import CostRequest
from workbench.questions.forgetting import ForgettingRequest
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.parent_proposal import NearestRequest
from workbench.questions.perplexities import mix_scores
from workbench.questions.posteriors import PosteriorMapRequest
from workbench.questions.token_comparison import ContrastRequest
from workbench.registry.corpora import domain_row, preview_documents
from workbench.registry.database import reading, transaction
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import set_active
from workbench.registry.priors import get_prior
from workbench.schema.tables import Evaluation
from workbench.settings import Settings
from workbench.store.storage import get_storage

EXPERTS = ["small/court", "small/kitchen"]
TEXT = {"block_size": 32, "max_tokens": 700}


@pytest.fixture
def scored(trained: Do) -> Do:
    """The trained home with every domain scored: 20 blocks of dev and of test, and some tokens more."""
    for split in ("dev", "test"):
        card = trained({"kind": "evaluate", "mixture": "small", "split": split, **TEXT})
        assert card.state == "done", card.error
    return trained


def ask(service: Callable[..., Any], *names: str, **output: Any) -> Any:
    with reading() as session:
        return service(session, get_storage(), *names, **output)


@pytest.mark.usefixtures("scored")
def test_each_domains_text_is_taken_for_its_own_experts() -> None:
    outcome = ask(PosteriorMapRequest(mixture="small", num_blocks=8).answer)
    assert (outcome.experts, outcome.homes) == (EXPERTS, ["court", "kitchen"])
    rows = {row.domain: row for row in outcome.domains}
    assert rows["court"].posterior[0] > 0.9
    assert rows["kitchen"].posterior[1] > 0.9
    for row in rows.values():
        assert row.num_blocks == 8
        assert [len(path) for path in row.trajectory] == [9, 9]
        assert [path[0] for path in row.trajectory] == [0.5, 0.5]
        assert [path[-1] for path in row.trajectory] == row.posterior
        for shares in zip(*row.trajectory, strict=True):
            assert math.fsum(shares) == pytest.approx(1, abs=1e-6)  # L5
    assert rows["court"].stable_after <= 3


@pytest.mark.usefixtures("scored")
def test_estimate_evidence_and_share_of_the_newest_block_are_choices_that_matter() -> None:
    def sea(**output: Any) -> list[float]:
        rows = ask(PosteriorMapRequest(mixture="small", **output).answer).domains
        return next(list(row.posterior) for row in rows if row.domain == "sea")

    default = sea()
    assert default == sea(estimate="updating", evidence="prefix", newest_weight=0.7, num_blocks=100)
    for other in ({"estimate": "mean"}, {"evidence": "last_token"}, {"newest_weight": 0.1}, {"num_blocks": 3}):
        assert sea(**other) != default


@pytest.mark.usefixtures("scored")
def test_less_text_than_requested_is_reported_and_none_is_named() -> None:
    outcome = ask(PosteriorMapRequest(mixture="small").answer)
    assert {row.num_blocks for row in outcome.domains} <= set(range(1, 22))
    with transaction() as session:
        set_active(session, "small", "small/kitchen", False)
    without = ask(PosteriorMapRequest(mixture="small").answer)
    assert without.experts == ["small/court"]
    trained = {row.domain: row.is_trained for row in without.domains}
    assert trained == {"court": True, "kitchen": False, "sea": False}  # kitchen is a training domain of another expert


@pytest.mark.usefixtures("trained")
def test_a_domain_without_a_full_block_is_named(trained: Do) -> None:
    trained({"kind": "evaluate", "mixture": "small", "split": "dev", "block_size": 128, "max_tokens": 100})
    outcome = ask(PosteriorMapRequest(mixture="small").answer)
    assert (outcome.domains, outcome.too_short) == ([], ["court", "kitchen", "sea"])


@pytest.mark.usefixtures("scored")
def test_the_saved_mixture_and_the_oracle_stand_beside_the_modes() -> None:
    outcome = ask(InferenceModesRequest(mixture="small", num_blocks=5).answer)
    mixed = {row.domain: row.perplexity for row in ask(mix_scores, "small").domains}
    for row in outcome.domains:
        assert row.mixture == mixed[row.domain] == row.uniform
        assert row.oracle <= row.naive
    by_domain = {row.domain: row.cached for row in outcome.domains}
    assert [row.domain for row in outcome.domains if row.is_trained] == ["court", "kitchen"]
    own = [by_domain["court"], by_domain["kitchen"]]
    assert outcome.averages.train["cached"] == pytest.approx(sum(own) / 2)
    assert outcome.averages.novel["cached"] == by_domain["sea"]  # it may train a model, but trained none of these
    without = ask(InferenceModesRequest(mixture="small", num_blocks=1000).answer).averages
    assert without.train["cached"] is None
    assert without.novel["label"] is None  # the sea has no expert of its own


def stored_scores(session: Session, expert: str) -> NDArray[np.float32]:
    """What is stored of an expert on the kitchen's test text."""
    job_spec = {
        "expert_id": expert_row(session, expert).id,
        "domain_id": domain_row(session, "kitchen").id,
        "split": "test",
    }
    row = session.scalars(select(Evaluation).filter_by(**job_spec)).one()
    return np.asarray(np.load(get_storage().path(row.artifact_id) / "logprobs.npy"))


@pytest.mark.usefixtures("scored")
def test_where_two_experts_differ_is_shown_by_passage_and_token() -> None:
    outcome = ask(
        ContrastRequest(
            domain="kitchen", expert="small/court", rival="small/kitchen", num_passages=2, max_tokens=30
        ).answer
    )
    with reading() as session:
        table = perplexity_table(session, "small")
    court, kitchen = (row[table.domains.index("kitchen")] for row in table.perplexity)
    assert outcome.overall == pytest.approx(math.log(kitchen / court), rel=1e-5)
    means = [document.mean for document in outcome.worst] + [document.mean for document in outcome.best][::-1]
    assert means == sorted(means)
    assert len(outcome.worst) == 2
    with reading() as session:
        tokenizer = load_tokenizer(get_storage().path(expert_row(session, EXPERTS[0]).base_id))
        scores = [stored_scores(session, name) for name in EXPERTS]
    ids = []
    for one in ask(preview_documents, "kitchen", split="test"):
        ids += [tokenizer.bos_id, *tokenizer.encode(str(one.text))]
    for passage in outcome.worst + outcome.best:
        full = [n for n in range(0, len(ids) - 1, 32) if tokens_at(tokenizer, ids, n) == "".join(passage.tokens)]
        assert full, "a passage is a block of the text that was scored"
        expected = [(scores[0] - scores[1])[n : n + 30] for n in full]  # score n is that of token n + 1
        assert any(passage.differences == pytest.approx(one, abs=1e-5) for one in expected)


def tokens_at(tokenizer: Tokenizer, ids: list[int], start: int) -> str:
    """What a block's first 30 predicted tokens say."""
    shown = tokenizer.stream()
    return "".join(shown.push(one) for one in ids[start + 1 : start + 33][:30])


@pytest.mark.usefixtures("scored")
def test_a_passage_that_is_shown_in_full_has_the_mean_of_its_tokens() -> None:
    outcome = ask(ContrastRequest(domain="sea", expert="small/court", rival="small/kitchen", max_tokens=1000).answer)
    assert (len(outcome.worst), len(outcome.best)) == (3, 3)
    for passage in outcome.worst + outcome.best:
        assert len(passage.differences) == len(passage.tokens) == passage.num_tokens
        assert passage.mean == pytest.approx(sum(passage.differences) / passage.num_tokens)
    assert max(one.mean for one in outcome.worst) < min(one.mean for one in outcome.best)


@pytest.mark.usefixtures("scored")
def test_the_text_to_try_a_mixture_on_is_what_its_experts_differ_on_most() -> None:
    [text, *_] = ask(passages, "small", "kitchen", split="test")
    comparison = ContrastRequest(
        domain="kitchen", expert="small/kitchen", rival="small/court", num_passages=1, max_tokens=1000
    )
    [most_telling] = ask(comparison.answer).best
    assert text in "".join(most_telling.tokens)
    assert text[:100] in ask(example, "small")


def test_experts_without_scores_of_the_same_text_are_refused_with_a_next_step(trained: Do) -> None:
    with pytest.raises(ScoresError, match="not scored on the same test text of “sea”"):
        ask(ContrastRequest(domain="sea", expert=EXPERTS[0], rival=EXPERTS[1]).answer)


@pytest.mark.usefixtures("trained")
def test_a_mixture_of_two_costs_twice_one_expert_and_training_three_times() -> None:
    outcome = ask(CostRequest(mixture="small", context=64).answer)
    assert outcome.mixture == 2 * outcome.forward
    assert outcome.training == 3 * outcome.forward > outcome.adapting > outcome.forward
    assert outcome.shape.num_layers == 2


@pytest.mark.usefixtures("trained")
def test_a_training_keeps_how_fast_it_was() -> None:
    from workbench.job_records import jobs

    with reading() as session:
        card = next(iter(jobs.list_jobs(session, kind="train-joint")))
    measured, cost = card.result["throughput"], ask(CostRequest(mixture="small", context=32).answer).training
    assert measured["flops_per_token"] == cost
    assert measured["flops_per_update"] == cost * 2 * 2 * 32  # two sequences of each of two domains
    assert measured["flops_per_second"] == pytest.approx(cost * measured["tokens_per_second"])


@pytest.mark.usefixtures("scored")
def test_the_command_line_shows_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "posteriors", "small", "--blocks", "5"]) == 0
    out = capsys.readouterr().out
    assert "after 5 blocks" in out
    assert [line.split()[1] for line in out.splitlines()[2:]] == ["yes", "yes", "no"]
    assert "updating" in out
    assert main(["evaluate", "posteriors", "small", "--estimate", "mean", "--evidence", "last_token", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == "mean"
    assert main(["mixture", "inference-modes", "small", "--blocks", "5"]) == 0
    out = capsys.readouterr().out
    assert "Oracle" in out
    assert "Mean of 2 domains that trained its experts" in out
    assert "Of these, its experts were trained on court, kitchen." in out
    assert "Oracle: the best single expert of each block" in out
    assert "A dash under label: there is no expert of the domain's own." in " ".join(out.split())
    assert main(["mixture", "inference-modes", "small"]) == 0
    out = capsys.readouterr().out
    assert "Not shown: cached, since on every domain fewer than 100 dev blocks are scored." in " ".join(out.split())
    assert "Cached" not in out
    assert main(["evaluate", "contrast", "sea", *EXPERTS]) == 0
    out = capsys.readouterr().out
    assert "Gain in nats per token" in out
    assert f"A gain above 0: {EXPERTS[0]} predicts the passage better than {EXPERTS[1]}." in out
    assert main(["mixture", "cost", "small"]) == 0
    assert "2 experts" in capsys.readouterr().out


def test_the_parent_that_is_proposed_is_the_one_that_a_training_chooses(
    scored: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["expert", "nearest", "sea", "--mixture", "small", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["block_size"], outcome["split"], outcome["learning_rate"]) == (32, "dev", pytest.approx(5e-4))
    new = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small"}
    card = scored({**new, "training": {"num_steps": 1, "block_size": 32}})
    assert card.result["parent"] == outcome["parent"]
    assert card.result["parent_posterior"] == pytest.approx(outcome["posterior"], abs=0.1)  # of all its dev text
    assert main(["expert", "nearest", "sea", "--mixture", "small", "--blocks", "5"]) == 2  # the new one has no scores
    assert "workbench evaluate run small --split dev --domains sea" in capsys.readouterr().err
    assert main(["mixture", "remove", "small", "sailor"]) == 0
    assert main(["expert", "nearest", "sea", "--mixture", "small", "--blocks", "5"]) == 0
    assert f"Proposed parent: {outcome['parent']}" in capsys.readouterr().out


def as_json(answer: BaseModel) -> Any:
    return answer.model_dump(mode="json")


@pytest.mark.usefixtures("scored")
def test_the_api_answers_what_the_services_say(home: Path) -> None:
    app = create_app(Settings(home=home), playground=False)

    def post(what: str, **job_spec: Any) -> Any:
        return api.post(f"/v1/workbench/{what}", json=job_spec)

    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        output = {"evidence": "last_token", "estimate": "mean", "num_blocks": 5, "split": "test"}
        outcome = ask(PosteriorMapRequest(mixture="small", **output).answer)
        assert post("posteriors", mixture="small", **output).json() == as_json(outcome)
        pair = {"domain": "sea", "expert": EXPERTS[0], "rival": EXPERTS[1]}
        assert post("contrast", **pair).json() == as_json(ask(ContrastRequest(**pair).answer))
        assert post("inference-modes", mixture="small", num_blocks=5).json() == as_json(
            ask(InferenceModesRequest(mixture="small", num_blocks=5).answer)
        )
        made = post("priors", name="for the sea", mixture="small", domain="sea", num_blocks=5).json()
        assert made == ask(lambda session, _: get_prior(session, "for the sea")).model_dump()
        refused = post("priors", name="too much", mixture="small", domain="sea", num_blocks=5000)
        assert (refused.status_code, "needs 5000 blocks" in refused.text) == (400, True)
        assert post("contrast", **{**pair, "rival": "nobody"}).status_code == 404
        parent = {"mixture": "small", "domain": "sea"}
        assert post("nearest", **parent).json() == as_json(ask(NearestRequest(**parent).answer))
        both = {"before": "small", "after": EXPERTS[0]}
        assert post("forgetting", **both).json() == as_json(ask(ForgettingRequest(**both).answer))
