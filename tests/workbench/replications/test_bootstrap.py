"""Intervals cover what they should, are paired, and do not mistake seeds for text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workbench.replications.worlds import DOMAINS, TOKENS, losses_of
from workbench.replications.bootstrap import Loss, Resampled, Step, mean_interval, stretches


def test_the_interval_of_a_difference_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = np.exp(3.0) - np.exp(2.9)  # of the same text: its noise is in both
    hits = 0
    for trial in range(200):
        draw = np.random.default_rng(trial)
        losses = {}
        for domain in DOMAINS:
            text_N = draw.normal(0, 0.1, 60)
            for system, mean in (("a", 3.0), ("b", 2.9)):
                each_N = mean + text_N + draw.normal(0, 0.05, 60)
                losses[system, 0, domain] = Loss(each_N * TOKENS, np.full(60, float(TOKENS)))
        found = Resampled(losses, num_draws=400).difference("a", "b", DOMAINS)
        assert found is not None
        hits += found.low <= truth <= found.high
    assert 0.86 <= hits / 200 <= 0.995


def test_a_difference_is_paired_so_that_what_texts_share_does_not_blur_it() -> None:
    losses = losses_of({"a": 3.0, "b": 3.02}, DOMAINS, noise=0.5, own=0.005)
    found = Resampled(losses).difference("a", "b", DOMAINS)
    alone = Resampled(losses).average("a", DOMAINS)
    assert found is not None
    assert alone is not None
    assert found.high < 0
    assert found.high - found.low < 0.3 * (alone.high - alone.low)


def test_perplexities_are_averaged_over_domains_not_losses() -> None:
    one = {("a", 0, name): Loss(np.full(20, nats), np.ones(20)) for name, nats in (("x", 1.0), ("y", 3.0))}
    found = Resampled(one).average("a", ("x", "y"))
    assert found is not None
    assert found.value == pytest.approx((np.e + np.e**3) / 2)


def test_a_change_counts_every_domain_the_same() -> None:
    losses = {
        (system, 0, name): Loss(np.full(20, np.log(value)), np.ones(20))
        for name, before, after in (("x", 10.0, 11.0), ("y", 1000.0, 900.0))
        for system, value in (("before", before), ("after", after))
    }
    found = Resampled(losses).changes([Step("after", "before", "x"), Step("after", "before", "y")])
    assert found is not None
    assert found.value == pytest.approx(0.0, abs=1e-9)


def test_seeds_that_differ_widen_the_interval() -> None:
    alike = losses_of({"a": 3.0, "b": 3.0}, DOMAINS, noise=0.0, own=0.001)
    apart = alike | {key: Loss(one.nats_N * 1.02, one.tokens_N) for key, one in alike.items() if key[:2] == ("a", 1)}
    widths = [
        found.high - found.low for one in (alike, apart) if (found := Resampled(one).difference("a", "b", DOMAINS))
    ]
    assert widths[1] > 5 * widths[0]


def test_only_seeds_that_have_everything_count_and_none_is_no_estimate() -> None:
    losses = losses_of({"a": 3.0, "b": 2.0}, DOMAINS)
    del losses["b", 1, "sea"]
    found = Resampled(losses).difference("a", "b", DOMAINS)
    assert found is not None
    assert len(found.by_seed) == 1
    assert Resampled(losses).difference("a", "gone", DOMAINS) is None
    assert Resampled(losses).average("a", ()) is None


def test_a_stretch_is_about_a_thousand_tokens_unless_the_text_is_short() -> None:
    tokens_N = np.full(100, 128.0)
    assert len(stretches(tokens_N, tokens_N)) == 13
    assert len(stretches(tokens_N[:20], tokens_N[:20])) == 10
    assert stretches(tokens_N[:5], tokens_N[:5]).tolist() == tokens_N[:5].tolist()


def test_the_interval_of_a_mean_narrows_with_the_number_of_values() -> None:
    draw = np.random.default_rng(1)
    few, many = (mean_interval([draw.normal(0, 1, number)]) for number in (20, 2000))
    assert many[1] - many[0] < 0.3 * (few[1] - few[0])


def test_a_hopeless_system_has_a_perplexity_that_json_can_hold() -> None:
    found = Resampled({("a", 0, "x"): Loss(np.full(20, 9e9), np.ones(20))}).average("a", ["x"])
    assert found is not None
    assert np.isfinite([found.value, found.low, found.high]).all()
