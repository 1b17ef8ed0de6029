"""Reports kept in a folder, as Markdown with their findings as JSON, and the index and sentences made from them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench_studies.core.report import (
    claim_name,
    count_seeds,
    describe_setting,
    format_marks,
    join_names,
    with_interval,
)
from workbench_studies.core.spec import SMOKE, TOO_SHORT
from workbench_studies.core.verdicts import MARKS, Findings, cautions
from workbench_studies.papers.catalog import DEMIX, PAPERS, paper_of
from workbench_studies.papers.report_pages import markdown, page
from workbench_studies.papers.todays_rule import with_todays_marks

_LARGE = ("curves", "forgetting", "pictures", "jobs")  # per step, per block or per job; the Markdown has their tables
INDEX = ("<!-- index of reports -->", "<!-- end of the index -->")
IN_SHORT = ("<!-- kept reports in short -->", "<!-- end of the reports in short -->")
RESULTS = ("<!-- results of replications -->", "<!-- end of the results -->")


def keep(
    findings: Findings,
    folder: Path,
    *,
    with_text: bool = True,
    with_charts: bool = False,
    readme: Path | None = None,
) -> list[Path]:
    """Writes NAME.md and NAME.json into a folder, with charts also NAME.html; updates the index in its README.md.

    `readme` is a further page, whose sentences on replications are written again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not with_text:  # whose licence may not be known; how much text there is stays
        findings = {**findings, "samples": [{**sample, "lines": []} for sample in findings.get("samples", ())]}
    small = {name: value for name, value in findings.items() if name not in _LARGE}
    texts = {"md": markdown(findings), "json": json.dumps(small, indent=1, ensure_ascii=False) + "\n"}
    if with_charts:
        texts["html"] = page(findings)
    paths = [folder / f"{findings['name']}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    write_again(folder, readme)
    return paths


def write_again(folder: Path, readme: Path | None = None) -> None:
    """Writes what follows from the numbers in a folder: its README.md, and the sentences of a page elsewhere."""
    reports, own = read_kept(folder), folder / "README.md"
    text = own.read_text(encoding="utf-8") if own.is_file() else "# Replications\n"
    for markers, written in (
        (INDEX, index(reports)),
        (RESULTS, results(reports, _without_numbers(folder))),
        (IN_SHORT, "\n\n".join("\n".join(in_short(report)) for report in reports)),
    ):
        text = between(text, markers, written)
    own.write_text(text, encoding="utf-8")
    if readme is not None:
        counted = results_in_short(reports, Path(os.path.relpath(folder, readme.parent)).as_posix())
        readme.write_text(between(readme.read_text(encoding="utf-8"), RESULTS, counted), encoding="utf-8")


def _without_numbers(folder: Path) -> list[str]:
    """The names of reports that are kept as pages only: they were written, and judged, before numbers were kept."""
    return [
        path.stem
        for path in sorted(folder.glob("*.md"))
        if " replicated: " in path.read_text("utf-8").partition("\n")[0] and not path.with_suffix(".json").exists()
    ]


def is_kept(value: object) -> bool:
    """Whether the content of a JSON file is findings of a replication."""
    return isinstance(value, dict) and {"name", "paper", "claims"} <= value.keys()


def read_kept(folder: Path) -> list[Findings]:
    """The findings in a folder, in the order of papers, then of corpus and size; other JSON files are left aside."""
    stored = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")))
    kept: list[Findings] = [with_todays_marks(one) for one in stored if is_kept(one)]
    papers = list(PAPERS)
    return sorted(kept, key=lambda one: (papers.index(one["paper"]), one["corpus"], one["size"], one["name"]))


def between(text: str, markers: tuple[str, str], words: str) -> str:
    """A text with other words between two markers, which are added at its end if they are not there."""
    start, end = markers
    if start not in text or end not in text:
        text = f"{text.rstrip()}\n\n{start}\n{end}\n"
    before, rest = text.split(start, 1)
    return f"{before}{start}\n\n{words}\n\n{end}{rest.split(end, 1)[1]}"


def index(reports: Sequence[Findings]) -> str:
    """A table of one row for each paper, corpus and size: the newest report of each."""
    newest: dict[tuple[str, str, str], Findings] = {}
    for report in sorted(reports, key=lambda report: str(report["date"])):
        newest[report["paper"], report["corpus"], report["size"]] = report
    rows = [
        f"| {paper_of(one).title} | {one['corpus']} | {one['size']} | {count_seeds(one)} | {one['date']} | "
        f"{' | '.join(map(str, one['marks'].values()))} | [report]({one['name']}.md), [numbers]({one['name']}.json) |"
        for one in reports
        if newest[one["paper"], one["corpus"], one["size"]] is one
    ]
    heads = ["paper", "corpus", "size", "seeds", "date", *MARKS, "files"]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def results_in_short(reports: Sequence[Findings], folder: str) -> str:
    """The README's sentences on the reports in a folder: the marks of each that tells something, and what was tried."""
    if not (shown := [one for one in reports if one["size"] != SMOKE]):
        return _NONE
    sentences = [f"- {_sentence(report, folder)}" for report in shown if report["size"] not in TOO_SHORT]
    return "\n".join([*sentences, "", f"{_describe_corpora(shown)} {_IMPLIED}"])


def results(reports: Sequence[Findings], without_numbers: Sequence[str] = ()) -> str:
    """Where the main claims of each paper hold, and which reports of the folder are not counted."""
    if not (shown := [report for report in reports if report["size"] != SMOKE]):
        return _NONE
    telling, lines = [one for one in shown if one["size"] not in TOO_SHORT], []
    if holding := where_they_hold(telling):
        lines += ["What the papers are known for, and where it holds:", "", *(f"- {one}" for one in holding)]
    if tried := [one for one in shown if one not in telling]:
        links = ", ".join(f"[{paper_of(one).title} on {place_of(one)}]({one['name']}.md)" for one in tried)
        lines += ["", f"{_TOO_SHORT} {links}.{_range_by_seed(tried)}"]
    if without_numbers:
        links = ", ".join(f"[{name}]({name}.md)" for name in without_numbers)
        lines += ["", f"Judged by an earlier rule, two seeds, and kept without their numbers: {links}."]
    return "\n".join(lines).strip()


_NONE = "No report is kept yet."
_IMPLIED = (
    "Implied is what could not have come out otherwise, such as that a frozen base does not forget, or what repeats "
    "the numbers of another claim; it does not count as reproduced."
)
_TOO_SHORT = "Not counted here, since trainings of this size are too short to tell DEMix from Dense:"


def _range_by_seed(reports: Sequence[Findings]) -> str:
    """How far the seeds of DEMix's first claim lie apart, as a sentence; empty without."""
    claims = [claim for report in reports if report["paper"] == DEMIX.name for claim in report["claims"][:1]]
    ranges = [
        f"from {min(values):+.1f} to {max(values):+.1f} {one['unit']}" for one in claims if (values := one["by_seed"])
    ]
    return f" DEMix less Dense on the training domains is {', '.join(ranges)}, by the seed." if ranges else ""


def _describe_corpora(reports: Sequence[Findings]) -> str:
    """`Tried on: DEMix 2 corpora (books, news); MoDE 1 corpus (books).`"""
    by_paper: dict[str, set[str]] = {}
    for report in reports:
        by_paper.setdefault(paper_of(report).title, set()).add(str(report["corpus"]))
    words = [
        f"{title} {len(corpora)} {'corpus' if len(corpora) == 1 else 'corpora'} ({', '.join(sorted(corpora))})"
        for title, corpora in by_paper.items()
    ]
    return f"Tried on: {'; '.join(words)}."


def _sentence(findings: Findings, folder: str) -> str:
    """`[DEMix](…) on books (tiny, 2 seeds): of 33 claims 17 reproduced, 5 contradicted, ….`"""
    numbers = ", ".join(f"{number} {mark}" for mark, number in findings["marks"].items() if number)
    link = f"[{paper_of(findings).title}]({folder}/{findings['name']}.md)"
    counted = f"{link} on {place_of(findings)}: of {len(findings['claims'])} claims {numbers}."
    return " ".join([counted, *cautions(findings), describe_model(findings)])


# where the main claims of each paper hold, and each report in short ----------------------------------


def place_of(findings: Findings) -> str:
    """`world1 (tiny, 3 seeds)`."""
    return f"{findings['corpus']} ({findings['size']}, {count_seeds(findings)})"


def where_they_hold(reports: Sequence[Findings]) -> list[str]:
    """A sentence for each main claim of each paper: on which corpora it was reproduced, and on which it was not."""
    marks: dict[tuple[str, str], dict[str, list[str]]] = {}
    for report in reports:
        for claim in main_claims(report):
            by_mark = marks.setdefault((paper_of(report).title, claim["sentence"]), {})
            mark = ", ".join(filter(None, (format_marks(claim), claim.get("setting"))))
            by_mark.setdefault(mark, []).append(place_of(report))
    return [
        f"{title}: {sentence}: {'; '.join(f'{mark} on {join_names(places)}' for mark, places in by_mark.items())}."
        for (title, sentence), by_mark in marks.items()
    ]


def main_claims(findings: Findings) -> list[Mapping[str, Any]]:
    """The claims of a report that its paper is known for, in the order of the report."""
    study = paper_of(findings).study
    return [claim for claim in findings["claims"] if (declared := study.find_claim(claim)) and declared.is_main]


def in_short(findings: Findings) -> Iterator[str]:
    """The lines on a report: its models and text, its main claims with their numbers, and what is ours."""
    paper = paper_of(findings)
    training, novel = (", ".join(findings[role]) for role in ("domains", "novel"))
    texts = f"Training domains: {training}. Novel ones: {novel}."
    yield f"**{paper.title} on {place_of(findings)}.** {describe_model(findings)} {texts}"
    yield from cautions(findings)
    yield ""
    for claim in main_claims(findings):
        numbers = "; ".join(filter(None, (claim["ours"], with_interval(claim) if claim["value"] is not None else "")))
        sentence = f"- {claim['sentence']}: **{format_marks(claim)}**{f' ({numbers})' if numbers else ''}."
        yield " ".join([sentence, *_other_reading(findings, claim), describe_setting(claim)]).strip()
    if ours := paper.ours(findings):
        yield f"- Calibrated evidence, which is ours and judges no claim. {ours}"


def _other_reading(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """The numbers of a claim as the released code reads the posterior."""
    for other in list(claim.get("by_evidence", {}))[1:2]:
        rows = [row for row in findings.get("readings", ()) if row["reading"].startswith(other)]
        for row in [row for row in rows if claim_name(row) == claim_name(claim)][:1]:
            yield f"With {row['reading']}: {'; '.join(filter(None, (row['ours'], with_interval(row))))}."


def describe_model(findings: Findings) -> str:
    """`Models: layers 2, width 64, tokens each 8,192,000.`"""
    shape, tokens = findings["budget"]["shape"], findings["budget"].get("training_tokens")
    named = {"layers": shape.get("num_layers"), "width": shape.get("width"), "tokens each": tokens}
    return f"Models: {', '.join(f'{name} {number:,}' for name, number in named.items() if number)}."
