"""What a sort of report is: its findings, and how the command line and the studio show them.

A module of `ui.reports` offers some as `REPORT`, another package as an entry point:

    [project.entry-points."expert_workbench.reports"]
    words = "word_count.report:REPORT"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypedDict, TypeVar

from engine.plugins import find_plugins, missing_package
from ui.present.text.formatting import clock
from ui.reports.picture import Picture, draw_picture
from workbench.answers.cards import ReportCard
from workbench.formatting.shell_command import shell_command
from workbench.kinds.kind import ResultLink

Findings = TypeVar("Findings", bound=Mapping[str, Any])
Rows = Sequence[Mapping[str, Any]]
Part = str | Rows | Mapping[str, Any]  # a paragraph (empty: a blank line), a table, or values shown as JSON


class Reproducible(TypedDict, total=False):
    """Older reports lack the key. It is inherited, because `NotRequired` is not seen in annotations that are text."""

    reproducible_from: str


def stored_sentence(findings: Mapping[str, Any]) -> str:
    """The sentence that the job put into the findings; empty without one."""
    return str(findings.get("sentence", ""))


@dataclass(frozen=True, kw_only=True)
class ReportType(Generic[Findings]):
    """A sort of report. Findings that lack a required key of `findings`, a TypedDict, are shown as JSON."""

    name: str  # the kind that its reports are stored with
    title: str  # in the choice of what to list
    findings: type[Findings]
    sentence: Callable[[Findings], str] = stored_sentence
    describe: Callable[[Findings], Iterable[Part]]  # what a terminal prints after the sentence
    draw: str = ""  # `package.module:function` of a report's card; without it the studio shows what a terminal prints
    link: ResultLink | None = None  # the page that shows more of it
    picture: Callable[[Findings], Picture] | None = None  # of a report that people share; `report show --svg` draws it


GROUP = "expert_workbench.reports"  # of entry points


@cache
def report_types() -> dict[str, ReportType[Any]]:
    """Every sort of report by its name. Raises BadPluginError."""
    return find_plugins("ui.reports", GROUP, "REPORT", ReportType, lambda report: report.name)


def report_type(card: ReportCard) -> ReportType[Any]:
    """The sort of a report; where no installed package reads it, one that says so and shows its JSON."""
    known = report_types().get(card.kind)
    if known is None:
        why = f"No installed package knows reports of the kind “{card.kind}”: these are its values."
        return _as_json(card.kind, f"{why} {missing_package(card.kind)}".rstrip())
    keys: frozenset[str] = getattr(known.findings, "__required_keys__", frozenset())
    if missing := sorted(keys - card.findings.keys()):
        return _as_json(card.kind, f"This report has no {', '.join(missing)}: these are its values.")
    return known


def report_picture(card: ReportCard) -> tuple[str, str] | None:
    """A report as an SVG to share, and what that says in a sentence; None for a sort of report without a picture."""
    if (draw := report_type(card).picture) is None:
        return None
    picture: Picture = draw(card.findings)
    return draw_picture(picture, clock(card.created_at), show_report_line(card)), picture.sentence


def show_report_line(card: ReportCard) -> str:
    """The command that prints a report."""
    return shell_command("report", "show", card.id[:8])


def report_sentence(card: ReportCard) -> str:
    """What a report says, in a sentence; empty if it has none."""
    try:
        return report_type(card).sentence(card.findings)
    except Exception as error:  # of another package: the other reports are listed
        return f"Its package cannot say what it is: {type(error).__name__}: {error}"


def _as_json(kind: str, why: str) -> ReportType[Any]:
    def describe(findings: dict[str, Any]) -> Iterator[Part]:
        yield why
        yield findings

    return ReportType(name=kind, title=kind, findings=dict, sentence=stored_sentence, describe=describe)
