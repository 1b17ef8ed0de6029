"""Long documents come in pieces that lose nothing and stay together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.corpus import ReadOptions, read_documents
from engine.text.import_report import Report
from engine.text.plain_text import pieces


@given(st.text(st.sampled_from("ab \n"), min_size=1, max_size=400), st.integers(1, 60))
def test_pieces_are_short_enough_and_hold_every_letter_in_order(text: str, length: int) -> None:
    result = list(pieces(text, length))
    assert all(len(piece) <= length for piece in result)
    assert "".join("".join(result).split()) == "".join(text.split())


def test_a_piece_ends_with_a_line_else_with_a_word_else_anywhere() -> None:
    assert list(pieces("one two\nthree four\nfive", 16)) == ["one two", "three four\nfive"]
    assert list(pieces("one two three four", 12)) == ["one two", "three four"]
    assert list(pieces("abcdef", 3)) == ["abc", "def"]
    assert list(pieces("short", 16)) == ["short"]


@pytest.mark.parametrize("group", [{}, {"source": "s"}], ids=["alone", "grouped"])
def test_the_pieces_of_a_document_stay_in_one_split(tmp_path: Path, group: dict[str, str]) -> None:
    path = tmp_path / "law.jsonl"
    texts = (" ".join(f"Sentence {number}." for number in range(40)), "B.")
    path.write_text("\n".join(json.dumps({"text": text, **group}) for text in texts), encoding="utf-8")
    options = ReadOptions(group_field="source" if group else "", piece_length=200)
    report = Report()
    *cut, short = read_documents(path, options, report)
    (together,) = {one.group for one in cut}
    assert together == group.get("source", together) is not None
    assert all(len(one.text) <= 200 for one in cut)
    assert short.group == group.get("source")
    assert report.num_documents == len(cut) + 1 >= 4
