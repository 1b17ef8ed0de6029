"""The removal of an expert certified: from a spec to a report that outlives the expert."""

from __future__ import annotations

import gc
import json
import math
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.kinds.shared import scoring
from tests.journeys.conftest import Do
from workbench.analysis import perplexity_tables
from workbench.analysis.changes.retrained_baselines import candidates, what_stays
from workbench.answers.cards import ReportCard
from workbench.errors import InUseError
from workbench.job_records import jobs
from workbench.kinds.analysis import CertifyRemoval
from workbench.questions.removal import RemovalRequest
from workbench.registry import corpora, experts, mixtures, reports
from workbench.registry.database import reading, transaction
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

SPEC = {
    "kind": "certify-removal",
    "expert": "small/court",
    "mixture": "small",
    "block_size": 32,
    "num_blocks": 3,
    "num_prefixes": 20,
    "prefix_length": 16,
    "continuation_length": 12,
    "max_tokens": 150,
}
NEVER = {
    "kind": "train-joint",
    "name": "never",
    "seed_model": "seed",
    "domains": ["kitchen", "sea"],
    "training": {"num_steps": 20, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0},
}


def certified(do: Do, **change: Any) -> ReportCard:
    """The report of a certificate that was made."""
    card = do(SPEC | change)
    assert card.state == "done", (card.error, card.next_step)
    with reading() as session:
        report = reports.get_report(session, card.result["report"])
    assert (card.result["ok"], card.result["sentence"]) == (report.findings["ok"], report.findings["sentence"])
    return report


def test_a_removal_is_certified_with_all_three_columns(trained: Do) -> None:
    assert trained(NEVER).state == "done"
    report = certified(trained, retrained="never")
    outcome = report.findings
    assert (report.kind, report.title) == ("removal", "Removal of small/court from small")
    assert outcome["ok"]
    assert outcome["identity"]["num_different"] == 0
    assert outcome["identity"]["num_numbers"] > 10_000
    own, other = outcome["perplexity"]
    assert (own["domain"], own["num_tokens"], own["block_size"]) == ("court", 128, 32)
    assert own["with_expert"] < own["without_expert"]
    assert own["with_expert"] < own["without_domain"]
    assert other["domain"] == "kitchen"
    assert sum(outcome["shares"]["with_expert"].values()) == pytest.approx(1)
    assert len(outcome["shares"]["without_expert"]) == 1  # estimated without the expert
    means, changes = outcome["extraction"]["means"], outcome["extraction"]["changes"]
    assert set(means) == {"with_expert", "without_expert", "without_domain"}
    for measure in ("match", "longest_run", "rouge_l"):
        assert means["with_expert"][measure]["low"] <= means["with_expert"][measure]["mean"]
        assert changes["without_expert"][measure]["mean"] == pytest.approx(
            means["without_expert"][measure]["mean"] - means["with_expert"][measure]["mean"]
        )
    assert "is bit-identical to the mixture that never loaded it" in outcome["sentence"]
    assert f"from {own['with_expert']:.1f} to {own['without_expert']:.1f}" in outcome["sentence"]
    assert "not unlearning" in outcome["not_removed"]
    assert "was also trained on “court”" in outcome["not_removed"]


def test_a_certificate_holds_no_text_and_the_same_spec_gives_the_same_result(trained: Do) -> None:
    one = certified(trained)
    shown = json.dumps(one.findings)
    assert not any(word in shown for word in ("statute", "appeal", "dismissed"))
    with reading() as session:
        num_scores = len(perplexity_tables.list_evaluations(session))
    assert certified(trained).findings == one.findings
    with reading() as session:
        assert len(perplexity_tables.list_evaluations(session)) == num_scores  # nothing was computed twice


