"""Numbers have one form for people: units after a space, a real minus sign, a dash where there is none."""

from __future__ import annotations

import math

import pytest

from workbench.formatting import number_format as form


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (form.perplexity(153.94), "153.9"),
        (form.perplexity(999.94), "999.9"),
        (form.perplexity(999.96), "1,000"),
        (form.perplexity(1342.4), "1,342"),
        (form.nats(5.214), "5.21 nats/token"),
        (form.nats(-0.2, signed=True), "−0.20 nats/token"),
        (form.change(-4.9, -6.0, -3.8), "−4.9 % [−6.0, −3.8]"),
        (form.change(12.34), "+12.3 %"),
        (form.change(0.0), "+0.0 %"),
        (form.change(-0.01), "+0.0 %"),  # no zero has a minus
        (form.ratio(3.644), "3.64 ×"),
        (form.weight(0.744), "0.74"),
        (form.share(0.744), "74 %"),
        (form.percent(12.5), "12.5 %"),
        (form.number(-1234.5, 2), "−1,234.50"),
        (form.amount(590_400), "590 K"),
        (form.amount(999_600), "1.0 M"),
        (form.amount(1_400_000), "1.4 M"),
        (form.amount(6_700_000_000), "6.7 B"),
        (form.amount(812, "B"), "812 B"),
        (form.amount(1_200, "B"), "1.2 KB"),
        (form.amount(3_000_000, "B"), "3.0 MB"),
        (form.amount(4_400_000_000, "B"), "4.4 GB"),
    ],
)
def test_the_form_of_each_thing(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize("form_of", [form.perplexity, form.nats, form.change, form.ratio, form.weight, form.share])
def test_no_value_is_a_dash(form_of: object) -> None:
    assert form_of(None) == "—"  # type: ignore[operator]


def test_what_a_diverged_model_has_is_reported_as_it_is() -> None:
    assert form.perplexity(math.inf) == "inf"
    assert form.perplexity(math.nan) == "nan"
