"""A path typed in a page leads into the folders that the owner named, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import packaged_modules

from jobs.uploads import uploads_folder
from tests.ui.studio.visits import named, open_page, read
from ui.present.forms.readable_folders import is_readable, require_readable
from ui.studio.forms.import_form import LOCAL_PATH
from workbench.errors import BadSpecError
from workbench.job_records import jobs as rows
from workbench.kinds.data import ImportCorpus, dataset_formats
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.settings import Settings, get_settings
from workbench.specs.base import LocalPath

SPECS = {name: kind.spec for name, kind in known_kinds().items()}

OUTSIDE = "is outside the folders that the studio may read"


@pytest.fixture
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filled_home: Path) -> Path:
    """The one folder that the owner named; beside it lies a file that is nobody's business, in it a link to that."""
    folder = tmp_path / "desk"
    (folder / "train").mkdir(parents=True)
    (tmp_path / "private.txt").write_text("Not yours.", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "private.txt")
    monkeypatch.setenv("WORKBENCH_DATA_FOLDERS", str(folder))
    get_settings.cache_clear()
    return folder


def requested_path(path: str) -> Any:
    app = open_page("corpora", part="Import text", import__where=LOCAL_PATH)
    app.text_input(key="import.path").set_value(path).run()
    app.text_input(key="import-corpus.name").set_value("x").run()
    return named(app.button, "Import the text").click().run()


def seed_from(path: str) -> Any:
    app = open_page("train", train__what="Seed model", seed__source="folder")
    app.text_input(key="make-seed.name").set_value("mine").run()
    app.text_input(key="make-seed.location").set_value(path).run()
    return named(app.button, "Make the seed model").click().run()


def tasks_from(path: str) -> Any:
    app = open_page("train", train__what="Few-shot classification")
    app.text_input(key="classify.path").set_value(path).run()
    return named(app.button, "Classify the texts").click().run()


def data_set(path: str) -> Any:
    app = open_page("corpora", part="Import text", import__where="Hugging Face data set")
    app.text_input(key="import.dataset").set_value(path).run()
    app.text_input(key="import-corpus.name").set_value("x").run()
    return named(app.button, "Import the text").click().run()


@pytest.mark.parametrize("ask", [requested_path, seed_from, tasks_from, data_set])
@pytest.mark.parametrize("path", ["private.txt", "desk/../private.txt", "desk/link.txt", "/no/such/file.txt"])
def test_no_page_reads_elsewhere(slots: Path, tmp_path: Path, ask: Callable[[str], Any], path: str) -> None:
    before = read(rows.list_jobs)
    app = ask(str(tmp_path / path))
    assert OUTSIDE in app.error[0].value.replace("\\", "")
    assert "WORKBENCH_DATA_FOLDERS" in app.error[0].value.replace("\\", "")
    assert read(rows.list_jobs) == before


def test_what_lies_in_a_named_folder_is_read(slots: Path) -> None:
    (slots / "x.txt").write_text("A text.", encoding="utf-8")
    app = requested_path(str(slots / "x.txt"))
    assert read(rows.get_job, app.session_state["import-corpus.job"]).spec["path"] == str(slots / "x.txt")


def test_without_a_name_it_is_the_folder_of_the_workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path / ".workbench")
    assert is_readable(tmp_path / "texts" / "x.txt", settings)
    assert not is_readable(tmp_path.parent, settings)
    assert not is_readable(settings.root / "registry.db", settings)
    assert not is_readable(settings.root / "login" / "secret", settings)
    assert is_readable(uploads_folder(settings.root) / "0" / "0001.txt", settings)


def test_several_folders_may_be_named_also_in_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = Settings(home=home, data_folders=f"{tmp_path / 'a'}:{home / 'texts'}:")
    assert is_readable(tmp_path / "a" / "x.txt", settings)
    assert is_readable(home / "texts" / "x.txt", settings)
    assert not is_readable(tmp_path / "b", settings)
    assert not is_readable(home / "registry.db", settings)


@pytest.mark.parametrize("name", ["..", "/etc", "a/../.."])
@pytest.mark.usefixtures("slots")
def test_a_data_set_is_not_the_name_of_a_folder(name: str) -> None:
    with pytest.raises(BadSpecError, match=OUTSIDE):
        require_readable(ImportCorpus(name="x", dataset=name).local_paths())
    require_readable(ImportCorpus(name="x", dataset="wikitext:wikitext-2-raw-v1").local_paths())


def test_a_spec_lists_every_path_that_its_work_reads() -> None:
    suspects = {"path", "folder", "file", "location", "tasks"}
    result = {(kind, name) for kind, spec in SPECS.items() for name in spec.model_fields if name in suspects}
    marked = {
        (kind, name)
        for kind, spec in SPECS.items()
        for name, field in spec.model_fields.items()
        if set(LocalPath.__metadata__) & set(field.metadata)  # type: ignore[attr-defined]
    }
    assert result - marked == {("make-seed", "location")}  # a folder or a name, by its source
    assert SPECS["make-seed"](name="x", source="folder", location="/etc").local_paths() == ["/etc"]
    assert SPECS["classify"](mixture="x", path="/etc").local_paths() == ["/etc"]


@pytest.mark.parametrize("name", ["text", "json:x", "imagefolder"])
def test_a_data_set_is_not_a_kind_of_file_of_the_current_folder(name: str) -> None:
    with pytest.raises(BadSpecError, match="is a kind of file"):
        parse_spec({"kind": "import-corpus", "name": "x", "dataset": name})


def test_all_kinds_of_the_library_are_known() -> None:
    assert set(packaged_modules._PACKAGED_DATASETS_MODULES) <= dataset_formats()


def test_a_folder_around_the_home_is_not_read_unless_the_home_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_DATA_FOLDERS", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "data" / "home"))
    get_settings.cache_clear()
    for folder in (tmp_path, tmp_path / "data"):
        with pytest.raises(BadSpecError, match="holds the workbench's home folder"):
            require_readable([folder])
    require_readable([tmp_path / "data" / "texts"])
    for hidden in (".home", ".data/home"):
        monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / hidden))
        get_settings.cache_clear()
        require_readable([tmp_path])
        with pytest.raises(BadSpecError, match=OUTSIDE):
            require_readable([get_settings().root])
    with pytest.raises(BadSpecError, match="holds the workbench's home folder"):
        require_readable([tmp_path / ".data"])
