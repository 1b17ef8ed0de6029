"""The Clusters page: a map to click and to draw on, lists, forms that submit the jobs they name."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from engine.mixing.gates.cluster import ClusterGateConfig
from tests.ui.clusterings import SOURCES, fill_clustering
from tests.ui.studio.conftest import HOSTILE
from tests.ui.studio.visits import answer_as, named, open_page, output, read, settled
from ui.client import Client
from ui.present.charts.cluster_charts import overlap_picture, sizes_picture
from ui.present.charts.cluster_map import cluster_map, legend, map_picture
from ui.present.charts.colours import Looks
from ui.present.charts.setting_grids import describe_grid, grid_picture
from ui.studio.clusters import cluster_map_view
from ui.widgets import charts_and_tables, notices
from workbench.answers.cards import ClusteringCard, JobCard
from workbench.job_records import jobs
from workbench.questions.cluster_grid import ClusterGrid, TemperatureProposal
from workbench.registry import experts, mixtures, seeds
from workbench.registry.clusters.cluster_documents import POINT, MapPoints, map_points
from workbench.registry.clusters.cluster_routing import set_domains
from workbench.registry.clusters.clusterings import clustering_row, get_clustering
from workbench.registry.corpora import domain_row
from workbench.registry.database import reading, transaction
from workbench.schema.base import new_id
from workbench.schema.tables import Corpus, Domain
from workbench.settings import get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts
from workbench.store.storage import get_storage

EVERYWHERE = "-99 -99 99 -99 99 99 -99 99"


@pytest.fixture
def topics(home: Path) -> Path:
    """A home with 600 documents in four clusters, a map and a seed model."""
    storage = get_storage(get_settings())
    with transaction() as session:
        fill_clustering(session, storage)
        id = new_id()
        with storage.new(id) as folder:
            (folder / "data.txt").write_text("seed", encoding="utf-8")
        seeds.register_seed(
            session,
            name="tiny",
            source="fresh",
            family="llama",
            config={},
            num_parameters=9,
            tokenizer_sha256="ab" * 32,
            artifact=artifacts.register_artifact(session, storage, id, "seed"),
        )
    return home


def page(view: str = "Map", **state: Any) -> AppTest:
    return open_page("clusters", **{"clusters__view": view, **state})


def card() -> ClusteringCard:
    with reading() as session:
        return get_clustering(session, "topics")


def chart() -> MapPoints:
    with reading() as session:
        return map_points(session, get_storage(get_settings()), "topics")


def last_job() -> JobCard:
    result = read(jobs.list_jobs)
    assert len(result) == 1
    return result[0]


def everything(app: AppTest) -> str:
    return output(app) + "\n".join(one.value for one in (*app.text, *app.info)).replace("\\", "")


def select(monkeypatch: pytest.MonkeyPatch, *, areas: list[str] | None = None, point: Any = None) -> None:
    """What a mouse would do: AppTest has none."""
    monkeypatch.setattr(cluster_map_view, "areas", lambda _key: areas or [])
    monkeypatch.setattr(cluster_map_view, "click_target", lambda _key: point)


# the map --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_the_map_says_what_shaped_it_and_what_to_read() -> None:
    app = page()
    assert not app.exception
    assert "UMAP shaped the map by 200 documents (seed 0) and put the other 400 in between" in everything(app)
    assert "the distance between two groups" in everything(app)
    assert "600 documents of letters, <i>papers</i>, speeches in 4 clusters, by balanced k-means" in everything(app)


@pytest.mark.usefixtures("topics")
def test_a_point_costs_eight_bytes_and_no_text() -> None:
    figure = json.loads(map_picture(cluster_map(card(), chart(), Looks()), "cluster").figure.to_json())
    sent = [trace[axis] for trace in figure["data"] for axis in "xy"]
    assert {one["dtype"] for one in sent} == {"f4"}
    assert sum(len(base64.b64decode(one["bdata"])) for one in sent) == 8 * 600
    assert not any(key in trace for trace in figure["data"] for key in ("text", "customdata", "hovertemplate"))
    assert {trace["type"] for trace in figure["data"]} == {"scattergl"}


@pytest.mark.usefixtures("topics")
def test_every_point_leads_back_to_its_document_by_either_colour() -> None:
    points = np.frombuffer(chart().points, dtype=POINT)
    by_document = {int(point["document"]): point for point in points}
    for by in ("cluster", "domain"):
        result = cluster_map(card(), chart(), Looks(), by)  # type: ignore[arg-type]
        assert result.num_points == 600
        for layer, part in enumerate(result.layers):
            number = result.document(layer, 5)
            assert number is not None
            assert by_document[number]["x"] == part.points_P["x"][5]
        names = [c.name for c in card().clusters] if by == "cluster" else list(SOURCES)
        assert [layer.name for layer in result.layers] == names
    assert cluster_map(card(), chart(), Looks()).document(9, 0) is None


@pytest.mark.usefixtures("topics")
def test_what_is_not_shown_is_in_no_area() -> None:
    name = card().clusters[2].name
    result = cluster_map(card(), chart(), Looks(), "cluster", [name])
    assert [layer.name for layer in result.layers] == [name]
    assert result.num_inside([EVERYWHERE]) == result.num_points == 150
    assert cluster_map(card(), chart(), Looks()).num_inside([EVERYWHERE]) == 600


@pytest.mark.usefixtures("topics")
def test_names_are_no_markup_in_the_legend() -> None:
    html = legend(cluster_map(card(), chart(), Looks(), "domain"))
    assert "&lt;i&gt;papers" in html
    assert "<i>" not in html


@pytest.mark.usefixtures("topics")
def test_a_click_reads_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, point=(3, 0))
    app = page()
    assert not app.exception
    assert f"Strongest words: {card().clusters[3].terms[0]}" in everything(app)
    (document,) = shown_documents(app)
    assert ">3 " in document  # the documents of cluster 3 begin so


def shown_documents(app: AppTest) -> list[str]:
    """The boxes that hold a document's text."""
    return [one.proto.body for one in app.get("html") if "Text of the document" in one.proto.body]


