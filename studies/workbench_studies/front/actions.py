"""What the commands of `workbench replicate` do: start replications, and print their plans, states and reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.queue.submit import run_now
from jobs.queue.tasks import cards_of
from ui.cli.job_progress import show_progress
from ui.cli.options import split_commas
from ui.cli.output import day, print_json, print_table, say
from ui.errors import BadUsageError, JobFailedError
from ui.present.text.formatting import duration, pluralize
from workbench.answers.cards import JobCard, ReportCard
from workbench.formatting.number_format import amount, number
from workbench.formatting.shell_command import shell_command
from workbench.registry.database import reading
from workbench.registry.reports import get_report
from workbench.schema.job_states import UNSUCCESSFUL
from workbench.settings import get_settings
from workbench.store.storage import get_storage
from workbench_studies.core.report import compare, format_marks, summarize_comparison, with_interval
from workbench_studies.core.spec import ENOUGH_DOCUMENTS, SIZE, Replicate, SizeName
from workbench_studies.core.verdicts import Findings, cautions, summary
from workbench_studies.mode.arms import roles
from workbench_studies.papers.catalog import plan
from workbench_studies.papers.forecast import ReplicationForecast
from workbench_studies.papers.todays_rule import with_todays_marks
from workbench_studies.running.submission import (
    REPORT,
    find_replication,
    forecast_of,
    jobs_of,
    new_spec,
    newest_report,
    replications,
    submit_replication,
    with_fields,
)

# which replication ---------------------------------------------------------------------------------


def spec_of(
    paper: str,
    folder: str,
    name: str,
    size: SizeName | None,
    seeds: int | None,
    domains: Sequence[str] = (),
    novel: Sequence[str] = (),
    **own: Any,
) -> Replicate:
    """The spec from a folder or from imported domains, else that of the replication with this name; `own`: `_own`."""
    name, text = name or f"{paper}-{size or SIZE}", (split_commas(domains), split_commas(novel))
    if folder and any(text):
        raise BadUsageError("FOLDER and --domains or --novel are both given.", "Give one of them.")
    if folder or any(text):
        path = Path(folder).expanduser().absolute() if folder else None
        spec = new_spec(paper, name, size or SIZE, seeds, folder=path, domains=text[0], novel=text[1])
    else:
        spec = _existing(paper, name, size, seeds)
    fields = _own(spec, **own)
    return with_fields(spec, **fields) if fields else spec


def _existing(paper: str, name: str, size: SizeName | None, seeds: int | None) -> Replicate:
    """The replication of this name, with another number of seeds if given; its paper and size stay the same."""
    with reading() as session:
        spec = find_replication(session, name)
    if spec.paper != paper:
        problem = f"“{name}” is a replication of {spec.paper}, not of {paper}."
        raise BadUsageError(problem, f"Continue it with: {_command(spec)}")
    if size not in (None, spec.size):
        raise BadUsageError(
            f"“{name}” was started with the size {spec.size}, not {size}.",
            "Omit --size, or start another replication: give FOLDER and another --name.",
        )
    return with_fields(spec, seeds=seeds) if seeds else spec


def _own(
    spec: Replicate,
    removed: Sequence[str] = (),
    tasks: str = "",
    targets: Sequence[str] = (),
    retention: str = "",
) -> dict[str, Any]:
    """The fields that only its paper has, as far as they are given."""
    if tasks and not Path(tasks).expanduser().is_dir():
        raise BadUsageError(f"{tasks} is not a folder.", "Give a folder that contains a folder for each task.")

    def domain_name(domain: str) -> str:
        """A training domain's name in the registry: that of its file, or of the replication and the file."""
        longer = f"{spec.name}-{domain}"
        return longer if longer in spec.domains else domain

    without, adapted = (list(map(domain_name, split_commas(domains))) for domains in (removed, targets))
    if adapted or retention:
        return roles(spec.domains, adapted, domain_name(retention) if retention else "")
    return {"removed": without} if without else {"tasks": tasks} if tasks else {}


def _command(spec: Replicate) -> str:
    return shell_command("replicate", spec.paper, "--name", spec.name)


# its plan ------------------------------------------------------------------------------------------


def print_plan(spec: Replicate, as_json: bool) -> None:
    """Prints the jobs, the time and the disk that are left, and what cannot be tested."""
    expected = forecast_of(spec)
    print_json(expected) if as_json else _print_forecast(expected)


def _print_plans(plans: Sequence[ReplicationForecast]) -> None:
    """The plans of several papers, and their sum."""
    for expected in plans:
        _print_forecast(expected)
    seconds, num_bytes = sum(one.seconds for one in plans), sum(one.disk_bytes for one in plans)
    num_jobs = sum(one.num_jobs - one.num_done for one in plans)
    needed = f"{pluralize(num_jobs, 'job')}, about {duration(seconds, to_minutes=True)} of computing"
    say(f"Together: {needed} and {amount(num_bytes, 'B')} of disk. What two papers import alike is counted twice.")


