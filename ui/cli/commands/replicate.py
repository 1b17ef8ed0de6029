"""Replications: make a paper's tables and figures from your own text, and check its claims."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.completion import names_of
from ui.cli.listing import Column, lists
from ui.cli.options import InProcess, Json, Wait, split_commas
from ui.cli.output import day, print_json, print_table, say
from ui.cli.plan_progress import show_progress
from ui.errors import BadUsage, JobFailed
from ui.present.text.formatting import duration, pluralize
from workbench.kinds.replications.replicate import Replicate
from workbench.kinds.replications.replicate_cbtm import ReplicateCbtm
from workbench.kinds.replications.replicate_demix import ReplicateDemix
from workbench.kinds.replications.replicate_mode import ReplicateMode
from workbench.number_format import amount, number
from workbench.replications.sizes import SizeName

if TYPE_CHECKING:
    from workbench.registry.cards import JobCard, ReportCard
    from workbench.replications.findings import Findings

app = typer.Typer(no_args_is_help=True, help=__doc__)

_SIZE: SizeName = "tiny"
_SEEDS = 2
_DEFAULT = " Default: {}, or as the replication was started."


def _sentence(spec: type[Replicate], field: str) -> str:
    return spec.model_fields[field].description or ""


_REPORT_HELP = "Name of a replication (its newest report), id of a report, or the JSON file of one."
Name = Annotated[str, typer.Argument(help="Name of a replication.")]
Folder = Annotated[
    str, typer.Argument(show_default=False, help="Folder with train/ and novel/, one file for each domain.")
]
InSize = Annotated[SizeName | None, typer.Option("--size", help=_sentence(Replicate, "size") + _DEFAULT.format(_SIZE))]
Seeds = Annotated[int | None, typer.Option(min=1, max=20, help=_sentence(Replicate, "seeds") + _DEFAULT.format(_SEEDS))]
NewName = Annotated[str, typer.Option("--name", help=_sentence(Replicate, "name") + " Default: PAPER-SIZE.")]
Plan = Annotated[
    bool, typer.Option("--plan", help="Start nothing; print jobs, time, disk and claims that cannot be tested.")
]
Domains = Annotated[
    list[str], typer.Option(help="Imported training domains, instead of FOLDER.", autocompletion=names_of("domain"))
]
Novel = Annotated[
    list[str], typer.Option(help="Imported novel domains, instead of FOLDER.", autocompletion=names_of("domain"))
]


@app.command("demix")
def demix(
    folder: Folder = "",
    size: InSize = None,
    seeds: Seeds = None,
    name: NewName = "",
    domains: Domains = [],  # noqa: B006
    novel: Novel = [],  # noqa: B006
    removed: Annotated[
        list[str], typer.Option(help=_sentence(ReplicateDemix, "removed") + " Default: the first ones.")
    ] = [],  # noqa: B006
    in_process: InProcess = False,
    wait: Wait = False,
    as_plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Replicate DEMix (Gururangan et al., 2021) on your text. Run again with the same name, it continues."""
    from jobs.plans.replications import changed

    spec = _spec("demix", folder, name, size, seeds, split_commas(domains), split_commas(novel))
    if removed:
        spec = changed(spec, removed=split_commas(removed))
    _start(spec, in_process, wait, as_plan, as_json)


