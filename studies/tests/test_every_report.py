"""The reports of all papers have their sections and charts, and those of nothing none of the latter."""

from __future__ import annotations

from typing import Any

import pytest

from studies.tests import cbtm_worlds, demix_worlds, mode_worlds
from studies.tests import test_cbtm_report as cbtm
from studies.tests import test_demix_report as demix
from studies.tests import test_mode_report as mode
from studies.tests.made_up_losses import losses_of
from workbench_studies.papers.catalog import JobFacts, paper_of
from workbench_studies.papers.report_pages import charts, markdown, page

DEMIX = losses_of({demix.NAIVE: 3.0, demix.DENSE: 3.2}, demix_worlds.DOMAINS)
FAILED = JobFacts("Train", "train-expert", "failed", 1.0)


@pytest.mark.parametrize(
    ("findings", "title", "names"),
    [
        (demix.findings(DEMIX, demix.training("demix", 0, 3.0)), "DEMix", "curves"),
        (
            cbtm.findings(),
            "C-BTM",
            "clusters active upcycled numbers shapes updates temperature ratios labels sizes",
        ),
        (mode.findings(), "MoDE", "methods parameters sequences mixture"),
    ],
)
def test_every_section_and_chart_stands_in_markdown_and_on_the_page(
    findings: dict[str, Any], title: str, names: str
) -> None:
    text, html, drawn = markdown(findings), page(findings), charts(findings)
    assert text.startswith(f"# {title} replicated: rep (tiny, 2 seeds)")
    for section in paper_of(findings).report.sections(findings):
        assert f"## {section.title}" in text
        assert f"<h2>{section.title}</h2>" in html
    assert list(drawn) == names.split()
    assert all(f'id="chart-{name}"' in html for name in drawn)
    assert all(chart.title and chart.description and chart.table for chart in drawn.values())


@pytest.mark.parametrize(
    ("findings", "unknown"),
    [
        (demix.findings({}, jobs=(FAILED,)), "is not known yet"),
        (cbtm.shown(cbtm_worlds.evidence_of({}), FAILED), "The clusters do not exist yet."),
        (mode.shown(mode_worlds.evidence_of({}), FAILED), "is not known yet"),
    ],
)
def test_nothing_measured_is_a_report_without_charts(findings: dict[str, Any], unknown: str) -> None:
    assert charts(findings) == {}
    assert "Train (failed)" in markdown(findings)
    assert unknown in page(findings)


def test_a_report_of_mode_says_what_stands_for_the_papers_texts_and_no_prior() -> None:
    text = markdown(mode.findings())
    assert "Here cs stands for Math, law for Code and books for English." in text
    assert "49.50 − 47.95 = 1.55" in text
    assert "cached priors from at most" not in text
