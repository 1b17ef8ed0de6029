from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import CorpusError
from engine.text.corpus import Document, ReadOptions, read_dataset, read_documents
from engine.text.dataset_source import DatasetSource
from engine.text.import_report import ReadReport
from engine.text.plain_text import DOCUMENT_CHARACTERS, cut_documents
from engine.text.streams import size_on_disk

TEXTS = ["The first document.", "Das zweite: größer,\nmit „Zeichen“.", 'A "third", with commas.\n\nAnd 😀.']
READABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)


def read(path: Path, **options: object) -> list[Document]:
    return list(read_documents(path, ReadOptions(**options), ReadReport()))  # type: ignore[arg-type]


def write_jsonl(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def write_csv(path: Path, texts: list[str], delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([["text"], *([text] for text in texts)])


def write_parquet(path: Path, texts: list[str]) -> None:
    pq.write_table(pa.table({"text": texts}), path)


WRITERS: dict[str, Callable[[Path, list[str]], None]] = {
    "a.jsonl": write_jsonl,
    "a.ndjson": write_jsonl,
    "a.json": write_jsonl,
    "a.csv": write_csv,
    "a.tsv": lambda path, texts: write_csv(path, texts, "\t"),
    "a.parquet": write_parquet,
}


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("packing", ["", *PACK])
def test_every_kind_of_file_gives_the_same_documents(name: str, packing: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path, TEXTS)
    if packing:
        packed = PACK[packing](path.read_bytes())
        path = path.with_name(name + packing)
        path.write_bytes(packed)
    assert [document.text for document in read(path)] == TEXTS


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(READABLE, min_size=1, max_size=5, unique=True), name=st.sampled_from(sorted(WRITERS)))
def test_what_is_written_is_what_is_read(texts: list[str], name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, texts)
    assert [document.text for document in read(tmp_path / name)] == texts


def test_an_upper_case_suffix_is_the_same_kind(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "A.JSONL", TEXTS)
    assert len(read(tmp_path / "A.JSONL")) == 3


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_a_byte_order_mark_is_dropped(name: str, tmp_path: Path) -> None:
    data = {"a.txt": "words", "a.jsonl": '{"text": "words"}', "a.csv": "text\nwords"}[name]
    (tmp_path / name).write_text(data, encoding="utf-8-sig")
    assert [document.text for document in read(tmp_path / name)] == ["words"]


def test_a_folder_is_read_recursively_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/c/y.md", ".hidden.txt", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    assert [document.source for document in read(tmp_path)] == ["a/c/y.md:1", "a/z.txt:1", "b.txt:1"]


def test_moving_and_renaming_files_changes_no_id(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "here.jsonl", TEXTS)
    before = {document.id for document in read(tmp_path / "here.jsonl")}
    (tmp_path / "there" / "deep").mkdir(parents=True)
    shutil.move(tmp_path / "here.jsonl", tmp_path / "there" / "deep" / "renamed.jsonl")
    assert {document.id for document in read(tmp_path)} == before


def test_links_are_not_followed_and_the_report_says_so(tmp_path: Path) -> None:
    outside, folder = tmp_path / "secret.txt", tmp_path / "corpus"
    outside.write_text("not yours")
    folder.mkdir()
    (folder / "own.txt").write_text("own text")
    (folder / "link.txt").symlink_to(outside)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    report = ReadReport()
    assert [document.text for document in read_documents(folder, ReadOptions(), report)] == ["own text"]
    assert [entry.path for entry in report.refused] == ["link.txt", "loop"]


def test_files_of_unknown_kind_in_a_folder_are_left_out_and_listed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    report = ReadReport()
    assert len(list(read_documents(tmp_path, ReadOptions(), report))) == 1
    assert (report.num_refused, report.refused[0].path) == (1, "picture.png")


@pytest.mark.parametrize("name", [b"a\nb.txt", b"a\x1b[31m.txt", b"\xff\xfe.txt", b"..txt.txt", "ä ö.txt".encode()])
def test_hostile_file_names_are_only_shown_and_fit_to_be_shown(name: bytes, tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"sub" + name), "wb") as file:
        file.write(b"text")
    (document,) = read(tmp_path)
    assert document.source.isprintable()
    assert document.source.encode()