@app.command("cbtm")
def cbtm(
    folder: Folder = "",
    size: InSize = None,
    seeds: Seeds = None,
    name: NewName = "",
    domains: Domains = [],  # noqa: B006
    novel: Novel = [],  # noqa: B006
    tasks: Annotated[str, typer.Option(show_default=False, help=_sentence(ReplicateCbtm, "tasks"))] = "",
    in_process: InProcess = False,
    wait: Wait = False,
    as_plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Replicate C-BTM (Gururangan et al., 2023) on your text. Run again with the same name, it continues."""
    from jobs.plans.replications import changed

    spec = _spec("cbtm", folder, name, size, seeds, split_commas(domains), split_commas(novel))
    if tasks:
        if not Path(tasks).expanduser().is_dir():
            raise BadUsage(f"{tasks} is not a folder.", "Give a folder that contains a folder for each task.")
        spec = changed(spec, tasks=tasks)
    _start(spec, in_process, wait, as_plan, as_json)


@app.command("mode")
def mode(
    folder: Folder = "",
    size: InSize = None,
    seeds: Seeds = None,
    name: NewName = "",
    domains: Domains = [],  # noqa: B006
    novel: Novel = [],  # noqa: B006
    targets: Annotated[
        list[str], typer.Option(help=_sentence(ReplicateMode, "targets") + " Default: the second and the third.")
    ] = [],  # noqa: B006
    retention: Annotated[
        str, typer.Option(show_default=False, help=_sentence(ReplicateMode, "retention") + " Default: the first.")
    ] = "",
    in_process: InProcess = False,
    wait: Wait = False,
    as_plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Replicate MoDE (anonymous, 2024) on your text. Run again with the same name, it continues."""
    from jobs.plans.replications import changed
    from workbench.replications.mode.names import roles

    spec = _spec("mode", folder, name, size, seeds, split_commas(domains), split_commas(novel))
    if targets or retention:
        chosen = [_domain_name(spec, domain) for domain in split_commas(targets)]
        spec = changed(spec, **roles(spec.domains, chosen, _domain_name(spec, retention) if retention else ""))
    _start(spec, in_process, wait, as_plan, as_json)


@app.command("all")
def all_papers(
    folder: Annotated[str, typer.Argument(help="Folder with train/ and novel/, one file for each domain.")],
    size: InSize = None,
    seeds: Seeds = None,
    name: Annotated[
        str, typer.Option(help="Start of the names, for a further corpus. Default: names PAPER-SIZE.")
    ] = "",
    out: Annotated[
        str, typer.Option(show_default=False, help="Folder that keeps the reports, as Markdown and JSON with an index.")
    ] = "",
    in_process: InProcess = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Replicate all papers on one folder, and keep their reports in a folder."""
    from jobs.plans.replications import submit_replication
    from workbench.papers.catalog import PAPERS

    if out and not (in_process or wait):
        raise BadUsage("--out needs finished reports.", "Add --here or --wait.")
    names = {paper: "-".join(filter(None, (name, paper, size or _SIZE))) for paper in PAPERS}
    specs, ids = list[Replicate](), list[list[str]]()
    for paper, own in names.items():  # one after the other: names of text depend on what is submitted already
        specs.append(_spec(paper, folder, own, size, seeds, [], []))
        ids.append(submit_replication(specs[-1]))
    if in_process or wait:
        show_progress([job for jobs in ids for job in jobs], in_process, quiet=as_json)
    answers = [_state(spec, jobs) for spec, jobs in zip(specs, ids, strict=True)]
    finished = [answer["name"] for answer in answers if answer["files"]] if out else []
    paths = [path for one in finished for path in _keep(one, Path(out).expanduser())]
    if as_json:
        print_json({"replications": answers, "kept": list(map(str, paths))})
        return
    for spec, jobs, answer in zip(specs, ids, answers, strict=True):
        say(f"{spec.name}: {answer['summary'] or _state_words(spec, _cards(jobs))}")
    for path in paths:
        say(str(path))


def _keep(name: str, folder: Path) -> list[Path]:
    """Writes a replication's newest report into a folder."""
    from workbench.papers.kept import keep

    card = _newest(name)
    return keep(card.findings, folder) if card else []


def _domain_name(spec: Replicate, domain: str) -> str:
    """A training domain's name in the registry: that of its file, or of the replication and the file."""
    longer = f"{spec.name}-{domain}"
    return longer if longer in spec.domains else domain


def _start(spec: Replicate, in_process: bool, wait: bool, as_plan: bool, as_json: bool) -> None:
    """Submits the missing jobs, or only prints what they would take."""
    from jobs.plans.replications import submit_replication

    if as_plan:
        _print_plan(spec, as_json)
        return
    ids = submit_replication(spec)
    if in_process or wait:
        show_progress(ids, in_process, quiet=as_json)
    _report(spec, ids, as_json)


def _print_plan(spec: Replicate, as_json: bool) -> None:
    from jobs.plans.replications import forecast_of

    expected = forecast_of(spec)
    if as_json:
        print_json(expected)
        return
    kinds = ", ".join(f"{number} {kind}" for kind, number in expected.jobs.items())
    done = f", of which {expected.num_done} are done" if expected.num_done else ""
    say(f"{spec.name}: {pluralize(expected.num_jobs, 'job')}{done}. Left: {kinds}.")
    say(f"About {duration(expected.seconds, to_minutes=True)} of computing. {expected.how}")
    say(f"About {amount(expected.disk_bytes, 'B')} of disk.")
    rows = [(one.where, one.sentence, one.why) for one in expected.untestable]
    say(f"Not testable, as far as can be known before: {len(rows)} of {pluralize(expected.num_claims, 'claim')}.")
    print_table(["Table", "Claim", "Why"], rows, empty="Every claim can be tested.")


def _spec(
    paper: str,
    folder: str,
    name: str,
    size: SizeName | None,
    seeds: int | None,
    domains: Sequence[str],
    novel: Sequence[str],
) -> Replicate:
    """The spec from a folder or from imported domains; else that of the replication with this name."""
    from jobs.plans.replications import spec_for_domains, spec_for_folder

    name = name or f"{paper}-{size or _SIZE}"
    if folder and (domains or novel):
        raise BadUsage("FOLDER and --domains or --novel are both given.", "Give one of them.")
    if folder:
        text = Path(folder).expanduser().absolute()
        return spec_for_folder(text, name, size or _SIZE, seeds or _SEEDS, paper=paper)
    if domains or novel:
        return spec_for_domains(domains, novel, name, size or _SIZE, seeds or _SEEDS, paper=paper)
    return _existing(paper, name, size, seeds)


def _existing(paper: str, name: str, size: SizeName | None, seeds: int | None) -> Replicate:
    """The replication of this name, with another number of seeds if given; its paper and size stay the same."""
    from jobs.plans.replications import changed, find_replication
    from workbench.registry.database import reading

    with reading() as session:
        spec = find_replication(session, name)
    if spec.paper != paper:
        raise BadUsage(
            f"“{name}” is a replication of {spec.paper}, not of {paper}.",
            f"Continue it with: workbench replicate {spec.paper} --name {name}",
        )
    if size not in (None, spec.size):
        raise BadUsage(
            f"“{name}” was started with the size {spec.size}, not {size}.",
            "Omit --size, or start another replication: give FOLDER and another --name.",
        )
    return changed(spec, seeds=seeds) if seeds else spec


@app.command("report")
def report(name: Name, as_json: Json = False) -> None:
    """Write a partial report now; missing results are marked."""
    from jobs.plans.replications import find_replication
    from jobs.queue.submit import run_now
    from workbench.registry.database import reading

    with reading() as session:
        spec = find_replication(session, name)
    job_id, events = run_now(spec.model_copy(update={"partial": True}))
    for _ in events:
        pass
    _report(spec, [job_id], as_json)


_COLUMNS = (
    Column("Name", lambda row: row["name"]),
    Column("Paper", lambda row: row["paper"]),
    Column("Size", lambda row: row["size"]),
    Column("Seeds", lambda row: row["seeds"]),
    Column("Jobs done", lambda row: row["done"]),
    Column("Jobs", lambda row: row["jobs"]),
    Column("Claims", lambda row: row["summary"]),
)


@app.command("list")
@lists(
    _COLUMNS,
    empty="There is no replication yet. Start one with: workbench replicate demix FOLDER, or cbtm or mode",
    noun="replication",
)
def list_all() -> list[dict[str, Any]]:
    """List replications with their progress and the state of their claims."""
    return list(_overview())


def _overview() -> Iterator[dict[str, Any]]:
    from jobs.plans.replications import jobs_of, replications
    from workbench.analysis.replication_data import newest_report
    from workbench.papers.plan import plan
    from workbench.registry.database import reading
    from workbench.replications.findings import summary

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


@app.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show the claims of the newest report, with the paper's numbers beside yours."""
    from workbench.replications.findings import summary
    from workbench.replications.report import mark_words, with_interval

    card = _newest(name)
    if card is None:
        raise BadUsage(f"There is no report of “{name}” yet.", f"Write one with: workbench replicate report {name}")
    if as_json:
        print_json({"report": card, "files": _files(card)})
        return
    rows = [
        (claim["where"], claim["sentence"], claim["paper"], claim["ours"], with_interval(claim), mark_words(claim))
        for claim in card.findings["claims"]
    ]
    print_table(
        ["Table", "Claim", "Paper", "Yours", "Difference [95 % CI]", "Verdict"], rows, empty="The report has no claims."
    )
    say(f"{summary(card.findings)} {day(card.created_at)}: {_files(card)['html']}")


@app.command("compare")
def compare_two(
    first: Annotated[str, typer.Argument(help=_REPORT_HELP)],
    second: Annotated[str, typer.Argument(help=_REPORT_HELP)],
    as_json: Json = False,
) -> None:
    """Compare two reports: whose marks differ, and by how much the estimates moved."""
    from workbench.replications.compare import compare, compare_words

    comparison = compare(_findings(first), _findings(second))
    if as_json:
        print_json(comparison)
        return
    rows = [
        (one.where, one.sentence, *one.marks, *map(_signed, (*one.values, one.moved)), one.unit)
        for one in (*comparison.flipped, *(same for same in comparison.same if same.is_outside))
    ]
    names = comparison.names
    columns = ["Table", "Claim", f"Mark in {names[0]}", f"Mark in {names[1]}", "First", "Second", "Moved", "Unit"]
    print_table(columns, rows, empty="No mark differs, and no estimate left its first interval.")
    say(compare_words(comparison))


def _signed(value: float | None) -> str:
    return number(value, 2, signed=True)


def _findings(report: str) -> Findings:
    """The findings of a replication's newest report, of a report with this id, or of a JSON file."""
    from workbench.analysis.replication_data import REPORT
    from workbench.registry.database import reading
    from workbench.registry.reports import get_report

    if report.endswith(".json"):
        return _read_findings(Path(report).expanduser())
    card = _newest(report)
    if card is None:
        with reading() as session:
            card = get_report(session, report)
    if card.kind != REPORT:
        raise BadUsage(f"The report {report} is not about a replication.", "See: workbench replicate list")
    return card.findings


def _read_findings(path: Path) -> Findings:
    try:
        findings: Findings = json.loads(path.read_text(encoding="utf-8"))
        if {"name", "paper", "claims"} <= findings.keys():
            return findings
    except (OSError, ValueError, AttributeError):
        pass
    raise BadUsage(f"{path} holds no findings of a replication.", "Give the JSON file of a report.")


def _report(spec: Replicate, ids: Sequence[str], as_json: bool) -> None:
    """Prints the report or the progress; raises JobFailed if a job has failed."""
    name, cards = spec.name, _cards(ids)
    answer = _state(spec, ids)
    files = answer["files"]
    if as_json:
        print_json(answer)
    elif files:
        say(f"{answer['summary']}\n{files['html']}\n{files['markdown']}")
    else:
        say(f"{name}: {_state_words(spec, cards)}")


def _state(spec: Replicate, ids: Sequence[str]) -> dict[str, Any]:
    """The state of a replication with the files of its report; raises JobFailed if a job has failed."""
    from workbench.replications.findings import summary

    cards, card = _cards(ids), _newest(spec.name)
    last = cards[-1]
    if last.state == "failed":
        raise _failure(spec, cards)
    files = _files(card) if card and last.state == "done" else {}
    claims = summary(card.findings) if card and files else ""
    return {"name": spec.name, "jobs": list(ids), "state": last.state, "summary": claims, "files": files}


def _cards(ids: Sequence[str]) -> list[JobCard]:
    from jobs.queue.local_runner import cards_of

    return cards_of(ids)


def _state_words(spec: Replicate, cards: Sequence[JobCard]) -> str:
    """The number of jobs in each state, and how to continue."""
    states = Counter(card.state for card in cards)
    done = states.pop("done", 0)
    rest = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    progress = f"{done} of {pluralize(len(cards), 'job')} done, {rest}."
    if states.keys() & {"paused", "cancelled", "failed"}:
        return f"{progress} Continue with: {_command(spec)}"
    return f"{progress} Start a worker with: workbench up"


def _command(spec: Replicate) -> str:
    return f"workbench replicate {spec.paper} --name {spec.name}"


def _failure(spec: Replicate, cards: Sequence[JobCard]) -> JobFailed:
    """The error of the first job that failed by itself."""
    cause = next((card for card in cards if card.state in ("failed", "cancelled") and card.attempt), cards[-1])
    return JobFailed(
        f"{cause.title} has {cause.state}: {cause.error}".rstrip(": "),
        f"Fix it and continue: {_command(spec)}. Or write a partial report: workbench replicate report {spec.name}",
    )


def _newest(name: str) -> ReportCard | None:
    from workbench.analysis.replication_data import newest_report
    from workbench.registry.database import reading

    with reading() as session:
        return newest_report(session, name)


def _files(card: ReportCard) -> dict[str, str]:
    from workbench.settings import get_settings
    from workbench.store.storage import get_storage

    folder = get_storage(get_settings()).path(str(card.artifact_id))
    return {"html": str(folder / "report.html"), "markdown": str(folder / "report.md")}
