"""The map of a clustering: colours, search, names, density, an expert in three clicks, and a table for the keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.inference.scores import score_tokens
from engine.text.blocks import EvalSample, Tokens, pack_domain
from engine.text.split import read_split
from engine.text.tokenizer import Tokenizer, train_tokenizer
from tests.engine.conftest import model_with
from tests.ui.clusterings import SOURCES, fill_clustering
from tests.ui.studio.test_studio_addresses import visit
from tests.ui.studio.test_studio_clusters import card, chart, everything, page, select, shown_documents
from tests.ui.studio.visits import named, read
from ui.present.charts.cluster_map import (
    MOST_DRAWN,
    NO_EXPERT,
    SAMPLE,
    ClusterMap,
    cluster_map,
    legend,
    map_picture,
    names_on_map,
)
from ui.present.charts.colours import Looks
from ui.studio.clusters import map_answers
from workbench.analysis.map_selections import SelectionText
from workbench.analysis.perplexity_tables import register_evaluation
from workbench.analysis.scores import document_losses, experts_with_scores
from workbench.answers.cards import ClusteringCard
from workbench.job_records import jobs
from workbench.registry import experts, seeds
from workbench.registry.clusters import cluster_documents
from workbench.registry.clusters.cluster_documents import POINT, MapPoints, search_documents
from workbench.registry.corpora import domain_row
from workbench.registry.database import reading, transaction
from workbench.registry.experts import tokens_key
from workbench.schema.base import new_id
from workbench.settings import get_settings
from workbench.store import artifacts
from workbench.store.storage import get_storage

RIGHT = "0 -99 99 -99 99 99 0 99"


@pytest.fixture
def clusters(home: Path) -> Path:
    """A home with 600 documents in four clusters and a map."""
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()))
    return home


def make_seed() -> None:
    id = new_id()
    with transaction() as session:
        storage = get_storage(get_settings())
        with storage.new(id) as folder:
            (folder / "data.txt").write_text("seed", encoding="utf-8")
        artifact = artifacts.register_artifact(session, storage, id, "seed")
        seeds.register_seed(
            session,
            name="tiny",
            source="fresh",
            family="llama",
            config={},
            num_parameters=9,
            tokenizer_sha256="ab" * 32,
            artifact=artifact,
        )


# colours --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clusters")
def test_points_have_the_colour_of_the_expert_of_their_cluster_and_grey_without_one() -> None:
    first, *rest = card().clusters
    trained = card().model_copy(update={"clusters": [first.model_copy(update={"experts": ["old", "law"]}), *rest]})
    view = cluster_map(trained, chart(), Looks(), "expert")
    assert [(layer.name, len(layer.points_P)) for layer in view.layers] == [("law", 150), (NO_EXPERT, 450)]
    assert "with 150 that trained 1 expert" in map_picture(view, "expert").description


@pytest.mark.usefixtures("clusters")
def test_losses_colour_their_documents_and_the_rest_is_grey() -> None:
    losses_N = np.full(600, np.nan, dtype=np.float32)
    losses_N[:60] = np.linspace(1, 4, 60)
    view = cluster_map(card(), chart(), Looks(), "loss", losses_N=losses_N)
    assert {layer.name: len(layer.points_P) for layer in view.layers} == {"not scored": 540, "held-out documents": 60}
    figure = map_picture(view, "loss")
    scored = figure.figure.data[1]
    order = view.layers[1].points_P["document"]
    assert np.allclose(scored.marker.color, losses_N[order])
    assert "with 60 that have a loss" in figure.description


@pytest.mark.usefixtures("clusters")
def test_a_map_without_scores_says_what_to_do() -> None:
    app = page(clusters__by="loss")
    assert "No expert is scored on the held-out text of these domains." in everything(app)
    assert "no document on it is scored" in everything(app)


def score_source(name: str, block_size: int = 16) -> tuple[str, Any, EvalSample]:
    """Real scores of an untrained expert on the test split of a source; gives the tokens that were scored."""
    tokenizer: Tokenizer = train_tokenizer([" ".join(["amber", "birch", "cedar", "delta", "0123456789:."]) * 50], 300)
    storage, model = get_storage(get_settings()), model_with(["law"])
    with transaction() as session:
        domain = domain_row(session, name)
        ids = [new_id() for _ in range(3)]
        with storage.new(ids[0]) as folder:
            list(pack_domain(storage.path(domain.artifact_id) / domain.folder, tokenizer, folder))
        key = tokens_key(domain.id, tokenizer.sha256)
        artifacts.register_artifact(session, storage, ids[0], "tokens", key=key)
        text = EvalSample.of(Tokens.open(storage.path(ids[0]), "test"), block_size)
        with storage.new(ids[1]) as folder:
            list(score_tokens(model, "law", text, folder))
        scores = artifacts.register_artifact(session, storage, ids[1], "scores")
        with storage.new(ids[2]) as folder:
            (folder / "data.txt").write_text("expert", encoding="utf-8")
        artifact = artifacts.register_artifact(session, storage, ids[2], "expert")
        experts.register_expert(
            session,
            id=ids[2],
            name="law",
            method="demix",
            domain_id=domain.id,
            seed_id=None,
            parent_id=None,
            base=artifact,
            artifact=artifact,
            tokenizer_sha256=tokenizer.sha256,
            data_sha256=domain.data_sha256,
            num_parameters=1,
            config={},
            metrics={},
            code_version="0",
            job_id=None,
        )
        register_evaluation(
            session,
            expert_id=ids[2],
            domain_id=domain.id,
            split="test",
            block_size=block_size,
            num_tokens=text.num_tokens,
            log_likelihood=-1.0,
            num_correct=0,
            artifact=scores,
            job_id=None,
        )
        return ids[1], domain.id, text


@pytest.mark.usefixtures("clusters")
def test_the_loss_of_a_document_is_the_mean_over_its_scored_tokens() -> None:
    scores_id, _, text = score_source("letters")
    storage = get_storage(get_settings())
    with reading() as session:
        assert experts_with_scores(session, list(SOURCES)) == ["law"]
        losses = document_losses(session, storage, "topics", "law")
        row = domain_row(session, "letters")
        documents = list(read_split(storage.path(row.artifact_id) / row.folder, "test"))
        index = [
            cluster_documents.get_document(session, storage, "topics", document["id"]).id for document in documents
        ]
    assert np.isfinite(losses).sum() == len(documents)
    assert index == [document["id"] for document in documents]
    app = page(clusters__by="loss")
    until_scored(app)
    assert not app.exception
    assert f"{len(documents)} of 600 documents have a loss" in everything(app)
    logprobs = np.load(storage.path(scores_id) / "logprobs.npy")
    # The second document by hand: the tokens between its start and the next one's.
    first, end = text.tokens.starts[1], text.tokens.starts[2]
    place = int(np.flatnonzero(_numbers(documents[1]["id"]))[0])
    assert losses[place] == pytest.approx(-float(logprobs[first - 1 : end - 1].mean()), rel=1e-5)


def until_scored(app: Any) -> None:
    for _ in range(50):
        if "have a loss: only" in everything(app):
            return
        app.run()


def _numbers(id: str) -> Any:
    from engine.clusters.documents import as_ids, load_documents
    from workbench.registry.clusters.clusterings import clustering_files

    with reading() as session:
        files = clustering_files(session, get_storage(get_settings()), "topics")
    return load_documents(files.kept.folder).ids_N == as_ids([id])[0]


@pytest.mark.usefixtures("clusters")
def test_a_map_by_loss_names_clusters_with_their_mean() -> None:
    losses_N = np.full(600, np.nan, dtype=np.float32)
    first = np.frombuffer(chart().points, dtype=POINT)[0]
    losses_N[first["document"]] = 2.5
    view = cluster_map(card(), chart(), Looks(), "loss", losses_N=losses_N)
    texts = [one.text for one in map_picture(view, "loss", has_names=True).figure.layout.annotations]
    assert sum(text.endswith(" 2.50") for text in texts) == 1
    assert len(texts) == 4


@pytest.mark.usefixtures("clusters")
def test_the_map_is_coloured_by_loss_first_where_there_are_losses() -> None:
    assert named(page().segmented_control, "Coloured by").value == "cluster"
    score_source("letters")
    assert named(page().segmented_control, "Coloured by").value == "loss"


# what a selection answers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("clusters")
def test_a_lasso_answers_with_words_passages_domains_and_who_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    score_source("letters")
    text = SelectionText(60, ["amber"], ["amber birch"])  # the clustering of this home has no embedder
    monkeypatch.setattr(map_answers, "describe_selection", lambda *_: text)
    select(monkeypatch, areas=["-99 -99 99 -99 99 99 -99 99"])
    app = page()
    until_says(app, "Who reads it now, and how well")
    until_says(app, "Strongest words of 60 documents: amber")
    assert "“amber birch”" in everything(app)
    assert not app.exception
    assert "From letters" in everything(app)
    table = next(one.value for one in app.dataframe if "95 % interval" in one.value)
    assert table["expert"].tolist() == ["law"]


def until_says(app: Any, words: str) -> None:
    for _ in range(50):
        if words in everything(app):
            return
        app.run()
    raise AssertionError(everything(app))


@pytest.mark.usefixtures("clusters")
def test_a_lasso_around_documents_that_no_expert_was_scored_on_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, areas=[RIGHT])
    app = page()
    until_says(app, "No two of these documents were scored by an expert")


# search ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clusters")
def test_a_search_finds_all_documents_with_all_words_in_any_case() -> None:
    with reading() as session:
        storage = get_storage(get_settings())
        matches = search_documents(session, storage, "topics", ["AMBER", "birch"])
        texts = [cluster_documents.get_document(session, storage, "topics", int(number)).text for number in range(600)]
    expected = [number for number, text in enumerate(texts) if "amber" in text and "birch" in text]
    assert matches.numbers.tolist() == expected
    assert 0 < len(matches.passages) <= cluster_documents.PASSAGES
    assert all("amber" in passage for passage in matches.passages.values())


@pytest.mark.usefixtures("clusters")
def test_the_largest_group_is_named_with_its_share() -> None:
    view = cluster_map(card(), chart(), Looks())
    largest = max(view.layers, key=lambda layer: len(layer.points_P))
    words = map_picture(view, "cluster").description
    assert f"the largest is {largest.name} with {len(largest.points_P) / 600:.0%} of them" in words


@pytest.mark.usefixtures("clusters")
def test_matches_are_pointed_out_over_dimmed_points_and_lead_to_their_documents() -> None:
    view = cluster_map(card(), chart(), Looks(), matching=np.array([3, 5, 9]))
    assert view.matches is not None
    assert sorted(view.matches.points_P["document"].tolist()) == [3, 5, 9]
    assert view.document(4, 0) in {3, 5, 9}
    data = map_picture(view, "cluster").figure.data
    assert data[4].marker.opacity > 0.9 > data[0].marker.opacity * 4
    assert "matches 3" in legend(view)
    assert view.num_inside(["-99 -99 99 -99 99 99 -99 99"]) == 600


@pytest.mark.usefixtures("clusters")
def test_the_page_lists_matches_and_a_click_opens_the_text() -> None:
    app = visit("clusters", {"clusters.find": "amber birch"})
    until_done(app)
    listed = named(app.radio, "Matches")
    listed.set_value(read(first_match)).run()
    (document,) = shown_documents(app)
    assert "amber" in document
    assert "birch" in document
    assert "Clusters with such words: " in everything(app)


def first_match(session: Any) -> int:
    return next(iter(search_documents(session, get_storage(get_settings()), "topics", ["amber", "birch"]).passages))


def until_done(app: Any) -> None:
    for _ in range(50):
        if any(one.label == "Matches" for one in app.radio):
            return
        app.run()


@pytest.mark.usefixtures("clusters")
def test_a_search_without_matches_says_so() -> None:
    with reading() as session:
        matches = search_documents(session, get_storage(get_settings()), "topics", ["nowhere"])
    assert (len(matches.numbers), matches.passages) == (0, {})
    view = cluster_map(card(), chart(), Looks(), matching=matches.numbers)
    assert len(map_picture(view, "cluster").figure.data) == 5


# names on the map -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("clusters")
def test_clusters_are_named_at_their_medians() -> None:
    view = cluster_map(card(), chart(), Looks())
    names = dict(names_on_map(view))
    assert set(names) == {cluster.name for cluster in card().clusters}
    own = view.layers[2].points_P
    assert names[card().clusters[2].name] == (float(np.median(own["x"])), float(np.median(own["y"])))
    assert len(map_picture(view, "cluster", has_names=True).figure.layout.annotations) == 4
    assert not map_picture(view, "cluster").figure.layout.annotations


@pytest.mark.usefixtures("clusters")
def test_a_name_that_would_cover_a_larger_clusters_name_is_left_out() -> None:
    points = np.frombuffer(chart().points, dtype=POINT).copy()
    points["x"][points["cluster"] == 1] = points["x"][points["cluster"] == 0]
    points["y"][points["cluster"] == 1] = points["y"][points["cluster"] == 0]
    smaller = np.delete(points, np.flatnonzero(points["cluster"] == 1)[:50])
    view = cluster_map(card(), MapPoints(len(smaller), 10, 0, smaller.tobytes()), Looks())
    names = [name for name, _ in names_on_map(view)]
    assert card().clusters[0].name in names
    assert card().clusters[1].name not in names


@pytest.mark.usefixtures("clusters")
def test_a_few_outliers_do_not_set_the_limits_and_are_counted() -> None:
    points = np.frombuffer(chart().points, dtype=POINT).copy()
    usual = cluster_map(card(), MapPoints(600, 10, 0, points.tobytes()), Looks())
    assert usual.num_outside == 0
    assert map_picture(usual, "cluster").figure.layout.xaxis.range is None
    points["x"][:2] += 1e4
    view = cluster_map(card(), MapPoints(600, 10, 0, points.tobytes()), Looks())
    picture = map_picture(view, "cluster")
    assert picture.figure.layout.xaxis.range[1] < 1e3
    assert "2 documents lie outside the limits" in picture.description


# density --------------------------------------------------------------------------------------------


def many(number: int) -> tuple[ClusteringCard, ClusterMap, Any]:
    draw = np.random.default_rng(0)
    points = np.empty(number, dtype=POINT)
    points["document"], points["cluster"], points["source"] = np.arange(number), np.arange(number) % 4, 0
    points["x"], points["y"] = draw.normal(0, 4, (2, number))
    known = card()
    return known, cluster_map(known, MapPoints(number, 100, 0, points.tobytes()), Looks()), points


@pytest.mark.usefixtures("clusters")
def test_above_two_hundred_thousand_points_a_sample_lies_over_the_density_and_an_area_takes_all() -> None:
    number = MOST_DRAWN + 100_000
    _, view, points = many(number)
    assert view.is_dense
    assert view.num_points == number
    assert SAMPLE <= sum(len(layer.drawn) for layer in view.layers) <= SAMPLE + 4
    assert view.num_inside([RIGHT]) == int((points["x"] > 0).sum())
    document = view.document(2, 17)
    assert document is not None
    assert points["x"][document] == view.layers[2].drawn["x"][17]
    figure = map_picture(view, "cluster").figure
    assert figure.data[-1].type == "heatmap"
    assert float(np.nansum(np.expm1(figure.data[-1].z))) == pytest.approx(number, rel=1e-4)
    assert len(figure.to_json()) < 1_300_000


@pytest.mark.usefixtures("clusters")
def test_two_hundred_thousand_points_are_all_drawn() -> None:
    _, view, _ = many(MOST_DRAWN)
    assert not view.is_dense
    assert [one.type for one in map_picture(view, "cluster").figure.data] == ["scattergl"] * 4


@pytest.mark.usefixtures("clusters")
def test_lines_of_density_lie_over_the_points_and_a_click_still_finds_its_document() -> None:
    view = cluster_map(card(), chart(), Looks())
    *points, lines = map_picture(view, "cluster", has_density=True).figure.data
    assert [one.type for one in points] == ["scattergl"] * 4
    assert (lines.type, lines.hoverinfo) == ("contour", "skip")


# an expert of an area, and the table ----------------------------------------------------------------


@pytest.mark.usefixtures("clusters")
def test_two_clicks_after_the_lasso_start_a_domain_and_an_expert_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make_seed()
    select(monkeypatch, areas=[RIGHT])
    app = page()
    named(app.button, "Train an expert on it").click().run()
    named(app.button, "Start both").click().run()
    assert not app.exception
    scoring, expert, domain = read(jobs.list_jobs)
    assert (domain.kind, domain.spec["areas"]) == ("make-domain", [RIGHT])
    assert expert.kind == "train-joint"
    assert expert.spec["domains"] == [domain.spec["name"]]
    assert (expert.after, scoring.after) == ([domain.id], [expert.id])
    assert "0 of 3 jobs done" in "".join(one.proto.text for one in app.get("progress"))


@pytest.mark.usefixtures("clusters")
def test_without_a_seed_model_only_the_page_that_makes_one_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, areas=[RIGHT])
    app = page()
    named(app.button, "Train an expert on it").click().run()
    assert "There is no seed model yet" in everything(app)
    assert not any(one.label == "Start both" for one in app.button)


@pytest.mark.usefixtures("clusters")
def test_neither_job_is_submitted_when_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make_seed()
    select(monkeypatch, areas=[RIGHT])
    app = page()
    app.text_input(key="make-domain.name").set_value("letters").run()  # which is taken
    named(app.button, "Train an expert on it").click().run()
    named(app.button, "Start both").click().run()
    assert any("letters" in one.value for one in app.error)
    assert read(jobs.list_jobs) == []


@pytest.mark.usefixtures("clusters")
def test_ticked_clusters_do_what_the_lasso_does() -> None:
    app = page()
    chosen = [card().clusters[1], card().clusters[3]]
    for one in chosen:
        named(app.checkbox, f"{one.name}: ").check().run()
    assert f"{sum(one.num_documents for one in chosen)} documents in 2 clusters" in everything(app)
    named(app.button, "Make a domain of these 300").click().run()
    [job] = read(jobs.list_jobs)
    assert (job.spec["areas"], job.spec["clusters"]) == ([], [one.name for one in chosen])