@pytest.mark.usefixtures("topics")
def test_a_document_is_pinned_elsewhere_by_a_click(monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, point=(3, 0))
    app = page()
    named(app.button, "Move").click().run()
    job = last_job()
    assert (job.kind, job.spec["cluster"]) == ("pin-documents", card().clusters[0].name)
    result = cluster_map(card(), chart(), Looks()).document(3, 0)
    assert result is not None
    assert len(job.spec["documents"][0]) == 64


@pytest.mark.usefixtures("topics")
def test_an_area_becomes_a_domain_and_the_count_is_that_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    half = "0 -99 99 -99 99 99 0 99"
    select(monkeypatch, areas=[half])
    app = page()
    number = int((np.frombuffer(chart().points, dtype=POINT)["x"] > 0).sum())
    assert f"{number} documents in the area" in everything(app)
    app.text_input(key="make-domain.name").set_value("right half").run()
    named(app.button, f"Make a domain of these {number}").click().run()
    assert not app.exception
    job = last_job()
    assert (job.kind, job.spec["name"], job.spec["areas"]) == ("make-domain", "right half", [half])
    assert "Make domain right half" in everything(app)


@pytest.mark.usefixtures("topics")
def test_a_domain_without_a_name_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, areas=[EVERYWHERE])
    app = page()
    app.text_input(key="make-domain.name").set_value("").run()
    named(app.button, "Make a domain of these 600").click().run()
    assert "a name must have 1 to 80 characters" in everything(app)
    assert read(jobs.list_jobs) == []


@pytest.mark.usefixtures("topics")
def test_an_area_around_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, areas=["900 900 901 900 901 901"])
    assert "No document lies in this area" in everything(page())


@pytest.mark.usefixtures("home")
def test_a_clustering_without_a_map_says_how_to_get_one() -> None:
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()), with_map=False)
    assert "This clustering has no map." in everything(page())


def test_a_second_click_on_a_point_is_a_click_on_it_though_it_is_selected_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state: dict[str, Any] = {"m_chart": {"selection": {"points": []}}}
    monkeypatch.setattr(charts_and_tables.st, "session_state", state)
    assert charts_and_tables.click_position("m") is None
    state["m_chart"]["selection"]["points"] = [{"x": 1.0, "y": 2.0}]
    assert charts_and_tables.click_position("m") == (1, 2)
    state["m_chart"]["selection"]["points"] = []
    assert charts_and_tables.click_position("m") == (1, 2)
    assert charts_and_tables.click_position("m") is None  # what is taken away twice was of another picture
    assert list(state) == ["m_chart"]


