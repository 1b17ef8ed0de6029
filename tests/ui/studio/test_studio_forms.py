"""Forms of averages, classifications and gates; long names and large numbers, on narrow screens too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from tests.ui.clusterings import fill_clustering
from tests.ui.studio.conftest import HOSTILE
from tests.ui.studio.visits import named, open_page, output, read
from ui.present.charts.heatmap import new_heatmap
from ui.widgets.charts_and_tables import NO_VALUE, show_table
from workbench.job_records import jobs
from workbench.registry import mixtures
from workbench.registry.corpora import domain_row
from workbench.registry.database import transaction
from workbench.schema.tables import Cluster
from workbench.settings import get_settings
from workbench.store.storage import get_storage

pytestmark = pytest.mark.usefixtures("filled_home")


def requested(app: Any, kind: str) -> dict[str, Any]:
    """The spec that a form sent."""
    assert not app.exception
    assert not app.error, app.error[0].value
    return read(jobs.get_job, app.session_state[f"{kind}.job"]).spec


def test_experts_are_averaged_with_weights_of_ones_own() -> None:
    app = open_page("train", train__what="Average")
    app.multiselect(key="average-experts.experts").set_value(["first/code", "first/prose"]).run()
    named(app.checkbox, "by hand").check().run()
    named(app.number_input, "Weight of first/prose").set_value(3.0).run()
    app.text_input(key="average-experts.name").set_value("both").run()
    assert any("--weights 1.0,3.0" in one.value for one in app.code)
    spec = requested(named(app.button, "Average them").click().run(), "average-experts")
    assert (spec["experts"], spec["weights"]) == (["first/code", "first/prose"], [1.0, 3.0])


@pytest.mark.parametrize("what", ["New expert", "MoDE expert", "DEMix, LoRA, MoE or dense"])
def test_a_field_stands_at_its_default_though_a_click_overtook_its_first_drawing(what: str) -> None:
    # What is written into the session is sent with one drawing alone; every drawing has a widget's own default.
    again = open_page("train", train__what=what).run()
    block, *chosen = (named(again.number_input, label).proto for label in ("Block size", "Steps", "Learning rate"))
    assert (block.default, block.set_value) == (256, False)
    for proto in chosen:  # which depend on the seed model, or the parent
        assert (proto.HasField("default"), proto.set_value) == (False, False)
    assert named(again.selectbox, "Precision").proto.default == ["fp32", "bf16"].index("fp32")


def test_a_preset_stands_above_the_defaults() -> None:
    app = open_page("train", train__what="New expert")
    app.selectbox(key="train-expert.preset").select("Quick look (60 steps)").run()
    assert named(app.number_input, "Steps").value == 60
    app.selectbox(key="train-expert.preset").select("Standard").run()
    assert named(app.number_input, "Steps").value is None  # as suits the seed model


@pytest.mark.usefixtures("folders_named")
def test_texts_are_classified_under_the_chosen_methods(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    app = open_page("train", train__what="Few-shot classification")
    named(app.button, "Classify the texts").click().run()
    assert "path: must not be empty." in app.error[0].value.replace("\\", "")
    app.text_input(key="classify.path").set_value(str(tasks)).run()
    assert app.multiselect(key="classify.routings").options == ["cluster", "updating", "fixed", "fixed-validation"]
    app.multiselect(key="classify.routings").set_value(["fixed"]).run()
    app.multiselect(key="classify.top_k").set_value([8, 1]).run()
    spec = requested(named(app.button, "Classify the texts").click().run(), "classify")
    assert (spec["mixture"], spec["path"], spec["routings"], spec["top_k"]) == (
        "first",
        str(tasks),
        ["fixed"],
        [1, 8],
    )


def test_the_clustering_of_a_gate_is_chosen_by_its_name() -> None:
    with transaction() as session:
        id = fill_clustering(session, get_storage(get_settings()), name="subjects").id
        session.scalars(select(Cluster).where(Cluster.clustering_id == id)).first().domain = domain_row(session, "code")
    app = open_page("mixtures")
    app = named(app.selectbox, "Weights come from").select("cluster-posterior").run()
    clustering = named(app.selectbox, "Clustering")
    assert clustering.options == ["none", "subjects"]
    app = clustering.select("subjects").run()
    named(app.button, "Save to").click().run()
    assert read(mixtures.get_mixture, "first").gate["clustering"] == id


def test_recent_activity_is_one_text_for_each_job() -> None:
    (line,) = [one for one in output(open_page("overview")).splitlines() if "Train expert laws again, " in one]
    assert line.startswith(":red-badge[")
    assert "The loss is NaN" in line


def test_names_leave_most_of_a_narrow_heatmap_to_its_cells() -> None:
    rows = ["short", f"first/{HOSTILE}"]
    figure = new_heatmap("x", "y", ["a", "b"], rows, numbers="%{z}", colorbar={"title": "ratio"}, z=[[1, 2], [3, 4]])
    lines = [line for name in figure.layout.yaxis.ticktext for line in name.split("<br>")]
    assert len(lines) == 3
    assert max(map(len, lines)) <= len("first/&lt;b&gt;law&lt;/b&gt;")  # escaped, or a browser would read it
    assert (figure.data[0].colorbar.orientation, figure.data[0].colorbar.title.text) == ("h", "ratio")
    assert figure.data[0].z[1][0] == 3


@pytest.mark.parametrize(("column", "formats"), [([5, 12_000], ["localized"]), ([5, 12], []), ([0.5, 12_000.0], [])])
def test_large_integers_have_separators(monkeypatch: pytest.MonkeyPatch, column: list[Any], formats: list[str]) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr("ui.widgets.charts_and_tables.st.dataframe", lambda _rows, **output: drawn.update(output))
    monkeypatch.setattr("ui.widgets.charts_and_tables.components.download_button", lambda *_, **__: None)
    show_table([{"documents": one} for one in column], "key", "words")
    result = drawn["column_config"] or {}
    assert [one["type_config"]["format"] for one in result.values()] == formats


def test_what_is_not_known_is_a_dash_and_large_numbers_have_few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr("ui.widgets.charts_and_tables.st.dataframe", lambda _rows, **output: drawn.update(output))
    monkeypatch.setattr("ui.widgets.charts_and_tables.components.download_button", lambda *_, **__: None)
    show_table(
        [{"perplexity": 942.1562, "share": 0.1234, "loss": 12.345, "change (%)": -55.4361}, {"perplexity": None}],
        "t",
        "words",
    )
    assert drawn["placeholder"] == "—"
    formats = {name: column["type_config"]["format"] for name, column in drawn["column_config"].items()}
    assert formats == {"perplexity": "%.1f", "loss": "%.2f", "change (%)": "%.1f"}


def tables() -> None:
    from ui.widgets.charts_and_tables import show_table

    show_table([{"domain": "law", "perplexity": None}], "unscored", "Scores")
    show_table([{"domain": "law", "perplexity": 3.0}], "scored", "Scores")
    show_table([{"domain": "law", "cause": ""}], "no_cause", "Jobs")


def test_a_table_explains_its_dashes_and_only_one_that_has_some() -> None:
    app = AppTest.from_function(tables, default_timeout=120).run()
    assert not app.exception
    assert [one.value for one in app.caption] == [NO_VALUE]
    assert len(app.dataframe) == 3


@pytest.mark.usefixtures("filled_home")
def test_what_a_job_waits_for_is_not_cut_off_at_the_end_of_the_table() -> None:
    columns = list(open_page("jobs_page").dataframe[0].value.columns)
    assert columns[:3] == ["Job", "Status", "Waits for"]


@pytest.mark.usefixtures("filled_home")
def test_documents_are_counted_from_one() -> None:
    app = open_page("corpora")
    first = named(app.number_input, "First document")
    assert first.value == 1
    first.set_value(0).run()
    assert any("First document must be a whole number from 1 to " in error.value for error in app.error)
