"""workbench reproduce: a paper's tables and figures from your own text, each claim marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.options import Here, Json, Wait, split_commas
from ui.cli.output import day, print_json, print_table, say
from ui.cli.plan_progress import show_progress
from ui.errors import BadUsage, JobFailed
from ui.present.text.formatting import pluralize
from workbench.kinds.replications.replicate import Replicate
from workbench.kinds.replications.replicate_cbtm import ReplicateCbtm
from workbench.kinds.replications.replicate_demix import ReplicateDemix
from workbench.kinds.replications.replicate_mode import ReplicateMode
from workbench.replications.sizes import SizeName

if TYPE_CHECKING:
    from workbench.registry.cards import JobCard, ReportCard

app = typer.Typer(no_args_is_help=True, help="Reproduce a paper: its jobs, its claims, one report.")

_SIZE: SizeName = "tiny"
_SEEDS = 2
_KEPT = " Empty: {}, or what it was begun with."


def _sentence(spec: type[Replicate], field: str) -> str:
    return spec.model_fields[field].description or ""


Name = Annotated[str, typer.Argument(help="Name of a replication.")]
Folder = Annotated[
    str, typer.Argument(show_default=False, help="Folder with train/ and novel/, one file for each domain.")
]
InSize = Annotated[SizeName | None, typer.Option("--size", help=_sentence(Replicate, "size") + _KEPT.format(_SIZE))]
Seeds = Annotated[int | None, typer.Option(min=1, max=20, help=_sentence(Replicate, "seeds") + _KEPT.format(_SEEDS))]
NewName = Annotated[str, typer.Option("--name", help=_sentence(Replicate, "name") + " Empty: PAPER-SIZE.")]
Domains = Annotated[list[str], typer.Option(help="Imported training domains, instead of FOLDER.")]
Novel = Annotated[list[str], typer.Option(help="Imported novel domains, instead of FOLDER.")]


@app.command("demix")
def demix(
    folder: Folder = "",
    size: InSize = None,
    seeds: Seeds = None,
    name: NewName = "",
    domains: Domains = [],  # noqa: B006
    novel: Novel = [],  # noqa: B006
    removed: Annotated[
        list[str], typer.Option(help=_sentence(ReplicateDemix, "removed") + " Empty: the first ones.")
    ] = [],  # noqa: B006
    here: Here = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Reproduce DEMix (Gururangan et al., 2021) on your text; asked again under the same name, it goes on."""
    from jobs.plans.replications import changed

    wish = _wish("demix", folder, name, size, seeds, split_commas(domains), split_commas(novel))
    if removed:
        wish = changed(wish, removed=split_commas(removed))
    _reproduce(wish, here, wait, as_json)


