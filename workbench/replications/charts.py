"""The charts of a report, whichever the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench.replications.cbtm.charts import charts as cbtm_charts
from workbench.replications.demix.charts import charts as demix_charts
from workbench.replications.drawing import Chart
from workbench.replications.findings import Findings
from workbench.replications.mode.charts import charts as mode_charts

_OF_PAPER: Mapping[str, Callable[[Findings], dict[str, Chart]]] = {
    "demix": demix_charts,
    "cbtm": cbtm_charts,
    "mode": mode_charts,
}


def charts(findings: Findings) -> dict[str, Chart]:
    """Every chart with data, by name."""
    return _OF_PAPER[findings["paper"]](findings)
