"""The report of a replication knows which of the documents that were scored are pieces of one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from engine.clusters.documents import as_ids, first_in_group
from engine.files import ArtifactRef, new_folder
from engine.text.parquet_rows import Table
from engine.text.split_names import SPLITS
from workbench_studies.core.measurements import Stored
from workbench_studies.demix.measurements import DemixMeasurements
from workbench_studies.demix.names import SIZES, ReplicateDemix, System
from workbench_studies.running.replicate import with_wholes


def write(folder: Path, groups: dict[str, list[str | None]]) -> list[str]:
    """Rows with these groups in each split, in the order of their ids; gives the ids of all."""
    folder.mkdir()
    written = []
    for split in SPLITS:
        rows = groups.get(split, [])
        ids = sorted(hashlib.sha256(f"{folder}{split}{number}".encode()).hexdigest() for number in range(len(rows)))
        with Table(folder / f"{split}.parquet") as table:
            for id, group in zip(ids, rows, strict=True):
                table.add({"id": id, "text": "", "source": "", "group": group})
        written += ids
    return written


def test_pieces_among_the_documents_of_a_clustering_are_matched_in_any_order(tmp_path: Path) -> None:
    ids = write(tmp_path / "a", {"train": ["novel", None, "novel"], "test": ["play", "play"]})
    ids += write(tmp_path / "b", {"train": [None, None]})
    sorted_ids = sorted(ids)
    result = first_in_group([tmp_path / "a", tmp_path / "b"], as_ids(sorted_ids))
    complete = {id: result[sorted_ids.index(id)] for id in ids}
    assert complete[ids[0]] == complete[ids[2]]
    assert complete[ids[3]] == complete[ids[4]]
    assert len(set(complete.values())) == 5


def test_stored_scores_are_given_the_full_documents_of_their_own_split(tmp_path: Path) -> None:
    write(tmp_path / "law", {"test": ["novel", "novel"], "dev": [None, None]})
    scores = {("e", "law", split): Stored(ArtifactRef(tmp_path, ""), 8) for split in ("test", "dev")}
    result = with_wholes(scores, {"law": tmp_path / "law"})
    assert {split: one.wholes_D.tolist() for (_, _, split), one in result.items() if one.wholes_D is not None} == {
        "test": [0, 0],
        "dev": [0, 1],
    }


def test_demix_draws_the_pieces_of_a_document_together(tmp_path: Path) -> None:
    size = SIZES["smoke"]
    write(tmp_path / "law", {"test": ["novel", None, "novel"]})
    with new_folder(tmp_path / "scores") as folder:
        np.save(folder / "logprobs.npy", np.full(3 * size.block_size, -1.0, dtype=np.float32))
        np.save(folder / "documents.npy", np.arange(3, dtype=np.int32))
        (folder / "scores.json").write_text(json.dumps({"block_size": size.block_size}), encoding="utf-8")
    scores = {("rep-s0-dense/dense", "law", "test"): Stored(ArtifactRef(tmp_path / "scores"), 3 * size.block_size)}
    measured = DemixMeasurements(
        ReplicateDemix(name="rep", seeds=1, domains=["law", "sea"], novel=["tweets"], budget=size)
    )
    assert len(list(measured.measure(with_wholes(scores, {"law": tmp_path / "law"})))) == 3
    assert measured.losses[System("dense"), 0, "law"].documents_N.tolist() == [0, 1, 0]
