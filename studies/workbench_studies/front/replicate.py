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

_DEFAULT = " Default: {}, or as the replication was started."


def _sentence(spec: type[Replicate], field: str) -> str:
    return spec.model_fields[field].description or ""


_REPORT_HELP = "Name of a replication (its newest report), id of a report, or the JSON file of one."
_FOLDER_HELP = "Folder with train/ and novel/, one file for each domain."
Name = Annotated[str, typer.Argument(help="Name of a replication.")]
Folder = Annotated[str, typer.Argument(show_default=False, help=_FOLDER_HELP)]
AllFolder = Annotated[str, typer.Argument(help=_FOLDER_HELP)]
InSize = Annotated[SizeName | None, typer.Option("--size", help=_sentence(Replicate, "size") + _DEFAULT.format(SIZE))]
Seeds = Annotated[int | None, typer.Option(min=1, max=20, help=_sentence(Replicate, "seeds") + _DEFAULT.format(SEEDS))]
NewName = Annotated[str, typer.Option("--name", help=_sentence(Replicate, "name") + " Default: PAPER-SIZE.")]
AllNames = Annotated[
    str, typer.Option("--name", help="Start of the names, for a further corpus. Default: names PAPER-SIZE.")
]
Plan = Annotated[
    bool, typer.Option("--plan", help="Start nothing; print jobs, time, disk and claims that cannot be tested.")
]
Domains = Annotated[list[str], naming_option("Imported training domains, instead of FOLDER.", "domain")]
Novel = Annotated[list[str], naming_option("Imported novel domains, instead of FOLDER.", "domain")]
Out = Annotated[
    str,
    typer.Option(
        show_default=False, help="Folder that keeps the report as NAME.md, NAME.json and NAME.html, with an index."
    ),
]
WithoutText = Annotated[
    bool, typer.Option("--without-text", help="Keep no lines of the text in --out, where its licence is not known.")
]
Charts = Annotated[
    bool, typer.Option("--charts/--no-charts", help="Whether --out gets NAME.html, with charts (5 MB each).")
]
Readme = Annotated[
    str, typer.Option(show_default=False, help="A page whose sentences on the reports in --out are written again.")
]
Tasks = Annotated[str, typer.Option(show_default=False, help=_sentence(ReplicateCbtm, "tasks"))]
Removed = Annotated[list[str], typer.Option(help=_sentence(ReplicateDemix, "removed") + " Default: the first ones.")]
Targets = Annotated[
    list[str], typer.Option(help=_sentence(ReplicateMode, "targets") + " Default: the second and the third.")
]
Retention = Annotated[
    str, typer.Option(show_default=False, help=_sentence(ReplicateMode, "retention") + " Default: the first.")
]

_Options = Mapping[str, tuple[Any, Any]]  # annotation and default
_TEXT: _Options = {"folder": (Folder, ""), "size": (InSize, None), "seeds": (Seeds, None), "name": (NewName, "")}
_ALL_TEXT: _Options = {**_TEXT, "folder": (AllFolder, Parameter.empty), "name": (AllNames, "")}
_DOMAINS: _Options = {"domains": (Domains, []), "novel": (Novel, [])}
OWN: Mapping[str, _Options] = {  # the options that only a paper has
    "cbtm": {"tasks": (Tasks, "")},
    "demix": {"removed": (Removed, [])},
    "mode": {"targets": (Targets, []), "retention": (Retention, "")},
}
_ALL_OWN = {name: option for options in OWN.values() for name, option in options.items()}
_KEEPING: _Options = {
    "out": (Out, ""),
    "without_text": (WithoutText, False),
    "charts": (Charts, True),
    "readme": (Readme, ""),
}
_RUNNING: _Options = {
    "in_process": (InProcess, False),
    "wait": (Wait, False),
    "as_plan": (Plan, False),
    "as_json": (Json, False),
}


def _takes(options: _Options) -> Callable[[Command], Command]:
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
    first: Annotated[str, typer.Argument(help=_REPORT_HELP)],
    second: Annotated[str, typer.Argument(help=_REPORT_HELP)],
    as_json: Json = False,
) -> None:
    """Compare two reports: whose marks differ, and by how much the estimates moved."""
    from workbench_studies.front import actions

    actions.print_comparison(first, second, as_json)
