"""Documents of several domains, each once, in the order of their ids, by shards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.clusters.documents import (
    as_ids,
    document_ids,
    draw,
    find_document,
    hex_of,
    places_of,
    read_shard,
    training_ids,
    write_sample,
)
from engine.errors import CorpusError
from engine.text.corpus import Document
from engine.text.parquet_rows import BATCH_BYTES, Table, read_range, read_rows
from engine.text.split import store_documents
from engine.text.split_names import SPLITS


def domain(folder: Path, texts: Sequence[str], grouped: bool = False) -> Path:
    """A domain's folder with these texts; groups of three put them into other splits."""
    folder.mkdir()
    documents = (
        Document(text, group=f"g{number // 3}" if grouped else None, source=f"of {text}")
        for number, text in enumerate(texts)
    )
    for _ in store_documents(documents, folder):
        pass
    return folder / "0"


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two domains of 80 documents that share 60; some of these are held out in one alone."""
    result = [
        domain(tmp_path / "a", [f"text {number}" for number in range(80)]),
        domain(tmp_path / "b", [f"text {number}" for number in range(20, 100)], grouped=True),
    ]
    held_out = [ids_in(folder, "dev", "test") for folder in result]
    trained = [ids_in(folder, "train") for folder in result]
    assert held_out[0] & trained[1]
    assert held_out[1] & trained[0]
    return result


def ids_in(folder: Path, *splits: str) -> set[str]:
    return {row["id"] for split in splits for row in read_rows(folder / f"{split}.parquet")}


def test_ids_are_kept_as_bytes_and_shown_as_digits() -> None:
    ids = [Document(str(number)).id for number in range(50)] + ["ab" + "0" * 62, "0" * 64]
    assert hex_of(as_ids(ids)) == ids
    assert hex_of(np.sort(as_ids(ids))) == sorted(ids)
    assert hex_of(as_ids([])) == []
    some = np.sort(as_ids(ids[:10]))
    assert [int(place) >= 0 for place in places_of(as_ids(ids), some)] == [True] * 10 + [False] * 42
    assert places_of(as_ids(ids[:2]), as_ids([])).tolist() == [-1, -1]


def test_what_any_domain_holds_out_is_not_trained_on(folders: list[Path]) -> None:
    held_out = ids_in(folders[0], "dev", "test") | ids_in(folders[1], "dev", "test")
    everything = ids_in(folders[0], *SPLITS) | ids_in(folders[1], *SPLITS)
    assert hex_of(training_ids(folders)) == sorted(everything - held_out)
    assert hex_of(document_ids(folders, SPLITS)) == sorted(everything)


@pytest.mark.parametrize("num_shards", [1, 2, 7, 100])
def test_shards_hold_every_document_once_and_lie_one_behind_the_other(folders: list[Path], num_shards: int) -> None:
    shards = [[one.id for one in read_shard(folders, shard, num_shards)] for shard in range(num_shards)]
    assert sorted(id for shard in shards for id in shard) == hex_of(document_ids(folders, SPLITS))
    filled = [shard for shard in shards if shard]
    assert all(max(one) < min(other) for one, other in pairwise(filled))
    held_out = ids_in(folders[0], "dev", "test") | ids_in(folders[1], "dev", "test")
    result = [one for shard in range(num_shards) for one in read_shard(folders, shard, num_shards)]
    assert {one.id for one in result if one.split != "train"} == held_out
    assert all(one.origin == f"of {one.text}" for one in result)


def test_a_sample_is_a_table_in_the_order_of_ids_whatever_the_order_of_the_domains(
    folders: list[Path], tmp_path: Path
) -> None:
    ids = draw(training_ids(folders), 25, seed=1)
    assert draw(training_ids(folders), 25, seed=1).tolist() == ids.tolist()
    assert draw(training_ids(folders), 25, seed=2).tolist() != ids.tolist()
    for name, order in (("one", folders), ("two", folders[::-1])):
        *_, last = write_sample(order, ids, tmp_path / f"{name}.parquet")
        assert (last.done, last.total) == (25, 25)
    one, two = (list(read_rows(tmp_path / f"{name}.parquet")) for name in ("one", "two"))
    assert [row["id"] for row in one] == hex_of(ids) == [row["id"] for row in two]


def test_a_sample_with_a_missing_document_fails_with_its_name(folders: list[Path], tmp_path: Path) -> None:
    ids = np.sort(np.concatenate([training_ids(folders)[:5], as_ids(["f" * 64])]))
    with pytest.raises(CorpusError, match="1 of 6 documents are missing: ffffffffffff"):
        list(write_sample(folders, ids, tmp_path / "sample.parquet"))


def test_one_document_is_retrieved_by_its_id(folders: list[Path]) -> None:
    (row, *_) = read_rows(folders[0] / "train.parquet")
    result = find_document(folders[0], "train", row["id"])
    assert result is not None
    assert result.text == row["text"]
    assert find_document(folders[0], "dev", row["id"]) is None


def test_a_range_of_a_large_table_is_read_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"{number:064x}" for number in range(12)]
    with Table(tmp_path / "t.parquet") as table:
        for id in ids:
            table.add({"id": id, "text": "x" * (BATCH_BYTES // 3), "source": "", "group": None})
    assert [row["id"] for row in read_range(tmp_path / "t.parquet", ids[4], ids[9])] == ids[4:9]
    import pyarrow.parquet as pq

    read: list[list[int]] = []
    iterate = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda self, **how: read.append(how["row_groups"]) or iterate(self, **how)
    )
    assert [row["id"] for row in read_range(tmp_path / "t.parquet", ids[7], ids[8])] == [ids[7]]
    assert [len(groups) for groups in read] == [1]
