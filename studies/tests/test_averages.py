"""Intervals cover what they should, are paired, and do not mistake blocks or seeds for texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.statistics.estimates import Draws, Floats, Loss
from studies.tests.made_up_losses import TOKENS, losses_of
from workbench_studies.core.averages import Averages, Counted, Hits, Place, SystemChange, estimate_counts, estimate_mean

DOMAINS = ("law", "code", "sea", "kitchen")
TRUTH = float(np.exp(3.0) - np.exp(2.9))
FEW = (2, 2, 2, 2, 4, 25, 39, 52)  # documents of eight domains
MANY = (40, 41, 46, 58, 114, 256, 256, 256)
ONES_20 = np.ones(20)


def correlated_world(trial: int, num_documents: Sequence[int], blocks: int = 256) -> dict[Place, Loss]:
    """Two systems, a domain for each number of documents; the difference, too, varies from document to document."""
    draw = np.random.default_rng(trial)
    losses: dict[Place, Loss] = {}
    for place, num in enumerate(num_documents):
        of_N = np.arange(blocks) * num // blocks
        text_N = draw.normal(0, 0.2, num)[of_N] + draw.normal(0, 0.2, blocks)
        apart_N = draw.normal(0, 0.05, num)[of_N] + draw.normal(0, 0.05, blocks)
        for system, each_N in (("a", 3.0 + text_N + apart_N), ("b", 2.9 + text_N)):
            losses[system, 0, str(place)] = Loss(each_N * TOKENS, np.full(blocks, float(TOKENS)), of_N)
    return losses


def coverage(num_documents: Sequence[int], trials: int = 200) -> float:
    """How often the interval of a difference holds the truth."""
    domains, hits = [str(number) for number in range(len(num_documents))], 0
    for trial in range(trials):
        result = Averages(correlated_world(trial, num_documents), num_draws=400).difference("a", "b", domains)
        assert result is not None
        hits += result.low <= TRUTH <= result.high
    return hits / trials


def test_the_interval_covers_the_truth_about_as_often_as_it_says_where_blocks_of_a_document_are_alike() -> None:
    assert 0.90 <= coverage(MANY) <= 0.99


def test_with_two_documents_in_half_of_the_domains_it_is_somewhat_too_narrow() -> None:
    assert 0.80 <= coverage(FEW) <= 0.98


def test_blocks_taken_for_documents_would_cover_far_too_seldom() -> None:
    hits = 0
    for trial in range(100):
        losses = {
            place: Loss(one.totals_N, one.tokens_N, np.arange(len(one.totals_N)))
            for place, one in correlated_world(trial, FEW).items()
        }
        result = Averages(losses, num_draws=400).difference("a", "b", [str(number) for number in range(len(FEW))])
        assert result is not None
        hits += result.low <= TRUTH <= result.high
    assert hits / 100 < 0.7


def test_the_interval_of_a_mean_has_the_width_of_its_standard_error_with_few_documents_too() -> None:
    """Of G documents G - 1 are drawn: else it is too narrow by sqrt(1 - 1/G)."""
    values_N = np.array([0.0, 1.0, 5.0, 2.0])
    counts_R, sums_R = Draws(20_000).sums("law", np.arange(4), np.ones(4), values_N)
    assert (sums_R / counts_R).std() == pytest.approx(values_N.std(ddof=1) / 2, rel=0.03)


def test_a_text_of_one_document_is_drawn_by_its_blocks() -> None:
    one, many = (Loss(np.arange(20.0), ONES_20, of_N) for of_N in (np.zeros(20, dtype=int), np.arange(20)))
    result = [Averages({("a", 0, "law"): loss}).average("a", ["law"]) for loss in (one, many)]
    assert result[0] == result[1]


def test_an_interval_holds_its_value_even_where_no_draw_comes_near_it() -> None:
    """Of two documents one is drawn: in each both systems differ alike, in both together they do not."""
    of_N, tokens_N = np.array([0, 1]), np.array([100.0, 100.0])
    nats = {"a": np.array([200.0, 400.0]), "b": np.array([400.0, 200.0])}
    losses: dict[Place, Loss] = {(name, 0, "law"): Loss(one, tokens_N, of_N) for name, one in nats.items()}
    result = Averages(losses).estimate(["a", "b"], ["law"], lambda one, other: one * other / (one + other))
    assert result is not None
    assert result.low <= result.value <= result.high


def test_a_difference_is_paired_so_that_what_texts_share_does_not_blur_it() -> None:
    losses = losses_of({"a": 3.0, "b": 3.02}, DOMAINS, noise=0.5, own=0.005)
    result = Averages(losses).difference("a", "b", DOMAINS)
    by_itself = Averages(losses).average("a", DOMAINS)
    assert result is not None
    assert by_itself is not None
    assert result.high < 0
    assert result.high - result.low < 0.3 * (by_itself.high - by_itself.low)


def test_seeds_that_read_the_same_text_are_drawn_together() -> None:
    """What both seeds owe to the text does not become half as uncertain by reading it twice."""
    one = losses_of({"a": 3.0}, DOMAINS, seeds=1)
    twice = one | {(system, 1, domain): loss for (system, _, domain), loss in one.items()}
    widths = [result.high - result.low for losses in (one, twice) if (result := Averages(losses).average("a", DOMAINS))]
    assert widths[1] == pytest.approx(widths[0])
    values_N, of_N = np.random.default_rng(0).normal(size=40), np.arange(40)
    single, double = (estimate_mean(Draws(), "law dev", [(values_N, of_N)] * number) for number in (1, 2))
    assert (double.low, double.high) == pytest.approx((single.low, single.high))


def test_perplexities_are_averaged_over_domains_not_losses() -> None:
    one = {("a", 0, name): Loss(np.full(20, nats), ONES_20, np.arange(20)) for name, nats in (("x", 1.0), ("y", 3.0))}
    result = Averages(one).average("a", ("x", "y"))
    assert result is not None
    assert result.value == pytest.approx((np.e + np.e**3) / 2)


def test_a_change_counts_every_domain_the_same() -> None:
    losses = {
        (system, 0, name): Loss(np.full(20, np.log(value)), ONES_20, np.arange(20))
        for name, before, after in (("x", 10.0, 11.0), ("y", 1000.0, 900.0))
        for system, value in (("before", before), ("after", after))
    }
    result = Averages(losses).changes([SystemChange("after", "before", "x"), SystemChange("after", "before", "y")])
    assert result is not None
    assert result.value == pytest.approx(0.0, abs=1e-9)


def test_seeds_that_differ_widen_the_interval() -> None:
    alike = losses_of({"a": 3.0, "b": 3.0}, DOMAINS, noise=0.0, own=0.001)
    apart = alike | {
        key: Loss(one.totals_N * 1.02, one.tokens_N, one.documents_N)
        for key, one in alike.items()
        if key[:2] == ("a", 1)
    }
    widths = [
        result.high - result.low for one in (alike, apart) if (result := Averages(one).difference("a", "b", DOMAINS))
    ]
    assert widths[1] > 5 * widths[0]


def test_only_seeds_that_have_everything_count_and_none_is_no_estimate() -> None:
    losses = losses_of({"a": 3.0, "b": 2.0}, DOMAINS)
    del losses["b", 1, "sea"]
    result = Averages(losses).difference("a", "b", DOMAINS)
    assert result is not None
    assert len(result.by_seed) == 1
    assert Averages(losses).difference("a", "gone", DOMAINS) is None
    assert Averages(losses).average("a", ()) is None


def test_a_loss_sums_its_blocks_the_last_of_which_may_be_shorter() -> None:
    loss = Loss.of(np.array([-1.0, -2.0, -3.0, -4.0, -5.0]), 2, np.array([0, 0, 3]))
    assert (loss.totals_N.tolist(), loss.tokens_N.tolist()) == ([3.0, 7.0, 5.0], [2.0, 2.0, 1.0])
    assert loss.value == pytest.approx(np.exp(3.0))


def test_a_hopeless_system_has_a_perplexity_that_json_can_hold() -> None:
    result = Averages({("a", 0, "x"): Loss(np.full(20, 9e9), ONES_20, np.arange(20))}).average("a", ["x"])
    assert result is not None
    assert np.isfinite([result.value, result.low, result.high]).all()


def test_the_interval_of_a_count_covers_what_it_should_and_a_table_is_drawn_together() -> None:
    """The share of documents in the first row; the truth is 0.3."""
    chance, hits = np.random.default_rng(5), 0
    for _ in range(200):
        table = chance.multinomial(200, [0.3, 0.7]).astype(float)
        result = estimate_counts(Draws(400), [counted(table)] * 2, lambda counts: counts[..., 0] / counts.sum(-1))
        hits += result.low <= 0.3 <= result.high
        assert result.by_seed == (table[0] / 200,) * 2
    assert 0.9 < hits / 200 < 0.99
    complete = estimate_counts(Draws(50), [counted(np.ones((2, 3)) * 4)], lambda counts: counts.sum((-2, -1)))
    assert (complete.low, complete.value, complete.high) == pytest.approx((24.0, 24.0, 24.0))


def test_the_interval_of_a_count_covers_what_it_should_where_documents_are_cut() -> None:
    """Forty documents of ten pieces that all lie in one cell; the truth is 0.3."""
    chance, hits = np.random.default_rng(6), {"whole": 0, "pieces": 0}
    for _ in range(150):
        cells_N = np.repeat(chance.random(40) >= 0.3, 10).astype(int)
        for name, documents_N in (("whole", np.arange(400) // 10), ("pieces", np.arange(400))):
            one = Counted(cells_N, documents_N, (2,))
            result = estimate_counts(Draws(300), [one], lambda counts: counts[..., 0] / counts.sum(-1))
            hits[name] += result.low <= 0.3 <= result.high
    assert hits["whole"] / 150 > 0.88
    assert hits["pieces"] / 150 < 0.6


def counted(table: Floats) -> Counted:
    """So many whole documents in each cell."""
    cells_N = np.repeat(np.arange(table.size), table.ravel().astype(int))
    return Counted(cells_N, np.arange(len(cells_N)), table.shape)


def test_halves_share_no_document_and_leave_none_out() -> None:
    loss = Loss(np.arange(6.0), np.ones(6), np.array([4, 4, 7, 9, 9, 12]))
    halves = [loss.half(which) for which in range(2)]
    assert [halve.documents_N.tolist() for halve in halves if halve] == [[4, 4, 9, 9], [7, 12]]
    single = Loss(np.arange(3.0), np.ones(3), np.zeros(3, dtype=int))
    assert [one.totals_N.tolist() for which in range(2) if (one := single.half(which))] == [[0.0, 2.0], [1.0]]
    assert Loss(np.ones(1), np.ones(1), np.zeros(1, dtype=int)).half(1) is None


def test_halves_of_accuracies_are_of_the_documents_that_halves_of_losses_are() -> None:
    of_N = np.array([3, 3, 5, 7, 7, 9])
    hits = Hits(np.arange(6.0), np.full(6, 8.0), of_N)
    halves = [Averages({("a", 0, "law"): hits}).half(which) for which in range(2)]
    result = [half.measured["a", 0, "law"] for half in halves]
    losses = [Loss(np.arange(6.0), np.full(6, 8.0), of_N).half(which) for which in range(2)]
    assert [one.documents_N.tolist() for one in result] == [loss.documents_N.tolist() for loss in losses if loss]
    assert [half.average("a", ["law"]).value for half in halves] == [(0 + 1 + 3 + 4) / 32, (2 + 5) / 16]
    assert Averages({("a", 0, "law"): Hits(np.ones(1), np.ones(1), np.zeros(1, dtype=int))}).half(1).measured == {}


def test_an_accuracy_is_the_share_of_all_tokens_whatever_the_blocks() -> None:
    hits = Hits.of(np.array([True, False, False, True, True]), 2, np.arange(3))
    assert (hits.totals_N.tolist(), hits.tokens_N.tolist()) == ([1.0, 1.0, 1.0], [2.0, 2.0, 1.0])
    assert hits.value == pytest.approx(3 / 5)
    assert Hits.of(np.ones(7, dtype=bool), 3, np.arange(3)).value == 1


def test_accuracies_are_drawn_by_documents_in_pairs_and_averaged_over_domains() -> None:
    draw = np.random.default_rng(0)
    measured: dict[Place, Hits] = {}
    for domain, share in (("x", 0.4), ("y", 0.2)):
        text_N = np.clip(draw.normal(share, 0.1, 60), 0, 0.9) * TOKENS
        for system, more in (("a", 0.02 * TOKENS), ("b", 0.0)):
            measured[system, 0, domain] = Hits(text_N + more, np.full(60, float(TOKENS)), np.arange(60) // 3)
    result = Averages(measured)
    by_itself, apart = result.average("b", ("x", "y")), result.difference("a", "b", ("x", "y"))
    assert by_itself is not None
    assert apart is not None
    assert by_itself.value == pytest.approx(np.mean([measured["b", 0, domain].value for domain in "xy"]))
    assert by_itself.low < by_itself.value < by_itself.high
    assert (apart.low, apart.value, apart.high) == pytest.approx((0.02, 0.02, 0.02))  # the same text for both
    tripled = {
        key: Hits(np.repeat(one.totals_N, 3), np.repeat(one.tokens_N, 3), np.repeat(one.documents_N, 3))
        for key, one in measured.items()
    }
    wide = Averages(tripled).average("b", ("x", "y"))
    assert wide is not None
    assert (wide.low, wide.high) == pytest.approx(
        (by_itself.low, by_itself.high)
    )  # blocks of one document count as one
    assert result.average("b", ("x", "gone")) is None