@pytest.mark.parametrize("missing", ["nothing", "nothing/at.txt"])
def test_a_path_that_is_not_there_is_refused(missing: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no file or folder"):
        read(tmp_path / missing)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.txt").chmod(0)
    with pytest.raises(CorpusError, match=r"a\.txt"):
        read(tmp_path)


def test_duplicates_are_left_out_and_counted_across_files(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["same", "one"])
    write_csv(tmp_path / "b.csv", ["two", "same", "two"])
    report = ReadReport()
    texts = [document.text for document in read_documents(tmp_path, ReadOptions(), report)]
    assert texts == ["same", "one", "two"]
    assert (report.num_documents, report.num_duplicates, report.num_bytes) == (3, 2, 10)


def test_texts_that_differ_only_in_the_user_are_duplicates_after_anonymisation(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["from a@example.com", "from b@example.com", "from nobody"])
    report = ReadReport()
    documents = list(read_documents(tmp_path, ReadOptions(anonymize=True), report))
    assert [document.text for document in documents] == ["from <EMAIL>", "from nobody"]
    assert documents[0].id == Document("from <EMAIL>").id
    assert (report.num_duplicates, report.num_bytes, report.anonymized["email"]) == (1, 23, 1)


def test_the_report_distinguishes_no_results_from_no_check(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", TEXTS)
    requested, unasked = ReadReport(), ReadReport()
    list(read_documents(tmp_path, ReadOptions(anonymize=True), requested))
    list(read_documents(tmp_path, ReadOptions(), unasked))
    assert set(requested.anonymized.values()) == {0}
    assert unasked.anonymized == {}


@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_text_is_a_fault_as_any_other(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, ["words", "", " \n"])
    with pytest.raises(CorpusError, match="“text” is empty") as refusal:
        read(tmp_path / name)
    assert refusal.value.line == (3 if name.endswith("sv") else 2)  # a header is a line

    report = ReadReport()
    assert len(list(read_documents(tmp_path / name, ReadOptions(skip_bad=True), report))) == 1
    assert report.kept_text() == "Kept 1 of 3 documents. Left out: 2 (The field “text” is empty)."


def test_reading_stops_after_max_bytes(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [f"{i:010}" for i in range(100)])
    assert len(read(tmp_path / "a.jsonl", max_bytes=95)) == 10


def test_after_max_bytes_nothing_more_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "enough"}\nbroken\n')
    assert len(read(tmp_path / "a.jsonl", max_bytes=1)) == 1


def test_fields_name_text_domain_and_group(tmp_path: Path) -> None:
    record = {"body": "words", "kind": " law ", "case": 7, "other": None}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (document,) = read(tmp_path / "a.jsonl", text_field="body", domain_field="kind", group_field="case")
    assert (document.text, document.domain, document.group) == ("words", "law", "7")


def test_names_of_domains_are_data_never_paths(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "words", "domain": "../../etc"}')
    assert read(tmp_path / "a.jsonl", domain_field="domain")[0].domain == "../../etc"


def test_the_line_of_a_document_is_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"one\ntwo"\n\nthree\n')
    (tmp_path / "b.jsonl").write_text('\n\n{"text": "four"}\n')
    assert [document.source for document in read(tmp_path)] == ["a.csv:2", "a.csv:5", "b.jsonl:3"]


def test_progress_reaches_the_size_on_disk(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(tmp_path / name, [f"{name} {text}" for text in TEXTS])
    report, seen = ReadReport(), []
    for _ in read_documents(tmp_path, ReadOptions(), report):
        seen.append(report.bytes_read)
    assert seen == sorted(seen)
    assert report.bytes_read == size_on_disk(tmp_path)


def test_plain_text_is_cut_at_paragraph_borders() -> None:
    paragraphs = [f"{i} " + "word " * 300 for i in range(40)]
    lines = "\n\n".join(paragraphs).splitlines(keepends=True)
    pieces = [text for _, text in cut_documents(enumerate(lines, 1))]
    assert "\n\n".join(pieces) == "\n\n".join(paragraphs)
    assert all(DOCUMENT_CHARACTERS <= len(piece) < 2 * DOCUMENT_CHARACTERS for piece in pieces[:-1])


@pytest.mark.parametrize("place", ["essay.txt", "."])  # a file, and a folder that holds nothing else
def test_a_short_text_imported_by_itself_gives_enough_documents_to_split(tmp_path: Path, place: str) -> None:
    essay = "".join(f"Sentence {number} of a short essay.\n" for number in range(270))
    (tmp_path / "essay.txt").write_text(essay, encoding="utf-8")
    documents = list(read_documents(tmp_path / place, ReadOptions(), ReadReport()))
    assert len(essay) < DOCUMENT_CHARACTERS
    assert 5 <= len(documents) <= 10
    (tmp_path / "other.txt").write_text(essay + "Another.", encoding="utf-8")
    assert len(list(read_documents(tmp_path, ReadOptions(), ReadReport()))) == 2


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.text(string.ascii_letters + " äé😀", max_size=30), st.integers(1, 1500)), max_size=12),
    st.sampled_from(["\n", " ", "\n\n", "", "\r\n\r\n"]),
)
def test_cutting_a_text_loses_no_character_but_line_ends(parts: list[tuple[str, int]], border: str) -> None:
    text = border.join(part * times for part, times in parts)
    pieces = [piece for _, piece in cut_documents(enumerate(text.splitlines(keepends=True), 1))]
    assert "".join(pieces).replace("\n", "").replace("\r", "") == text.replace("\n", "").replace("\r", "")
    assert all(len(piece) <= 2 * DOCUMENT_CHARACTERS for piece in pieces)