def _print_forecast(expected: ReplicationForecast) -> None:
    kinds = ", ".join(f"{number} {kind}" for kind, number in expected.jobs.items()) or "none"
    done = f", {expected.num_done} of them done" if expected.num_done else ""
    say(f"{expected.name}: {pluralize(expected.num_jobs, 'job')}{done}. Left: {kinds}.")
    say(f"About {duration(expected.seconds, to_minutes=True)} of computing. {expected.how}")
    say(f"About {amount(expected.disk_bytes, 'B')} of disk.")
    if few := [f"{one['domain']} (about {one['about']})" for one in expected.few_documents]:
        say(f"Novel domains with fewer than {ENOUGH_DOCUMENTS} test documents to read: {', '.join(few)}.")
    rows = [tuple(one.values()) for one in expected.untestable]
    say(f"Not testable, as far as can be known before: {len(rows)} of {pluralize(expected.num_claims, 'claim')}.")
    print_table(["Table", "Claim", "Why"], rows, empty="Every claim can be tested.")


# running it ----------------------------------------------------------------------------------------


def start(spec: Replicate, in_process: bool, wait: bool, as_json: bool) -> None:
    """Submits the missing jobs, waits for them if asked to, and prints the report or the progress."""
    ids = submit_replication(spec)
    if in_process or wait:
        show_progress(ids, in_process, quiet=as_json)
    _print_state(spec, ids, as_json)


def start_all(
    texts: Mapping[str, Mapping[str, Any]],
    keeping: Keeping,
    in_process: bool,
    wait: bool,
    as_plan: bool,
    as_json: bool,
) -> None:
    """Does the same for several papers; `texts` has by paper what `spec_of` takes."""
    if keeping.out and not (as_plan or in_process or wait):
        raise BadUsageError("--out needs finished reports.", "Add --here or --wait.")
    specs = [spec_of(paper, **given) for paper, given in texts.items()]  # raises before any is submitted
    if as_plan:
        plans = [forecast_of(spec) for spec in specs]
        print_json({"plans": plans}) if as_json else _print_plans(plans)
        return
    submitted = []
    for paper, given in texts.items():  # once more and one by one: names of text depend on what is submitted already
        spec = spec_of(paper, **given)
        submitted.append((spec, submit_replication(spec)))
    if in_process or wait:
        show_progress([job for _, jobs in submitted for job in jobs], in_process, quiet=as_json)
    answers = [_state_of(spec, jobs) for spec, jobs in submitted]
    kept = keeping.keep([answer["name"] for answer in answers if answer["files"]])
    if as_json:
        print_json({"replications": answers, "kept": kept})
        return
    for (spec, jobs), answer in zip(submitted, answers, strict=True):
        say(f"{spec.name}: {answer['summary'] or describe_state(spec, cards_of(jobs))}")
    for path in kept:
        say(str(path))


def _print_state(spec: Replicate, ids: Sequence[str], as_json: bool, keeping: Keeping | None = None) -> None:
    """Prints the report or the progress, and keeps the report; raises JobFailedError if a job has failed."""
    answer = _state_of(spec, ids)
    files = answer["files"]
    kept = keeping.keep([spec.name]) if keeping and files else []
    if as_json:
        print_json(answer | ({"kept": kept} if keeping else {}))
    elif files:
        say("\n".join([answer["summary"], files["html"], files["markdown"], *map(str, kept)]))
    else:
        say(f"{spec.name}: {describe_state(spec, cards_of(ids))}")


def _state_of(spec: Replicate, ids: Sequence[str]) -> dict[str, Any]:
    """The state of a replication with the files of its report; raises JobFailedError if a job has failed."""
    cards, card = cards_of(ids), _newest(spec.name)
    state = cards[-1].state
    if state == "failed":  # the first job that failed on its own is the cause
        cause = next((card for card in cards if card.state in UNSUCCESSFUL and card.attempt), cards[-1])
        raise JobFailedError(
            f"{cause.title} has {cause.state}: {cause.error}".rstrip(": "),
            f"Fix it and continue: {_command(spec)}. "
            f"Or write a partial report: {shell_command('replicate', 'report', spec.name)}",
        )
    files = files_of(card) if card and state == "done" else {}
    claims = summary(card.findings) if card and files else ""
    return {"name": spec.name, "jobs": list(ids), "state": state, "summary": claims, "files": files}


def describe_state(spec: Replicate, cards: Sequence[JobCard]) -> str:
    """The number of jobs in each state, and how to continue."""
    states = Counter(card.state for card in cards)
    done = states.pop("done", 0)
    rest = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    progress = f"{done} of {pluralize(len(cards), 'job')} done, {rest}."
    if states.keys() & {"paused", *UNSUCCESSFUL}:
        return f"{progress} Continue with: {_command(spec)}"
    return f"{progress} Start a worker with: workbench up"