def test_lassos_and_boxes_are_areas_and_a_click_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    point = {"curve_number": 2, "point_index": 7, "x": 1.0, "y": 2.0}
    state: dict[str, Any] = {"m_chart": {"selection": {"points": [point], "lasso": [], "box": []}}}
    monkeypatch.setattr(charts_and_tables.st, "session_state", state)
    assert (charts_and_tables.click_target("m"), charts_and_tables.areas("m")) == ((2, 7), [])
    state["m_chart"]["selection"]["lasso"] = [{"x": [0, 1, 1], "y": [0, 0, 2]}]
    state["m_chart"]["selection"]["box"] = [{"x": [0, 5], "y": [1, 3]}]
    assert charts_and_tables.click_target("m") is None
    assert charts_and_tables.areas("m") == [
        "0.0000 0.0000 1.0000 0.0000 1.0000 2.0000",
        "0.0000 1.0000 5.0000 1.0000 5.0000 3.0000 0.0000 3.0000",
    ]
    assert charts_and_tables.areas("other") == []


# lists ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_pictures_describe_sizes_and_overlap_in_words() -> None:
    assert "The largest is" in sizes_picture(card(), Looks()).description
    picture = overlap_picture(card(), Looks())
    shares = np.array(picture.figure.data[0].z)
    assert shares.sum(1).tolist() == pytest.approx([1.0] * 3)
    assert "Normalised mutual information" in picture.description
    assert "<i>" not in picture.figure.to_json()


@pytest.mark.usefixtures("topics")
def test_a_cluster_is_named_and_noted() -> None:
    app = page("Words & documents")
    first = card().clusters[0]
    assert f"Strongest words: {', '.join(first.terms)}." in everything(app)
    app.text_input(key=f"clusters.name.{first.id}").set_value(HOSTILE).run()
    app.text_input(key=f"clusters.notes.{first.id}").set_value("the law").run()
    named(app.button, "Save").click().run()
    assert not app.exception
    assert (card().clusters[0].name, card().clusters[0].notes) == (HOSTILE, "the law")


@pytest.mark.usefixtures("topics")
def test_a_name_goes_to_the_cluster_on_the_page_though_an_edit_gives_its_number_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def after_an_edit() -> Any:
        with transaction() as session:
            first, second, *_ = clustering_row(session, "topics").clusters
            for row, number in ((first, -1), (second, 0), (first, 1)):  # numbers are unique
                row.number = number
                session.flush()
        return transaction()

    app = page("Words & documents")
    first, second = card().clusters[:2]
    app.text_input(key=f"clusters.name.{first.id}").set_value("mine").run()
    monkeypatch.setattr(notices, "transaction", after_an_edit)
    named(app.button, "Save").click().run()
    assert {cluster.id: cluster.name for cluster in card().clusters[:2]} == {first.id: "mine", second.id: second.name}


@pytest.mark.usefixtures("topics")
def test_a_name_that_another_has_is_refused_and_nothing_is_renamed() -> None:
    app = page("Words & documents")
    first, second = card().clusters[:2]
    app.text_input(key=f"clusters.name.{first.id}").set_value(second.name).run()
    app.text_input(key=f"clusters.notes.{first.id}").set_value("kept?").run()
    named(app.button, "Save").click().run()
    assert "is already called" in everything(app)
    assert (card().clusters[0].name, card().clusters[0].notes) == (first.name, "")


@pytest.mark.usefixtures("topics")
def test_changes_of_the_text_are_counted_on_request() -> None:
    app = page("Text since then")
    assert "Nothing changed" not in everything(app)
    settled(named(app.button, "Compare").click().run())
    assert "Nothing changed: the domains hold exactly" in everything(app)


# forms ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_the_forms_ask_for_merges_and_splits_of_this_clustering() -> None:
    app = page("Change")
    names = [cluster.name for cluster in card().clusters]
    app.multiselect(key="merge-clusters.clusters").set_value(names[:2]).run()
    named(app.button, "Merge").click().run()
    job = last_job()
    assert (job.kind, job.spec["clustering"], job.spec["clusters"]) == ("merge-clusters", "topics", names[:2])
    assert any("workbench cluster merge topics --clusters" in one.value for one in app.code)