def test_a_doctored_model_is_not_certified(trained: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    host = scoring.load_base

    def doctored(base: Any, kept: Any, device: Any) -> Any:
        """A model in which a trace of the first expert seeps into the second as long as it is there."""
        hosted = host(base, kept, device)
        model: Any = hosted.view(list(kept))
        first, *others = model.keys
        with torch.no_grad():
            for key in others:
                for name, tensor in model.expert_state(key).items():
                    tensor.lerp_(model.expert_state(first)[name], 1e-3)
        return hosted

    monkeypatch.setattr(scoring, "load_base", doctored)
    outcome = certified(trained).findings
    assert not outcome["ok"]
    assert outcome["identity"]["num_different"] > 0
    assert outcome["sentence"].startswith("NOT certified")


@pytest.mark.slow
def test_never_are_two_models_in_memory(trained: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained(NEVER).state == "done"
    host, alive, seen = scoring.load_base, weakref.WeakSet[Any](), []

    def watched(base: Any, kept: Any, device: Any) -> Any:
        gc.collect()
        seen.append(len(alive))
        hosted = host(base, kept, device)
        alive.add(hosted)
        return hosted

    monkeypatch.setattr(scoring, "load_base", watched)
    assert certified(trained, retrained="never").findings["ok"]
    assert len(seen) >= 3  # and what had to be scored before
    assert not any(seen)


def test_the_columns_are_those_of_the_stored_scores(trained: Do) -> None:
    own = certified(trained).findings["perplexity"][0]
    with reading() as session:
        table = RemovalRequest(mixture="small", num_blocks=3).answer(session, get_storage())
        scores = perplexity_tables.list_evaluations(session, expert="small/kitchen", split="test")
    by_itself = [one for one in scores if one.domain == "court"]
    first, second = table.rows
    assert (first.expert, second.expert) == ("small/court", "small/kitchen")
    assert first.with_expert == own["with_expert"]
    assert first.without_expert == pytest.approx(
        by_itself[0].perplexity
    )  # one expert is left: the mixture is that expert (L2)
    assert first.without_domain is None
    assert math.isfinite(second.without_expert)


def test_a_report_outlives_its_expert(trained: Do) -> None:
    report = certified(trained)
    with transaction() as session:
        mixtures.remove_member(session, "small", "small/court")
        experts.delete_expert(session, "small/court")
    with reading() as session:
        assert reports.list_reports(session, kind="removal", about_id=report.about_id) == [report]


def test_an_heir_that_stays_is_named(trained: Do) -> None:
    new = {"kind": "train-expert", "name": "advocate", "domain": "court", "mixture": "small", "parent": "small/court"}
    assert trained({**new, "training": {"num_steps": 1, "block_size": 32}}).state == "done"
    outcome = certified(trained).findings
    assert outcome["heirs"] == ["advocate"]
    assert "copied from it remain: “advocate”" in outcome["sentence"]
    assert certified(trained, expert="small/kitchen").findings["heirs"] == []


def test_of_an_expert_that_was_added_later_nothing_is_reported_to_stay(trained: Do) -> None:
    new = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small", "parent": "small/court"}
    assert trained({**new, "training": {"num_steps": 1, "block_size": 32}}).state == "done"
    shown = certified(trained, expert="sailor").findings["not_removed"]
    assert shown.startswith("All that this expert learned on “sea” is removed with its feed-forward networks")
    assert "trained on the domain, too" not in shown


def test_the_same_held_out_text_is_scored_at_two_lengths_when_the_prior_needs_more_of_it(trained: Do) -> None:
    own = certified(trained, split="dev", max_tokens=100, num_blocks=4).findings["perplexity"][0]
    with reading() as session:
        scores = perplexity_tables.list_evaluations(session, expert="small/court", split="dev")
    assert {one.num_tokens for one in scores if one.domain == "court"} == {
        96,
        128,
    }  # whole blocks, spread over the text
    assert own["num_tokens"] == 128


def test_an_expert_that_is_off_is_certified_as_if_it_were_on(trained: Do) -> None:
    before = certified(trained)
    with transaction() as session:
        experts.set_enabled(session, ["small/court"], False)
    assert certified(trained).findings["perplexity"] == before.findings["perplexity"]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"num_blocks": 500}, r"has \d+ blocks of 32 tokens. Its cached prior needs 500. Use fewer blocks"),
        ({"num_prefixes": 9000}, r"There are \d+ pieces of 28 tokens .*; 9000 are needed"),
        ({"expert": "sailor"}, "no expert in “small” called “sailor”"),
        (
            {"retrained": "small"},
            "“small/court” or what it was trained from has seen it",
        ),
        ({"prefix_length": 120}, "132 tokens together; the models read at most 128"),
    ],
    ids=["blocks", "prefixes", "stranger", "knows it", "context"],
)
def test_what_cannot_be_certified_is_refused_and_leaves_no_report(trained: Do, change: Any, shown: str) -> None:
    if change.get("expert"):
        new = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small", "join": False}
        assert trained({**new, "training": {"num_steps": 1, "block_size": 32}}).state == "done"
    card = trained(SPEC | change)
    assert card.state == "failed"
    assert re.search(shown, f"{card.error} {card.next_step}"), (card.error, card.next_step)
    with reading() as session:
        assert reports.list_reports(session) == []


