"""Documents in their clusters: placed in shards, kept, looked up, moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.clusters.artifact import place
from engine.clusters.config import ClusterConfig, TfidfConfig
from engine.clusters.documents import (
    ClusteredDocuments,
    Mapped,
    SourceDocument,
    as_ids,
    hex_of,
    join,
    load_documents,
    load_mapped,
)
from engine.clusters.fitting import ClusterSplit, Fitted, fit, merge_clusters, pin_documents, split_cluster, words_of
from engine.errors import CorpusError, DamagedFileError, EngineError
from engine.text.corpus import Document
from engine.text.parquet_rows import Table

WORDS = ["court appeal judge law", "flour sugar butter bake", "wave gull harbour tide", "prime theorem proof lemma"]


def text(number: int) -> str:
    """A document of one of four topics, each another."""
    words = WORDS[number % 4].split()
    return f"{words[number % 3]} {words[(number + 1) % 4]} {words[number % 4]} extra{number}"


def last(events: Iterator[Any]) -> Any:
    """What a generator returns."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Four clusters of 48 documents."""
    path = tmp_path_factory.mktemp("fit") / "sample.parquet"
    rows = sorted(({"id": Document(text(n)).id, "text": text(n)} for n in range(48)), key=lambda row: row["id"])
    with Table(path) as table:
        for row in rows:
            table.add({**row, "source": "", "group": None})
    outcome: Fitted = last(fit(path, TfidfConfig(dimension=6), ClusterConfig(num_clusters=4)))
    return outcome


def outcome(numbers: range) -> list[SourceDocument]:
    return [
        SourceDocument(Document(text(n)).id, text(n), ("train", "dev", "test")[n % 3], n % 2, None, "") for n in numbers
    ]


def placed(fitted: Fitted, numbers: range = range(60), map_share: float = 1.0) -> tuple[ClusteredDocuments, Mapped]:
    result: tuple[ClusteredDocuments, Mapped] = last(
        place(fitted.clustering, outcome(numbers), len(numbers), map_share)
    )
    return result


# placing and keeping --------------------------------------------------------------------------------


def test_documents_of_the_fit_keep_their_cluster_and_others_go_to_the_nearest(fitted: Fitted) -> None:
    documents, _ = placed(fitted)
    label_of = dict(zip(fitted.clustering.document_ids, fitted.clustering.clusters.labels_N.tolist(), strict=True))
    ids, labels = hex_of(documents.ids_N), documents.labels_N.tolist()
    assert ids == sorted(ids)
    assert {id: label for id, label in zip(ids, labels, strict=True) if id in label_of} == label_of
    assert int(documents.is_fitted_N.sum()) == 48
    for one in outcome(range(48, 60)):
        placed_separately = fitted.clustering.place([one.text])
        number = ids.index(one.id)
        assert labels[number] == placed_separately.labels_N[0]
        assert documents.squared_distances_N[number] == pytest.approx(
            placed_separately.squared_distances_NK.min(), rel=1e-6
        )
        assert (documents.split(number), documents.sources_N[number]) == (one.split, one.source)


def test_shards_together_are_complete(fitted: Fitted, tmp_path: Path) -> None:
    full, full_map = placed(fitted, map_share=0.5)
    borders = [0, 5, 5, 33, 60]
    ordered = sorted(outcome(range(60)), key=lambda one: one.id)
    parts = []
    for number, (start, end) in enumerate(pairwise(borders)):
        folder = tmp_path / str(number)
        folder.mkdir()
        documents, mapped = last(place(fitted.clustering, ordered[start:end][::-1], 10, 0.5))
        documents.save(folder)
        mapped.save(folder)
        parts.append((load_documents(folder), load_mapped(folder)))
    joined, joined_map = join(parts)
    for name in ClusteredDocuments.__dataclass_fields__:
        assert getattr(joined, name).tolist() == getattr(full, name).tolist(), name
    assert joined_map.documents_M.tolist() == full_map.documents_M.tolist()
    np.testing.assert_allclose(joined_map.vectors_MD, full_map.vectors_MD, atol=1e-6)
    assert 10 < len(full_map.documents_M) < 50


def test_vectors_of_the_map_are_those_of_its_documents(fitted: Fitted) -> None:
    documents, mapped = placed(fitted, map_share=0.5)
    texts = {one.id: one.text for one in outcome(range(60))}
    wanted = [texts[documents.id(number)] for number in mapped.documents_M.tolist()]
    np.testing.assert_allclose(mapped.vectors_MD, fitted.clustering.embedder.embed(wanted).vectors_ND, atol=1e-5)


def test_no_more_than_a_batch_is_requested_at_a_time(fitted: Fitted) -> None:
    requested = 0

    def endless() -> Iterator[SourceDocument]:
        nonlocal requested
        for one in outcome(range(2000)):
            requested += 1
            yield one

    first = next(place(fitted.clustering, endless(), 2000))
    assert first.done == requested < 500


def test_an_empty_shard_is_no_documents(fitted: Fitted) -> None:
    documents, mapped = placed(fitted, range(0))
    assert (len(documents), len(mapped.documents_M)) == (0, 0)
    assert len(join([(documents, mapped), placed(fitted)])[0]) == 60


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="cannot be read"):
        load_documents(tmp_path)