def overview() -> Iterator[dict[str, Any]]:
    """A row for each replication: its progress and the state of its claims."""
    with reading() as session:
        for spec in replications(session):
            jobs, card = jobs_of(session, spec), newest_report(session, spec.name)
            yield {
                "name": spec.name,
                "paper": spec.paper,
                "size": spec.size,
                "seeds": spec.seeds,
                "jobs": len(plan(spec)),
                "done": sum(job.state == "done" for job in jobs.values()),
                "report": card and card.id,
                "summary": summary(card.findings) if card else "",
            }


# its reports ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keeping:
    """The folder that reports are kept in, and what is written there."""

    out: str  # empty: none
    without_text: bool = False
    charts: bool = True
    readme: str = ""  # a page whose sentences on replications are written again; empty: none

    def __post_init__(self) -> None:
        if not self.out and self.without_text:
            raise BadUsageError("--without-text is about the files in a folder.", "Add --out FOLDER.")
        if self.readme and not self.out:
            raise BadUsageError("--readme is about the reports in a folder.", "Add --out FOLDER.")
        if self.readme and not Path(self.readme).expanduser().is_file():
            raise BadUsageError(f"{self.readme} is not a file.", "Give a Markdown page that exists.")

    def keep(self, names: Sequence[str]) -> list[Path]:
        """Writes the newest reports of these replications into the folder, if there is one; returns their files."""
        from workbench_studies.papers.kept import keep

        cards = [card for name in names if self.out and (card := _newest(name))]
        folder, with_text = Path(self.out).expanduser(), not self.without_text
        readme = Path(self.readme).expanduser() if self.readme else None
        return [
            path
            for card in cards
            for path in keep(card.findings, folder, with_text=with_text, with_charts=self.charts, readme=readme)
        ]


def write_report(name: str, keeping: Keeping, as_json: bool) -> None:
    """Writes a report of what is stored now, prints it and keeps it."""
    with reading() as session:
        spec = find_replication(session, name)
    job_id, events = run_now(spec.model_copy(update={"partial": True}))
    for _ in events:
        pass
    _print_state(spec, [job_id], as_json, keeping)


def _newest(name: str) -> ReportCard | None:
    with reading() as session:
        return newest_report(session, name)


def files_of(card: ReportCard) -> dict[str, str]:
    """The paths of a report's pages, by format."""
    folder = get_storage(get_settings()).path(str(card.artifact_id))
    return {"html": str(folder / "report.html"), "markdown": str(folder / "report.md")}


def print_claims(name: str, as_json: bool) -> None:
    """Prints the claims of a replication's newest report."""
    card = _newest(name)
    if card is None:
        command = shell_command("replicate", "report", name)
        raise BadUsageError(f"There is no report of “{name}” yet.", f"Write one with: {command}")
    if as_json:
        print_json({"report": card, "files": files_of(card)})
        return
    rows = [
        (claim["where"], claim["sentence"], claim["paper"], claim["ours"], with_interval(claim), format_marks(claim))
        for claim in card.findings["claims"]
    ]
    print_table(
        ["Table", "Claim", "Paper", "Yours", "Difference [95 % CI]", "Verdict"], rows, empty="The report has no claims."
    )
    sentences = " ".join([summary(card.findings), *cautions(card.findings)])
    say(f"{sentences} {day(card.created_at)}: {files_of(card)['html']}")


def print_comparison(first: str, second: str, as_json: bool) -> None:
    """Prints the claims of two reports whose marks differ, or whose estimates moved out of their intervals."""
    comparison = compare(_findings_of(first), _findings_of(second))
    if as_json:
        print_json(comparison)
        return
    rows = [
        (
            *(one["where"], one["sentence"], *one["marks"]),
            *(number(value, 2, signed=True) for value in (*one["values"], one["moved"])),
            one["unit"],
        )
        for one in (*comparison["flipped"], *(same for same in comparison["same"] if same["is_outside"]))
    ]
    names = comparison["names"]
    columns = ["Table", "Claim", f"Mark in {names[0]}", f"Mark in {names[1]}", "First", "Second", "Moved", "Unit"]
    print_table(columns, rows, empty="All marks agree; every estimate is within the first report's interval.")
    say(summarize_comparison(comparison))


def _findings_of(report: str) -> Findings:
    """The findings of a replication's newest report, of a report with this id, or of a JSON file."""
    if report.endswith(".json"):
        from workbench_studies.papers.kept import is_kept

        path = Path(report).expanduser()
        try:
            findings: Findings = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            findings = {}
        if not is_kept(findings):
            raise BadUsageError(f"{path} holds no findings of a replication.", "Give the JSON file of a report.")
        return with_todays_marks(findings)
    card = _newest(report)
    if card is None:
        with reading() as session:
            card = get_report(session, report)
    if card.kind != REPORT:
        raise BadUsageError(f"The report {report} is not about a replication.", "See: workbench replicate list")
    return with_todays_marks(card.findings)
