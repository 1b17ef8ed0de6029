"""Replications: make a paper's tables and figures from your own text, and check its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from operator import itemgetter
from typing import Annotated, Any

import typer

from ui.cli.options import Command, InProcess, Json, Wait, keyword, naming_option, with_parameters
from ui.cli.verbs import Column, lists
from workbench_studies.cbtm.names import ReplicateCbtm
from workbench_studies.core.spec import SEEDS, SIZE, Replicate, SizeName
from workbench_studies.demix.names import ReplicateDemix
from workbench_studies.mode.arms import ReplicateMode

app = typer.Typer(no_args_is_help=True, help=__doc__)

_Option = tuple[Any, Any]  # annotation and default
_DEFAULT = " Default: {}, or as the replication was started."
_FOLDER = "Folder with train/ and novel/, one file for each domain."
_REPORT = "Name of a replication (its newest report), id of a report, or the JSON file of one."
Name = Annotated[str, typer.Argument(help="Name of a replication.")]


def _option(kind: Any, default: Any, help: str, *flags: str, **more: Any) -> _Option:
    return Annotated[kind, typer.Option(*flags, help=help, **more)], default


def _field(spec: type[Any], name: str, kind: Any, default: Any, help: str = "", **more: Any) -> _Option:
    """The option for a field of a spec, with its description."""
    return _option(kind, default, f"{spec.model_fields[name].description}{help}", **more)


_TEXT: Mapping[str, _Option] = {
    "folder": (Annotated[str, typer.Argument(show_default=False, help=_FOLDER)], ""),
    "size": _field(Replicate, "size", SizeName | None, None, _DEFAULT.format(SIZE)),
    "seeds": _field(Replicate, "seeds", int | None, None, _DEFAULT.format(SEEDS), min=1, max=20),
    "name": _field(Replicate, "name", str, "", " Default: PAPER-SIZE."),
}
_ALL_TEXT: Mapping[str, _Option] = {
    **_TEXT,
    "folder": (Annotated[str, typer.Argument(help=_FOLDER)], Parameter.empty),
    "name": _option(str, "", "Start of the names, for a further corpus. Default: names PAPER-SIZE."),
}
_DOMAINS: Mapping[str, _Option] = {
    "domains": (Annotated[list[str], naming_option("Imported training domains, instead of FOLDER.", "domain")], []),
    "novel": (Annotated[list[str], naming_option("Imported novel domains, instead of FOLDER.", "domain")], []),
}
OWN: Mapping[str, Mapping[str, _Option]] = {  # the options that only a paper has
    "cbtm": {"tasks": _field(ReplicateCbtm, "tasks", str, "")},
    "demix": {"removed": _field(ReplicateDemix, "removed", list[str], [], " Default: the first ones.")},
    "mode": {
        "targets": _field(ReplicateMode, "targets", list[str], [], " Default: the second and the third."),
        "retention": _field(ReplicateMode, "retention", str, "", " Default: the first."),
    },
}
_ALL_OWN = {name: option for options in OWN.values() for name, option in options.items()}
_KEEPING: Mapping[str, _Option] = {
    "out": _option(str, "", "Folder that keeps the report as NAME.md, NAME.json and NAME.html, with an index."),
    "without_text": _option(
        bool, False, "Keep no lines of the text in --out, where its licence is not known.", "--without-text"
    ),
    "charts": _option(bool, True, "Whether --out gets NAME.html, with charts (5 MB each).", "--charts/--no-charts"),
    "readme": _option(str, "", "A page whose sentences on the reports in --out are written again."),
}
_RUNNING: Mapping[str, _Option] = {
    "in_process": (InProcess, False),
    "wait": (Wait, False),
    "as_plan": _option(
        bool, False, "Start nothing; print jobs, time, disk and claims that cannot be tested.", "--plan"
    ),
    "as_json": (Json, False),
}


def _takes(options: Mapping[str, _Option]) -> Callable[[Command], Command]:
    """Gives these options to a command that takes them by keyword."""
    return lambda command: with_parameters(command, command, [keyword(name, *one) for name, one in options.items()])


def _add_paper(paper: str, title: str) -> None:
    """The command that replicates a paper."""

    def command(in_process: bool, wait: bool, as_plan: bool, as_json: bool, **given: Any) -> None:
        from workbench_studies.front import actions

        spec = actions.spec_of(paper, **given)
        if as_plan:
            actions.print_plan(spec, as_json)
        else:
            actions.start(spec, in_process, wait, as_json)

    command.__doc__ = f"Replicate {title} on your text. Run again with the same name, it continues."
    app.command(paper)(_takes({**_TEXT, **_DOMAINS, **OWN[paper], **_RUNNING})(command))


_add_paper("demix", "DEMix (Gururangan et al., 2021)")
_add_paper("cbtm", "C-BTM (Gururangan et al., 2023)")
_add_paper("mode", "MoDE (Schafhalter et al., 2024)")


@app.command("all")
@_takes({**_ALL_TEXT, **_ALL_OWN, **_KEEPING, **_RUNNING})
def all_papers(name: str, size: SizeName | None, **given: Any) -> None:
    """Replicate all papers on one folder, and keep their reports in a folder."""
    from workbench_studies.front import actions
    from workbench_studies.papers.catalog import PAPERS

    keeping, running, own = ({key: given.pop(key) for key in group} for group in (_KEEPING, _RUNNING, _ALL_OWN))
    texts = {
        paper: {"name": "-".join(filter(None, (name, paper, size or SIZE))), "size": size, **given}
        | {key: own[key] for key in OWN.get(paper, ())}
        for paper in PAPERS
    }
    actions.start_all(texts, actions.Keeping(**keeping), **running)


@app.command("report")
@_takes({"name": (Name, Parameter.empty), **_KEEPING, "as_json": (Json, False)})
def report(name: str, as_json: bool, **keeping: Any) -> None:
    """Write the report from what is stored now, without training; missing results are marked."""
    from workbench_studies.front import actions

    actions.write_report(name, actions.Keeping(**keeping), as_json)


_COLUMNS = {
    "Name": "name",
    "Paper": "paper",
    "Size": "size",
    "Seeds": "seeds",
    "Jobs done": "done",
    "Jobs": "jobs",
    "Claims": "summary",
}


@app.command("list")
@lists(
    [Column(title, itemgetter(field)) for title, field in _COLUMNS.items()],
    empty="There is no replication yet. Start one with: workbench replicate demix FOLDER, or cbtm or mode",
    noun="replication",
)
def list_all() -> list[dict[str, Any]]:
    """List replications with their progress and the state of their claims."""
    from workbench_studies.front import actions

    return list(actions.overview())


@app.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show the claims of the newest report, next to the paper's numbers."""
    from workbench_studies.front import actions

    actions.print_claims(name, as_json)


@app.command("compare")
def compare_two(
    first: Annotated[str, typer.Argument(help=_REPORT)],
    second: Annotated[str, typer.Argument(help=_REPORT)],
    as_json: Json = False,
) -> None:
    """Compare two reports: whose marks differ, and by how much the estimates moved."""
    from workbench_studies.front import actions

    actions.print_comparison(first, second, as_json)
