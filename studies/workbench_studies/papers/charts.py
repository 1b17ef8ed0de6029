"""The charts of a report, whichever the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench_studies.cbtm.charts import charts as cbtm_charts
from workbench_studies.core.drawing import Chart
from workbench_studies.core.findings import Findings
from workbench_studies.demix.charts import charts as demix_charts
from workbench_studies.mode.charts import charts as mode_charts

_OF_PAPER: Mapping[str, Callable[[Findings], dict[str, Chart]]] = {
    "demix": demix_charts,
    "cbtm": cbtm_charts,
    "mode": mode_charts,
}


def charts(findings: Findings) -> dict[str, Chart]:
    """Every chart with data, by name."""
    return _OF_PAPER[findings["paper"]](findings)