def test_documents_are_retrieved_by_eight_digits_or_more(fitted: Fitted) -> None:
    documents, _ = placed(fitted)
    assert documents.numbers([documents.id(3), documents.id(59)[:8], documents.id(0)[:12].upper()]).tolist() == [
        3,
        59,
        0,
    ]
    for wrong in ("f" * 64, documents.id(3)[:7], "court", ""):
        with pytest.raises(CorpusError, match="1 of 2 documents are not"):
            documents.numbers([documents.id(3), wrong])
    twins = replace(documents, ids_N=np.sort(as_ids(["a" * 63 + "1", "a" * 63 + "2"])))
    with pytest.raises(CorpusError, match="are not"):
        twins.numbers(["a" * 20])  # of two: neither


def test_changes_are_named(fitted: Fitted) -> None:
    documents, _ = placed(fitted)
    present = np.sort(np.concatenate([documents.ids_N[2:], as_ids(["e" * 64])]))
    changes = documents.changes(present)
    assert changes.missing == (documents.id(0), documents.id(1))
    assert changes.new == ("e" * 64,)


# by hand --------------------------------------------------------------------------------------------


def test_a_merge_moves_higher_numbers_down_and_weighs_centres_by_their_documents(fitted: Fitted) -> None:
    documents, _ = placed(fitted)
    documents.labels_N[documents.members(1)[:5]] = 3
    edited = merge_clusters(fitted, documents, [3, 1])
    assert edited.before == (0, 1, 2)
    assert edited.changed == {1}
    assert edited.documents.labels_N.tolist() == [{0: 0, 1: 1, 2: 2, 3: 1}[n] for n in documents.labels_N.tolist()]
    sizes, old = documents.sizes(4), fitted.clustering.clusters.centres_KD
    new = edited.fitted.clustering.clusters
    expected = (sizes[1] * old[1] + sizes[3] * old[3]) / (sizes[1] + sizes[3])
    np.testing.assert_allclose(new.centres_KD[1], expected, atol=1e-5)
    np.testing.assert_array_equal(new.centres_KD[[0, 2]], old[[0, 2]])
    assert sum(new.sizes) == 48
    assert len(edited.fitted.words.terms()) == 3


@pytest.mark.parametrize("numbers", [[0], [1, 1], [0, 4], [-1, 2]])
def test_a_merge_of_less_than_two_clusters_is_refused(fitted: Fitted, numbers: list[int]) -> None:
    with pytest.raises(EngineError, match="at least two of the 4"):
        merge_clusters(fitted, placed(fitted)[0], numbers)


def test_a_split_puts_new_parts_last_and_touches_no_other_cluster(fitted: Fitted) -> None:
    documents, _ = placed(fitted)
    members = documents.members(2)
    texts = {one.id: one.text for one in outcome(range(60))}
    vectors = fitted.clustering.embedder.embed([texts[documents.id(n)] for n in members.tolist()]).vectors_ND
    labels = np.arange(len(members), dtype=np.int32) % 3
    centres = np.stack([vectors[labels == part].mean(0) for part in range(3)]).astype(np.float32)
    pinned = replace(documents, is_pinned_N=documents.labels_N == 99)
    pinned.is_pinned_N[members[1]] = True
    edited = split_cluster(fitted, pinned, 2, ClusterSplit(vectors, labels, centres, centres))
    assert edited.before == (0, 1, 2, 3, None, None)
    assert edited.changed == {2, 4, 5}
    expected = np.array([2, 4, 5])[labels]
    expected[1] = 2  # a person put it there
    assert edited.documents.labels_N[members].tolist() == expected.tolist()
    others = documents.labels_N != 2
    assert edited.documents.labels_N[others].tolist() == documents.labels_N[others].tolist()
    clusters = edited.fitted.clustering.clusters
    np.testing.assert_array_equal(clusters.centres_KD[[0, 1, 3]], fitted.clustering.clusters.centres_KD[[0, 1, 3]])
    np.testing.assert_array_equal(clusters.centres_KD[[2, 4, 5]], centres)
    label_of = dict(zip(hex_of(edited.documents.ids_N), edited.documents.labels_N.tolist(), strict=True))
    assert [label_of[id] for id in fitted.clustering.document_ids] == clusters.labels_N.tolist()


def test_pinning_changes_the_clusters_that_lose_and_gain_and_no_centre(fitted: Fitted) -> None:
    documents, _ = placed(fitted)
    one, other = int(documents.members(0)[0]), int(documents.members(3)[0])
    edited = pin_documents(fitted, documents, np.array([one, other]), 3)
    assert edited.changed == {0, 3}
    assert edited.documents.labels_N[[one, other]].tolist() == [3, 3]
    assert edited.documents.is_pinned_N.sum() == 2
    assert edited.fitted is fitted
    assert pin_documents(fitted, documents, np.array([other]), 3).changed == frozenset()


def test_an_edited_clustering_is_kept_and_opened_again(fitted: Fitted, tmp_path: Path) -> None:
    from engine.clusters.artifact import load_clustering

    edited = merge_clusters(fitted, placed(fitted)[0], [0, 1])
    edited.fitted.save(tmp_path)
    loaded = load_clustering(tmp_path)
    np.testing.assert_array_equal(loaded.clusters.centres_KD, edited.fitted.clustering.clusters.centres_KD)
    assert words_of(loaded, tmp_path).terms() == edited.fitted.words.terms()
