"""Replications: make a paper's tables and figures from your own text, and check its claims."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.job_progress import show_progress
from ui.cli.options import InProcess, Json, Wait, naming_option, split_commas
from ui.cli.output import day, print_json, print_table, say
from ui.cli.verbs import Column, lists
from ui.errors import BadUsageError
from workbench.formatting.number_format import number
from workbench.formatting.shell_command import shell_command
from workbench_studies.cbtm.names import ReplicateCbtm
from workbench_studies.core.sizes import SEEDS, SizeName
from workbench_studies.core.spec import Replicate
from workbench_studies.demix.names import ReplicateDemix
from workbench_studies.front.replication_jobs import (
    SIZE,
    cards_of,
    domain_name,
    print_plans,
    spec_of,
    state_of,
    state_words,
)
from workbench_studies.front.replication_reports import Keeping, files_of, findings_of, newest, overview
from workbench_studies.mode.arms import ReplicateMode

if TYPE_CHECKING:
    from workbench_studies.papers.forecast import Forecast

app = typer.Typer(no_args_is_help=True, help=__doc__)

_DEFAULT = " Default: {}, or as the replication was started."


def _sentence(spec: type[Replicate], field: str) -> str:
    return spec.model_fields[field].description or ""


_REPORT_HELP = "Name of a replication (its newest report), id of a report, or the JSON file of one."
Name = Annotated[str, typer.Argument(help="Name of a replication.")]
Folder = Annotated[
    str, typer.Argument(show_default=False, help="Folder with train/ and novel/, one file for each domain.")
]
InSize = Annotated[SizeName | None, typer.Option("--size", help=_sentence(Replicate, "size") + _DEFAULT.format(SIZE))]
Seeds = Annotated[int | None, typer.Option(min=1, max=20, help=_sentence(Replicate, "seeds") + _DEFAULT.format(SEEDS))]
NewName = Annotated[str, typer.Option("--name", help=_sentence(Replicate, "name") + " Default: PAPER-SIZE.")]
Plan = Annotated[
    bool, typer.Option("--plan", help="Start nothing; print jobs, time, disk and claims that cannot be tested.")
]
Domains = Annotated[list[str], naming_option("Imported training domains, instead of FOLDER.", "domain")]
Novel = Annotated[list[str], naming_option("Imported novel domains, instead of FOLDER.", "domain")]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        show_default=False,
        help="Folder that keeps the report as NAME.md, NAME.json and NAME.html, with an index.",
    ),
]
WithoutText = Annotated[
    bool, typer.Option("--without-text", help="Keep no lines of the text in --out, where its licence is not known.")
]
Charts = Annotated[
    bool, typer.Option("--charts/--no-charts", help="Whether --out gets NAME.html, with charts (5 MB each).")
]
Readme = Annotated[
    str,
    typer.Option(
        "--readme", show_default=False, help="A page whose sentences on the reports in --out are written again."
    ),
]
Removed = Annotated[list[str], typer.Option(help=_sentence(ReplicateDemix, "removed") + " Default: the first ones.")]
Tasks = Annotated[str, typer.Option(show_default=False, help=_sentence(ReplicateCbtm, "tasks"))]
Targets = Annotated[
    list[str], typer.Option(help=_sentence(ReplicateMode, "targets") + " Default: the second and the third.")
]
Retention = Annotated[
    str, typer.Option(show_default=False, help=_sentence(ReplicateMode, "retention") + " Default: the first.")
]


OWN: Mapping[str, Mapping[str, tuple[Any, Any]]] = {  # the options that only a paper has, with their defaults
    "demix": {"removed": (Removed, [])},
    "cbtm": {"tasks": (Tasks, "")},
    "mode": {"targets": (Targets, []), "retention": (Retention, "")},
}
_TEXT = {"folder": (Folder, ""), "size": (InSize, None), "seeds": (Seeds, None), "name": (NewName, "")}
_DOMAINS: Mapping[str, tuple[Any, Any]] = {"domains": (Domains, []), "novel": (Novel, [])}
_RUNNING = {"in_process": (InProcess, False), "wait": (Wait, False), "as_plan": (Plan, False), "as_json": (Json, False)}


def _add_paper(paper: str, title: str) -> None:
    """The command that replicates a paper."""

    def command(**given: Any) -> None:
        running = {name: given.pop(name) for name in _RUNNING}
        own = {name: given.pop(name) for name in OWN[paper]}
        domains, novel = (split_commas(given.pop(name)) for name in _DOMAINS)
        _start(_with_own(spec_of(paper, domains=domains, novel=novel, **given), **own), **running)

    options = {**_TEXT, **_DOMAINS, **OWN[paper], **_RUNNING}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in options.items()
    ]
    command.__doc__ = f"Replicate {title} on your text. Run again with the same name, it continues."
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    app.command(paper)(command)


_add_paper("demix", "DEMix (Gururangan et al., 2021)")
_add_paper("cbtm", "C-BTM (Gururangan et al., 2023)")
_add_paper("mode", "MoDE (Schafhalter et al., 2024)")


@app.command("all")
def all_papers(
    folder: Annotated[str, typer.Argument(help="Folder with train/ and novel/, one file for each domain.")],
    size: InSize = None,
    seeds: Seeds = None,
    name: Annotated[
        str, typer.Option(help="Start of the names, for a further corpus. Default: names PAPER-SIZE.")
    ] = "",
    tasks: Tasks = "",
    removed: Removed = [],  # noqa: B006
    targets: Targets = [],  # noqa: B006
    retention: Retention = "",
    out: Out = "",
    without_text: WithoutText = False,
    charts: Charts = True,
    readme: Readme = "",
    in_process: InProcess = False,
    wait: Wait = False,
    as_plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Replicate all papers on one folder, and keep their reports in a folder."""
    from workbench_studies.papers.catalog import PAPERS

    names = {paper: "-".join(filter(None, (name, paper, size or SIZE))) for paper in PAPERS}
    given: dict[str, Any] = {"removed": removed, "tasks": tasks, "targets": targets, "retention": retention}

    def specs() -> Iterator[Replicate]:
        for paper, own in names.items():
            spec = spec_of(paper, folder, own, size, seeds, [], [])
            yield _with_own(spec, **{name: given[name] for name in OWN.get(paper, ())})

    if as_plan:
        plans = [_forecast(spec) for spec in specs()]
        print_json({"plans": plans}) if as_json else print_plans(plans)
        return
    if out and not (in_process or wait):
        raise BadUsageError("--out needs finished reports.", "Add --here or --wait.")
    _ = list(specs())  # what is wrong with one of them is said before another is submitted
    _run_all(specs(), Keeping(out, without_text, charts, readme), in_process, wait, as_json)


