"""Bad data is refused with file, line and remedy; nothing is left behind; the next good import works."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tracemalloc
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import CorpusError
from engine.files import new_folder
from engine.text import streams
from engine.text.corpus import ReadOptions, read_documents
from engine.text.import_report import ReadReport
from engine.text.split import store_documents

GOOD = b'{"text": "one good line"}\n'


def table(**columns: list[object]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def not_utf8_table() -> bytes:
    column = pa.array([b"good", b"\xff\xfe bad"]).view(pa.string())
    file = io.BytesIO()
    pq.write_table(pa.table({"text": column}), file)
    return file.getvalue()


def twice_table() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]), file)
    return file.getvalue()


def archive(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr(name, "text")
    return file.getvalue()


@dataclass(frozen=True)
class Bad:
    """A file, the line its fault is on (None: of the whole file), a word of the problem and one of the remedy."""

    name: str
    data: bytes
    line: int | None
    problem: str
    remedy: str
    options: ReadOptions = field(default_factory=ReadOptions)


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)  # type: ignore[no-any-return]


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 538090408\n".encode()
DOMAIN = ReadOptions(domain_field="domain")
TAR = b"name".ljust(257, b"\0") + b"ustar\x0000"
TWO_XZ = lzma.compress(GOOD) + lzma.compress(GOOD * 99)
SPOILED_XZ = TWO_XZ[:-60] + bytes([TWO_XZ[-60] ^ 1]) + TWO_XZ[-59:]
HEADLESS_XZ = lzma.compress(GOOD) + lzma.compress(GOOD * 99)[4:]

CASES = {
    "invalid UTF-8 at the start": Bad("a.jsonl", b"\xff" + GOOD, 1, "byte 1 ", "UTF-8"),
    "invalid UTF-8 in the middle": Bad("a.jsonl", GOOD + b'{"text": "a\xe9b"}\n', 2, "byte 12", "iconv"),
    "invalid UTF-8 at the end": Bad("a.jsonl", GOOD * 3 + b'{"text": "a"}\xc3', 4, "UTF-8", "iconv"),
    "invalid UTF-8 in a text": Bad("a.txt", b"one\ntwo\nth\xffree\n", 3, "byte 3 ", "iconv"),
    "a character cut at the end of a text": Bad("a.txt", "one\ntwö".encode()[:-1], 2, "UTF-8", "iconv"),
    "Latin-1": Bad("a.csv", b"text\ncaf\xe9\n", 2, "UTF-8", "iconv -f LATIN1"),
    "UTF-16, little end first": Bad("a.txt", "Wörter".encode("utf-16"), 1, "UTF-16", "iconv -f UTF-16"),
    "UTF-16, big end first": Bad("a.jsonl", b"\xfe\xff" + "Wort".encode("utf-16-be"), 1, "UTF-16", "iconv"),
    "UTF-16 without its mark": Bad("a.csv", "text\nsome words".encode("utf-16-le"), 1, "UTF-16", "iconv"),
    "NUL bytes in a text": Bad("a.txt", b"one\ntwo\0\n", 2, "NUL", "tr -d"),
    "NUL bytes in JSON": Bad("a.jsonl", GOOD + b'{"text": "a\0"}\n', 2, "JSON", "Fix"),
    "an escaped NUL in JSON": Bad("a.jsonl", GOOD + b'{"text": "a\\u0000"}\n', 2, "NUL", "Fix"),
    "NUL bytes in CSV": Bad("a.csv", b"text\ngood\nba\0d\n", 3, "NUL", "Fix"),
    "a lone surrogate, escaped": Bad("a.jsonl", GOOD + b'{"text": "\\ud800"}\n', 2, "unpaired surrogate", "Fix"),
    "a lone surrogate, encoded": Bad("a.jsonl", b'{"text": "\xed\xa0\x80"}\n', 1, "UTF-8", "iconv"),
    "the wrong key": Bad("a.jsonl", GOOD + b'{"body": "x", "id": 3}\n', 2, "“body”, “id”", "Say which field"),
    "no key at all": Bad("a.jsonl", b"{}\n", 1, "no fields", "Say which field"),
    "text that is a number": Bad("a.jsonl", GOOD + b'{"text": 7}\n', 2, "int", "Fix"),
    "text that is null": Bad("a.jsonl", b'{"text": null}\n', 1, "null", "Fix"),
    "text that is a list": Bad("a.jsonl", b'{"text": ["a"]}\n', 1, "list", "Fix"),
    "cut JSON": Bad("a.jsonl", GOOD + b'{"text": "brok', 2, "not JSON", "Fix"),
    "JSON that is none": Bad("a.jsonl", GOOD + b"hello\n", 2, "not JSON", "Fix"),
    "a number of many digits": Bad("a.jsonl", b'{"text": "a", "n": ' + b"9" * 9000 + b"}", 1, "not JSON", "Fix"),
    "a bare string per line": Bad("a.jsonl", b'"hello"\n', 1, "str", "Write"),
    "a list on a later line": Bad("a.jsonl", GOOD + b"[1]\n", 2, "list", "Write"),
    "an array that is cut": Bad("a.json", b'[{"text": "a"},\n{"text": "b"', 2, "not JSON", "Fix"),
    "an array without an end": Bad("a.json", b'[{"text": "a"}\n', 2, "comma", "Fix"),
    "an array of texts": Bad("a.json", b'["a", "b"]', 1, "str", "Write"),
    "an array with a gap": Bad("a.json", b'[\n{"text": "a"}\n{"text": "b"}\n]', 3, "comma", "Fix"),
    "two arrays": Bad("a.json", b'[{"text": "a"}]\n[{"text": "b"}]', 2, "follows the end", "one record per line"),
    "an array that is not UTF-8": Bad("a.json", b'[\n{"text": "a\xe9b"}\n]', 2, "UTF-8", "iconv"),
    "an object over many lines that is cut": Bad("a.json", b'{\n"text": "a"\n', 3, "not JSON", "Fix"),
    "a depth bomb in an array": Bad("a.json", b"[" * 200_000, 1, "deeply", "nesting"),
    "a field named twice": Bad("a.jsonl", GOOD + b'{"text": "a", "text": "b"}\n', 2, "“text” twice", "Fix"),
    "a field named twice in an array": Bad("a.json", b'[{"text": "a", "text": "b"}]', 1, "“text” twice", "Fix"),
    "a depth bomb of lists": Bad("a.jsonl", GOOD + b"[" * 200_000 + b"\n", 2, "deeply", "nesting"),
    "a depth bomb of objects": Bad("a.jsonl", b'{"a":' * 200_000, 1, "deeply", "nesting"),
    "an unclosed quote": Bad("a.csv", b'text\ngood\n"bad\nand on\n', 3, "CSV", "quote"),
    "text behind a quote": Bad("a.csv", b'text\n"a"b\n', 2, "CSV", "quote"),
    "varying columns": Bad("a.csv", b"id,text\n1,a\n2,b,c\n", 3, "2 columns", "quotes"),
    "too few columns": Bad("a.tsv", b"id\ttext\n1\ta\n2\n", 3, "2 columns", "quotes"),
    "no column for the text": Bad("a.csv", b"id,body\n1,a\n", 1, "“id”, “body”", "Name the column"),
    "semicolons and another column": Bad("a.csv", b"id;body\n1;a\n", 1, "“id;body”", "commas"),
    "a header with one name twice": Bad("a.csv", b"text,text\n1,a\n", 1, "twice", "Rename"),
    "corrupt parquet": Bad("a.parquet", b"PAR1" + b"\x17" * 90 + b"PAR1", None, "parquet", "again"),
    "cut parquet": Bad("a.parquet", table(text=["a", "b"])[:-9], None, "parquet", "again"),
    "empty parquet": Bad("a.parquet", b"", None, "parquet", "again"),
    "text named parquet": Bad("a.parquet", GOOD, None, "parquet", "again"),
    "parquet without the column": Bad("a.parquet", table(body=["a"]), None, "“body”", "Name the column"),
    "parquet with one name twice": Bad("a.parquet", twice_table(), None, "2 columns", "Rename"),
    "parquet with numbers for text": Bad("a.parquet", table(text=["a"], n=[1]), 1, "int", "Fix", ReadOptions("n")),
    "parquet with a null": Bad("a.parquet", table(text=["a", None]), 2, "null", "Fix"),
    "parquet with lists": Bad("a.parquet", table(text=[["a"]]), 1, "list", "Fix"),
    "parquet that is not UTF-8": Bad("a.parquet", not_utf8_table(), 2, "UTF-8", "iconv"),
    "a pointer of Git LFS": Bad("a.txt", POINTER, None, "Git LFS pointer", "git lfs pull"),
    "a pointer of Git LFS for a table": Bad("a.parquet", POINTER, None, "538 MB", "git lfs pull"),
    "a pointer of Git LFS for a packed file": Bad("a.jsonl.gz", POINTER, None, "Git LFS pointer", "git lfs pull"),
    "backslashes before quotes": Bad("a.csv", b'text\n"say \\"no\\" now"\n', 2, "CSV", "doubled quotes"),
    "PNG named txt": Bad("a.txt", b"\x89PNG\r\n\x1a\n", 1, "PNG", "hold text"),
    "pickle named txt": Bad("a.txt", pickle.dumps({"text": "a"}), 1, "pickle", "run code"),
    "zip named jsonl": Bad("a.jsonl", archive("a.txt"), 1, "zip", "Unpack"),
    "tar named txt": Bad("a.txt", TAR, 1, "tar", "Unpack"),
    "parquet named csv": Bad("a.csv", table(text=["a"]), 1, "parquet", ".parquet"),
    "gzip named txt": Bad("a.txt", gzip.compress(GOOD), 1, "gzip", ".gz"),
    "a program named txt": Bad("a.txt", b"\x7fELF\x02\x01", 1, "program", "hold text"),
    "a zip archive": Bad("a.zip", archive("a.txt"), None, "archive", "Unpack"),
    "a zip archive that climbs": Bad("a.zip", archive("../../evil.txt"), None, "archive", "Unpack"),
    "a packed tar archive": Bad("a.tar.gz", gzip.compress(TAR), None, "archive", "Unpack"),
    "an unknown kind": Bad("a.docx", b"words", None, ".docx", "jsonl"),
    "a name without a suffix": Bad("words", b"words", None, "suffix", "jsonl"),
    "cut gzip": Bad("a.jsonl.gz", gzip.compress(GOOD * 99)[:-20], None, "unpacked", "again"),
    "plain text named gz": Bad("a.jsonl.gz", GOOD, None, "unpacked", "again"),
    "cut xz": Bad("a.jsonl.xz", lzma.compress(GOOD * 99)[:-20], None, "unpacked", "again"),
    "junk behind gzip": Bad("a.jsonl.gz", gzip.compress(GOOD) + b"junk", None, "unpacked", "again"),
    "junk behind xz": Bad("a.jsonl.xz", lzma.compress(GOOD) + b"junk", None, "unpacked", "again"),
    "junk behind padded xz": Bad("a.jsonl.xz", lzma.compress(GOOD) + b"\0\0\0\0junk", None, "unpacked", "again"),
    "xz padded by three zeros": Bad("a.jsonl.xz", lzma.compress(GOOD) + b"\0\0\0", None, "unpacked", "again"),
    "a damaged second stream of xz": Bad("a.jsonl.xz", SPOILED_XZ, None, "unpacked", "again"),
    "a second stream of xz without its head": Bad("a.jsonl.xz", HEADLESS_XZ, None, "unpacked", "again"),
    "a cut second stream of xz": Bad("a.jsonl.xz", TWO_XZ[:-20], None, "unpacked", "again"),
    **{
        f"{fault} {suffix}": Bad(f"a.jsonl.{suffix}", data, None, "unpacked", "again")
        for suffix, pack in (("bz2", bz2.compress), ("zst", zstd))
        for fault, data in (
            ("cut", pack(GOOD * 99)[:-5]),
            ("junk behind", pack(GOOD) + b"junk"),
            ("damaged", pack(GOOD)[:6] + b"\x55" * 99),
            ("a cut second stream of", pack(GOOD) + pack(GOOD * 99)[:-5]),
            ("plain text named", GOOD),
        )
    },
    "bzip2 named jsonl": Bad("a.jsonl", bz2.compress(GOOD), 1, "bzip2", ".bz2"),
    "zstd named jsonl": Bad("a.jsonl", zstd(GOOD), 1, "zstd", ".zst"),
    "damaged xz": Bad("a.txt.xz", b"\xfd7zXZ\x00" + b"\x55" * 99, None, "unpacked", "again"),
    "a domain that is a list": Bad("a.jsonl", b'{"text": "a", "domain": []}', 1, "list", "Fix", DOMAIN),
    "a domain without a name": Bad("a.jsonl", b'{"text": "a", "domain": " "}', 1, "1 to 80", "Fix", DOMAIN),
    "a domain with an escape": Bad("a.jsonl", b'{"text": "a", "domain": "a\\u001b["}', 1, "1 to 80", "Fix", DOMAIN),
    "a domain with an unpaired surrogate": Bad(
        "a.jsonl", b'{"text": "a", "domain": "\\udfff"}', 1, "surrogate", "Fix", DOMAIN
    ),
    "domains asked of plain text": Bad("a.txt", b"words\n", 1, "“domain”", "Say which field", DOMAIN),
}

EMPTY = {
    "an empty file": ("a.txt", b""),
    "an empty JSON file": ("a.jsonl", b""),
    "a byte order mark alone": ("a.txt", b"\xef\xbb\xbf"),
    "line ends alone": ("a.txt", b"\r\n" * 5000),
    "many empty lines": ("a.jsonl", b"\n" * 300_000),
    "a header alone": ("a.csv", b"text\n"),
    "a table without rows": ("a.parquet", table(text=pa.array([], pa.string()))),
    "nothing, packed": ("a.txt.gz", gzip.compress(b"")),
}


def read(path: Path, options: ReadOptions | None = None) -> list[str]:
    return [document.text for document in read_documents(path, options or ReadOptions(), ReadReport())]


@pytest.mark.parametrize("bad", CASES.values(), ids=CASES)
def test_a_malformed_corpus_is_refused_with_file_line_and_remedy(bad: Bad, tmp_path: Path) -> None:
    (tmp_path / bad.name).write_bytes(bad.data)
    with pytest.raises(CorpusError) as refusal, new_folder(tmp_path / "kept") as folder:
        list(store_documents(read_documents(tmp_path / bad.name, bad.options, ReadReport()), folder))
    assert (refusal.value.path, refusal.value.line) == (bad.name, bad.line)
    assert bad.problem in refusal.value.problem
    assert bad.remedy in refusal.value.next_step
    assert [path.name for path in tmp_path.iterdir()] == [bad.name]


@pytest.mark.parametrize(("name", "data"), EMPTY.values(), ids=EMPTY)
def test_a_corpus_without_a_document_is_refused(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorpusError, match="no documents"):
        read(tmp_path / name)


def test_after_every_malformed_import_the_next_good_one_works(tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text("\n".join(json.dumps({"text": f"document {i}"}) for i in range(5)))
    for bad in CASES.values():
        (tmp_path / bad.name).write_bytes(bad.data)
        with pytest.raises(CorpusError):
            read(tmp_path / bad.name, bad.options)
        assert read(good) == [f"document {i}" for i in range(5)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv"])
def test_a_packed_file_needs_no_line_end_at_its_end(tmp_path: Path, name: str) -> None:
    plain = {"a.jsonl": b'{"text": "one"}\n{"text": "two"}', "a.txt": b"one\n\ntwo", "a.csv": b"text\none\ntwo"}[name]
    for packing, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".zst", zstd)):
        path = tmp_path / (name + packing)
        path.write_bytes(pack(plain))
        assert " ".join(read(path)).split() == ["one", "two"]


def test_an_xz_file_of_several_streams_is_read_to_its_end(tmp_path: Path) -> None:
    """With the padding between and behind them that the format allows, longer than the reader's buffer, too."""
    streams = [lzma.compress(b'{"text": "document %d"}\n' % number) for number in range(3)]
    (tmp_path / "a.jsonl.xz").write_bytes(streams[0] + streams[1] + b"\0" * 20_000 + streams[2] + b"\0" * 8)
    assert read(tmp_path / "a.jsonl.xz") == [f"document {number}" for number in range(3)]


