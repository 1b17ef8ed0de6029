from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import CorpusError
from engine.text import parquet_rows, split
from engine.text.corpus import Document, ReadOptions, read_documents
from engine.text.import_report import ReadReport
from engine.text.plain_text import pieces
from engine.text.split import count_documents, place_of, read_split, store_documents
from engine.text.split_names import SPLITS

QUICK = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def keep(documents: Iterable[Document], folder: Path) -> list[dict]:
    list(store_documents(documents, folder))
    return json.loads((folder / "summary.json").read_text())["domains"]


def some(number: int, **fields: str | None) -> list[Document]:
    return [Document(f"document number {i}", source=f"a.txt:{i}", **fields) for i in range(number)]


def places(folder: Path) -> dict[str, str]:
    """The split of each document id."""
    return {row["id"]: name for name in SPLITS for row in read_split(folder / "0", name)}


def test_documents_stay_in_their_assigned_split(tmp_path: Path) -> None:
    documents = some(30)
    given = {one.id: ("dev", "test", "train")[number % 3] for number, one in enumerate(documents)}
    list(store_documents(documents, tmp_path, split_of=given.__getitem__))
    assert places(tmp_path) == given


def test_a_part_without_a_split_of_its_own_gets_training_documents_by_full_groups(tmp_path: Path) -> None:
    documents = [Document(f"{i}", source="a", group=f"g{i // 3}") for i in range(30)]
    list(store_documents(documents, tmp_path, split_of=lambda _: "train"))
    result = places(tmp_path)
    groups: dict[str, set[str]] = {}
    for one in documents:
        groups.setdefault(str(one.group), set()).add(result[one.id])
    assert all(len(splits) == 1 for splits in groups.values())
    assert sorted(result.values()) == ["dev"] * 3 + ["test"] * 3 + ["train"] * 24


def test_only_the_training_documents_of_a_group_are_moved(tmp_path: Path) -> None:
    documents = [Document(f"{i}", source="a", group="one" if i < 8 else "two") for i in range(12)]
    dev = {one.id for one in documents[::2]}
    list(store_documents(documents, tmp_path, split_of=lambda id: "dev" if id in dev else "train"))
    result = places(tmp_path)
    assert {id for id, split in result.items() if split == "dev"} == dev
    assert {one.group for one in documents if result[one.id] == "test"} in ({"one"}, {"two"})


def test_what_is_held_out_is_never_moved_to_be_trained_on(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"0 groups of training documents.* more than 0"):
        list(store_documents(some(4), tmp_path, split_of=lambda id: "dev" if id < "8" else "test"))


def test_every_document_is_kept_once_with_its_source(tmp_path: Path) -> None:
    documents = some(300)
    keep(documents, tmp_path)
    rows = [row for name in SPLITS for row in read_split(tmp_path / "0", name)]
    result = sorted((row["id"], row["text"], row["source"]) for row in rows)
    assert result == sorted((document.id, document.text, document.source) for document in documents)


def test_the_summary_counts_documents_words_and_bytes(tmp_path: Path) -> None:
    (domain,) = keep([Document("one wörd"), Document("two more words"), Document("three")], tmp_path)
    assert (domain["name"], domain["folder"], domain["num_documents"]) == (None, "0", 3)
    assert (domain["num_words"], domain["num_bytes"]) == (6, 9 + 14 + 5)
    assert all(domain["splits"][name]["documents"] == count_documents(tmp_path / "0", name) == 1 for name in SPLITS)


def test_a_large_domain_is_split_five_five_and_ninety(tmp_path: Path) -> None:
    (domain,) = keep(some(4000), tmp_path)
    assert 150 < domain["splits"]["test"]["documents"] < 250
    assert 150 < domain["splits"]["dev"]["documents"] < 250


def test_a_document_keeps_its_split_when_the_corpus_grows(tmp_path: Path) -> None:
    keep(some(400), tmp_path / "small")
    keep(some(1200), tmp_path / "large")
    small, large = places(tmp_path / "small"), places(tmp_path / "large")
    assert {id: large[id] for id in small} == small


@QUICK
@given(number=st.integers(3, 60), salt=st.text(max_size=3))
def test_every_split_of_a_small_domain_has_a_document(number: int, salt: str, tmp_path_factory) -> None:
    documents = [Document(f"{salt} {i}") for i in range(number)]
    (domain,) = keep(documents, tmp_path_factory.mktemp("split"))
    assert all(domain["splits"][name]["documents"] >= 1 for name in SPLITS)
    assert domain["num_documents"] == number