def test_a_file_of_one_endless_line_is_cut_at_spaces(tmp_path: Path) -> None:
    words = [f"wörd{i}" for i in range(20_000)]
    (tmp_path / "a.txt").write_text(" ".join(words), encoding="utf-8")
    documents = read(tmp_path / "a.txt")
    assert len(documents) > 5
    assert " ".join(document.text.strip() for document in documents).split() == words


def test_the_faults_of_a_text_are_detected_behind_a_long_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"first\n" + "ü".encode() * 9001 + b"\xff")
    with pytest.raises(CorpusError, match="byte 18003 of the line") as refusal:
        read(tmp_path / "a.txt")
    assert refusal.value.line == 2


def test_a_split_of_a_data_set_is_read(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", TEXTS)
    write_jsonl(tmp_path / "test.jsonl", ["held out"])
    source = DatasetSource.parse(str(tmp_path), "test")
    assert source.pinned() == source  # a folder has no commits
    assert [document.text for document in read_dataset(source, ReadOptions(), ReadReport())] == ["held out"]
    with pytest.raises(CorpusError, match=r"split “dev” .* cannot be read"):
        list(read_dataset(DatasetSource.parse(str(tmp_path), "dev"), ReadOptions(), ReadReport()))


def test_a_data_set_is_pinned_to_the_commit_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []

    def dataset_info(_: Any, name: str, revision: str | None) -> Any:
        requests.append((name, revision))
        return SimpleNamespace(sha="c0ffee")

    def load_dataset(*names: str | None, **options: Any) -> list[dict[str, str]]:
        requests.append((*names, options["split"], options["revision"]))
        return [{"text": "law"}]

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    source = DatasetSource.parse("owner/name:en@v2", "test").pinned()
    assert [document.text for document in read_dataset(source, ReadOptions(), ReadReport())] == ["law"]
    assert requests == [("owner/name", "v2"), ("owner/name", "en", "test", "c0ffee")]
    assert source.name == "owner/name:en@c0ffee"


def test_a_data_set_with_another_field_is_refused_with_its_row(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", TEXTS)
    with pytest.raises(CorpusError, match="“text”") as refusal:
        list(read_dataset(DatasetSource.parse(str(tmp_path)), ReadOptions("body"), ReadReport()))
    assert refusal.value.line == 1


def test_a_data_set_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(CorpusError, match="nobody/nothing"):
        list(read_dataset(DatasetSource.parse("nobody/nothing").pinned(), ReadOptions(), ReadReport()))


def test_a_kind_of_file_is_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would read every such file of the current folder."""
    write_jsonl(tmp_path / "private.json", TEXTS)
    monkeypatch.chdir(tmp_path)
    for name in ("json", "json:x"):
        with pytest.raises(CorpusError, match="“json” is a file format"):
            list(read_dataset(DatasetSource.parse(name), ReadOptions(), ReadReport()))
