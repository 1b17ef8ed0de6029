"""The oracle gap: the loss against the best choice of one expert for each block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ui.present.charts.chart import ACCENT, GREY, Chart, name_axis, new_figure
from ui.present.charts.colours import Looks
from ui.present.text.inference_modes import ORACLE
from workbench.formatting.number_format import nats
from workbench.questions.inference_modes import InferenceMode, InferenceModeDomain

_MODES: dict[InferenceMode, str] = {
    "naive": "best single expert",
    "label": "the domain's own expert",
    "mixture": "the mixture as saved",
}


def oracle_gap(rows: Sequence[InferenceModeDomain], looks: Looks) -> Chart:
    """Bars for each domain (rows of `/v1/workbench/inference-modes`): nats per token above the oracle."""
    figure = new_figure("domain", "above the oracle (nats/token)", better="lower")
    own = [looks.domain(row.domain) for row in rows]
    places = name_axis(figure, "x", [row.domain for row in rows], looks=own)
    fills = {"naive": GREY, "label": [look.colour for look in own], "mixture": ACCENT}
    for mode, title in _MODES.items():
        values = [gap(row, mode) for row in rows]
        figure.add_bar(x=places, y=values, name=title, marker_color=fills[mode])
    losses = [value for row in rows if (value := gap(row, "mixture")) is not None]
    beaten = sum(value < 0 for value in losses)
    title = f"Oracle gap: the mixture beats the oracle, with a bar below 0, on {beaten} of {len(losses)} domains"
    return Chart(figure, title, _words(rows), [_row(row) for row in rows])


def gap(row: InferenceModeDomain, mode: InferenceMode) -> float | None:
    """log(perplexity / the oracle's) in nats per token; None where the inference mode has no number."""
    perplexity = row.by_mode()[mode]
    return None if perplexity is None else math.log(perplexity / row.oracle)


def _row(row: InferenceModeDomain) -> dict[str, Any]:
    gap_by_mode = {f"{title}: gap (nats per token)": gap(row, mode) for mode, title in _MODES.items()}
    by_mode = row.by_mode()
    perplexities = {"oracle": row.oracle, **{title: by_mode[mode] for mode, title in _MODES.items()}}
    return {"domain": row.domain, "tokens": row.num_tokens, **perplexities, **gap_by_mode}


def _words(rows: Sequence[InferenceModeDomain]) -> str:
    losses = {row.domain: gap(row, "mixture") or 0.0 for row in rows}
    worst = max(losses, key=losses.__getitem__)
    beaten = sum(value < 0 for value in losses.values())
    return (
        f"Bar chart of the oracle gap by domain: {ORACLE}. The mixture loses most on {worst} "
        f"({nats(losses[worst])}), and beats the oracle on {beaten} of {len(losses)} domains."
    )
