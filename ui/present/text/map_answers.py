"""Sentences on a selection of the map: its domains, what an expert of it may gain, and what its training may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ui.present.text.formatting import duration, pluralize
from workbench.analysis.map_selections import MeasuredCost, SelectionReadings
from workbench.formatting.number_format import nats, share

_SHOWN_DOMAINS = 4


def describe_domains(domains: Sequence[str]) -> str:
    """The shares of the domains that the documents are from."""
    counts = Counter(domains)
    parts = [f"{name} {share(number / len(domains))}" for name, number in counts.most_common(_SHOWN_DOMAINS)]
    more = len(counts) - len(parts)
    return f"From {', '.join(parts)}" + (f", and {pluralize(more, 'other domain')}." if more > 0 else ".")


def describe_gain(read: SelectionReadings) -> str:
    """What an expert of the selection may gain, by what the others gained on their own domain; empty if unknown."""
    gains = list(read.gains.values())
    if not read.readings or not gains:
        return ""
    best = read.readings[0]
    spread = f", from {min(gains):.2f} to {max(gains):.2f}" if len(gains) > 1 else ""
    return (
        f"Predicted gain: {nats(sum(gains) / len(gains))} less than {best.expert} here. That is what "
        f"{pluralize(len(gains), 'expert')} gained over the best of the others, each on its own domain{spread}."
    )


def describe_cost(cost: MeasuredCost | None) -> str:
    """What a training may take, by the last one; empty if there was none."""
    if cost is None:
        return ""
    return f"Predicted cost: “{cost.title}” took {duration(cost.seconds)} on this machine with its number of steps."


def reading_rows(read: SelectionReadings) -> list[Mapping[str, object]]:
    """Each expert's loss on the selection as a row, the best first."""
    return [
        {
            "expert": one.expert,
            "loss (nats/token)": one.loss.mean,
            "95 % interval": f"{one.loss.low:.2f} to {one.loss.high:.2f}",
            "documents": one.num_documents,
        }
        for one in read.readings
    ]
