from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from engine.errors import CorpusError
from engine.text import local_sources
from engine.text.corpus import ReadOptions
from engine.text.import_report import ReadReport
from engine.text.local_sources import SOURCES, LocalSource, local_documents

ONE_MB = 1_000_000


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_has_text_on_this_machine(name: str) -> None:
    documents = list(islice(local_documents(name), 20))
    assert len(documents) == 20
    assert all(document.group and len(document.text) >= 200 for document in documents)


@pytest.mark.parametrize("name", ["python", "headers", "descriptions", "cython"])
def test_the_quick_sources_have_a_megabyte(name: str) -> None:
    report = ReadReport()
    assert sum(1 for _ in local_documents(name, ReadOptions(max_bytes=ONE_MB), report)) > 50
    assert ONE_MB <= report.num_bytes < ONE_MB + 100_000


def test_the_demo_has_four_domains_to_train_on_and_two_kept_aside() -> None:
    roles = [source.role for source in SOURCES.values()]
    assert roles.count("train") >= 4
    assert roles.count("novel") >= 2
    assert all(source.title and source.licence for source in SOURCES.values())


def test_the_same_text_is_read_each_time() -> None:
    first, second = (list(local_documents("python", ReadOptions(max_bytes=200_000))) for _ in range(2))
    assert first == second


def test_a_source_of_another_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CorpusError, match=r"“nothing”.* Choose one of python, "):
        next(local_documents("nothing"))


def source_of(folder: Path, monkeypatch: pytest.MonkeyPatch, read=local_sources.read_file) -> None:
    def files():
        return ((path.name, path) for path in folder.iterdir())

    monkeypatch.setitem(SOURCES, "here", LocalSource("Here", "train", "none", files, read))


def test_repeated_licences_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notice = "// Permission is hereby granted, free of charge, to any person obtaining a copy. " * 3
    for i in range(5):
        (tmp_path / f"{i}.h").write_text(f"{notice}\n\n" + f"int only_in_{i}(void);\n" * 20)
    source_of(tmp_path, monkeypatch)
    texts = [document.text for document in local_documents("here")]
    assert len(texts) == 5
    assert sum("Permission" in text for text in texts) == 1


def test_unreadable_binary_and_generated_files_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good").write_text("a good line of words\n" * 30)
    (tmp_path / "binary").write_bytes(b"words \0" * 100)
    (tmp_path / "latin").write_bytes(b"caf\xe9 " * 100)
    (tmp_path / "packed").write_text("function(){}" * 1000)
    (tmp_path / "huge").write_text("a line\n" * 100_000)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    source_of(tmp_path, monkeypatch)
    assert [document.source for document in local_documents("here")] == ["good"]


def test_manuals_are_the_docstrings_and_broken_modules_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = "\n    ".join(["What it gives."] * 20)
    (tmp_path / "good.py").write_text(f'def f():\n    """{manual}"""\n    return "code"\n')
    (tmp_path / "broken.py").write_text("def f(:\n")
    source_of(tmp_path, monkeypatch, local_sources.read_manual)
    (document,) = local_documents("here")
    assert document.text == "\n".join(["What it gives."] * 20)
