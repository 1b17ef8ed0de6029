"""workbench replicate: asked for, gone on with, reported in part, and refused with words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.attempt.attempt import run_here
from jobs.queue.tasks import cards_of
from studies.tests.conftest import write_texts
from ui.cli.app import main
from workbench.job_records import jobs, leases
from workbench.registry.database import reading, transaction
from workbench_studies.core.spec import SEEDS, Replicate
from workbench_studies.front.actions import Keeping, describe_state
from workbench_studies.papers.catalog import plan
from workbench_studies.papers.forecast import Pace, forecast
from workbench_studies.papers.kept import read_kept
from workbench_studies.running import submission
from workbench_studies.running.submission import find_replication, new_spec, replications

pytestmark = pytest.mark.usefixtures("home")


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a verb printed."""
    code = main(["replicate", *arguments, "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0, shown
    return shown


def test_a_folder_is_requested_once_and_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ask(capsys, "demix", str(folder), "--size", "smoke", "--seeds", "1")
    assert first["name"] == "demix-smoke"
    assert len(first["jobs"]) == len(plan(new_spec("demix", "demix-smoke", "smoke", 1, folder=folder)))
    assert ask(capsys, "demix", "--name", "demix-smoke", "--size", "smoke") == first
    (row,) = ask(capsys, "list")
    assert (row["name"], row["seeds"], row["done"], row["report"]) == ("demix-smoke", 1, 0, None)


def test_a_report_of_nothing_marks_nothing_as_tested(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, "demix", str(folder), "--size", "smoke", "--name", "early")
    shown = ask(capsys, "report", "early")
    assert Path(shown["files"]["html"]).is_file()
    assert "0 of" in shown["summary"]
    report = ask(capsys, "show", "early")["report"]
    assert {claim["mark"] for claim in report["findings"]["claims"]} == {"not testable here"}
    assert {job["state"] for job in report["findings"]["jobs"]} == {"queued"}
    assert main(["replicate", "show", "early"]) == 0
    message = capsys.readouterr().out
    assert "DEMix (naive) has less perplexity" in message
    number = len(plan(new_spec("demix", "early", "smoke", SEEDS, folder=folder))) - 1
    assert f"{number} jobs are not done: {number} queued." in message


def test_going_on_takes_more_seeds_and_refuses_another_size(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ask(capsys, "demix", str(folder), "--size", "smoke", "--seeds", "1", "--name", "rep")["jobs"]
    more = ask(capsys, "demix", "--name", "rep", "--seeds", "2")["jobs"]
    assert set(first[:-1]) < set(more)
    (row,) = ask(capsys, "list")
    assert (row["seeds"], row["size"]) == (2, "smoke")
    assert ask(capsys, "demix", "--name", "rep")["jobs"] == more  # what is not said stays
    assert ask(capsys, "demix", str(folder), "--size", "smoke", "--name", "rep")["jobs"] == more
    assert main(["replicate", "demix", "--name", "rep", "--size", "small"]) == 2
    assert "was started with the size smoke" in capsys.readouterr().err


def test_what_is_paused_is_shown_with_the_next_step_and_waits_for_no_worker(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = ask(capsys, "demix", str(folder), "--size", "smoke", "--seeds", "1", "--name", "rep")["jobs"]
    job_spec = new_spec("demix", "rep", "smoke", 1, folder=folder)
    assert "Start a worker" in describe_state(job_spec, cards_of(ids))
    with transaction() as session:
        jobs.request_stop(session, ids[0], "pause")
    shown = describe_state(job_spec, cards_of(ids))
    assert f"0 of {len(ids)} jobs done, 1 paused, {len(ids) - 1} queued." in shown
    assert "workbench replicate demix --name rep" in shown


def test_the_job_that_failed_is_named_with_the_next_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job_id, *_) = ask(capsys, "demix", str(folder), "--size", "smoke", "--name", "rep")["jobs"]
    with transaction() as session:
        fence = leases.claim(session, job_id, "test", 60.0, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, "failed", error="The disk broke.")
    assert main(["replicate", "report", "rep"]) == 0  # what is there can be reported all the same
    capsys.readouterr()
    ids = ask(capsys, "demix", "--name", "rep", "--size", "smoke")["jobs"]
    with reading() as session:
        assert {jobs.get_job(session, one).state for one in ids} == {"queued"}


def test_another_paper_is_requested_likewise_and_listed_beside(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ask(capsys, "cbtm", str(folder), "--size", "smoke", "--seeds", "1")
    assert first["name"] == "cbtm-smoke"
    assert len(first["jobs"]) == len(plan(new_spec("cbtm", "cbtm-smoke", "smoke", 1, folder=folder)))
    assert ask(capsys, "cbtm", "--name", "cbtm-smoke")["jobs"] == first["jobs"]
    ask(capsys, "demix", str(folder), "--size", "smoke", "--seeds", "1")
    assert {(row["name"], row["paper"]) for row in ask(capsys, "list")} == {
        ("cbtm-smoke", "cbtm"),
        ("demix-smoke", "demix"),
    }
    shown = ask(capsys, "report", "cbtm-smoke")
    assert Path(shown["files"]["html"]).is_file()
    assert main(["replicate", "show", "cbtm-smoke"]) == 0
    assert "random clusters have more perplexity than Dense" in capsys.readouterr().out


def test_which_domains_are_adapted_to_and_which_is_retained_can_be_chosen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(folder, "train/books", "train/cs")
    ask(capsys, "mode", str(folder), "--size", "smoke", "--seeds", "1")
    ask(capsys, "mode", str(folder), "--size", "smoke", "--seeds", "1", "--name", "two", "--targets", "sea,books")
    with reading() as session:
        result = {
            replication.name: (replication.targets, replication.retention) for replication in replications(session)
        }
    assert result == {"mode-smoke": (["cs", "law"], "books"), "two": (["sea", "books"], "cs")}
    ask(capsys, "mode", str(folder), "--size", "tiny", "--name", "cut", "--targets", "sea,law", "--retention", "cs")
    with reading() as session:
        cut = find_replication(session, "cut")
    assert (cut.targets, cut.retention) == (["cut-sea", "cut-law"], "cut-cs")  # shorter texts than those of these names
    shown = ask(capsys, "report", "two")
    assert "0 of" in shown["summary"]
    assert main(["replicate", "mode", str(folder), "--size", "smoke", "--name", "three", "--targets", "sea,poems"]) == 2
    assert "all of them training domains (books, cs, law, sea)" in capsys.readouterr().err


def test_a_name_of_one_paper_is_refused_for_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, "cbtm", str(folder), "--size", "smoke", "--name", "rep")
    assert main(["replicate", "demix", "--name", "rep"]) == 2
    assert "workbench replicate cbtm --name rep" in capsys.readouterr().err
    assert main(["replicate", "demix", str(folder), "--name", "rep"]) == 2
    assert "replication of another paper (cbtm)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demix", "FOLDER", "--domains", "a,b"], "are both given"),
        (["demix", "--name", "nobody"], "no replication “nobody”"),
        (["demix", "--domains", "a,b", "--novel", "c"], "no domain called “a”"),
        (["demix", "--domains", "a", "--novel", "c"], "at least 2"),
        (["demix", "/no/such/folder"], "There is no file or folder at this path"),
        (["demix", "FOLDER", "--name", "n" * 75], "at most 80 characters"),
        (["demix", "FOLDER", "--removed", "poems"], "Only a training domain"),
        (["cbtm", "FOLDER", "--tasks", "/no/such"], "a folder for each task"),
        (["report", "nobody"], "no replication “nobody”"),
        (["show", "nobody"], "no report of “nobody” yet"),
    ],
)
def test_what_cannot_be_is_refused_with_words_and_submits_nothing(
    folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [str(folder) if word == "FOLDER" else word for word in arguments]
    assert main(["replicate", *shown]) == 2
    assert words in capsys.readouterr().err
    with reading() as session:
        assert jobs.list_jobs(session) == []


def test_a_plan_starts_nothing_and_names_what_cannot_be_tested(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "measure_pace", lambda *_: Pace(1000.0, 4000.0, 2.0, 10_000, "cpu"))
    for paper in ("demix", "cbtm"):
        shown = ask(capsys, paper, str(folder), "--size", "smoke", "--seeds", "1", "--plan")
        steps = plan(new_spec(paper, f"{paper}-smoke", "smoke", 1, folder=folder))
        assert (shown["num_jobs"], sum(shown["jobs"].values()), shown["num_done"]) == (len(steps), len(steps), 0)
        least = shown["trained_tokens"] / 1000 + shown["scored_tokens"] / 4000 + 2 * len(steps)
        assert shown["seconds"] == pytest.approx(least)
        assert shown["trained_tokens"] > 0 < shown["scored_tokens"]
        assert shown["disk_bytes"] > 40_000
        assert all(claim["why"] for claim in shown["untestable"])
        assert 0 < len(shown["untestable"]) < shown["num_claims"]
    with reading() as session:
        assert jobs.list_jobs(session) == []
    assert main(["replicate", "demix", str(folder), "--size", "smoke", "--plan"]) == 0
    message = capsys.readouterr().out
    assert "1,000 tokens/s in training" in message
    assert "Novel domains with fewer than 60 test documents to read: poems (about 0)." in message
    assert "Needs models of several sizes" in message


def test_two_reports_are_compared_by_name_by_id_and_by_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        ask(capsys, "demix", str(folder), "--size", "smoke", "--name", name)
        ask(capsys, "report", name)
    card = ask(capsys, "show", "two")["report"]
    findings = card["findings"]
    first = next(claim for claim in findings["claims"] if claim["where"] == "Table 3")
    first |= {"mark": "reproduced", "value": -1.0, "low": -2.0, "high": -0.5}
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(findings), encoding="utf-8")
    assert ask(capsys, "compare", "one", card["id"])["flipped"] == []
    (flip,) = ask(capsys, "compare", "one", str(path))["flipped"]
    assert flip["marks"] == ["not testable here", "reproduced"]
    assert main(["replicate", "compare", "one", str(path)]) == 0
    assert f"1 of {len(findings['claims'])} marks differ" in capsys.readouterr().out
    assert main(["replicate", "compare", "one", str(tmp_path / "none.json")]) == 2
    assert "holds no findings" in capsys.readouterr().err


