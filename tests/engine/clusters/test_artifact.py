"""A clustering on disk: whole, movable, and honest about a corpus that changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from engine.clusters.artifact import FittedClustering, load_clustering
from engine.clusters.centroids import Clusters, squared_distances
from engine.clusters.config import ClusterConfig, ClusterMethod, TfidfConfig
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf
from engine.clusters.kmeans import find_clusters
from engine.errors import DamagedFileError, EngineError
from engine.text.corpus import Document

LAW = ["The court held the appeal.", "The plaintiff lost the appeal in court.", "A court heard the plaintiff."]
CAKE = ["Bake the cake with sugar.", "Whisk sugar and eggs, bake.", "Sugar, eggs and butter make a cake."]
TEXTS = [*LAW, *CAKE]


def clustering_of(method: ClusterMethod = "balanced", texts: list[str] = TEXTS) -> FittedClustering:
    *_, embedder = fit_tfidf(texts, TfidfConfig(dimension=3, scaling="unit_rows"))
    assert isinstance(embedder, TfidfEmbedder)
    *_, clusters = find_clusters(embedder.embed(texts).vectors_ND, ClusterConfig(method, 2))
    assert isinstance(clusters, Clusters)
    return FittedClustering(clusters, embedder, tuple(Document(text).id for text in texts))


@pytest.mark.parametrize("method", get_args(ClusterMethod))
def test_a_clustering_that_was_moved_places_documents_as_before(method: ClusterMethod, tmp_path: Path) -> None:  # L16
    clustering = clustering_of(method)
    (tmp_path / "one").mkdir()
    clustering.save(tmp_path / "one")
    shutil.move(tmp_path / "one", tmp_path / "two")
    loaded = load_clustering(tmp_path / "two")
    new = [*TEXTS, "An appeal on sugar.", ""]
    before, after = clustering.place(new), loaded.place(new)
    np.testing.assert_array_equal(before.labels_N, after.labels_N)
    np.testing.assert_array_equal(before.squared_distances_NK, after.squared_distances_NK)
    assert loaded.document_ids == clustering.document_ids
    assert loaded.clusters.costs == clustering.clusters.costs
    assert loaded.clusters.sizes == clustering.clusters.sizes


def test_a_new_document_goes_to_the_nearest_centre_however_full_its_cluster_is() -> None:
    clustering = clustering_of()
    law = clustering.clusters.labels_N[0]
    placed = clustering.place(["The court dismissed the appeal of the plaintiff."] * 5 + ["Eggs and sugar."])
    assert placed.labels_N.tolist() == [law] * 5 + [1 - law]
    np.testing.assert_array_equal(placed.squared_distances_NK.argmin(1), placed.labels_N)
    centres = clustering.clusters.centres_KD.astype(np.float64)
    vectors = clustering.embedder.embed(["Eggs and sugar."]).vectors_ND
    np.testing.assert_allclose(placed.squared_distances_NK[5], np.square(vectors - centres).sum(1), atol=1e-9)


def test_where_documents_go_does_not_depend_on_the_shard() -> None:
    clustering = clustering_of("random")
    together = clustering.place(TEXTS).labels_N
    assert together.tolist() == [clustering.place([text]).labels_N[0] for text in TEXTS]


def test_documents_without_a_known_word_are_placed_and_counted() -> None:
    placed = clustering_of().place(["zyzzyva", TEXTS[0]])
    assert placed.is_blank_N.tolist() == [True, False]
    assert np.isfinite(placed.squared_distances_NK).all()


def test_every_document_must_have_an_id() -> None:
    clustering = clustering_of()
    with pytest.raises(EngineError, match="5 ids for 6 documents"):
        FittedClustering(clustering.clusters, clustering.embedder, clustering.document_ids[1:])


@pytest.mark.parametrize("name", ["clustering.json", "clustering.safetensors", "embedder/words.json"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_clustering_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    clustering_of().save(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if damage == "cut":
        (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedFileError, match="Cluster again"):
        load_clustering(tmp_path)


def test_the_embedder_of_another_clustering_is_refused(tmp_path: Path) -> None:
    for name, texts in [("one", TEXTS), ("two", TEXTS[:5])]:
        (tmp_path / name).mkdir()
        clustering_of(texts=texts).save(tmp_path / name)
    shutil.rmtree(tmp_path / "one" / "embedder")
    shutil.copytree(tmp_path / "two" / "embedder", tmp_path / "one" / "embedder")
    with pytest.raises(DamagedFileError, match="not the one that its clusters were fitted with"):
        load_clustering(tmp_path / "one")


def test_the_card_is_plain_json(tmp_path: Path) -> None:
    clustering_of().save(tmp_path)
    card = json.loads((tmp_path / "clustering.json").read_text())
    assert card["method"] == "balanced"
    assert sorted(file.suffix for file in tmp_path.rglob("*") if file.is_file()) == [".json"] * 3 + [".safetensors"] * 2


def test_distances_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(0)
    vectors, centres = generator.normal(size=(20, 5)), generator.normal(size=(4, 5))
    expected = np.square(vectors[:, None] - centres).sum(2)
    np.testing.assert_allclose(squared_distances(vectors, centres), expected, atol=1e-12)
    assert squared_distances(vectors, vectors).min() == 0
