"""Reports kept in a folder, as Markdown with their findings as JSON, and the index and sentences made from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.papers.catalog import PAPERS
from workbench.papers.markdown import markdown
from workbench.papers.page import page
from workbench.replications.findings import Findings
from workbench.replications.forest import MARKS_IN_ORDER, look_of
from workbench.replications.report import seeds_words
from workbench.replications.sizes import SMOKE
from workbench.replications.verdicts import in_todays_words

_LARGE = ("curves", "forgetting", "pictures", "jobs")  # per step, per block or per job; the Markdown has their tables
INDEX = ("<!-- index of reports -->", "<!-- end of the index -->")
RESULTS = ("<!-- results of replications -->", "<!-- end of the results -->")


def keep(findings: Findings, folder: Path, *, with_text: bool = True, with_charts: bool = False) -> list[Path]:
    """Writes NAME.md and NAME.json into a folder, with charts NAME.html, too; updates the index in its README.md."""
    folder.mkdir(parents=True, exist_ok=True)
    findings = findings if with_text else without_text(findings)
    small = {name: value for name, value in findings.items() if name not in _LARGE}
    texts = {"md": markdown(findings), "json": json.dumps(small, indent=1, ensure_ascii=False) + "\n"}
    if with_charts:
        texts["html"] = page(findings)
    paths = [folder / f"{findings['name']}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    readme = folder / "README.md"
    before = readme.read_text(encoding="utf-8") if readme.is_file() else "# Replications\n"
    readme.write_text(between(before, INDEX, index(read_kept(folder))), encoding="utf-8")
    return paths


def without_text(findings: Findings) -> Findings:
    """Findings without the lines of the corpus, whose licence may not be known; how much text there is stays."""
    samples = [{**sample, "lines": []} for sample in findings.get("samples", ())]
    return {**findings, "samples": samples}


def is_kept(value: object) -> bool:
    """Whether the content of a JSON file is findings of a replication."""
    return isinstance(value, dict) and {"name", "paper", "claims"} <= value.keys()


def read_kept(folder: Path) -> list[Findings]:
    """The findings in a folder, in the order of papers, then of corpus and size; other JSON files are left aside."""
    stored = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")))
    kept: list[Findings] = [in_todays_words(one) for one in stored if is_kept(one)]
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
    for one in sorted(reports, key=lambda report: str(report["date"])):
        newest[one["paper"], one["corpus"], one["size"]] = one
    rows = [
        f"| {PAPERS[one['paper']].title} | {one['corpus']} | {one['size']} | {seeds_words(one)} | {one['date']} | "
        f"{' | '.join(map(str, counts(one).values()))} | [report]({one['name']}.md), [numbers]({one['name']}.json) |"
        for one in reports
        if newest[one["paper"], one["corpus"], one["size"]] is one
    ]
    heads = ["paper", "corpus", "size", "seeds", "date", *MARKS_IN_ORDER, "files"]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def counts(findings: Findings) -> Mapping[str, int]:
    """The number of claims with each mark."""
    words = [look_of(claim).words for claim in findings["claims"]]
    return {mark: words.count(mark) for mark in MARKS_IN_ORDER}


def results(reports: Sequence[Findings], folder: str) -> str:
    """The README's sentences on the reports in a folder: one for each paper, with where it was tried."""
    telling = [one for one in reports if one["size"] != SMOKE]
    sentences = [_sentence(one, folder) for one in telling]
    corpora = sorted({str(one["corpus"]) for one in telling})
    where = f"Tried on {len(corpora)} {'corpus' if len(corpora) == 1 else 'corpora'}: {', '.join(corpora)}."
    return "\n".join([*(f"- {sentence}" for sentence in sentences), "", where]) if telling else "No report is kept yet."


def _sentence(findings: Findings, folder: str) -> str:
    """`[DEMix](…) on books (tiny, 2 seeds): of 33 claims 17 reproduced, 5 contradicted, ….`"""
    numbers = ", ".join(f"{number} {mark}" for mark, number in counts(findings).items() if number)
    link = f"[{PAPERS[findings['paper']].title}]({folder}/{findings['name']}.md)"
    place = f"{findings['corpus']} ({findings['size']}, {seeds_words(findings)})"
    return f"{link} on {place}: of {len(findings['claims'])} claims {numbers}."
