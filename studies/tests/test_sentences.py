"""Every listed sentence of a paper is judged by a claim or says why not, and every claim judges a sentence."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from studies.tests import cbtm_worlds, demix_worlds, mode_worlds
from workbench_studies.cbtm.claims import STUDY as CBTM
from workbench_studies.cbtm.claims import judge as judge_cbtm
from workbench_studies.core.study import Sentence
from workbench_studies.core.verdicts import UNTESTABLE, Verdict
from workbench_studies.demix.claims import STUDY as DEMIX
from workbench_studies.demix.claims import judge as judge_demix
from workbench_studies.mode.claims import STUDY as MODE
from workbench_studies.mode.claims import judge as judge_mode


def verdicts_of(paper: str) -> list[Verdict]:
    """Every verdict of a replication of size tiny, without any scores: which claims there are does not turn on them."""
    if paper == "demix":
        return judge_demix(demix_worlds.evidence_of({}))
    if paper == "cbtm":
        few, tiny = cbtm_worlds.evidence_of({}), cbtm_worlds.SIZES["tiny"]
        subjects = [few.subject.model_copy(update={"budget": one}) for one in (tiny, replace(tiny, num_ablated=32))]
        return [one for subject in (few.subject, *subjects) for one in judge_cbtm(replace(few, subject=subject))]
    return judge_mode(mode_worlds.evidence_of({}))


PAPERS = {"demix": DEMIX.sentences, "cbtm": CBTM.sentences, "mode": MODE.sentences}


def plain(quote: str) -> str:
    return re.sub(r"\W+", " ", quote).casefold().strip()


@pytest.mark.parametrize("paper", PAPERS)
def test_each_sentence_is_judged_by_claims_that_exist_or_says_why_not(paper: str) -> None:
    ids = {verdict.claim.id for verdict in verdicts_of(paper)}
    for sentence in PAPERS[paper]:
        assert bool(sentence.judged_by) != bool(sentence.why), sentence.key
        assert set(sentence.judged_by) <= ids, sentence.key


@pytest.mark.parametrize("paper", PAPERS)
def test_a_sentence_that_cannot_be_tested_is_a_claim_that_is_not_testable_here(paper: str) -> None:
    verdicts = {one.claim.sentence: one for one in verdicts_of(paper)}
    for sentence in PAPERS[paper]:
        if sentence.why:
            verdict = verdicts[f"“{sentence.quote}”"]
            assert (verdict.mark, verdict.why) == (UNTESTABLE, sentence.why)


@pytest.mark.parametrize("paper", PAPERS)
def test_each_sentence_appears_once_and_in_one_form(paper: str) -> None:
    sentences = PAPERS[paper]
    for parts in ([sentence.key for sentence in sentences], [plain(sentence.quote) for sentence in sentences]):
        assert len(set(parts)) == len(parts)
    assert not [
        (sentence.key, other.key)
        for sentence in sentences
        for other in sentences
        if sentence != other and _holds(sentence, other)
    ]
    assert all(
        sentence.where and sentence.quote == sentence.quote.strip() and len(sentence.quote) < 200
        for sentence in sentences
    )


def _holds(sentence: Sentence, other: Sentence) -> bool:
    return f" {plain(other.quote)} " in f" {plain(sentence.quote)} "


@pytest.mark.parametrize("paper", PAPERS)
def test_a_claim_that_judges_no_sentence_judges_numbers_of_a_table_or_figure(paper: str) -> None:
    unlinked = [
        one.claim
        for one in verdicts_of(paper)
        if not one.claim.sentence.startswith("“") and not any(one.claim.id in each.judged_by for each in PAPERS[paper])
    ]
    assert len(unlinked) <= 8
    assert all(claim.where.startswith(("Table", "Figure")) and claim.paper for claim in unlinked)


def test_findings_list_each_sentence_with_the_marks_of_its_claims() -> None:
    verdicts = verdicts_of("demix")
    rows = {row["key"]: row for row in DEMIX.list_sentences(verdicts)}
    assert [one["mark"] for one in rows["demix-token-underperforms"]["judged_by"]] == [UNTESTABLE] * 3
    assert rows["demix-tweets"]["judged_by"] == []
    assert rows["demix-tweets"]["why"]