def _with_own(
    spec: Replicate,
    removed: Sequence[str] = (),
    tasks: str = "",
    targets: Sequence[str] = (),
    retention: str = "",
) -> Replicate:
    """The spec with the options that only its paper has."""
    from workbench_studies.mode.names import roles
    from workbench_studies.running.submission import changed

    if tasks and not Path(tasks).expanduser().is_dir():
        raise BadUsageError(f"{tasks} is not a folder.", "Give a folder that contains a folder for each task.")
    without, adapted = ([domain_name(spec, one) for one in split_commas(domains)] for domains in (removed, targets))
    fields: dict[str, Any] = {"removed": without} if without else {"tasks": tasks} if tasks else {}
    if adapted or retention:
        fields = roles(spec.domains, adapted, domain_name(spec, retention) if retention else "")
    return changed(spec, **fields) if fields else spec


def _run_all(specs: Iterable[Replicate], keeping: Keeping, in_process: bool, wait: bool, as_json: bool) -> None:
    """Submits replications one after the other, since names of text depend on what is submitted already."""
    from workbench_studies.running.submission import submit_replication

    submitted = [(spec, submit_replication(spec)) for spec in specs]
    if in_process or wait:
        show_progress([job for _, jobs in submitted for job in jobs], in_process, quiet=as_json)
    answers = [state_of(spec, jobs) for spec, jobs in submitted]
    kept = keeping.keep([answer["name"] for answer in answers if answer["files"]])
    if as_json:
        print_json({"replications": answers, "kept": kept})
        return
    for (spec, jobs), answer in zip(submitted, answers, strict=True):
        say(f"{spec.name}: {answer['summary'] or state_words(spec, cards_of(jobs))}")
    for path in kept:
        say(str(path))