@pytest.mark.parametrize("bad", CASES.values(), ids=CASES)
def test_with_skip_bad_the_fault_is_listed_and_the_rest_is_read(bad: Bad, tmp_path: Path) -> None:
    (tmp_path / bad.name).write_bytes(bad.data)
    (tmp_path / "z.jsonl").write_text('{"text": "the last document", "domain": "d", "n": "the last document"}')
    options = ReadOptions(bad.options.text_field, bad.options.domain_field, skip_bad=True)
    report = ReadReport()
    texts = [document.text for document in read_documents(tmp_path, options, report)]
    assert texts[-1] == "the last document"
    assert report.num_refused >= 1
    first = next(one for one in report.refused if "repeats a document" not in one.reason)
    assert (first.path, first.line) in ((bad.name, bad.line), (bad.name, None))


def peak_bytes(path: Path) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError):
            read(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.jsonl.gz"])
def test_a_line_beyond_the_cap_is_refused_in_bounded_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real cap is 64 MiB; here it is 1 MiB and the line 24 MiB, so that the test is quick."""
    monkeypatch.setattr(streams, "MAX_RECORD_BYTES", 1 << 20)
    data = b"text\n" + b"a" * (24 << 20)
    (tmp_path / name).write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    assert peak_bytes(tmp_path / name) < 8 << 20


def test_a_missing_quote_swallows_no_more_than_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_BYTES", 1 << 18)
    (tmp_path / "a.csv").write_bytes(b'text\ngood\n"bad\n' + b"a line\n" * (1 << 20))
    with pytest.raises(CorpusError) as refusal:
        read(tmp_path / "a.csv")
    assert refusal.value.line == 3


def test_one_endless_line_of_plain_text_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * (2 << 20))
    tracemalloc.start()
    num_words = sum(len(document.text.split()) for document in read_documents(path, ReadOptions(), ReadReport()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_words <= 2 << 20
    assert peak < 4 << 20


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_a_bomb_is_refused_in_bounded_memory(pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_UNPACKED_BYTES", 1 << 20)
    path = tmp_path / ("a.txt." + ("gz" if pack is gzip.compress else "xz"))
    path.write_bytes(pack((b"word " * 100 + b"\n\n") * (1 << 16)))
    with pytest.raises(CorpusError, match="200 times"):
        read(path)
    assert peak_bytes(path) < 16 << 20  # of 32 MB; 9 MB of it are xz's own


def test_a_parquet_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_UNPACKED_BYTES", 1 << 20)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x " * 50_000]))
    pq.write_table(pa.table({"text": repeated}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="200 times"):
        read(tmp_path / "a.parquet", ReadOptions(skip_bad=False))


def test_only_the_first_fifty_refusals_are_listed_but_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"broken\n" * 300 + GOOD)
    report = ReadReport()
    assert len(list(read_documents(tmp_path / "a.jsonl", ReadOptions(skip_bad=True), report))) == 1
    assert (report.num_refused, len(report.refused)) == (300, 50)
    assert json.loads(json.dumps(asdict(report)))["refused"][1]["line"] == 2