def test_a_mixture_whose_base_has_seen_the_domain_is_not_one_without_it(trained: Do) -> None:
    assert trained(NEVER).state == "done"
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="rest", experts=["small/kitchen"]))
        assert candidates(session, "small/court") == ["never"]
    assert "“small/kitchen” or what it was trained from has seen it" in trained(SPEC | {"retrained": "rest"}).error


def test_a_domain_that_was_renamed_is_still_what_the_experts_were_trained_on(trained: Do) -> None:
    average = {"kind": "average-experts", "name": "mean", "experts": ["small/court", "small/kitchen"]}
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="rest", experts=["small/kitchen"]))
        corpora.domain_row(session, "court").name = "court.2"  # as a rebuild does where the name is taken
    card = trained(average)
    assert card.state == "done", (card.error, card.next_step)
    again = trained({**average, "name": "again", "experts": ["mean/average", "small/kitchen"]})
    assert again.state == "done", (again.error, again.next_step)
    with transaction() as session:
        shown = what_stays(session, "small", experts.expert_row(session, "small/court"))
        assert shown.startswith("Removing this expert is not unlearning")
        assert "trained on “court.2”" in shown
        assert candidates(session, "small/court") == []
        corpora.domain_row(session, "court.2").name = "court.3"
    card = trained({**average, "name": "third", "experts": ["again/average", "small/kitchen"]})
    assert card.state == "done", (card.error, card.next_step)
    with reading() as session:
        assert sorted(experts.get_expert(session, "third/average").domains) == ["court.3", "kitchen"]


def test_the_same_text_under_another_name_is_the_domain_all_the_same(trained: Do, home: Path) -> None:
    copy = home / "copy.jsonl"
    with reading() as session:
        copy.write_bytes(Path(corpora.get_domain(session, "court").source).read_bytes())
        again = {"from one place": corpora.get_domain(session, "court").source, "a copy": str(copy)}
    for name, path in again.items():
        less = {"max_bytes": 9000} if name == "from one place" else {}
        assert trained({"kind": "import-corpus", "name": name, "path": path, **less}).state == "done"
        assert trained({**NEVER, "name": f"on {name}", "domains": ["kitchen", name]}).state == "done"
        error = trained(SPEC | {"retrained": f"on {name}"}).error
        assert "or what it was trained from has seen it" in error, name
    with reading() as session:
        hashes = {corpora.get_domain(session, name).data_sha256 for name in ("court", *again)}
        assert len(hashes) == 2  # that with less text is told by its source
        assert candidates(session, "small/court") == []


def test_the_only_expert_that_is_on_has_nothing_to_be_compared_with(trained: Do) -> None:
    with transaction() as session:
        mixtures.set_active(session, "small", "small/kitchen", False)
    assert "has no other active expert" in trained(SPEC).error


def test_an_expert_that_is_to_be_certified_is_not_deleted_meanwhile(trained: Do) -> None:
    with transaction() as session:
        mixtures.remove_member(session, "small", "small/court")
        jobs.create_job(session, CertifyRemoval(expert="small/court", mixture="small"))
    with pytest.raises(InUseError, match="job “Certify removal small/court”"), transaction() as session:
        experts.delete_expert(session, "small/court")
