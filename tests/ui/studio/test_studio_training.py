"""A training's page: its curve against a baseline, what it writes, and the same job again with changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from engine.config import AdaptingConfig, TrainingConfig
from engine.methods.mode.config import ModeConfig
from tests.ui.studio.conftest import DOMAINS, HOSTILE
from tests.ui.studio.test_studio_addresses import visit
from tests.ui.studio.visits import named, open_page, output, read
from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import curves
from ui.present.text.formatting import plain
from ui.studio.job_views import job_view
from ui.studio.job_views.training_charts import samples_by_step
from workbench.analysis.training_curves import TrainingBaseline, training_baseline
from workbench.answers.cards import MetricPoint
from workbench.formatting.number_format import nats
from workbench.formatting.palette import BASELINE_DASH
from workbench.job_records import jobs, leases
from workbench.job_records import jobs as rows
from workbench.kinds.analysis import Evaluate
from workbench.kinds.clusters import FindClusters, PinDocuments
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mixtures import AverageExperts
from workbench.kinds.training.mode import TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import experts
from workbench.registry.database import transaction
from workbench.schema.job_states import PARENT, REQUIREMENTS, SAMPLES
from workbench.schema.job_tables import Metric
from workbench.schema.tables import Expert

pytestmark = pytest.mark.usefixtures("filled_home")

COPY = TrainExpert(name="copy", domain=HOSTILE, mixture="first")
JOINT = TrainJoint(name="next", seed_model="tiny", domains=["code", "prose"])


def training_job(spec: Any, domains: tuple[str, ...], parent: str = "") -> str:
    """A job of this spec with a held-out loss of each domain at step 20."""
    with transaction() as session:
        job_id = jobs.create_job(session, spec)
        for domain in domains:
            session.add(Metric(job_id=job_id, name=f"dev_loss/{domain}", step=20, value=2.5))
        if parent:
            data = {"parent": experts.get_expert(session, parent).id}
            leases.add_event(session, job_id, "Starts from a copy.", kind=PARENT, data=data)
    return job_id


def baseline_of(job_id: str) -> TrainingBaseline:
    return read(lambda session: training_baseline(session, jobs.get_job(session, job_id)))


def make_dense(domains: tuple[str, ...], **settings: Any) -> None:
    """`first/code` becomes a dense model of a joint training with these settings."""
    training = replace(TrainingConfig(), **settings)
    spec = TrainJoint(name="flat", seed_model="tiny", domains=list(domains), method="dense", training=training)
    job_id = training_job(spec, domains)
    with transaction() as session:
        row = session.get_one(Expert, experts.get_expert(session, "first/code").id)
        row.method, row.job_id = "dense", job_id


# the card -------------------------------------------------------------------------------------------


def test_a_card_shows_the_newest_requirements_without_a_look_at_the_other_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = training_job(JOINT, ("code",))
    with transaction() as session:
        for message in ("Takes 4 GB.", "Takes 8 GB."):
            leases.add_event(session, job_id, message, kind=REQUIREMENTS)
    monkeypatch.setattr(job_view, "_draw_rest", lambda *_: None)  # whose list of events needs them all
    monkeypatch.setattr(jobs, "events", None)
    app = visit("jobs_page", {"job": job_id})
    assert [one.value for one in app.caption if one.value.startswith("Takes")] == [plain("Takes 8 GB.")]


# the baseline ---------------------------------------------------------------------------------------


def test_a_copy_is_read_against_the_curve_of_its_parent() -> None:
    baseline = baseline_of(training_job(COPY, (HOSTILE,), parent=f"first/{HOSTILE}"))
    assert baseline.name == f"parent first/{HOSTILE}"
    assert [point.step for point in baseline.points] == [1, 61]
    assert {point.name for point in baseline.points} == {HOSTILE}


def test_a_parent_of_other_text_is_no_baseline_and_the_page_says_why() -> None:
    spec = COPY.model_copy(update={"domain": "poems"})
    job_id = training_job(spec, ("poems",), parent="first/code")
    why = "first/code was not evaluated on the held-out text of this training while it was trained."
    assert baseline_of(job_id).why_not == why
    assert f"No baseline: {why}" in output(visit("jobs_page", {"job": job_id}))


def test_the_words_of_a_curve_stand_with_its_table_and_not_above_it() -> None:
    app = visit("jobs_page", {"job": training_job(JOINT, ("code", "prose"))})
    tables = [one for one in app.expander if one.label == "Data table"]
    words = [table.caption[0].value for table in tables]
    assert words
    assert all(one.startswith("Line chart") for one in words)
    assert sum("Line chart" in one.value for one in app.caption) == len(tables)


def test_blocks_of_another_size_are_not_compared() -> None:
    spec = COPY.model_copy(update={"training": AdaptingConfig(block_size=64)})
    baseline = baseline_of(training_job(spec, (HOSTILE,), parent=f"first/{HOSTILE}"))
    assert not baseline.points
    assert "with block_size = 256, this one with 64" in baseline.why_not


def test_text_that_was_imported_after_the_other_training_is_not_compared() -> None:
    job_id = training_job(COPY, (HOSTILE,), parent=f"first/{HOSTILE}")
    with transaction() as session:
        session.execute(_newer(HOSTILE))
    assert not baseline_of(job_id).points


def _newer(domain: str) -> Any:
    from sqlalchemy import update

    from workbench.schema.tables import Domain

    return update(Domain).where(Domain.name == domain).values(created_at=Domain.created_at + 10**6)


def test_a_joint_training_is_read_against_a_dense_model_of_the_same_text() -> None:
    job_id = training_job(JOINT, ("code", "prose"))
    assert "no dense model" in baseline_of(job_id).why_not
    make_dense(("code",))
    baseline = baseline_of(job_id)
    assert (baseline.name, [point.name for point in baseline.points]) == ("dense model first/code", ["code"])


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (JOINT.model_copy(update={"method": "lora"}), "seed tiny"),
        (TrainMode(name="m", seed_model="tiny", domains=["code"]), "seed tiny"),
        (TrainMode(name="m", seed_model="tiny", domains=["code"], shape=ModeConfig(start="even")), ""),
        (JOINT, ""),
    ],
)
def test_a_training_that_starts_as_its_seed_is_read_against_its_loss_at_step_0(spec: Any, name: str) -> None:
    job_id = training_job(spec, ("code",))
    with transaction() as session:
        session.add(Metric(job_id=job_id, name="dev_loss/code", step=0, value=4.5))
    baseline = baseline_of(job_id)
    assert (baseline.name, baseline.is_seed) == (name, bool(name))
    assert [(point.step, point.value) for point in baseline.points] == ([(0, 4.5), (20, 4.5)] if name else [])
    if name:
        assert "measured at step 0, before the first update" in output(visit("jobs_page", {"job": job_id}))


def test_a_job_that_trains_nothing_has_no_baseline_and_no_excuse() -> None:
    with transaction() as session:
        job_id = jobs.create_job(session, Evaluate(mixture="first"))
    assert baseline_of(job_id) == TrainingBaseline()


def test_the_baseline_is_grey_dashed_and_in_words_and_table() -> None:
    own = [MetricPoint(name="code", step=step, value=3 - step / 10) for step in (1, 2)]
    other = [MetricPoint(name="code", step=1, value=2.75)]
    chart = curves(own, "Held-out loss", "first", read_looks(), other, "parent law")
    assert chart is not None
    line = chart.figure.data[-1]
    assert (line.name, line.line.dash, list(line.y)) == ("parent law", BASELINE_DASH, [2.75])
    assert "Baseline: parent law goes from 2.75" in chart.description
    assert {"metric": "parent law", "step": 1, "value (nats per token)": 2.75} in chart.table


def test_of_many_domains_the_mean_is_the_baseline() -> None:
    other = [MetricPoint(name=name, step=5, value=float(place)) for place, name in enumerate("abcd")]
    own = [point.model_copy(update={"value": 1.0}) for point in other]
    chart = curves(own, "Held-out loss", "first", read_looks(), other, "dense model flat")
    assert chart is not None
    assert (chart.figure.data[-1].name, list(chart.figure.data[-1].y)) == ("dense model …f 4 domains", [1.5])
    assert "Baseline: dense model flat: mean of 4 domains goes from 1.5" in chart.description


# samples --------------------------------------------------------------------------------------------


def sampled(job_id: str, step: int, text: str, domain: str = "code") -> None:
    data = {"step": step, "samples": [{"domain": domain, "prompt": "def <i>add", "text": text}]}
    with transaction() as session:
        leases.add_event(session, job_id, f"Sample texts at step {step}.", kind=SAMPLES, data=data)


def html_of(app: AppTest) -> str:
    return "".join(one.proto.body for one in app.get("html"))


def test_the_page_lists_what_the_model_wrote_by_step_and_escapes_it() -> None:
    job_id = training_job(JOINT, ("code",))
    for step, text in ((20, "<b>one</b>"), (40, "two"), (20, "<b>again</b>")):
        sampled(job_id, step, text)
    app = visit("jobs_page", {"job": job_id})
    written = html_of(app)
    assert written.index("Step 40") < written.index("Step 20")
    assert "&lt;b&gt;again&lt;/b&gt;" in written
    assert "&lt;b&gt;one" not in written  # the step was repeated after a crash
    assert f"held-out loss {nats(2.5)}" in written
    assert any("def <i>add …" in one.value for one in app.text)
    assert '<div role="region" tabindex="0" aria-label="Texts by step, code"' in written  # the keyboard can scroll it


def test_of_a_repeated_step_the_last_samples_count() -> None:
    job_id = training_job(JOINT, ("code",))
    sampled(job_id, 20, "old")
    sampled(job_id, 20, "new")
    assert [one["text"] for one in samples_by_step(read(jobs.events, job_id))[20]] == ["new"]


def test_a_training_without_samples_says_why() -> None:
    off = JOINT.model_copy(update={"training": TrainingConfig(sample_tokens=0)})
    assert "sample tokens are 0" in output(visit("jobs_page", {"job": training_job(off, ("code",))}))
    several = output(visit("jobs_page", {"job": training_job(JOINT, ("code",))}))
    assert "a training in several processes writes none" in several


# clones ---------------------------------------------------------------------------------------------

CLONED = [
    TrainJoint(name="second", seed_model="tiny", domains=["code"], training=TrainingConfig(num_steps=77, clip=0.5)),
    TrainJoint(name="cheap", seed_model="tiny", domains=["prose"], method="lora"),
    COPY.model_copy(update={"parent": "first/code", "watch": ["prose"], "training": AdaptingConfig(patience=3)}),
    TrainMode(name="beside", seed_model="tiny", domains=["code", "prose"], shape=ModeConfig(num_blocks=2)),
    MakeSeed(name="other", domains=["code"], vocab_size=700),
    MakeSeed(name="copied", source="expert", expert="first/code"),
    AverageExperts(name="mean", experts=["first/code", "first/prose"], weights=[1.0, 3.0]),
    Evaluate(mixture="first", split="dev"),
    FindClusters(name="groups", domains=["code"]),
    ImportCorpus(name="more", path="/data/more.jsonl", domain_field="kind"),
    PinDocuments(clustering="c", cluster="0", documents=["abcdef12"]),
]


@pytest.mark.parametrize("spec", CLONED, ids=lambda spec: f"{spec.kind}-{getattr(spec, 'name', '')}")
def test_a_clone_has_every_field_as_the_job_had_it_and_a_free_name(spec: Any) -> None:
    with transaction() as session:
        job_id = jobs.create_job(session, spec)
    app = visit("train", {"clone": job_id})
    assert f"as in the job “{read(jobs.get_job, job_id).title}”" in output(app)
    shown = json.loads(next(one.value for one in app.code if one.value.startswith("{")))
    expected = {"kind": spec.kind, **read(jobs.get_job, job_id).spec}  # with the rate that its seed model has
    assert {name: expected[name] for name in shown} == shown
    hidden = HIDDEN | ({"method"} if spec.kind == "train-mode" else set())  # one, unless a package brings another
    assert {name for name, value in expected.items() if value} - set(shown) <= hidden


HIDDEN = {"lora", "moe", "budget", "shape", "training", "seed", "vocab_size", "location", "dev_fraction"}


def test_a_name_that_is_taken_gets_a_number() -> None:
    with transaction() as session:
        job_id = jobs.create_job(session, TrainJoint(name="first", seed_model="tiny", domains=list(DOMAINS)))
    app = visit("train", {"clone": job_id})
    assert app.text_input(key="train-joint.name").value == "first-2"
    assert app.query_params == {"kind": "train-joint", "clone": job_id}


def test_what_is_gone_is_left_out_and_named() -> None:
    with transaction() as session:
        job_id = jobs.create_job(session, TrainJoint(name="x", seed_model="tiny", domains=["code", "lost"]))
    app = visit("train", {"clone": job_id})
    assert app.multiselect(key="train-joint.domains").value == ["code"]
    assert "left out: lost" in output(app)


def test_a_job_that_is_gone_is_named_and_nothing_opens() -> None:
    app = AppTest.from_file(str(_studio()), default_timeout=120).run()
    app.query_params["clone"] = "nothing"
    app.switch_page("app_pages/train.py").run()
    assert not app.exception
    assert any("nothing" in one.value for one in app.error)
    assert "clone" not in app.query_params


def _studio() -> str:
    from tests.ui.studio.visits import STUDIO

    return STUDIO


def test_every_job_offers_its_clone() -> None:
    [job] = read(lambda session: jobs.list_jobs(session, kind="evaluate", state="cancelled"))
    links = [one.proto for one in visit("jobs_page", {"job": job.id}).get("page_link")]
    assert any(link.label == "Clone with changes" and job.id in link.query_string for link in links)


def test_the_curves_of_a_job_have_the_colours_of_its_own_experts() -> None:
    with transaction() as session:
        job_id = jobs.create_job(session, Evaluate(mixture="first"))
        session.execute(update(Expert).where(Expert.name == "laws again").values(job_id=job_id))
    assert read_looks().domain(HOSTILE) == read_looks().expert(f"first/{HOSTILE}")
    assert read_looks(job_id=job_id).domain(HOSTILE) == read_looks().expert("laws again")
    assert read_looks(job_id=job_id).domain("code") == read_looks().expert("first/code")


def test_a_job_that_has_ended_is_deleted_and_one_that_runs_is_not() -> None:
    by_state = {job.state: job for job in read(rows.list_jobs)}
    app = open_page("jobs_page", job=by_state["running"].id)
    assert not [button for button in app.button if "Delete for good" in button.label]
    app = open_page("jobs_page", job=by_state["cancelled"].id)
    named(app.button, "Delete for good").click().run()
    assert not app.exception
    assert "are deleted" in output(app)
    assert by_state["cancelled"].id not in [job.id for job in read(rows.list_jobs)]
