"""Whoever imports learns how many records were kept and why others were not: in the terminal, of the job and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import Do
from ui.cli.app import main
from workbench.kinds.kind import known_kinds
from workbench.registry import corpora
from workbench.registry.database import reading


def csv(folder: Path, num_good: int, num_empty: int) -> Path:
    path = folder / "a.csv"
    rows = [f"Row {number} holds a sentence.,{number}" for number in range(num_good)]
    path.write_text("\n".join(["text,label", *rows, *(f",{number}" for number in range(num_empty))]), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main([*words])
    shown = capsys.readouterr()
    return " ".join((shown.out + shown.err).split())


def test_an_import_ends_with_what_it_kept_and_how_to_list_the_rest(home: Path, tmp_path: Path, capsys) -> None:
    path = str(csv(tmp_path, 7, 6))
    assert "line 9: The field “text” is empty. Of the next 5 records 5 more" in run(
        capsys, "corpus", "add", "em", path, "--here"
    )

    shown = run(capsys, "corpus", "add", "em", path, "--skip-bad", "--here")

    assert (
        "Kept 7 of 13 documents. Left out: 6 (The field “text” is empty). List it: `workbench corpus report em`."
        in shown
    )
    listed = run(capsys, "corpus", "report", "em")
    assert "Kept 7 of 13 documents." in listed
    assert listed.count("Fill or remove it.") == 6
    assert "Nothing was skipped." not in listed


def test_only_a_complete_import_says_that_nothing_was_skipped(home: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"{n % 5}"}) + "\n" for n in range(6)))
    run(capsys, "corpus", "add", "twice", str(tmp_path / "a.jsonl"), "--here")
    run(capsys, "corpus", "add", "good", str(csv(tmp_path, 7, 0)), "--here")

    listed = run(capsys, "corpus", "report", "twice")

    assert "Left out: 1 duplicate." in listed
    assert "a.jsonl 6 It repeats a document before it." in listed
    assert "Nothing was skipped." not in listed
    assert "Kept all 7 documents. Nothing was skipped." in run(capsys, "corpus", "report", "good")


@pytest.mark.parametrize("num_good", [0, 2])
def test_an_import_that_fails_for_too_little_text_names_the_first_reason(do: Do, tmp_path: Path, num_good: int) -> None:
    spec = {"kind": "import-corpus", "name": "few", "path": str(csv(tmp_path, num_good, 20)), "skip_bad": True}

    card = do(spec)

    assert card.state == "failed"
    assert f"Kept {num_good} of {num_good + 20} documents. Left out: 20 (The field “text” is empty)." in str(card.error)
    assert f"The first one left out: a.csv, line {num_good + 2}: The field “text” is empty." in str(card.error)


def test_the_result_of_a_job_has_the_counts_and_the_page_its_sentence(do: Do, tmp_path: Path) -> None:
    card = do({"kind": "import-corpus", "name": "em", "path": str(csv(tmp_path, 7, 6)), "skip_bad": True})

    assert card.result["num_documents"] == 7
    assert card.result["num_left_out"] == 6
    assert card.result["reasons"] == {"The field “text” is empty": 6}
    assert "Kept 7 of 13 documents." in known_kinds()["import-corpus"].sentence(card.result)
    with reading() as session:
        assert corpora.get_corpus(session, "em").report.sentences() == [
            "Kept 7 of 13 documents. Left out: 6 (The field “text” is empty)."
        ]


def test_results_of_earlier_versions_have_a_sentence() -> None:
    result: dict[str, Any] = {"num_documents": 9, "domains": ["essay"]}
    assert known_kinds()["import-corpus"].sentence(result) == "9 documents in essay."


def test_fields_are_left_out_by_an_option(home: Path, tmp_path: Path, capsys) -> None:
    talk = {"prompt": "Hi", "completion": "Hello"}
    lines = [json.dumps({**talk, "prompt": f"Hi {n}", "rejected": "No", "id": n}) + "\n" for n in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    add = ("corpus", "add", "c", str(tmp_path / "a.jsonl"), "--format", "chat", "--here")

    assert "“rejected”, which is not read: No" in run(capsys, *add)
    shown = run(capsys, *add, "--leave-out", "rejected")

    assert "Kept all 5 documents. Not read, with the number of records: “rejected” (5), “id” (5)." in shown
