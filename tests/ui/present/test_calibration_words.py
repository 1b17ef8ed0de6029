"""The sentences of a calibration say nothing twice, and call nothing the lowest that is not."""

from __future__ import annotations

from typing import Any

from engine.mixing.evidence import EvidenceRule
from ui.present.text.calibration import gain_words, how_to_read, verdict_words
from workbench.answers.posteriors import Change, EvidenceCalibration

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
    assert gain_words(answer()) == "On these domains' text perplexity changes by −0.4 % [−1.0, +0.2] with all experts."
    assert "without its own" not in how_to_read(answer())
    both = answer(gain_left_out=Change(value=-0.8, low=-1.2, high=-0.1))
    assert "−0.8 % [−1.2, −0.1] without a domain's own, as if it were novel." in gain_words(both)
    assert "without its own" in how_to_read(both)


def test_the_proposal_is_not_called_the_lowest_since_another_cell_may_be_lower() -> None:
    words = verdict_words(answer())
    assert words.startswith("Keep the whole prefix (paper): the gain of decay 0.9, power 0.3 is too small, or may be")
    assert "lowest" not in words
    assert "no other setting is clearly better" in verdict_words(answer(best=NOW))


def test_a_setting_that_raises_perplexity_has_no_gain() -> None:
    worse = Change(value=0.7, low=-0.1, high=1.5)
    words = verdict_words(answer(gain=worse, gain_present=worse))
    assert "is not better. On these domains' text perplexity changes by +0.7 %" in words
    assert "gain of" not in words


def test_a_gain_on_too_little_text_has_no_interval_and_says_why() -> None:
    gain = Change(value=-1.7, low=None, high=None)
    words = verdict_words(answer(gain=gain, gain_present=gain, too_short=["law"]))
    assert words.startswith("Keep the whole prefix (paper): the dev text of law is a single block")
    assert "Score more text. On these domains' text perplexity changes by −1.7 % with all experts." in words
    assert "[" not in words
