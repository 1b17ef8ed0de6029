"""Reproduce a paper: choose text, size and seeds, watch the jobs, read each claim next to the paper's number."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import streamlit as st

from jobs.queue.submit import submit
from ui.present.forms.readable_folders import require_readable
from ui.present.jobs.job_status import by_turn, is_over
from ui.present.pages import JOBS
from ui.present.text.formatting import ago, duration, plain, pluralize
from ui.studio.job_views.job_line import show_line
from ui.widgets.address import choose_one
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.fields import draw_number
from ui.widgets.notices import cannot_change, empty, example, explain_problems, keep, show_problem
from ui.widgets.page_head import show_head
from workbench.answers.cards import JobCard, ReportCard
from workbench.errors import BadSpecError
from workbench.formatting.shell_command import shell_command
from workbench.registry import corpora
from workbench.registry.database import reading
from workbench.schema.job_states import UNSUCCESSFUL
from workbench.settings import get_settings
from workbench.store.storage import get_storage
from workbench_studies.core.drawing import explain_forest, forest
from workbench_studies.core.report import claim_rows
from workbench_studies.core.spec import SEEDS, Replicate, SizeName
from workbench_studies.core.verdicts import cautions, summary
from workbench_studies.front.screens import PAGE
from workbench_studies.papers.catalog import PAPERS, Paper, plan
from workbench_studies.papers.report_pages import charts
from workbench_studies.running.submission import (
    find_replication,
    jobs_of,
    new_spec,
    newest_report,
    replications,
    submit_replication,
)

NEW = "New replication"
EXAMPLES = Path(__file__).with_name("example_claims.toml")
FOLDER, IMPORTED = "A folder on this machine", "Domains that are imported"
_LOOK_AGAIN = 3.0  # seconds
_SHOWN = 6  # jobs at work
_FILES = {"html": ("Report (HTML)", "text/html"), "md": ("Markdown", "text/markdown")}
_FIRST = ("where", "claim", "mark", "why")  # columns that must be seen without scrolling


def show() -> None:
    """Draws the page."""
    show_head(PAGE)
    with reading() as session:
        names = [spec.name for spec in replications(session)]
    if not names:
        why = "No paper has been reproduced here yet."
        empty(why, "Its tables and figures on your own text, each claim marked: choose paper and text below.")
    choice = choose_one(st.selectbox, "Replication", [*names, NEW], key="replication.name") if names else NEW
    if choice == NEW:
        paper = _show_form()
        if not names:
            _show_example(paper)
    else:
        _show(choice)
    st.caption("The same in a terminal: `workbench replicate PAPER FOLDER --size tiny`.")


def _show_example(paper: str) -> None:
    about = "Every claim of the paper next to your number, with an interval and a mark. Figures and sources follow."
    claims = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))[paper]["claims"]
    with example("three claims", about, "Example: measured on other text than yours"):
        st.table(claims)


# the form -----------------------------------------------------------------------------------------


def _show_form() -> str:
    """Gives the name of the paper that is chosen."""
    left, right = st.columns(2)
    name_of_paper = choose_one(
        left.selectbox,
        "Paper",
        list(PAPERS),
        key="replication.paper",
        format_func=lambda name: f"{PAPERS[name].title} ({PAPERS[name].source})",
    )
    paper = PAPERS[name_of_paper]
    where = right.segmented_control(
        "Where is the text?", [FOLDER, IMPORTED], default=FOLDER, key="replication.where", required=True
    )
    if paper.roles:
        st.caption(paper.roles)
    answers = _draw_text(where == FOLDER)
    columns = st.columns([5, 2, 3])
    size = columns[0].selectbox(
        "Size", get_args(SizeName), key="replication.size", format_func=lambda one: f"{one}: {paper.sizes[one].about}"
    )
    seeds, fault = draw_number(
        "Seeds",
        key="replication.seeds",
        default=SEEDS,
        lowest=1,
        highest=20,
        help="Five show how much results differ; fewer show it badly.",
        container=columns[1],
    )
    free = f"{paper.name}-{size}"
    name = columns[2].text_input("Name", key="replication.new", placeholder=free) or free
    st.code(_command(paper, answers, name, size, seeds), language="bash", wrap_lines=True)
    if st.button(
        f"Reproduce {paper.title}",
        type="primary",
        icon=":material/experiment:",
        key="replication.submit",
        disabled=cannot_change() or bool(fault),
    ):
        with explain_problems():
            ids = submit_replication(_spec(paper, answers, name, size, seeds))
            keep(f"{name}: {pluralize(len(ids), 'job')} submitted.")
            st.rerun()
    return paper.name


def _draw_text(is_folder: bool) -> dict[str, Any]:
    """The folder, or the domains: any may be taken for either, those of the role come first."""
    if is_folder:
        about = "Holds train/ and novel/, one file for each domain: jsonl, txt, csv or parquet, plain or compressed."
        return {"folder": st.text_input("Folder", key="replication.folder", help=about)}
    with reading() as session:
        cards = corpora.list_domains(session)
    fields = {"domains": ("Training domains", "train"), "novel": ("Novel domains", "novel")}
    return {
        field: column.multiselect(
            label, [card.name for card in sorted(cards, key=lambda card: card.role != role)], key=f"replication.{field}"
        )
        for column, (field, (label, role)) in zip(st.columns(2), fields.items(), strict=True)
    }


def _spec(paper: Paper, answers: dict[str, Any], name: str, size: SizeName, seeds: int) -> Replicate:
    if "folder" not in answers:
        return new_spec(paper.name, name, size, seeds, **answers)
    if not answers["folder"].strip():
        raise BadSpecError(["folder: give the path of a folder with train/ and novel/."])
    folder = Path(answers["folder"]).expanduser().absolute()
    require_readable([folder])
    require_readable([folder / "train", folder / "novel"])  # either may be a link
    return new_spec(paper.name, name, size, seeds, folder=folder)


def _command(paper: Paper, answers: dict[str, Any], name: str, size: str, seeds: int) -> str:
    text = [answers["folder"] or "FOLDER"] if "folder" in answers else []
    for flag in ("domains", "novel"):
        text += [f"--{flag}", ",".join(answers[flag])] if answers.get(flag) else []
    chosen = ["--size", size, "--seeds", str(seeds), "--name", name]
    return shell_command("replicate", paper.name, *text, *chosen)


# one replication ----------------------------------------------------------------------------------


def _show(name: str) -> None:
    with reading() as session:
        spec = find_replication(session, name)
        report = newest_report(session, name)
    text = f"{pluralize(len(spec.domains), 'training domain')}, {pluralize(len(spec.novel), 'novel domain')}"
    about = f"{PAPERS[spec.paper].title}, {spec.size} ({spec.budget.about}); {text}; {pluralize(spec.seeds, 'seed')}."
    st.caption(plain(about))
    _live(name)
    if report is None:
        st.caption(
            "There is no report yet. It is written when all jobs are done; a partial report can be written at any time."
        )
    else:
        _show_report(report)


@st.fragment(run_every=_LOOK_AGAIN)
def _live(name: str) -> None:
    with explain_problems():
        with reading() as session:
            spec = find_replication(session, name)
            jobs = list(jobs_of(session, spec).values())
        total = len(plan(spec))
        done = sum(job.state == "done" for job in jobs)
        st.progress(done / total, text=plain(f"{done} of {pluralize(total, 'job')} done{_time_spent(jobs)}"))
        for job in by_turn(jobs)[:_SHOWN]:
            show_line(job)
        for job in (one for one in jobs if one.state in UNSUCCESSFUL and one.attempt):
            show_problem(plain(f"{job.title}: {job.error or job.state}"), job.next_step)
        _show_actions(spec, jobs, is_complete=done == total)
        key, is_ended = f"replication.ended.{name}", all(map(is_over, jobs))
        if st.session_state.setdefault(key, is_ended) != is_ended:  # then there is a report: the page is drawn again
            st.session_state[key] = is_ended
            st.rerun()


def _time_spent(jobs: Sequence[JobCard]) -> str:
    began = min((job.started_at for job in jobs if job.started_at), default=None)
    ended = max((job.finished_at or 0.0 for job in jobs), default=0.0)
    return f" in {duration(ended - began)}" if began and ended > began else ""


def _show_actions(spec: Replicate, jobs: Sequence[JobCard], is_complete: bool) -> None:
    with st.container(horizontal=True):
        stopped = any(job.state in {"paused", *UNSUCCESSFUL} for job in jobs)
        if stopped and st.button(
            "Resume", icon=":material/play_arrow:", key="replication.go_on", disabled=cannot_change()
        ):
            submit_replication(spec)
            st.rerun()
        if not is_complete and st.button(
            "Write a partial report", icon=":material/summarize:", key="replication.partial", disabled=cannot_change()
        ):
            submit(spec.model_copy(update={"partial": True}))
            keep("The partial report will appear here when it is written.")
            st.rerun(scope="app")
        st.page_link(JOBS.script, label="See the jobs", icon=JOBS.icon)


def _show_report(report: ReportCard) -> None:
    findings = report.findings
    st.header(plain(summary(findings)))
    st.caption(plain(f"Reported {ago(report.created_at)} on {findings['machine']}."))
    for caution in cautions(findings):
        st.write(plain(caution))
    _offer_files(report)
    if plot := forest(findings):
        st.write(plain(explain_forest(findings)))
        show_chart(plot, "replication_forest")
    rows = [{name: row[name] for name in _FIRST} | dict(row) for row in claim_rows(findings["claims"])]
    show_table(rows, key="replication_claims", words="Every claim with its mark and interval")
    for name, chart in charts(findings).items():
        show_chart(chart, f"replication_{name}")


def _offer_files(report: ReportCard) -> None:
    folder = get_storage(get_settings()).path(str(report.artifact_id))
    with st.container(horizontal=True):
        for ending, (label, mime) in _FILES.items():
            if (file := folder / f"report.{ending}").is_file():
                st.download_button(
                    label,
                    file.read_bytes(),
                    file_name=f"{report.findings['name']}.{file.name}",
                    mime=mime,
                    key=f"replication.{file.name}",
                    on_click="ignore",
                    icon=":material/download:",
                )


if __name__ == "__main__":
    show()
