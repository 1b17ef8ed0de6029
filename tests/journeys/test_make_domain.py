"""A domain of documents chosen on the map: exactly those, in the splits that they were in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.clusters.documents import hex_of, load_documents
from engine.text.split import read_split
from engine.text.split_names import SPLITS
from jobs.kinds.clusters import domains
from tests.journeys.conftest import Do
from ui.cli.app import main
from workbench.errors import BadSpecError
from workbench.kinds.data import MakeDomain
from workbench.kinds.kind import parse_spec
from workbench.registry import corpora as corpora_rows
from workbench.registry.clusters.cluster_documents import POINT, map_points, map_regions
from workbench.registry.clusters.clusterings import clustering_row
from workbench.registry.database import reading
from workbench.store.storage import get_storage

FIND = {"kind": "find-clusters", "name": "topics", "num_clusters": 3, "dimension": 5, "map_size": 100}
SPEC = {"kind": "make-domain", "clustering": "topics", "name": "mine"}


@pytest.fixture
def topics(do: Do, corpora: dict[str, Path]) -> Do:
    """A home with the clustering “topics” of three domains of 60 documents, about 100 of them on its map."""
    for name, path in corpora.items():
        do({"kind": "import-corpus", "name": name, "path": str(path), "licence": f"{name} licence"})
    assert do(FIND).state == "done"
    return do


def read_map() -> Any:
    with reading() as session:
        return np.frombuffer(map_points(session, get_storage(), "topics").points, dtype=POINT)


def splits_of(name: str) -> dict[str, str]:
    """The split of each document of a domain by its id."""
    with reading() as session:
        row = corpora_rows.domain_row(session, name)
        folder = get_storage().path(row.artifact_id) / row.folder
    return {row["id"]: split for split in SPLITS for row in read_split(folder, split)}


def around(points: Any) -> str:
    """The corners of a square around points."""
    left, top = points["x"].min() - 0.01, points["y"].max() + 0.01
    right, bottom = points["x"].max() + 0.01, points["y"].min() - 0.01
    return " ".join(f"{x:.4f} {y:.4f}" for x, y in ((left, top), (right, top), (right, bottom), (left, bottom)))


def test_what_lies_in_an_area_becomes_a_domain_and_held_out_text_stays_held_out(topics: Do) -> None:
    points = read_map()
    left = np.sort(points, order="x")[:40]
    area = around(left)
    x0, y1, x1, _, _, y0, *_ = map(float, area.split())
    inside = points[(points["x"] > x0) & (points["x"] < x1) & (points["y"] > y0) & (points["y"] < y1)]
    job = topics({**SPEC, "areas": [area]})
    assert job.state == "done", job.error
    with reading() as session:
        folder = get_storage().path(clustering_row(session, "topics").artifact_id)
        card = corpora_rows.get_corpus(session, "mine")
        regions = map_regions(session, "topics")
    assert [(one.domain, one.expert, len(one.areas[0])) for one in regions] == [("mine", None, 4)]
    documents = load_documents(folder)
    wanted = set(hex_of(documents.ids_N[inside["document"]]))
    before = {id: split for name in ("court", "kitchen", "sea") for id, split in splits_of(name).items()}
    after = splits_of("mine")
    assert set(after) == wanted
    assert len(wanted) == job.result["num_documents"] >= 40
    assert all(after[id] == split for id, split in before.items() if id in wanted and split != "train")
    assert card.licence == "court licence; kitchen licence; sea licence"


def test_an_area_and_clusters_together_take_what_is_in_both(topics: Do) -> None:
    points = read_map()
    job = topics({**SPEC, "areas": [around(points)], "clusters": ["1"]})
    assert job.result["num_documents"] == (points["cluster"] == 1).sum() < len(points)


def test_only_clusters_hold_what_is_not_on_the_map_too(topics: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "choose", "topics", "mine", "--clusters", "0,2", "--here"]) == 0
    with reading() as session:
        documents = load_documents(get_storage().path(clustering_row(session, "topics").artifact_id))
    assert len(splits_of("mine")) == np.isin(documents.labels_N, [0, 2]).sum()
    assert f"{len(splits_of('mine'))} documents in the domain mine" in capsys.readouterr().out


def test_nothing_where_nothing_lies(topics: Do) -> None:
    job = topics({**SPEC, "areas": ["900 900 901 900 901 901"]})
    assert (job.state, job.error) == ("failed", "The selection contains no document.")


def test_an_area_needs_a_map(topics: Do) -> None:
    topics({**FIND, "name": "unseen", "map_size": 0})
    job = topics({**SPEC, "clustering": "unseen", "areas": ["0 0 1 0 1 1"]})
    assert job.error == "“unseen” has no map, so areas cannot be used."


@pytest.mark.parametrize(
    ("areas", "words"),
    [
        ([], "Name areas, clusters, or both"),
        (["1 2 3 4"], "three corners"),
        (["a b c d e f"], "must be numbers"),
        (["0 0 1 nan 1 1"], "pairs of numbers"),
    ],
)
def test_an_invalid_area_is_refused_immediately(areas: list[str], words: str) -> None:
    with pytest.raises(BadSpecError, match=words):
        parse_spec({**SPEC, "areas": areas})


def test_a_taken_name_is_reported_before_any_text_is_read(topics: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "load_documents", None)
    with pytest.raises(BadSpecError, match="sea"):
        topics({**SPEC, "name": "sea", "clusters": ["0"]})


def test_corners_are_pairs() -> None:
    assert MakeDomain(clustering="c", name="n", areas=["0 1 2 3 4 5"]).corners == [[(0, 1), (2, 3), (4, 5)]]
