"""The smallest set of experts: chosen on dev text, judged on test text, all sets tried while these are few."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ScoresError
from tests.workbench.registry.test_priors import BLOCK, artifact, expert
from workbench.analysis import perplexity_tables
from workbench.questions import smallest_set
from workbench.questions.smallest_set import SmallestSet, SmallestSetRequest, describe_smallest_set
from workbench.registry import mixtures
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Corpus, Domain
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

NAMES = ("law", "sea", "code", "news")
GOOD_AT = {"law": range(0, 160), "sea": range(160, 320)}  # tokens that an expert predicts well; the others none


@pytest.fixture
def scored(home: Path) -> dict[str, dict[str, np.ndarray]]:
    """Four experts on one text, of which two know a half each; the scores by split and expert."""
    draw, arrays = np.random.default_rng(0), dict[str, dict[str, np.ndarray]]()
    with transaction() as session:
        facts = {"num_documents": 1, "num_words": 1, "num_bytes": 1, "data_sha256": "d" * 64}
        domain = Domain(name="all", artifact=artifact(session, "documents"), **facts)
        session.add(Corpus(name="c", source="", domains=[domain]))
        session.flush()
        base = artifact(session, "demix-base")
        ids = {name: expert(session, name, domain, base) for name in NAMES}
        mixtures.create_mixture(session, MixtureSpec(name="four", experts=[*NAMES]))
        for split in ("dev", "test"):
            for name, id in ids.items():
                array = -(4 + draw.normal(0, 0.3, 320)).astype(np.float32)
                array[[*GOOD_AT.get(name, ())]] += 3
                arrays.setdefault(split, {})[name] = array
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
    return arrays


def answer(within: float) -> SmallestSet:
    with reading() as session:
        request = SmallestSetRequest(mixture="four", domain="all", within_percent=within)
        return request.answer(session, get_storage())


def fixed_weights() -> None:
    with transaction() as session:
        mixtures.mixture_row(session, "four").gate = {"kind": "fixed"}


def mean_of(arrays: dict[str, np.ndarray], names: tuple[str, ...]) -> float:
    """The perplexity of equal weights."""
    return float(np.exp(-np.log(np.mean([np.exp(arrays[name].astype(float)) for name in names], 0)).mean()))


def test_two_experts_that_know_a_half_each_are_the_smallest_set(scored: dict[str, dict[str, np.ndarray]]) -> None:
    fixed_weights()
    result = answer(0)
    assert [one.size for one in result.sets] == [1, 2]
    assert result.sets[-1].experts == ["law", "sea"]
    assert (result.is_exact, result.num_tried, result.dev_tokens) == (True, 4 + 6, 320)
    for one in result.sets:
        for split, percent in (("dev", one.dev_percent), ("test", one.test_percent)):
            expected = 100 * (mean_of(scored[split], tuple(one.experts)) / mean_of(scored[split], NAMES) - 1)
            assert percent == pytest.approx(expected, rel=1e-5, abs=1e-4)
        of_size = combinations(NAMES, one.size)
        assert tuple(one.experts) == min(of_size, key=lambda names: mean_of(scored["dev"], names))
    assert result.sets[-1].dev_percent < 0  # the two that know nothing only take weight
    assert "On all, 2 experts (law, sea) are within 0 % of all, whose perplexity" in describe_smallest_set(result)[0]
    assert describe_smallest_set(result)[1] == "Tried: 10 sets, all of these sizes."


def test_an_expert_of_weight_0_is_in_no_set(scored: dict[str, dict[str, np.ndarray]]) -> None:
    assert scored
    fixed_weights()
    with transaction() as session:
        for member in mixtures.mixture_row(session, "four").members:
            member.weight = 0.0 if member.expert.name == "law" else 1.0
    result = answer(0)
    assert result.num_tried == 3
    assert result.sets[-1].experts == ["sea"]


def test_one_is_enough_where_much_may_be_lost(scored: dict[str, dict[str, np.ndarray]]) -> None:
    assert scored
    assert [one.size for one in answer(1000).sets] == [1]


def test_of_many_experts_the_best_is_added_each_time(
    scored: dict[str, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scored
    fixed_weights()
    monkeypatch.setattr(smallest_set, "_MOST_EXACT", 3)
    result = answer(0)
    assert (result.is_exact, result.num_tried) == (False, 4 + 3)
    assert {*result.sets[-1].experts} == {"law", "sea"}
    assert "a smaller one may exist" in describe_smallest_set(result)[1]


def test_a_domain_without_scores_of_dev_text_is_refused_with_the_command(
    scored: dict[str, dict[str, np.ndarray]],
) -> None:
    assert scored
    with pytest.raises(ScoresError, match="workbench evaluate run four --split dev"), reading() as session:
        SmallestSetRequest(mixture="four", domain="none").answer(session, get_storage())
