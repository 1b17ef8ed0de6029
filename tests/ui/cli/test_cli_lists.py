"""The `list` commands: each can be filtered, sorted, reversed and cut, and says so where that is impossible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ui.cli.app import main
from ui.cli.verbs import Column, Selection
from ui.errors import BadUsageError
from ui.present.forms.readable_folders import keep_uploads
from workbench.job_records.jobs import create_job, request_stop
from workbench.kinds.analysis import Evaluate, SelfCheck
from workbench.registry.database import transaction

LISTS = {  # the columns of each list
    "alias list": ("alias", "_COLUMNS"),
    "cluster list": ("cluster", "_COLUMNS"),
    "comparison list": ("comparison", "_COLUMNS"),
    "corpus domains": ("corpus", "_DOMAIN_COLUMNS"),
    "corpus list": ("corpus", "_COLUMNS"),
    "expert list": ("expert", "_COLUMNS"),
    "job list": ("job", "_COLUMNS"),
    "mixture list": ("mixture", "_COLUMNS"),
    "prior list": ("prior", "_COLUMNS"),
    "registry trash list": ("servers.registry", "_TRASH_COLUMNS"),
    "report list": ("report", "_COLUMNS"),
    "seed list": ("seed", "_COLUMNS"),
    "view list": ("view", "_COLUMNS"),
}
SHAPES = (Column("Name", lambda row: row[0]), Column("Stale experts", lambda row: row[1]))


class Upload(NamedTuple):
    """A file as the browser sends it."""

    name: str
    content: bytes

    def getbuffer(self) -> memoryview:
        return memoryview(self.content)


def columns_of(line: str) -> Sequence[Column]:
    module, name = LISTS[line]
    columns: Sequence[Column] = getattr(import_module(f"ui.cli.commands.{module}"), name)
    return columns


def listed(capsys: pytest.CaptureFixture[str], line: str, *options: str) -> Any:
    assert main([*line.split(), *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("line", LISTS)
def test_every_list_sorts_by_each_of_its_columns_and_names_them(
    line: str, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for column in columns_of(line):
        rows = listed(capsys, line, "--sort", column.key)
        assert listed(capsys, line, "--sort", column.key, "--filter", f"{column.key}=no such text") == []
        assert len(listed(capsys, line, "--sort", column.key, "--reverse")) == len(rows)
        assert listed(capsys, line, "--sort", column.key, "--limit", "1") == rows[:1]
    assert main([*line.split(), "--sort", "taste"]) == 2
    assert ", ".join(column.key for column in columns_of(line)) in capsys.readouterr().err


@pytest.mark.parametrize("line", ["corpus list", "corpus domains", "expert list"])
def test_a_list_is_reversed_filtered_and_cut(line: str, mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["name"] for row in listed(capsys, line, "--sort", "name")]
    assert len(names) == 2
    assert [row["name"] for row in listed(capsys, line, "--sort", "name", "--reverse")] == names[::-1]
    assert [row["name"] for row in listed(capsys, line, "--filter", "NAME=LAW")] == [names[1]]
    assert [row["name"] for row in listed(capsys, line, "--filter", "law", "--filter", "code")] == []
    assert main([*line.split(), "--sort", "name", "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert names[1] not in printed.out
    assert "1 of 2" in printed.err
    assert main([*line.split(), "--filter", "nowhere"]) == 0
    assert "matches" in capsys.readouterr().out


def test_numbers_are_sorted_as_numbers_and_missing_values_come_last() -> None:
    rows = [("ten", 10), ("none", None), ("nine", 9)]
    assert [name for name, _ in Selection(sort="stale-experts").apply(rows, SHAPES)] == ["nine", "ten", "none"]
    assert [name for name, _ in Selection(sort="Stale experts", reverse=True).apply(rows, SHAPES)] == [
        "ten",
        "nine",
        "none",
    ]
    assert Selection(reverse=True).apply(rows, SHAPES) == rows[::-1]


def test_a_filter_names_a_column_or_searches_all_of_them() -> None:
    rows = [("oak", "elm"), ("elm", "oak")]
    assert Selection(["elm"]).apply(rows, SHAPES) == rows
    assert Selection(["name=elm"]).apply(rows, SHAPES) == [("elm", "oak")]
    with pytest.raises(BadUsageError, match="no column “nme”"):
        Selection(["nme=elm"]).apply(rows, SHAPES)


@pytest.mark.usefixtures("home")
def test_jobs_are_listed_in_the_words_of_other_tools_and_by_status_and_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        create_job(session, SelfCheck())
        paused = create_job(session, SelfCheck())
        request_stop(session, paused, "pause")
    assert main(["job", "list"]) == 0
    assert capsys.readouterr().out.split()[:6] == ["ID", "Job", "Status", "Progress", "ETA", "Created"]
    assert [job["id"] for job in listed(capsys, "job list", "--status", "paused")] == [paused]
    assert len(listed(capsys, "job list", "--kind", "selfcheck")) == 2
    assert listed(capsys, "job list", "--kind", Evaluate.model_fields["kind"].default) == []
    assert [job["id"] for job in listed(capsys, "job list", "--filter", "status=paused")] == [paused]


@pytest.mark.usefixtures("mixed")
def test_a_stale_or_disabled_expert_says_so_in_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expert", "disable", "both/law", "--json"]) == 0
    capsys.readouterr()
    assert [row["name"] for row in listed(capsys, "expert list", "--filter", "status=disabled")] == ["both/law"]


def test_an_uploaded_file_is_shown_by_the_name_that_its_owner_gave_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b"".join(b'{"text": "Sentence %d."}\n' % number for number in range(60))
    folder = keep_uploads([Upload("bees.jsonl", text)], home)
    assert main(["corpus", "add", "bees", str(folder), "--here"]) == 0
    capsys.readouterr()
    assert main(["corpus", "show", "bees"]) == 0
    shown = capsys.readouterr().out
    assert "— bees.jsonl:" in shown
    assert str(folder) not in shown
