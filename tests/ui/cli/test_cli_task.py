"""workbench task: labelled folders of held-out text, by domain or by source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.analysis.fewshot.tasks import read_tasks
from engine.text.corpus import Document
from engine.text.split import read_split, store_documents
from tests.ui.conftest import ask
from ui.cli.app import main
from workbench.registry import corpora
from workbench.registry.database import transaction
from workbench.store import artifacts
from workbench.store.storage import get_storage

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def held_out() -> dict[str, set[str]]:
    """The texts of dev and test by domain, of two domains whose records have two sources each."""
    texts: dict[str, set[str]] = {}
    for number, name in enumerate(("law", "sea")):
        documents = [
            Document(f"{name} document {place}", group=f"{name} source {place % 60}", source="x.jsonl")
            for place in range(1200)
        ]
        id = f"{number + 1:032x}"
        storage = get_storage()
        with storage.new(id) as folder:
            for _ in store_documents(documents, folder):
                pass
        summary = json.loads((storage.path(id) / "summary.json").read_text())
        with transaction() as session:
            artifact = artifacts.register_artifact(session, storage, id, "documents")
            corpora.register_corpus(
                session, name=name, role="train", source="x", artifact=artifact, summary=summary, report={}
            )
        folder = storage.path(id) / summary["domains"][0]["folder"]
        texts[name] = {row["text"] for split in ("dev", "test") for row in read_split(folder, split)}
    return texts


def test_a_task_by_domain_has_only_held_out_text(
    held_out: dict[str, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(
        capsys, "task", "make", str(tmp_path / "tasks"), "--name", "kind", "--domains", "law,sea", "--most", "30"
    )
    assert set(answer["labels"]) == {"law", "sea"}
    (task,) = read_tasks(tmp_path / "tasks")
    for example in (*task.train, *task.test):
        assert example.text in held_out[task.labels[example.label]]


def test_a_task_by_source_has_the_sources_of_held_out_text_as_labels(
    held_out: dict[str, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(capsys, "task", "make", str(tmp_path / "tasks"), "--name", "who", "--domains", "law", "--by", "source")
    assert len(answer["labels"]) >= 2
    assert all(label.startswith("law source ") for label in answer["labels"])
    (task,) = read_tasks(tmp_path / "tasks")
    assert {one.text for one in task.test} <= held_out["law"]


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "make", str(tmp_path / "tasks"), "--name", name, "--domains", "law,sea"]) != 0
    assert "cannot be the name of a folder" in capsys.readouterr().err
    assert not (tmp_path / "tasks").exists()


def test_a_public_task_is_downloaded_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: type("Info", (), {"sha": "c0ffee"}))
    rows = [{"text": f"a text {number}", "label": number % 4} for number in range(40)]
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: rows)
    answer = ask(capsys, "task", "download", str(tmp_path), "--names", "agnews")
    assert answer["tasks"] == {"agnews": "fancyzhx/ag_news@c0ffee"}
    assert [task.label_words[0] for task in read_tasks(tmp_path)] == ["world"]
    assert main(["task", "download", str(tmp_path), "--names", "agnews"]) != 0
    assert "exists already" in capsys.readouterr().err
