"""Names in a report are never markup: a hundred scripts in a real browser, and none runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from studies.tests.test_demix_report import DENSE, DOMAINS, NAIVE, findings, losses_of, training
from tests.browser.conftest import chromium
from tests.browser.payloads import PAYLOADS
from tests.browser.test_hundred_scripts import OPEN, Window, window
from workbench_studies.papers.catalog import JobFacts
from workbench_studies.papers.report_pages import page as report_page

__all__ = ["chromium", "window"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def test_none_runs_in_a_report(window: Window, tmp_path: Path) -> None:
    jobs = tuple(JobFacts(payload, "evaluate", "failed", 1.0) for payload in PAYLOADS)
    results = findings(losses_of({NAIVE: 3.0, DENSE: 3.2}, DOMAINS), training("demix", 0, 3.0, 2.5), jobs=jobs)
    report = tmp_path / "report.html"
    report.write_text(report_page(_renamed(results, dict(zip(DOMAINS, PAYLOADS[20:], strict=False)))), encoding="utf-8")
    window.page.goto(report.as_uri())
    window.page.evaluate(OPEN)
    window.look()
    assert window.harm == []
    assert window.shown() == PAYLOADS


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Findings with a text in the place of each domain's name."""
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value
