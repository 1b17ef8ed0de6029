"""Tables and JSON as other programs write them are read; what was recognised is said."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CorpusError
from engine.text import streams
from engine.text.corpus import Document, ReadOptions, read_documents
from engine.text.import_report import ReadReport

RECORDS = [{"text": "One, or two."}, {"text": 'A "quote" and a ] here.'}, {"text": "Three\nlines\n{"}]


def read(path: Path, report: ReadReport | None = None, **options: Any) -> list[Document]:
    return list(read_documents(path, ReadOptions(**options), report or ReadReport()))


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=2),
        "\ufeff \n" + json.dumps(RECORDS, separators=(",", ":")) + "\n\n",
        "\n".join(json.dumps(record, indent=1) for record in RECORDS),
    ],
    ids=["array", "indented array", "array after a mark", "indented objects"],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_an_array_and_indented_objects_are_read_as_lines_are(
    data: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.text.formats._CHUNK", chunk)
    (tmp_path / "a.json").write_text(data, encoding="utf-8")
    assert [document.text for document in read(tmp_path / "a.json")] == [record["text"] for record in RECORDS]


def test_a_record_of_an_array_is_named_by_its_line_or_its_number(tmp_path: Path) -> None:
    records = [*RECORDS, {"text": None}]
    for name, indent in (("lines", 1), ("one", None)):
        (tmp_path / f"{name}.json").write_text(json.dumps(records, indent=indent), encoding="utf-8")
    report = ReadReport()

    documents = read(tmp_path, report, skip_bad=True)

    assert documents[1].source == "lines.json:5"
    faults = [one for one in report.refused if "repeats a document" not in one.reason]
    assert [(one.line, "record 4 of the array" in one.reason) for one in faults] == [(11, False), (1, True)]


def test_a_large_array_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": f"{number} " + "word " * 2000} for number in range(3000)]), encoding="utf-8")
    tracemalloc.start()
    num_read = sum(1 for _ in read_documents(path, ReadOptions(), ReadReport()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_read == 3000
    assert peak < 4 << 20  # of 30 MB


def test_a_record_of_an_array_beyond_the_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_BYTES", 1 << 20)
    (tmp_path / "a.json").write_text('[{"text": "' + "a" * (3 << 20) + '"}]', encoding="utf-8")
    with pytest.raises(Exception, match="longer than"):
        read(tmp_path / "a.json")


TABLES: dict[str, tuple[str, str]] = {
    "semicolons, as Excel writes them": ('\ufefftext;price\r\n"Eins; ""zwei""";1,50\r\n', "semicolons"),
    "a line for Excel": ('sep=;\r\ntext;price\r\n"Eins; ""zwei""";1,50\r\n', "semicolons"),
    "a line for Excel that names a tab": ('sep=\t\r\ntext\tprice\r\n"Eins; ""zwei"""\t1,50\r\n', "tabs"),
    "tabs": ('text\tprice\n"Eins; ""zwei"""\t1,50\n', "tabs"),
    "bars": ('price|text\n1,50|"Eins; ""zwei"""\n', "bars"),
    "commas": ('price,text\n"1;50","Eins; ""zwei"""\n', ""),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_separator_of_a_table_is_recognised_and_noted(name: str, tmp_path: Path) -> None:
    data, word = TABLES[name]
    (tmp_path / "a.csv").write_text(data, encoding="utf-8", newline="")
    report = ReadReport()

    (document,) = read(tmp_path / "a.csv", report)

    assert document.text == 'Eins; "zwei"'
    assert report.notes == ([f"a.csv: columns are separated by {word}."] if word else [])


@pytest.mark.parametrize("data", ["text\rOne\rTwo\r", "text,a\rb\nOne,x\n"])
def test_a_carriage_return_in_the_header_is_refused_with_what_to_do(data: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(data.encode())
    with pytest.raises(CorpusError, match=r"line 1: The row is not valid CSV .*a line ends with a line feed\."):
        read(tmp_path / "a.csv")


def test_a_table_of_conversations_may_have_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt;completion\nHi;Hello\n", encoding="utf-8")
    (document,) = read(tmp_path / "a.csv", format="chat")
    assert document.text == "user: Hi\n\nassistant: Hello"


def test_a_refusal_names_the_lines_of_further_faults(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 1}\n{"text": "a"}\nno\n{"text": ""}\n', encoding="utf-8")
    with pytest.raises(Exception, match=r"must be text, got int\. Of the next 3 records 2 more .*line 3: .*line 4: "):
        read(tmp_path / "a.jsonl")


def test_reading_only_a_part_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"{n}"}) + "\n" for n in range(9)), encoding="utf-8")
    report = ReadReport()
    read(tmp_path / "a.jsonl", report, max_bytes=2)
    assert report.notes == ["Reading stopped after 2 bytes of text, as requested."]
