"""What a choice of experts and weights does to the perplexity of every domain, and how two mixtures differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import Looks
from ui.present.picture import look_data
from ui.present.text.formatting import listed, pluralize
from workbench.formatting.number_format import DASH, LITTLE, change, perplexity
from workbench.formatting.shell_command import shell_command, split_options
from workbench.questions.perplexities import MixedDomain
from workbench.specs.requests import MixtureRequest

_NONE = 0.05  # percent: a smaller change is none
MOST_ROWS = 24


@dataclass(frozen=True)
class DomainEffect:
    """The perplexity of a domain before and now; before is None where it is not known, or does not compare."""

    domain: str
    num_tokens: int
    before: float | None
    now: float
    best_expert: str

    @property
    def change_percent(self) -> float | None:
        return (self.now / self.before - 1) * 100 if self.before and self.now else None

    @property
    def size(self) -> float:
        """The change without its sign; 0 where it is not known."""
        return abs(self.change_percent or 0.0)


def effect_rows(before: Sequence[MixedDomain], now: Sequence[MixedDomain]) -> list[DomainEffect]:
    """The effect on each domain.

    A perplexity before that is of other tokens does not compare, and is left out: `describe_unlike_rows` names it.
    """
    unlike = {row.domain for row in unlike_rows(before, now)}
    known = {row.domain: row.perplexity for row in before if row.domain not in unlike}
    return [
        DomainEffect(row.domain, row.num_tokens, known.get(row.domain), row.perplexity, row.best_expert) for row in now
    ]


def effect_table(rows: Sequence[DomainEffect]) -> list[dict[str, Any]]:
    """The effect as the rows of a file."""
    return [
        {
            "domain": row.domain,
            "tokens": row.num_tokens,
            "perplexity before": row.before,
            "perplexity now": row.now,
            "change (%)": row.change_percent,
            "best single expert": row.best_expert,
        }
        for row in rows
    ]


def unlike_rows(before: Sequence[MixedDomain], now: Sequence[MixedDomain]) -> list[MixedDomain]:
    """The rows before that are of other tokens than those now, on the same domain."""
    texts = {row.domain: (row.block_size, row.num_tokens) for row in now}
    return [row for row in before if texts.get(row.domain, (row.block_size, row.num_tokens)) != _text(row)]


def describe_unlike_rows(before: Sequence[MixedDomain], now: Sequence[MixedDomain], reference: str) -> str:
    """Which domains are not compared, since two mixtures were scored on other tokens; empty where all are."""
    rows = unlike_rows(before, now)
    if not rows:
        return ""
    sizes = (
        f"{reference} was scored in blocks of {rows[0].block_size:,} tokens, {rows[0].num_tokens:,} of {rows[0].domain}"
    )
    return f"Not compared on {listed([row.domain for row in rows])}, since the tokens differ: {sizes}."


def _text(row: MixedDomain) -> tuple[int, int]:
    return row.block_size, row.num_tokens


def bars_of(rows: Sequence[DomainEffect], looks: Looks, before: str) -> dict[str, Any]:
    """The data of `show_domain_bars`: `before` names the perplexities that the new ones are compared with.

    The domains with the largest changes stand first where there are more than fit.
    """
    shown = sorted(rows, key=lambda row: row.size, reverse=True)[:MOST_ROWS] if len(rows) > MOST_ROWS else rows
    most = max((max(row.before or 0, row.now) for row in shown), default=1.0) or 1.0
    return {"before": before, "rows": [_bar(row, looks, most) for row in shown], "spoken": change_to_speak(rows)}


def _bar(row: DomainEffect, looks: Looks, most: float) -> dict[str, Any]:
    return {
        "name": row.domain,
        "look": look_data(looks.domain(row.domain)),
        "now": round(row.now / most, 4),
        "before": None if row.before is None else round(row.before / most, 4),
        "words": [perplexity(row.before), perplexity(row.now), change(row.change_percent)],
        "verdict": _verdict(row.change_percent),
    }


def _verdict(change: float | None) -> list[str]:
    if change is None:
        return ["not compared", ""]
    if abs(change) < _NONE:
        return ["unchanged", ""]
    if abs(change) < LITTLE:
        return [f"within {LITTLE:g} %", ""]
    return ["↑ worse", "bad"] if change > 0 else ["↓ better", "good"]


def effect_title(rows: Sequence[DomainEffect]) -> str:
    """The result as a sentence: how many domains get worse and better."""
    changes = [row.change_percent for row in rows if row.change_percent is not None]
    if not changes:
        return "Nothing to compare"
    worse, better = sum(change >= LITTLE for change in changes), sum(change <= -LITTLE for change in changes)
    rest = len(changes) - worse - better
    if not worse and not better:
        is_same = all(abs(change) < _NONE for change in changes)
        return "The same on every domain" if is_same else "No domain changes by 1 %"
    parts = [f"{count:,} got {word}" for count, word in ((worse, "worse"), (better, "better")) if count]
    if rest:
        parts.append(f"{rest:,} changed by less than {LITTLE:g} %")
    joined = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"Of {pluralize(len(changes), 'domain')}, {joined}"


def describe_effect(rows: Sequence[DomainEffect]) -> str:
    """A sentence on the largest change."""
    changed = [row for row in rows if row.size >= _NONE]
    if not changed:
        is_compared = any(row.change_percent is not None for row in rows)
        return "The choice gives the same perplexities." if is_compared else "No domain is compared."
    worst = max(changed, key=lambda row: row.size)
    numbers = f"from {perplexity(worst.before)} to {perplexity(worst.now)} per token ({change(worst.change_percent)})"
    return f"The largest change is on {worst.domain}, {numbers}."


def change_to_speak(rows: Sequence[DomainEffect]) -> str:
    """The text for a screen reader: the largest change only."""
    worst = max(rows, key=lambda row: row.size, default=None)
    if worst is None or worst.size < _NONE:
        return "No change"
    direction = "up" if (worst.change_percent or 0.0) > 0 else "down"
    return f"{worst.domain}: {perplexity(worst.now)}, {direction} {worst.size:.1f} %"


def difference_rows(choice: MixtureRequest, reference: MixtureRequest) -> list[dict[str, str]]:
    """The differences between two mixtures: experts, weights and settings of the gate."""
    left, right = _settings(choice), _settings(reference)
    return [
        {"setting": name, f"{choice.model} now": left.get(name, DASH), reference.model: right.get(name, DASH)}
        for name in left | right
        if left.get(name, DASH) != right.get(name, DASH)
    ]


def _settings(request: MixtureRequest) -> dict[str, str]:
    weights = request.weights or {}
    experts = {f"weight of {name}": f"{weights.get(name, 1.0):g}" for name in request.active or ()}
    return experts | {f"gate: {name}": value for name, value in _flat(request.gate)}


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{before}{name} ")
        else:
            rows.append((f"{before}{name}", "none" if value is None else f"{value}"))
    return rows


def describe_changes(saved: MixtureRequest, choice: MixtureRequest) -> str:
    """`without demo/manuals`: what is chosen and not saved; empty where nothing is."""
    off = [name for name in saved.active or () if name not in (choice.active or ())]
    on = [name for name in choice.active or () if name not in (saved.active or ())]
    before, now = saved.weights or {}, choice.weights or {}
    moved = [name for name in now if now[name] != before.get(name)]
    parts = [f"without {listed(off, 2)}"] * bool(off) + [f"with {listed(on, 2)}"] * bool(on)
    parts += [f"{pluralize(len(moved), 'weight')} changed"] * bool(moved)
    parts += ["another gate"] * (dict(saved.gate) != dict(choice.gate))
    return ", ".join(parts)


def command_of(saved: MixtureRequest, choice: MixtureRequest, split: HeldOutSplit) -> str:
    """The command that prints the same numbers; empty where the gate is changed: that is saved first."""
    if dict(saved.gate) != dict(choice.gate):
        return ""
    words = ["mixture", "perplexity", choice.model]
    if choice != saved:
        weights = choice.weights or {}
        words += ["--experts", ",".join(f"{name}={weights.get(name, 1.0):g}" for name in choice.active or ())]
    return shell_command(*words, *split_options(split))