@app.command("cbtm")
def cbtm(
    folder: Folder = "",
    size: InSize = None,
    seeds: Seeds = None,
    name: NewName = "",
    domains: Domains = [],  # noqa: B006
    novel: Novel = [],  # noqa: B006
    tasks: Annotated[str, typer.Option(show_default=False, help=_sentence(ReplicateCbtm, "tasks"))] = "",
    here: Here = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Reproduce C-BTM (Gururangan et al., 2023) on your text; asked again under the same name, it goes on."""
    from jobs.plans.replications import changed

    wish = _wish("cbtm", folder, name, size, seeds, split_commas(domains), split_commas(novel))
    if tasks:
        if not Path(tasks).expanduser().is_dir():
            raise BadUsage(f"{tasks} must be a folder with a folder for each task, but there is none.")
        wish = changed(wish, tasks=tasks)
    _reproduce(wish, here, wait, as_json)


@app.command("mode")
def mode(
    folder: Folder = "",
    size: InSize = None,
    seeds: Seeds = None,
    name: NewName = "",
    domains: Domains = [],  # noqa: B006
    novel: Novel = [],  # noqa: B006
    targets: Annotated[
        list[str], typer.Option(help=_sentence(ReplicateMode, "targets") + " Empty: the second and the third.")
    ] = [],  # noqa: B006
    retention: Annotated[
        str, typer.Option(show_default=False, help=_sentence(ReplicateMode, "retention") + " Empty: the first.")
    ] = "",
    here: Here = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Reproduce MoDE (anonymous, 2024) on your text; asked again under the same name, it goes on."""
    from jobs.plans.replications import changed
    from workbench.replications.mode.names import roles

    wish = _wish("mode", folder, name, size, seeds, split_commas(domains), split_commas(novel))
    if targets or retention:
        chosen = [_its_own(wish, one) for one in split_commas(targets)]
        wish = changed(wish, **roles(wish.domains, chosen, _its_own(wish, retention) if retention else ""))
    _reproduce(wish, here, wait, as_json)


def _its_own(wish: Replicate, domain: str) -> str:
    """A training domain as it was imported: under the name of its file, or of the replication and the file."""
    longer = f"{wish.name}-{domain}"
    return longer if longer in wish.domains else domain


def _reproduce(wish: Replicate, here: bool, wait: bool, as_json: bool) -> None:
    from jobs.plans.replications import submit_replication

    ids = submit_replication(wish)
    if here or wait:
        show_progress(ids, here, quiet=as_json)
    _report(wish, ids, as_json)


def _wish(
    paper: str,
    folder: str,
    name: str,
    size: SizeName | None,
    seeds: int | None,
    domains: Sequence[str],
    novel: Sequence[str],
) -> Replicate:
    """From a folder, from domains that are there, or the one of this name that was begun before."""
    from jobs.plans.replications import spec_for_domains, spec_for_folder

    name = name or f"{paper}-{size or _SIZE}"
    if folder and (domains or novel):
        raise BadUsage("The text must come from FOLDER or from --domains and --novel, but both are given instead.")
    if folder:
        text = Path(folder).expanduser().absolute()
        return spec_for_folder(text, name, size or _SIZE, seeds or _SEEDS, paper=paper)
    if domains or novel:
        return spec_for_domains(domains, novel, name, size or _SIZE, seeds or _SEEDS, paper=paper)
    return _begun(paper, name, size, seeds)


def _begun(paper: str, name: str, size: SizeName | None, seeds: int | None) -> Replicate:
    """The replication of this name, with as many seeds as asked for; its paper and size stay what they are."""
    from jobs.plans.replications import changed, find_replication
    from workbench.registry.database import reading

    with reading() as session:
        wish = find_replication(session, name)
    if wish.paper != paper:
        raise BadUsage(
            f"“{name}” must go on as what it was begun as, {wish.paper}, but {paper} is asked for.",
            f"Go on with: workbench reproduce {wish.paper} --name {name}",
        )
    if size not in (None, wish.size):
        raise BadUsage(
            f"“{name}” must go on in the size in which it was begun, {wish.size}, but {size} is asked for.",
            "Leave --size out, or begin another: give FOLDER and another --name.",
        )
    return changed(wish, seeds=seeds) if seeds else wish


@app.command("report")
def report(name: Name, as_json: Json = False) -> None:
    """Write the report of what is there now; what is missing is marked so."""
    from jobs.plans.replications import find_replication
    from jobs.queue.submit import run_now
    from workbench.registry.database import reading

    with reading() as session:
        wish = find_replication(session, name)
    job_id, events = run_now(wish.model_copy(update={"partial": True}))
    for _ in events:
        pass
    _report(wish, [job_id], as_json)


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """Every replication: how far it is, and how its claims fare."""
    rows = list(_overview())
    if as_json:
        print_json(rows)
    else:
        table = [
            (row["name"], row["paper"], row["size"], row["seeds"], f"{row['done']} of {row['jobs']}", row["summary"])
            for row in rows
        ]
        empty = "There is no replication yet. Begin one with: workbench reproduce demix FOLDER, or cbtm or mode"
        print_table(["Replication", "Paper", "Size", "Seeds", "Jobs done", "Claims"], table, empty=empty)


def _overview() -> Iterator[dict[str, Any]]:
    from jobs.plans.replications import jobs_of, replications
    from workbench.analysis.replication_data import newest_report
    from workbench.registry.database import reading
    from workbench.replications.findings import summary
    from workbench.replications.plan import plan

    with reading() as session:
        for wish in replications(session):
            found, card = jobs_of(session, wish), newest_report(session, wish.name)
            yield {
                "name": wish.name,
                "paper": wish.paper,
                "size": wish.size,
                "seeds": wish.seeds,
                "jobs": len(plan(wish)),
                "done": sum(job.state == "done" for job in found.values()),
                "report": card and card.id,
                "summary": summary(card.findings) if card else "",
            }


@app.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """The claims of the newest report, the paper's numbers beside yours."""
    from workbench.replications.findings import summary
    from workbench.replications.report import with_interval

    card = _newest(name)
    if card is None:
        raise BadUsage(f"There is no report of “{name}” yet.", f"Write one with: workbench reproduce report {name}")
    if as_json:
        print_json({"report": card, "files": _files(card)})
        return
    rows = [
        (claim["where"], claim["sentence"], claim["paper"], claim["ours"], with_interval(claim), claim["mark"])
        for claim in card.findings["claims"]
    ]
    print_table(["Where", "Claim", "Paper", "Yours", "Difference [95 %]", "Mark"], rows, empty="There is no claim.")
    say(f"{summary(card.findings)} {day(card.created_at)}: {_files(card)['html']}")


def _report(wish: Replicate, ids: Sequence[str], as_json: bool) -> None:
    """What came of it: the report, or how far it is; a job that failed becomes this command's failure."""
    from jobs.queue.local_runner import cards_of
    from workbench.replications.findings import summary

    name, cards = wish.name, cards_of(ids)
    last, card = cards[-1], _newest(name)
    if last.state == "failed":
        raise _failure(wish, cards)
    files = _files(card) if card and last.state == "done" else {}
    told = summary(card.findings) if card and files else ""
    if as_json:
        print_json({"name": name, "jobs": list(ids), "state": last.state, "summary": told, "files": files})
    elif files:
        say(f"{told}\n{files['html']}\n{files['markdown']}")
    else:
        say(f"{name}: {_state_words(wish, cards)}")


def _state_words(wish: Replicate, cards: Sequence[JobCard]) -> str:
    """How many jobs are in which state, and what lets the rest go on."""
    states = Counter(card.state for card in cards)
    done = states.pop("done", 0)
    rest = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    told = f"{done} of {pluralize(len(cards), 'job')} done, {rest}."
    if states.keys() & {"paused", "cancelled", "failed"}:
        return f"{told} Go on with: {_way_on(wish)}"
    return f"{told} A worker carries them out: workbench up"


def _way_on(wish: Replicate) -> str:
    return f"workbench reproduce {wish.paper} --name {wish.name}"


def _failure(wish: Replicate, cards: Sequence[JobCard]) -> JobFailed:
    """The first job that failed of itself."""
    cause = next((one for one in cards if one.state in ("failed", "cancelled") and one.attempt), cards[-1])
    return JobFailed(
        f"{cause.title} has {cause.state}: {cause.error}".rstrip(": "),
        f"Mend it and go on: {_way_on(wish)}. Or report what is there: workbench reproduce report {wish.name}",
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
