"""Files without a purpose go; whatever a row needs, or may need soon, stays."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest
from house import House
from tiny_kind import wish

from jobs import submit, sweep
from workbench import database
from workbench.corpus_specs import ImportCorpus
from workbench.services import jobs as rows


@pytest.fixture
def uploads(house: House) -> Path:
    return sweep.uploads_folder(house.settings.root)


def upload(uploads: Path, hours: float) -> Path:
    """A folder that the browser filled so many hours ago."""
    folder = uploads / uuid.uuid4().hex
    folder.mkdir(parents=True)
    (folder / "0001.txt").touch()
    return aged(folder, hours)


def aged(folder: Path, hours: float) -> Path:
    then = time.time() - hours * 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))
    return folder


def create(path: Path) -> str:
    with database.transaction() as session:
        return rows.create_job(session, ImportCorpus(name="law", path=str(path)))


def test_the_folder_of_a_job_without_a_row_goes(house: House) -> None:
    job_id, events = submit.run_now(wish("problem"))
    with pytest.raises(Exception, match="rate"):
        list(events)
    mine = house.settings.jobs_folder / job_id
    orphan, foreign = mine.with_name("a" * 32), mine.with_name("notes")
    young = mine.with_name("b" * 32)
    for folder in (orphan, foreign, young):
        (folder / "work").mkdir(parents=True)
    for folder in (mine, orphan, foreign):
        aged(folder, 25)
    sweep.sweep(house.settings)
    assert [one.exists() for one in (mine, young, foreign, orphan)] == [True, True, True, False]


def test_an_upload_goes_an_hour_after_it_came_unless_an_import_waits_for_it(house: House, uploads: Path) -> None:
    young, old, wanted, of_one_file = (upload(uploads, hours) for hours in (0.5, 2, 2, 2))
    job_id = create(wanted)
    create(of_one_file / "0001.txt")
    sweep.sweep(house.settings)
    assert [one.exists() for one in (young, old, wanted, of_one_file)] == [True, False, True, True]
    submit.request_stop(job_id, "cancel")
    sweep.sweep(house.settings)
    assert [one.exists() for one in (young, wanted, of_one_file)] == [True, False, True]


def test_the_names_of_uploaded_files_stay_while_something_names_the_upload(house: House, uploads: Path) -> None:
    named, forgotten = upload(uploads, 2), upload(uploads, 2)
    for folder in (named, forgotten):
        sweep.names_file(folder).write_text("{}", encoding="utf-8")
    submit.request_stop(create(named), "cancel")
    sweep.sweep(house.settings)
    assert [sweep.names_file(one).exists() for one in (named, forgotten)] == [True, False]
