"""The charts of a report, whichever the paper."""

from __future__ import annotations

from collections.abc import Mapping

from workbench_studies.cbtm.charts import CHARTS as CBTM
from workbench_studies.core.drawing import Chart, Draw
from workbench_studies.core.findings import Findings
from workbench_studies.demix.charts import CHARTS as DEMIX
from workbench_studies.mode.charts import CHARTS as MODE

_OF_PAPER: Mapping[str, Mapping[str, Draw]] = {"demix": DEMIX, "cbtm": CBTM, "mode": MODE}


def charts(findings: Findings) -> dict[str, Chart]:
    """Every chart with data, by name."""
    drawn = {name: draw(findings) for name, draw in _OF_PAPER[findings["paper"]].items()}
    return {name: chart for name, chart in drawn.items() if chart is not None}