def test_all_papers_are_started_by_one_command_and_kept_only_when_finished(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(folder, "train/books", "train/cs")
    shown = ask(capsys, "all", str(folder), "--size", "smoke", "--seeds", "1", "--name", "second")
    names = [one["name"] for one in shown["replications"]]
    assert names == ["second-demix-smoke", "second-cbtm-smoke", "second-mode-smoke"]
    assert shown["kept"] == []
    assert main(["replicate", "all", str(folder), "--size", "smoke", "--out", str(tmp_path / "kept")]) == 2
    assert "--out needs finished reports" in capsys.readouterr().err
    ask(capsys, "report", names[0])
    Keeping(str(tmp_path / "kept")).keep(names[:1])
    (kept,) = read_kept(tmp_path / "kept")
    assert (kept["corpus"], kept["name"]) == ("text", names[0])
    assert kept["command"].startswith("workbench replicate demix text --size smoke --seeds 1 --name second-demix-smoke")


def test_a_report_is_kept_in_a_folder_with_or_without_lines_of_the_text(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in list(folder.rglob("*.txt")):
        texts = [json.dumps({"text": f"A secret of {path.stem}, number {number}."}) for number in range(60)]
        path.with_suffix(".jsonl").write_text("\n".join(texts), encoding="utf-8")
        path.unlink()
    for card in cards_of(ask(capsys, "demix", str(folder), "--size", "smoke", "--seeds", "1", "--name", "rep")["jobs"]):
        if card.kind == "import-corpus":
            list(run_here(card.id))
    with_text, without = tmp_path / "with", tmp_path / "without"
    shown = ask(capsys, "report", "rep", "--out", str(with_text))
    assert shown["kept"] == [str(with_text / f"rep.{ending}") for ending in ("md", "json", "html")]
    assert all("A secret of law" in Path(path).read_text(encoding="utf-8") for path in shown["kept"])
    ask(capsys, "report", "rep", "--out", str(without), "--without-text", "--no-charts")
    assert sorted(path.name for path in without.iterdir()) == ["README.md", "rep.json", "rep.md"]
    assert not [path for path in without.iterdir() if "secret" in path.read_text(encoding="utf-8")]
    (kept,) = read_kept(without)
    assert {(sample["domain"], len(sample["lines"])) for sample in kept["samples"]} == {
        ("law", 0),
        ("sea", 0),
        ("poems", 0),
    }
    assert "its lines were left out" in (without / "rep.md").read_text(encoding="utf-8")
    assert main(["replicate", "report", "rep", "--without-text"]) == 2
    assert "Add --out FOLDER" in capsys.readouterr().err


def test_a_plan_counts_the_documents_of_novel_files_as_they_will_be_cut_and_the_blocks_that_are_scored(
    folder: Path,
) -> None:
    lines = [json.dumps({"text": f"{number} " + "word " * 20}) for number in range(1400)]
    (folder / "novel" / "many.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "novel" / "half.jsonl").write_text("\n".join(lines[:600]), encoding="utf-8")
    pace = Pace(1000.0, 4000.0, 2.0, 10_000, "cpu")

    def few(spec: Replicate) -> dict[str, int]:
        return {row["domain"]: row["about"] for row in forecast(spec, pace).few_documents}

    demix = new_spec("demix", "plan", "tiny", 1, folder=folder)
    assert few(demix) == {"poems": 0, "half": 30}
    cut = [text.model_copy(update={"piece_length": 50}) for text in demix.imports]
    assert few(demix.model_copy(update={"imports": cut})) == {"poems": 0}  # of each document three pieces
    budget = replace(demix.budget, test_tokens=20 * demix.budget.block_size)
    assert few(demix.model_copy(update={"budget": budget})) == {"poems": 0, "half": 20, "many": 20}


def test_all_papers_take_the_options_of_each(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_texts(folder, "train/books", "train/cs")
    (tmp_path / "tasks").mkdir()
    chosen = ["--removed", "sea", "--targets", "sea,books", "--retention", "law", "--tasks", str(tmp_path / "tasks")]
    assert main(["replicate", "all", str(folder), "--size", "smoke", "--tasks", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    with reading() as session:
        assert jobs.list_jobs(session) == []
    ask(capsys, "all", str(folder), "--size", "smoke", "--seeds", "1", *chosen)
    with reading() as session:
        specs = {spec.paper: spec for spec in replications(session)}
    assert specs["demix"].removed == ["sea"]
    assert (specs["mode"].targets, specs["mode"].retention) == (["sea", "books"], "law")
    assert specs["cbtm"].tasks == str(tmp_path / "tasks")


def test_a_plan_of_all_papers_starts_nothing_and_adds_them_up(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "measure_pace", lambda *_: Pace(1000.0, 4000.0, 2.0, 10_000, "cpu"))
    write_texts(folder, "train/books", "train/cs")
    plans = ask(capsys, "all", str(folder), "--size", "smoke", "--plan")["plans"]
    assert [one["name"] for one in plans] == ["demix-smoke", "cbtm-smoke", "mode-smoke"]
    assert main(["replicate", "all", str(folder), "--size", "smoke", "--plan"]) == 0
    assert f"Together: {sum(one['num_jobs'] for one in plans)} jobs" in capsys.readouterr().out
    with reading() as session:
        assert jobs.list_jobs(session) == []
