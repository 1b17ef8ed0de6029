"""The script that assembles a corpus from Debian packages, on a tiny folder of made-up packages."""

from __future__ import annotations

import gzip
import importlib.util
import json
import lzma
import struct
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "corpora" / "debian_text.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("debian_text", SCRIPT)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["debian_text"] = module
    specification.loader.exec_module(module)
    return module


def words(number: int, start: int = 0) -> str:
    return " ".join(f"word{start + place}" for place in range(number))


def records(path: Path) -> list[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_copies_and_short_documents_are_left_out_and_long_ones_are_cut(script: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "packages" / "books"
    package.mkdir(parents=True)
    (package / "a.txt").write_text(words(150))
    (package / "copy.txt").write_text(words(150))
    (package / "short.txt").write_text(words(100))
    (package / "long.txt").write_text("\n".join(words(120, 1000 * line) for line in range(5)))
    (package / "out.txt").write_text(words(300, 9000))
    recipe = script.CorpusRecipe(
        "books", (script.PackagePart("books", "*.txt", script.plain, "/out"),), piece_bytes=len(words(120, 4000)) + 1
    )
    rows = script.assemble(tmp_path / "corpus", tmp_path / "packages", tmp_path, [recipe], [])
    written = records(tmp_path / "corpus" / "train" / "books.jsonl.xz")
    assert [len(one["text"].split()) for one in written if one["source"] == "books: long.txt"] == [120] * 5
    assert sum(one["source"] in ("books: a.txt", "books: copy.txt") for one in written) == 1
    assert all("short" not in one["source"] and "out" not in one["source"] for one in written)
    assert (rows[0].documents, rows[0].bytes) == (len(written), sum(len(one["text"].encode()) for one in written))
    assert f"| train | books | 0.0 | {len(written)} |" in script.table(rows)


def test_a_domain_ends_at_its_bytes_and_is_the_same_when_it_is_made_again(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "machine" / "doc").mkdir(parents=True)
    for number in range(9):
        folder = tmp_path / "machine" / "doc" / f"p{number}"
        folder.mkdir()
        (folder / "copyright").write_text(words(120, 200 * number))
    recipe = script.CorpusRecipe("licences", (), 4000, of_machine=(("doc/*/copyright", script.plain),))
    made = [script.write(recipe, tmp_path / name, tmp_path, tmp_path / "machine") for name in ("one", "two")]
    first, second = (records(tmp_path / name / "licences.jsonl.xz") for name in ("one", "two"))
    assert first == second
    assert 0 < made[0].bytes <= 4000 < sum(len(words(120, 200 * number)) for number in range(9))
    assert {one["source"] for one in first} <= {f"p{number}" for number in range(9)}


def test_pages_of_html_and_man_keep_their_words_and_lose_their_marks(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<head><title>no</title></head><nav>no</nav><h1>Sets</h1><p>A <b>set</b>\n of  rows.<pre>a  b</pre>"
    )
    [(text, _)] = script.html_page(page)
    assert text.split("\n\n")[0] == "Sets"
    assert "A set of rows." in text
    assert "a  b" in text
    assert "no" not in text.split()
    manual = tmp_path / "ls.1.gz"
    manual.write_bytes(gzip.compress(b'.\\" licence\n.SH NAME\nls \\- list\n.PP\n.B ls\n'))
    [(text, source)] = script.man_page(manual)
    assert (text, source) == ("NAME\nls - list\nls", "ls.1.gz")


def test_a_module_of_scripture_is_read_by_chapter(script: ModuleType, tmp_path: Path) -> None:
    verses = [
        b'<chapter sID="1"/>In the <w>beginning</w>',
        b"there was<note>not this</note> light.",
        b'<chapter sID="2"/>Then',
    ]
    block = b"".join(verses)
    packed = zlib.compress(block)
    (tmp_path / "ot.bzz").write_bytes(packed)
    (tmp_path / "ot.bzs").write_bytes(struct.pack("<III", 0, len(packed), len(block)))
    places = [(sum(map(len, verses[:place])), len(one)) for place, one in enumerate(verses)]
    (tmp_path / "ot.bzv").write_bytes(b"".join(struct.pack("<IIH", 0, *place) for place in places))
    texts = [text for text, _ in script.sword(tmp_path / "ot.bzs")]
    assert texts == ["In the beginning\nthere was light.", "Then"]


def test_eight_domains_train_and_eight_are_novel_and_no_name_stands_for_two(script: ModuleType) -> None:
    names = [recipe.name for recipe in (*script.TRAIN, *script.NOVEL)]
    assert (len(script.TRAIN), len(script.NOVEL), len(set(names))) == (8, 8, 16)
    assert all(recipe.piece_bytes == script.NOVEL_BYTES for recipe in script.NOVEL)
