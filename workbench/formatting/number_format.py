"""Numbers and names as text: one format for all pages, and labels of charts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence


def pluralize(number: int, thing: str, many: str = "") -> str:
    """`1 expert`, `2 experts`, `12,000 documents`."""
    return f"{number:,} {thing if number == 1 else many or thing + 's'}"


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Names in a row, cut after `limit` with how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


LITTLE = 1.0  # percent: a smaller change counts as neither worse nor better
MINUS, DASH = "\N{MINUS SIGN}", "—"


def number(value: float | None, decimals: int, *, signed: bool = False) -> str:
    """`1,342.50`, `−0.20`, with `signed` also `+0.20`; a dash where there is none."""
    if value is None:
        return DASH
    rounded = round(value, decimals) or 0.0  # never a zero with a minus
    return format(rounded, f"{'+' if signed else ''},.{decimals}f").replace("-", MINUS)


def perplexity(value: float | None) -> str:
    """`153.9`, from 1,000 on `1,342`."""
    return number(value, 1 if value is None or value < 999.95 else 0)


def nats(value: float | None, *, signed: bool = False) -> str:
    """A loss, or a difference of losses: `5.21 nats/token`."""
    return DASH if value is None else f"{number(value, 2, signed=signed)} nats/token"


def with_error(value: float, error: float) -> str:
    """A number with its standard error, with as many decimals, 2 to 4, as the error has digits: `0.304 ± 0.008`."""
    decimals = min(4, max(2, -math.floor(math.log10(error)))) if error > 0 else 2
    return f"{number(value, decimals)} ± {number(error, decimals)}"


def percent(value: float | None, *, signed: bool = False) -> str:
    """A percentage with one decimal: `12.5 %`."""
    return DASH if value is None else f"{number(value, 1, signed=signed)} %"


def change(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A change in percent, with its interval if there is one: `−4.9 % [−6.0, −3.8]`."""
    if low is None or high is None:
        return percent(value, signed=True)
    return f"{percent(value, signed=True)} [{number(low, 1, signed=True)}, {number(high, 1, signed=True)}]"


def flops_per_second(value: float) -> str:
    """`14.7 GFLOP/s`; from 1,000 of them on `2.5 TFLOP/s`."""
    return f"{value / 1e9:.3g} GFLOP/s" if value < 9.995e11 else f"{value / 1e12:,.3g} TFLOP/s"


def ratio_number(value: float) -> str:
    """`3.64`; `0.998` just below 1, cut and not rounded, since `1.00` would say that it is not below."""
    return number(math.floor(value * 1000) / 1000, 3) if 0.995 <= value < 1.0 else number(value, 2)


def ratio(value: float | None) -> str:
    """`3.64 ×`."""
    return DASH if value is None else f"{ratio_number(value)} ×"


def weight(value: float | None) -> str:
    """A weight between 0 and 1: `0.74`."""
    return number(value, 2)


def share(value: float | None) -> str:
    """The same as a part of a whole: `74 %`."""
    return DASH if value is None else f"{number(100 * value, 0)} %"


def amount(value: float | None, unit: str = "") -> str:
    """A number of parameters, `590 K`, `1.4 M`, `6.7 B`; with the unit `B` of bytes, `812 B`, `1.2 KB`, `3.0 GB`."""
    if value is None:
        return DASH
    prefixes = ("", "K", "M", "G" if unit else "B", "T")
    power = 0
    while power < len(prefixes) - 1 and value >= (999.5 if power < 2 else 999.95):
        value, power = value / 1000, power + 1
    digits = number(value, 0 if not power or (power == 1 and not unit) else 1)
    return f"{digits} {prefixes[power]}{unit}".rstrip()


_FULL = 300  # characters of a name where the mouse is: longer ones would leave the window


def label(name: object, limit: int = 40) -> str:
    """A name as Plotly shows it unchanged, shortened to `limit` characters."""
    return html.escape(shorten(str(name), limit), quote=False)


def full_label(name: object) -> str:
    """A name as Plotly shows it unchanged, for what it says where the mouse is."""
    return label(name, _FULL)


def shorten(text: str, limit: int) -> str:
    """The text, its middle left out where it is longer: names of one family differ at their end as often as before."""
    if len(text) <= limit:
        return text
    end = (limit - 1) // 2
    return f"{text[: limit - 1 - end]}…{text[len(text) - end :]}"
