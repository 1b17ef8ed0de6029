"""Sentences on the pages: calibrations, inference modes, splits, and which perplexities compare."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.mixing.evidence import EvidenceRule
from tests.ui.present.test_headlines import mean
from tests.ui.present.test_mixture_effect import row
from tests.ui.studio.conftest import fill
from tests.ui.studio.test_studio_baselines import scored
from ui.present.charts.colours import Looks, looks_of
from ui.present.charts.curves_and_bars import curves, describe_smoothing
from ui.present.headlines import best_of
from ui.present.mixture_effect import describe_unlike_rows, effect_rows, effect_title
from ui.present.picture import card_of, scores_of
from ui.present.text.inference_modes import describe_missing_modes, legend, shown_modes
from ui.present.text.measures import RULE, TokenMeasure, comparable, describe_comparability, odd_measures
from ui.present.text.posteriors import describe_gain, describe_verdict, how_to_read
from ui.studio.shared.contents import read_contents
from workbench.analysis.perplexity_tables import comparable as comparable_rows
from workbench.answers.cards import MetricPoint
from workbench.answers.posteriors import Change, EvidenceCalibration
from workbench.questions.inference_modes import InferenceModeAverages, InferenceModeComparison, InferenceModeDomain
from workbench.schema.tables import Evaluation
from workbench.settings import get_settings

NOW, BEST = EvidenceRule(1.0, 1.0), EvidenceRule(0.9, 0.3)
GAIN = Change(value=-0.4, low=-1.0, high=0.2)


def answer(**changes: Any) -> EvidenceCalibration:
    usual: dict[str, Any] = {
        "mixture": "duo",
        "experts": ["a", "b"],
        "domains": ["law", "sea"],
        "missing": [],
        "now": NOW,
        "best": BEST,
        "keeps": True,
        "decays": [0.9, 1.0],
        "powers": [0.3, 1.0],
        "change": [[-0.4, 0.1], [-0.6, 0.0]],
        "gain": GAIN,
        "gain_present": GAIN,
        "gain_left_out": None,
        "seconds": 1.0,
    }
    return EvidenceCalibration(**{**usual, **changes})


def test_with_one_view_the_gain_is_printed_one_time() -> None:
    assert (
        describe_gain(answer()) == "On these domains' text perplexity changes by −0.4 % [−1.0, +0.2] with all experts."
    )
    assert "without its own" not in how_to_read(answer())
    both = answer(gain_left_out=Change(value=-0.8, low=-1.2, high=-0.1))
    assert "−0.8 % [−1.2, −0.1] without a domain's own, as if it were novel." in describe_gain(both)
    assert "without its own" in how_to_read(both)


def test_the_proposal_is_not_called_the_lowest_since_another_cell_may_be_lower() -> None:
    words = describe_verdict(answer())
    assert words.startswith("Keep the whole prefix (paper): the gain of decay 0.9, power 0.3 is too small, or may be")
    assert "lowest" not in words
    assert "no other setting is clearly better" in describe_verdict(answer(best=NOW))


def test_a_setting_that_raises_perplexity_has_no_gain() -> None:
    worse = Change(value=0.7, low=-0.1, high=1.5)
    words = describe_verdict(answer(gain=worse, gain_present=worse))
    assert "is not better. On these domains' text perplexity changes by +0.7 %" in words
    assert "gain of" not in words


def test_a_gain_on_too_little_text_has_no_interval_and_says_why() -> None:
    gain = Change(value=-1.7, low=None, high=None)
    words = describe_verdict(answer(gain=gain, gain_present=gain, too_short=["law"]))
    assert words.startswith("Keep the whole prefix (paper): the dev text of law is a single block")
    assert "Score more text. On these domains' text perplexity changes by −1.7 % with all experts." in words
    assert "[" not in words


def domain(name: str, label: float | None, cached: float | None) -> InferenceModeDomain:
    numbers = dict.fromkeys(("naive", "average", "uniform", "updating", "mixture", "oracle"), 3.0)
    given = {"role": "train", "is_trained": True, "num_tokens": 9, "label": label, "cached": cached}
    return InferenceModeDomain.model_validate({"domain": name, **given, **numbers})


def comparison(*domains: InferenceModeDomain) -> InferenceModeComparison:
    averages = InferenceModeAverages(train={}, novel={})
    return InferenceModeComparison(experts=["a"], domains=list(domains), averages=averages)


def test_a_mode_without_any_number_has_no_column_and_a_reason() -> None:
    answer = comparison(domain("law", 2.0, None), domain("sea", None, None))
    assert "cached" not in shown_modes(answer)
    assert "label" in shown_modes(answer)
    assert describe_missing_modes(answer, 100) == (
        "A dash under label: there is no expert of the domain's own. "
        "Not shown: cached, since on every domain fewer than 100 dev blocks are scored."
    )
    assert not any(line.startswith("Cached") for line in legend(shown_modes(answer)))


def test_a_mode_with_a_number_somewhere_keeps_its_column() -> None:
    answer = comparison(domain("law", 2.0, 1.0), domain("sea", 2.0, None))
    assert {"label", "cached"} <= set(shown_modes(answer))
    assert describe_missing_modes(answer, 9) == "A dash under cached: fewer than 9 dev blocks are scored."
    assert describe_missing_modes(comparison(domain("law", 2.0, 1.0)), 9) == ""


MOST = TokenMeasure("ab", 256)


def test_what_differs_from_most_is_named_and_nothing_where_all_compare() -> None:
    measures = {"a": MOST, "b": MOST, "c": TokenMeasure("cd", 128), "d": TokenMeasure("ab", 64)}
    assert odd_measures(measures) == {"c": "another tokenizer, blocks of 128", "d": "blocks of 64"}
    assert describe_comparability(measures) == (
        f"{RULE} Here 2 of 4 numbers are in blocks of 256 tokens of one tokenizer; the others are marked."
    )
    assert odd_measures({"a": MOST, "b": MOST}) == {}
    assert describe_comparability({"a": MOST}) == describe_comparability({}) == ""


def test_the_card_of_an_expert_of_another_measure_is_marked(home: Path) -> None:
    assert home
    fill(get_settings())
    have = read_contents()
    other = [
        expert.model_copy(update={"tokenizer_sha256": "ef" * 32}) for expert in have.experts if expert.domain == "code"
    ]
    shown = [*other, *(expert for expert in have.experts if expert.domain != "code")]
    scores = scores_of(have.evaluations)
    odd = odd_measures(scores.measures(shown))
    assert odd == {"first/code": "another tokenizer"}
    card = card_of(other[0], None, scores, looks_of(shown), [], False, odd=odd["first/code"])
    assert ["another tokenizer", "late"] in card["badges"]


def test_a_model_without_a_domain_of_its_own_is_not_called_unscored(home: Path) -> None:
    assert home
    fill(get_settings())
    have = read_contents()
    code = next(expert for expert in have.experts if expert.domain == "code")
    bare = code.model_copy(update={"domain": "", "domains": []})
    scores = scores_of(have.evaluations)
    (badge, *_) = card_of(bare, None, scores, looks_of([bare]), [], False)["badges"]
    assert badge == [f"scored on {len([name for name, _ in scores.of if name == bare.name])} domains", ""]
    (badge, *_) = card_of(bare, None, scores_of([]), looks_of([bare]), [], False)["badges"]
    assert badge == ["not scored", ""]


def test_the_best_mixture_is_the_best_of_those_measured_on_the_same_tokens() -> None:
    usual = [mean("a", law=20, sea=30), mean("b", law=22, sea=20)]
    small = replace(mean("small vocabulary", law=2, sea=3), tokenizer="cd")
    best = best_of([*usual, small])
    assert best is not None
    assert best.mixture == "b"


def test_two_mixtures_are_not_compared_where_the_tokens_differ() -> None:
    before = [row("law", 10).model_copy(update={"block_size": 128}), row("sea", 8)]
    now = [row("law", 5), row("sea", 8)]
    rows = effect_rows(before, now)
    assert [one.change_percent for one in rows] == [None, 0.0]
    assert describe_unlike_rows(before, now, "duo").startswith(
        "Not compared on law, since the tokens differ: duo was scored in"
    )
    assert describe_unlike_rows(now, now, "duo") == ""
    assert effect_title(effect_rows([], now)) == "Nothing to compare"


def test_scores_of_two_tokenizers_are_two_texts_even_of_as_many_tokens() -> None:
    def expert(name: str, tokenizer: str) -> Any:
        return type("Card", (), {"name": name, "tokenizer_sha256": tokenizer})

    scores = [scored(name, "law", 9.0) for name in ("a", "b", "c")]
    shown = comparable(scores, [expert("a", "ab"), expert("b", "ab"), expert("c", "cd")])
    assert [one.expert for one in shown] == ["a", "b"]


@pytest.mark.parametrize(
    ("tokenizers", "shared"), [({}, {"a", "b", "c"}), ({"a": "ab", "b": "ab", "c": "cd"}, {"a", "b"})]
)
def test_a_table_holds_the_text_of_one_tokenizer(tokenizers: dict[str, str], shared: set[str]) -> None:
    def stored(expert: str) -> Any:
        return Evaluation(domain_id="law", expert_id=expert, num_tokens=9, block_size=8)

    assert set(comparable_rows(map(stored, "abc"), tokenizers)["law"]) == shared


NO_LOOKS = Looks()
UNIT = "nats/token"
FALLS = [4.0, 3.0, 2.5, 2.2, 2.1, 1.9, 1.7, 1.6]
ZIGZAG = [3.0, 2.5, 2.9, 2.4, 3.0, 2.6]  # ends below its beginning


def title(kind: str, *, is_log: bool = False, **lines: list[float]) -> str:
    points = [
        MetricPoint(name=name, step=10 * place, value=loss)
        for name, line in lines.items()
        for place, loss in enumerate(line)
    ]
    chart = curves(points, kind, "a job", NO_LOOKS, is_log=is_log)
    assert chart is not None
    return chart.title


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"law": [4.0]}, "Loss"),
        (
            {"law": [4.0, 3.0]},
            f"Loss: 3.00 {UNIT}, 4.00 {UNIT} at step 0; 2 points are too few for a trend",
        ),
        ({"law": ZIGZAG}, f"Loss: 2.60 {UNIT}, no clear trend over the last 40 updates (0.12 ± 0.37)"),
        ({"law": FALLS}, f"Loss: 1.60 {UNIT}, falling by 0.64 ± 0.05 over the last 40 updates"),
        ({"law": FALLS[::-1]}, f"Loss: 4.00 {UNIT}, rising by 1.84 ± 0.40 over the last 40 updates"),
        (
            {"law": FALLS, "sea": FALLS[::-1], "sky": ZIGZAG, "new": [4.0, 3.0]},
            "Loss of 4 curves in their last half: falling on 1, rising on 1 (sea), no clear trend on 1, "
            "too few points for a trend on 1",
        ),
    ],
)
def test_the_title_of_a_curve_says_its_recent_trend_with_its_error(
    lines: dict[str, list[float]], expected: str
) -> None:
    assert title("Loss", **lines) == expected


def test_a_logarithmic_axis_has_its_own_trend_and_no_step_0() -> None:
    points = [MetricPoint(name="law", step=step, value=5 - math.log(step or 0.1)) for step in (0, 1, 2, 4, 8, 16)]
    chart = curves(points, "Loss", "a job", NO_LOOKS, is_log=True)
    assert chart is not None
    assert chart.figure.layout.xaxis.type == "log"
    assert list(chart.figure.data[0].x) == [1, 2, 4, 8, 16]
    assert chart.title == f"Loss: 2.23 {UNIT}, falling by 2.7726 ± 0.0000 over the last 15 updates"


def test_a_long_line_is_smoothed_over_its_pale_points() -> None:
    points = [MetricPoint(name="law", step=step, value=4 - step / 100 + step % 2) for step in range(1, 101)]
    chart = curves(points, "Loss", "a job", NO_LOOKS)
    assert chart is not None
    pale, line = chart.figure.data
    assert list(pale.y) == [point.value for point in points]
    assert max(abs(value - (4.5 - step / 100)) for step, value in zip(line.x, line.y, strict=True)) < 0.2
    assert "a straight fit to the 10 nearest" in describe_smoothing(points)
    assert not describe_smoothing(points[:30])