def _start(spec: Replicate, in_process: bool, wait: bool, as_plan: bool, as_json: bool) -> None:
    """Submits the missing jobs, or only prints what they would take."""
    from workbench_studies.running.submission import submit_replication

    if as_plan:
        print_json(_forecast(spec)) if as_json else print_plans([_forecast(spec)])
        return
    ids = submit_replication(spec)
    if in_process or wait:
        show_progress(ids, in_process, quiet=as_json)
    _print_state(spec, ids, as_json)


def _forecast(spec: Replicate) -> Forecast:
    from workbench_studies.running.submission import forecast_of

    return forecast_of(spec)


@app.command("report")
def report(
    name: Name,
    out: Out = "",
    without_text: WithoutText = False,
    charts: Charts = True,
    readme: Readme = "",
    as_json: Json = False,
) -> None:
    """Write the report from what is stored now, without training; missing results are marked."""
    from jobs.queue.submit import run_now
    from workbench.registry.database import reading
    from workbench_studies.running.submission import find_replication

    keeping = Keeping(out, without_text, charts, readme)
    with reading() as session:
        spec = find_replication(session, name)
    job_id, events = run_now(spec.model_copy(update={"partial": True}))
    for _ in events:
        pass
    _print_state(spec, [job_id], as_json, keeping)


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
    return list(overview())


@app.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show the claims of the newest report, with the paper's numbers beside yours."""
    from workbench_studies.core.findings import cautions, summary
    from workbench_studies.core.report import mark_words, with_interval

    card = newest(name)
    if card is None:
        command = shell_command("replicate", "report", name)
        raise BadUsageError(f"There is no report of “{name}” yet.", f"Write one with: {command}")
    if as_json:
        print_json({"report": card, "files": files_of(card)})
        return
    rows = [
        (claim["where"], claim["sentence"], claim["paper"], claim["ours"], with_interval(claim), mark_words(claim))
        for claim in card.findings["claims"]
    ]
    print_table(
        ["Table", "Claim", "Paper", "Yours", "Difference [95 % CI]", "Verdict"], rows, empty="The report has no claims."
    )
    sentences = " ".join([summary(card.findings), *cautions(card.findings)])
    say(f"{sentences} {day(card.created_at)}: {files_of(card)['html']}")


@app.command("compare")
def compare_two(
    first: Annotated[str, typer.Argument(help=_REPORT_HELP)],
    second: Annotated[str, typer.Argument(help=_REPORT_HELP)],
    as_json: Json = False,
) -> None:
    """Compare two reports: whose marks differ, and by how much the estimates moved."""
    from workbench_studies.core.compare import compare, compare_words

    comparison = compare(findings_of(first), findings_of(second))
    if as_json:
        print_json(comparison)
        return
    rows = [
        (one.where, one.sentence, *one.marks, *map(_signed, (*one.values, one.moved)), one.unit)
        for one in (*comparison.flipped, *(same for same in comparison.same if same.is_outside))
    ]
    names = comparison.names
    columns = ["Table", "Claim", f"Mark in {names[0]}", f"Mark in {names[1]}", "First", "Second", "Moved", "Unit"]
    print_table(columns, rows, empty="All marks agree; every estimate is within the first report's interval.")
    say(compare_words(comparison))


def _signed(value: float | None) -> str:
    return number(value, 2, signed=True)


def _print_state(spec: Replicate, ids: Sequence[str], as_json: bool, keeping: Keeping | None = None) -> None:
    """Prints the report or the progress, and keeps the report; raises JobFailedError if a job has failed."""
    answer = state_of(spec, ids)
    files = answer["files"]
    kept = keeping.keep([spec.name]) if keeping and files else []
    if as_json:
        print_json(answer | ({"kept": kept} if keeping else {}))
    elif files:
        say("\n".join([answer["summary"], files["html"], files["markdown"], *map(str, kept)]))
    else:
        say(f"{spec.name}: {state_words(spec, cards_of(ids))}")
