"""Priors are things of their own: estimated on exactly the blocks asked for, and refused for other experts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete
from sqlalchemy.orm import Session

from engine.errors import MixtureError, ScoresError
from ui.present.text.parents import describe_parent, describe_unscored, proposal_rows
from workbench.analysis import perplexity_tables
from workbench.errors import BadSpecError, NameTakenError, NotFoundError
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.parent_proposal import NearestRequest, ParentProposal, unscored_parents
from workbench.questions.posteriors import PriorRequest
from workbench.registry import experts, mixtures, priors
from workbench.registry.database import reading, transaction
from workbench.schema.base import new_id
from workbench.schema.tables import Artifact, Corpus, Domain, Evaluation
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts
from workbench.store.storage import get_storage

BLOCK = 16


def artifact(session: Session, kind: str, arrays: dict[str, np.ndarray] | None = None) -> Artifact:
    id = new_id()
    with get_storage().new(id) as folder:
        (folder / "scores.json").write_text(json.dumps({"block_size": BLOCK, "num_tokens": 320}))
        for name, array in (arrays or {}).items():
            np.save(folder / name, array)
    return artifacts.register_artifact(session, get_storage(), id, kind)


def expert(session: Session, name: str, domain: Domain, base: Artifact) -> str:
    made = artifact(session, "demix-expert")
    return experts.register_expert(
        session,
        id=made.id,
        name=name,
        method="demix",
        domain_id=domain.id,
        seed_id=None,
        parent_id=None,
        base=base,
        artifact=made,
        tokenizer_sha256="t" * 64,
        data_sha256="d" * 64,
        num_parameters=1,
        config={},
        metrics={},
    ).id


@pytest.fixture
def scored(home: Path) -> None:
    """A mixture of two experts, each best at home, with 20 scored blocks of dev and of test on both domains."""
    draw = np.random.default_rng(0)
    with transaction() as session:
        corpus = Corpus(name="c", source="")
        facts = {"num_documents": 1, "num_words": 1, "num_bytes": 1, "data_sha256": "d" * 64}
        domains = [Domain(name=n, artifact=artifact(session, "documents"), **facts) for n in ("law", "sea")]
        corpus.domains = domains
        session.add(corpus)
        session.flush()
        base = artifact(session, "demix-base")
        ids = [expert(session, f"both/{domain.name}", domain, base) for domain in domains]
        mixtures.create_mixture(session, MixtureSpec(name="both", experts=["both/law", "both/sea"]))
        for split in ("dev", "test"):
            for domain in domains:
                for id, home_of in zip(ids, domains, strict=True):
                    mean = 2.0 if home_of is domain else 4.0
                    array = -(mean + draw.normal(0, 0.3, 320)).astype(np.float32)
                    perplexity_tables.register_evaluation(
                        session,
                        expert_id=id,
                        domain_id=domain.id,
                        split=split,
                        block_size=BLOCK,
                        num_tokens=320,
                        log_likelihood=float(array.sum()),
                        artifact=artifact(session, "scores", {"logprobs.npy": array}),
                    )


def test_a_prior_is_estimated_on_exactly_the_requested_blocks_and_says_so(scored: None) -> None:
    with transaction() as session:
        card = priors.keep_estimate(
            session,
            "on law",
            PriorRequest(name="", mixture="both", domain="law", num_blocks=20).answer(session, get_storage()),
        )
    assert card.shares["both/law"] > 0.99
    assert sum(card.shares.values()) == pytest.approx(1)
    assert card.source.model_dump() == {
        "mixture": "both",
        "domain": "law",
        "split": "dev",
        "num_blocks": 20,
        "block_size": BLOCK,
        "evidence": "prefix",
    }
    with reading() as session:
        assert priors.list_priors(session) == [card]


def test_fewer_blocks_than_requested_is_refused_and_nothing_is_kept(scored: None) -> None:
    with pytest.raises(MixtureError, match="needs 21 blocks; there are 20"), reading() as session:
        PriorRequest(name="", mixture="both", domain="law", num_blocks=21).answer(session, get_storage())
    with reading() as session:
        assert priors.list_priors(session) == []


def test_a_domain_that_was_not_scored_is_refused_with_the_command_that_scores_it(scored: None) -> None:
    with pytest.raises(ScoresError, match="workbench evaluate run both --split dev"), reading() as session:
        PriorRequest(name="", mixture="both", domain="moon").answer(session, get_storage())


def test_an_estimate_of_an_expert_that_was_deleted_meanwhile_is_not_kept(scored: None) -> None:
    with reading() as session:
        estimate = PriorRequest(name="", mixture="both", domain="law", num_blocks=20).answer(session, get_storage())
    with pytest.raises(NotFoundError), transaction() as session:
        priors.keep_estimate(
            session, "on law", estimate.model_copy(update={"shares": {**estimate.shares, "f" * 32: 0.1}})
        )


def test_the_parent_is_proposed_from_stored_scores_with_what_it_rests_on(scored: None) -> None:
    with reading() as session:
        result = NearestRequest(mixture="both", domain="law", num_blocks=7).answer(session, get_storage())
        assert unscored_parents(session, "both", "law") == ([], 2)
    assert (result.parent, result.num_blocks, result.block_size) == ("both/law", 7, BLOCK)
    assert sum(result.posterior.values()) == pytest.approx(1)
    assert result.posterior["both/law"] > 0.99
    assert result.of_lowest_perplexity == "both/law"
    assert result.perplexity["both/law"] < result.perplexity["both/sea"]


def test_a_parent_that_is_best_in_most_blocks_and_far_off_in_the_others_is_shown_with_its_perplexity() -> None:
    proposal = ParentProposal(
        mixture="m",
        domain="sea",
        parent="a",
        posterior={"a": 0.57, "b": 0.43},
        perplexity={"a": 7849.0, "b": 527.0},
        num_blocks=100,
        block_size=256,
        split="dev",
        learning_rate=None,
    )
    assert "Perplexity disagrees: b has 527.0 on these blocks, a 7,849." in describe_parent(proposal)
    assert proposal_rows(proposal)[0] == ("a", "0.57", "7,849")
    agreed = proposal.model_copy(update={"perplexity": {"a": 500.0, "b": 527.0}})
    assert "disagrees" not in describe_parent(agreed)


def test_without_scores_no_parent_is_proposed_and_how_to_get_them_is_named(scored: None) -> None:
    with transaction() as session:
        session.execute(delete(Evaluation).where(Evaluation.split == "dev"))
    with reading() as session:
        assert unscored_parents(session, "both", "law") == (["both/law", "both/sea"], 0)
        with pytest.raises(ScoresError, match="workbench evaluate run both --split dev --domains law"):
            NearestRequest(mixture="both", domain="law").answer(session, get_storage())


def test_only_the_experts_without_scores_are_named(scored: None) -> None:
    with transaction() as session:
        sea = experts.get_expert(session, "both/sea").id
        session.execute(delete(Evaluation).where(Evaluation.split == "dev", Evaluation.expert_id == sea))
    with reading() as session:
        missing, num_scored = unscored_parents(session, "both", "law")
    assert (missing, num_scored) == (["both/sea"], 1)
    words = describe_unscored("law", missing, num_scored)
    assert "score the dev text of law under both/sea (the other expert has scores): " in words
    assert "under" not in describe_unscored("law", ["both/law", "both/sea"], 0)


def test_a_prior_for_other_experts_is_refused(scored: None) -> None:
    with transaction() as session:
        priors.give_prior(session, "half", {"both/law": 2.0})
    with pytest.raises(MixtureError, match="has no share for the expert"), reading() as session:
        priors.weights_under(session, "half", ["both/law", "both/sea"])


def test_a_prior_by_hand_is_scaled_and_names_are_unique(scored: None) -> None:
    with transaction() as session:
        card = priors.give_prior(session, "mine", {"both/law": 3.0, "both/sea": 1.0})
        assert card.shares == {"both/law": 0.75, "both/sea": 0.25}
        with pytest.raises(NameTakenError):
            priors.give_prior(session, "mine", {"both/law": 1.0})
        with pytest.raises(BadSpecError):
            priors.give_prior(session, "nothing", {"both/law": 0.0})
        with pytest.raises(NotFoundError):
            priors.give_prior(session, "stranger", {"nobody": 1.0})
        priors.delete_prior(session, "mine")
        assert priors.list_priors(session) == []


def test_modes_come_in_the_papers_order_on_text_of_one_domain(scored: None) -> None:
    with reading() as session:
        result = InferenceModesRequest(mixture="both", num_blocks=20).answer(session, get_storage())
    for row in result.domains:
        assert row.label == row.naive
        assert row.average > row.uniform > row.updating > row.naive * 0.999
        assert row.cached == pytest.approx(row.label, rel=0.02)


def test_a_cached_mode_without_enough_held_out_text_is_none_not_a_guess(scored: None) -> None:
    with reading() as session:
        result = InferenceModesRequest(mixture="both", num_blocks=100).answer(session, get_storage())
    assert [row.cached for row in result.domains] == [None, None]
