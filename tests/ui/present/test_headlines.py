"""The three numbers of the overview, and the picture: what is compared, what is missing, and where a click leads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ui.studio.conftest import HOSTILE, fill
from ui.present.charts.colours import looks_of
from ui.present.headlines import (
    Baseline,
    MixtureMean,
    baseline_of,
    best_of,
    coverage_headline,
    last_headline,
    mixture_headline,
)
from ui.present.picture import (
    MOST_CARDS,
    MOST_EXPERTS,
    card_of,
    cards_to_show,
    describe_serving,
    members_off,
    picture_of,
    place_of,
    scores_of,
)
from ui.studio.shared.contents import Contents, read_contents
from workbench.answers.cards import CalibratedGain, DomainCard, EvaluationCard, ReportCard
from workbench.questions.perplexities import MixedDomain
from workbench.settings import get_settings


def mean(mixture: str, **perplexities: float) -> MixtureMean:
    single = {"best_expert": "e", "perplexity_by_expert": {"e": 9.0}, "num_tokens": 9, "block_size": 8}
    return MixtureMean(mixture, tuple(MixedDomain(domain=d, perplexity=p, **single) for d, p in perplexities.items()))


def score(domain: str, perplexity: float, num_tokens: int = 9) -> EvaluationCard:
    numbers: dict[str, Any] = {"split": "test", "block_size": 8, "num_tokens": num_tokens, "created_at": 0.0}
    return EvaluationCard(expert="dense", domain=domain, perplexity=perplexity, **numbers)


@pytest.fixture
def have(home: Path) -> Contents:
    assert home
    fill(get_settings())
    return read_contents()


def test_the_best_mixture_is_the_lowest_of_those_of_the_same_domains() -> None:
    means = [mean("easy", law=2), mean("a", law=20, sea=30), mean("b", law=22, sea=20)]
    best = best_of(means)
    assert best is not None
    assert (best.mixture, best.mean) == ("b", 21)
    assert best_of([]) is None


def against(title: str, **perplexities: float) -> Baseline:
    return Baseline(title, "rival", perplexities)


def test_the_first_number_counts_domains_and_says_the_changes() -> None:
    mixture = mean("m", law=20, sea=30, code=9)
    shown = mixture_headline(mixture, against("dense", law=40.0, sea=20.0))
    assert (shown.label, shown.value, shown.beside) == ("Mixture against dense", "better on 1 of 2", "worse on 1")
    assert shown.sentence == "m against rival: −50.0 % on law to +50.0 % on sea; n = 9 tokens a domain"
    assert shown.is_good is None
    assert mixture_headline(mixture, against("dense", law=40.0)).is_good
    assert mixture_headline(mixture, against("dense", law=10.0)).is_good is False
    assert mixture_headline(None).value == "—"


def test_a_good_expert_more_never_makes_the_first_number_worse() -> None:
    before = mixture_headline(mean("m", law=20, sea=30), against("its seed model", law=40.0, sea=40.0))
    after = mixture_headline(
        mean("m", law=20, sea=30, poems=200), against("its seed model", law=40.0, sea=40.0, poems=210.0)
    )
    assert (before.value, after.value) == ("better on 2 of 2", "better on 3 of 3")
    assert before.is_good
    assert after.is_good


def test_the_first_number_names_who_is_not_scored() -> None:
    rows = tuple(row.model_copy(update={"without": ["new"]}) for row in mean("m", law=20).rows)
    shown = mixture_headline(MixtureMean("m", rows), against("dense", law=40.0))
    assert shown.sentence.endswith("without new, not scored yet")


def test_a_mixture_is_compared_with_dense_else_with_its_seed_else_with_its_best_expert(have: Contents) -> None:
    model = have.experts[0]
    rows = mean("demo", law=30.0, code=40.0, sea=50.0).rows
    best = MixtureMean("demo", rows, model.tokenizer_sha256, frozenset([str(model.seed)]))

    def baseline(method: str, *domains: str, **changes: str) -> Baseline:
        known = {"name": "dense", "method": method, "domains": [*domains], **changes}
        scores = [score(domain, 60.0) for domain in ("law", "code", "sea")]
        chosen = baseline_of(best, [model.model_copy(update=known)], [*scores, score("sea", 1.0, num_tokens=5)])
        assert chosen is not None
        return chosen

    assert baseline("dense", "law", "code", "news").by_domain == {"law": 60.0, "code": 60.0}
    assert baseline("bare-seed").title == "its seed model"
    assert baseline("bare-seed").by_domain == {"law": 60.0, "code": 60.0, "sea": 60.0}
    for other in (
        baseline("dense", "law"),  # as the expert of one cluster
        baseline("demix", "law", "code"),
        baseline("dense", "law", "code", tokenizer_sha256="another"),
        baseline("bare-seed", seed="another"),
    ):
        assert (other.title, other.name) == ("its best expert", "e")


def test_coverage_counts_enabled_experts_of_one_domain(have: Contents) -> None:
    full = coverage_headline(have.domains, have.experts)
    assert (full.value, full.sentence) == ("3 of 3", "Every domain has one.")  # poems are held out
    domains = to_train_on(have)
    assert coverage_headline(domains, have.experts).value == "3 of 4"
    assert "poems" in coverage_headline(domains, have.experts).sentence
    off = [expert.model_copy(update={"enabled": expert.domain != "code"}) for expert in have.experts]
    assert coverage_headline(domains, off).value == "2 of 4"


def to_train_on(have: Contents) -> list[DomainCard]:
    """The domains, of which none is held out."""
    return [domain.model_copy(update={"role": "train"}) for domain in have.domains]


def test_coverage_names_what_the_mixture_of_the_picture_lacks(have: Contents) -> None:
    assert have.mixture is not None
    full = coverage_headline(to_train_on(have), have.experts, have.mixture)
    assert full.sentence == "without one: poems"
    members = [member.model_copy(update={"active": member.domain != "code"}) for member in have.mixture.members]
    less = have.mixture.model_copy(update={"members": members})
    shown = coverage_headline(to_train_on(have), have.experts, less)
    assert (shown.value, shown.sentence) == ("3 of 4", "without one: poems; not in first: code")


def test_the_last_change_is_the_newest_that_was_measured(have: Contents) -> None:
    assert last_headline([], have.mixtures).value == "—"
    gain = CalibratedGain(value=-4.9, low=-6.0, high=-3.8, at=None)
    tuned = [mixture.model_copy(update={"calibration": gain}) for mixture in have.mixtures]
    shown = last_headline([], tuned)
    assert (shown.label, shown.value, shown.beside) == ("Last measured change", "−4.9 %", "95 %: −6.0 to −3.8")
    assert shown.is_good
    findings = {"expert": "e", "domains": [{"domain": "sea", "is_new": True, "change_percent": 3.21}]}
    empty: dict[str, Any] = dict.fromkeys(("about_id", "artifact_id", "job_id"))
    report = ReportCard(id="r", kind="addition", title="t", findings=findings, created_at=9.0, **empty)
    newer = last_headline([report], tuned)
    assert (newer.value, newer.is_good, newer.state) == ("+3.2 %", False, {"experts.chosen": "e"})
    assert newer.sentence == "perplexity on sea with e, which takes part in no mixture now"


def test_a_certified_removal_is_a_change_and_an_expert_at_work_is_not_called_off(have: Contents) -> None:
    empty: dict[str, Any] = dict.fromkeys(("about_id", "artifact_id", "job_id"))
    added = {"expert": "first/code", "domains": [{"domain": "code", "is_new": True, "change_percent": -2.0}]}
    addition = ReportCard(id="r", kind="addition", title="t", findings=added, created_at=9.0, **empty)
    assert last_headline([addition], have.mixtures).sentence == "perplexity on code with first/code"
    row = {"domain": "code", "with_expert": 10.0, "without_expert": 12.5}
    gone = {"expert": "first/code", "mixture": "first", "perplexity": [row]}
    removal = ReportCard(id="s", kind="removal", title="t", findings=gone, created_at=10.0, **empty)
    shown = last_headline([addition], have.mixtures, [removal])
    assert (shown.value, shown.is_good, shown.sentence) == ("+25.0 %", False, "perplexity on code without first/code")


def test_the_picture_leads_each_text_to_its_own_expert_or_to_the_nearest(have: Contents) -> None:
    scores, looks = scores_of(have.evaluations), looks_of(have.experts)
    data = picture_of(have.domains, have.experts, have.mixture, scores, looks)
    names = [one["name"] for one in data["experts"]]
    leads = {one["name"]: (names[one["expert"]], one["own"]) for one in data["domains"]}
    assert leads["code"] == ("first/code", True)
    assert leads[HOSTILE] == (f"first/{HOSTILE}", True)
    assert leads["poems"] == ("first/prose", False)  # 1.9 nats, the least of the three
    assert names[-1] == "1 other"
    assert data["mixture"]["words"] == ["posterior gate"]
    colours = {one["name"]: one["look"]["colour"] for one in data["experts"]}
    assert colours["first/code"] == looks.expert("first/code").colour


def test_a_card_shows_the_score_of_most_text_and_the_nearest_expert_is_of_one_text() -> None:
    full = [score("law", 30.0, 900), score("law", 30.0, 900).model_copy(update={"expert": "b", "perplexity": 40.0})]
    quick = score("law", 2.0, 100).model_copy(update={"created_at": 9.0})
    other = quick.model_copy(update={"expert": "new"})
    scores = scores_of([*full, quick, other])
    assert scores.of["dense", "law"].num_tokens == 900
    assert scores.nearest(["b", "new", "dense"], "law") == "dense"


def test_the_picture_says_by_which_names_its_mixture_is_served(have: Contents) -> None:
    assert describe_serving([], is_served=True) == "served by this name"
    assert describe_serving(["law@production"], is_served=True) == "served as law@production"
    assert describe_serving(["law@production"], is_served=False) == "not served now"
    data = picture_of(have.domains, have.experts, have.mixture, scores_of([]), looks_of(have.experts), "served as x")
    assert data["mixture"]["words"] == ["posterior gate", "served as x"]


def test_an_expert_that_is_off_leads_nowhere_and_stands_last(have: Contents) -> None:
    assert have.mixture is not None
    members = [member.model_copy(update={"active": member.domain != "code"}) for member in have.mixture.members]
    mixture = have.mixture.model_copy(update={"members": members})
    scores, looks = scores_of(have.evaluations), looks_of(have.experts)
    data = picture_of(have.domains, have.experts, mixture, scores, looks)
    names = [one["name"] for one in data["experts"]]
    code = next(one for one in data["domains"] if one["name"] == "code")
    assert not code["own"]
    assert names[code["expert"]] != "first/code"
    box = data["experts"][names.index("first/code")]
    assert (box["active"], box["words"]) == (False, "perplexity 3.0, off")
    shown = cards_to_show(have.experts, mixture)
    assert shown[-1].name == "first/code"
    card = card_of(shown[-1], None, scores, looks, [], False, members_off([mixture]))
    assert ["off in first", ""] in card["badges"]


def test_what_is_clicked_opens_the_same_as_its_address(have: Contents) -> None:
    data = picture_of(have.domains, have.experts, have.mixture, scores_of(have.evaluations), looks_of(have.experts))
    boxes = [*data["domains"], *data["experts"], data["mixture"]]
    assert len(boxes) == 9
    for box in boxes:
        page, chosen = place_of(box["id"])
        address = urlsplit(box["href"])
        assert address.path == f"/{page.address}"
        assert {name: values[0] for name, values in parse_qs(address.query).items()} == chosen


def test_a_thousand_experts_are_seven_in_the_picture_and_twelve_cards(have: Contents) -> None:
    many = [have.experts[0].model_copy(update={"name": f"e{i}", "id": str(i)}) for i in range(1000)]
    looks, scores = looks_of(many), scores_of(have.evaluations)
    data = picture_of(have.domains, many, None, scores, looks)
    assert len(data["experts"]) == MOST_EXPERTS + 1
    assert data["experts"][-1]["name"] == "993 others"
    assert len(cards_to_show(many, None)) == MOST_CARDS


def test_a_card_says_what_is_known_of_its_expert(have: Contents) -> None:
    code = next(expert for expert in have.experts if expert.name == "first/code")
    domain = next(one for one in have.domains if one.name == "code")
    scores, looks = scores_of(have.evaluations), looks_of(have.experts)
    card = card_of(code, domain, scores, looks, [2.0, 1.0], is_certified=True)
    assert card["value"] == "3.0"  # e to the power of 1.1
    assert card["badges"] == [["certified", "good"], ["in first", ""]]
    assert card["words"] == ["DEMix · from seed model tiny · 1.2 M parameters", "60 documents"]
    off = code.model_copy(update={"enabled": False})
    assert card_of(off, domain, scores, looks, [], is_certified=True)["badges"][0] == ["disabled", ""]