@pytest.mark.usefixtures("topics")
def test_deleting_is_refused_in_words_while_something_needs_it() -> None:
    app = page("Change")
    app.multiselect(key="merge-clusters.clusters").set_value([c.name for c in card().clusters[:2]]).run()
    named(app.button, "Merge").click().run()
    named(app.button, "Delete for good").click().run()
    assert "needs it" in everything(app) or "job" in "".join(one.value for one in app.error)
    assert card()


@pytest.mark.usefixtures("topics")
def test_the_form_has_only_what_is_not_implied_and_submits_the_plan() -> None:
    app = open_page("clusters", clusters__part="Find clusters")
    assert not [one for one in app.number_input if one.key == "find-clusters.max_tokens"]
    assert not [one for one in app.selectbox if one.key == "find-clusters.seed_model"]
    app.text_input(key="find-clusters.name").set_value("parts").run()
    app.number_input(key="find-clusters.shard_size").set_value(250).run()
    named(app.button, "Find clusters").click().run()
    assert not app.exception
    result = read(jobs.list_jobs)
    assert sorted(one.kind for one in result) == ["cluster-part"] * 4 + ["find-clusters"]
    assert "0 of 5 jobs done" in "\n".join(one.proto.text for one in app.get("progress"))
    app.selectbox(key="find-clusters.embedder").select("hidden_states").run()
    assert [one for one in app.selectbox if one.key == "find-clusters.seed_model"]


@pytest.mark.usefixtures("topics")
def test_a_taken_name_is_reported_immediately() -> None:
    app = open_page("clusters", clusters__part="Find clusters")
    app.text_input(key="find-clusters.name").set_value("topics").run()
    named(app.button, "Find clusters").click().run()
    assert "topics" in "".join(one.value for one in app.error)
    assert read(jobs.list_jobs) == []


@pytest.mark.usefixtures("topics")
def test_one_button_submits_a_model_on_each_cluster() -> None:
    app = page("Train on them")
    app.text_input(key="train-clusters.name").set_value("elms").run()
    app.number_input(key="train-clusters.training.num_steps").set_value(40).run()
    named(app.button, "Train a model on each").click().run()
    assert not app.exception
    kinds = sorted(one.kind for one in read(jobs.list_jobs))
    assert kinds == ["evaluate", "make-cluster-domains", "make-mixture", *["train-joint"] * 4]
    assert "workbench train clusters topics elms" in "\n".join(one.value for one in app.code)


@pytest.mark.usefixtures("topics")
def test_stale_experts_are_named_and_their_training_is_filled_in() -> None:
    _trained("elms", num_steps=10)
    with transaction() as session:
        clustering_row(session, "topics").clusters[1].stale = True
    app = page("Train on them")
    assert "1 expert of changed clusters, so its documents have changed: elms/1/dense." in everything(app)
    named(app.button, "Fill in what elms was trained with").click().run()
    assert not app.exception
    assert app.text_input(key="train-clusters.name").value == "elms"
    assert app.number_input(key="train-clusters.training.num_steps").value == 40
    assert app.number_input(key="train-clusters.training.learning_rate").value == pytest.approx(2e-3)


def _trained(name: str, num_steps: int) -> None:
    """A domain and an expert for each cluster, as the jobs would leave them."""
    storage = get_storage(get_settings())
    with transaction() as session:
        row = clustering_row(session, "topics")
        like = domain_row(session, "letters")
        corpus = Corpus(name="topics", source="clusters", clustering_id=row.id)
        made = {}
        for number in range(4):
            domain = Domain(
                corpus=corpus,
                name=f"topics/{number}",
                num_documents=1,
                num_words=1,
                num_bytes=1,
                data_sha256="cd" * 32,
                artifact_id=like.artifact_id,
                folder="0",
            )
            session.add(domain)
            session.flush()
            made[number] = domain.id
        set_domains(session, row, made)
        id = new_id()
        with storage.new(id) as folder:
            (folder / "data.txt").write_text("base", encoding="utf-8")
        base = artifacts.register_artifact(session, storage, id, "base")
        for number, domain_id in made.items():
            own = new_id()
            with storage.new(own) as folder:
                (folder / "data.txt").write_text("expert", encoding="utf-8")
            experts.register_expert(
                session,
                id=own,
                name=f"{name}/{number}/dense",
                method="dense",
                domain_id=domain_id,
                seed_id=seeds.list_seeds(session)[0].id,
                parent_id=None,
                base=base,
                artifact=artifacts.register_artifact(session, storage, own, "expert"),
                tokenizer_sha256="ab" * 32,
                data_sha256="cd" * 32,
                num_parameters=9,
                metrics={},
                config={"training": {"num_steps": num_steps, "learning_rate": 2e-3}},
            )
        mixtures.create_mixture(session, MixtureSpec(name=name, experts=[f"{name}/{n}/dense" for n in made]))