@QUICK
@given(st.lists(st.integers(0, 12), min_size=3, max_size=60).filter(lambda groups: len(set(groups)) >= 3))
def test_a_group_is_never_divided(tmp_path_factory, groups: list[int]) -> None:
    documents = [Document(f"text {i}", group=f"group {group}") for i, group in enumerate(groups)]
    folder = tmp_path_factory.mktemp("split")
    keep(documents, folder)
    result = {(row["group"], name) for name in SPLITS for row in read_split(folder / "0", name)}
    assert len(result) == len(set(groups))


@QUICK
@given(st.randoms(use_true_random=False), st.integers(3, 40))
def test_order_and_sources_change_nothing(tmp_path_factory, chance: random.Random, number: int) -> None:
    folder = tmp_path_factory.mktemp("split")
    documents = [Document(f"text {i}", domain=f"d{i % 2}", source=f"x/{i}") for i in range(2 * number)]
    moved = [Document(one.text, one.domain, source="elsewhere") for one in documents]
    chance.shuffle(moved)
    assert keep(documents, folder / "a") == keep(moved, folder / "b")
    for path in ("0", "1"):
        for name in SPLITS:
            texts = [[row["text"] for row in read_split(folder / at / path, name)] for at in "ab"]
            assert texts[0] == texts[1]


def test_each_domain_has_a_folder_whose_name_is_a_number(tmp_path: Path) -> None:
    names = ["../../escape", "/etc/passwd", "law", "con", "a\\b"]
    documents = [Document(f"{name} {i}", domain=name) for i in range(4) for name in names]
    domains = keep(documents, tmp_path / "kept")
    assert [domain["name"] for domain in domains] == sorted(names)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0", "1", "2", "3", "4", "summary.json"]


@pytest.mark.parametrize("number", [1, 2])
def test_fewer_than_three_groups_are_refused_with_a_remedy(number: int, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="at least 3") as refusal:
        keep(some(number), tmp_path)
    assert "Add text (repeated text counts once)" in refusal.value.next_step


def test_one_group_for_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"“law” has too few .* is given: 1; a domain"):
        keep(some(50, group="same", domain="law"), tmp_path)


def test_no_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no documents"):
        keep([], tmp_path)


def test_a_field_that_names_records_is_no_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "MAX_DOMAINS", 5)
    with pytest.raises(CorpusError, match="more than 5 values"):
        keep((Document(f"text {i}", domain=str(i)) for i in range(9)), tmp_path)


def test_sorting_in_many_runs_is_sorting_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(f"text {i} " * 20, domain=f"d{i % 3}") for i in range(200)]
    together = keep(documents, tmp_path / "a")
    monkeypatch.setattr(split, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(parquet_rows, "MAX_RUNS", 3)
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 500)
    assert keep(documents, tmp_path / "b") == together
    assert places(tmp_path / "a") == places(tmp_path / "b")
    assert sorted(places(tmp_path / "b")) == sorted(document.id for document in documents if document.domain == "d0")


def test_progress_ends_at_its_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "REPORT_BYTES", 100)
    events = list(store_documents(some(50), tmp_path, total_bytes=2000, done_bytes=lambda: 7))
    assert (events[0].done, events[0].total, events[0].unit) == (7, 2000, "bytes")
    assert events[-1].done == events[-1].total


def test_a_split_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="train, dev, test"):
        list(read_split(tmp_path, "../train"))


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    keep(some(5), tmp_path)
    (tmp_path / "0" / "train.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(CorpusError, match="table of documents"):
        list(read_split(tmp_path / "0", "train"))
    with pytest.raises(CorpusError, match="table of documents"):
        count_documents(tmp_path / "0", "train")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_group_has_its_place(group: str) -> None:
    assert 0 <= place_of(group) < 1
    assert place_of(group) == place_of(group)


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
    report = ReadReport()
    *cut, short = read_documents(path, options, report)
    (together,) = {one.group for one in cut}
    assert together == group.get("source", together) is not None
    assert all(len(one.text) <= 200 for one in cut)
    assert short.group == group.get("source")
    assert report.num_documents == len(cut) + 1 >= 4