# the grid -------------------------------------------------------------------------------------------


def grid(perplexity: list[list[float]]) -> ClusterGrid:
    answer = {
        "mixture": "elms",
        "experts": ["a", "b", "c", "d"],
        "split": "test",
        "temperatures": [0.05, 0.1, 1.0],
        "top_ks": [1, 2, 4],
        "perplexity": perplexity,
        "saved": {"temperature": 1.0, "top_k": 2},
        "distance_power": 2.0,
        "seconds": 0.03,
        "domains": [{"domain": "topics/0", "num_tokens": 9, "perplexity": perplexity}],
    }
    return ClusterGrid.model_validate(answer)


INNER = [[9.0, 8.5, 8.4], [9.0, 8.0, 7.9], [9.0, 8.2, 8.3]]


def test_the_grid_marks_the_best_cell_the_papers_temperature_and_what_is_saved() -> None:
    result = grid(INNER)
    picture = grid_picture(result, INNER)
    solid, dotted = picture.figure.layout.shapes
    assert (solid.x0 + 0.47, solid.y0 + 0.47) == (2, 1)
    assert (dotted.x0 + 0.47, dotted.y0 + 0.47, dotted.line.dash) == (1, 2, "dot")
    assert list(picture.figure.layout.yaxis.ticktext) == ["0.05", "0.1 (paper)", "1"]
    assert "lies between the ends" in picture.title
    assert describe_grid(result, INNER) == (
        "Lowest at temperature 0.1 with top 4: 7.9 per token. "
        "The paper's temperature of 0.1 is as good as that with its best top-k."
    )


def test_the_grid_says_when_an_end_is_best() -> None:
    edge = [[9.0, 8.0, 7.0], [9.0, 8.1, 7.7], [9.0, 8.2, 8.3]]
    assert "try values beyond it" in grid_picture(grid(edge), edge).title
    assert "is 10.0 % above it" in describe_grid(grid(edge), edge)


@pytest.mark.usefixtures("topics")
def test_the_temperature_of_dev_text_is_proposed_beside_the_gate_and_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    _trained("elms", num_steps=10)
    with transaction() as session:
        gate = ClusterGateConfig(clustering=get_clustering(session, "topics").id, temperature=0.2)
        mixtures.set_gate(session, "elms", gate)
    proposed = TemperatureProposal(
        temperature=0.5,
        perplexity=7.5,
        default=0.1,
        default_perplexity=8.0,
        current=0.2,
        domains=["sea"],
        command="workbench mixture gate elms --temperature 0.5",
    )
    requested: list[dict[str, Any]] = []

    def answer(_self: Client, **request: Any) -> ClusterGrid:
        requested.append(request)
        return grid(INNER).model_copy(update={"proposed": proposed})

    answer_as(monkeypatch, "cluster_grid", answer)
    app = settled(open_page("mixtures"))
    app = settled(app.button(key="temperature.start").click().run())
    assert requested == [{"mixture": "elms", "split": "dev"}]  # never test text
    assert "Proposed temperature: 0.5, with perplexity 7.5 on dev text; the default 0.1 has 8.0." in everything(app)
    settled(app.button(key="temperature.save").click().run())
    with reading() as session:
        assert mixtures.get_mixture(session, "elms").gate["temperature"] == 0.5


@pytest.mark.usefixtures("topics")
def test_the_grid_of_a_mixture_is_shown_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No mixture weighs its experts by nearness" in everything(page("Temperature & top k"))
    _trained("elms", num_steps=10)
    with transaction() as session:
        gate = ClusterGateConfig(clustering=get_clustering(session, "topics").id)
        mixtures.set_gate(session, "elms", gate)
    answer_as(monkeypatch, "cluster_grid", lambda _self, **_spec: grid(INNER))
    app = settled(page("Temperature & top k"))
    assert not app.exception
    assert "Lowest at temperature 0.1 with top 4: 7.9 per token." in everything(app)
    assert "in 30 ms" in everything(app)
