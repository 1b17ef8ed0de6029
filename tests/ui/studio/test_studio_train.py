"""The page Train in three steps: from what one has to a form that says what its job will take."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete

from jobs.plans import clusterings
from tests.ui.clusterings import fill_clustering
from tests.ui.studio.conftest import CONFIG, HOSTILE
from tests.ui.studio.test_studio_addresses import visit
from tests.ui.studio.visits import named, open_page, output, read
from ui.kinds.catalog import train_forms
from ui.kinds.form import JOINT
from ui.present.forms.form_choices import offers_now
from ui.studio.training.want_view import rows_for
from ui.widgets import job_form
from workbench.answers.forecasts import BatchRow, BatchToken, Forecast, Measured, MemoryParts, TimeParts
from workbench.errors import BadSpecError
from workbench.formatting.number_format import DASH
from workbench.job_records import jobs
from workbench.kinds import kind as specs
from workbench.kinds.kind import known_kinds, parse_as, parse_spec, training_probe
from workbench.registry import seeds
from workbench.registry.database import transaction
from workbench.schema.base import new_id
from workbench.schema.tables import Mixture, MixtureMember
from workbench.settings import get_settings
from workbench.specs.base import Spec
from workbench.specs.requests import TrainClusters
from workbench.store import artifacts
from workbench.store.storage import Storage, get_storage

pytestmark = pytest.mark.usefixtures("filled_home")

TOKENS = [BatchToken(text="Shall", in_loss=False), BatchToken(text=" *I* <b>", in_loss=True)]
MEASURED = Measured(
    num_trained=590_000,
    memory=MemoryParts(process=1, weights=1, gradients=1, optimizer=1, rest=1),
    peak_bytes=310_000_000,
    artifact_bytes=2_400_000,
    checkpoint_bytes=7_100_000,
    time=TimeParts(start=2, steps=115, evaluations=2, checkpoints=1, end=0),
    tokens_per_second=7800,
    num_tokens=1000,
    num_flops=7_670_000_000,
    first_batch=[BatchRow(domain="poems", num_tokens=257, num_in_loss=256, tokens=TOKENS)],
)


def outcome(spec: Any, **changes: Any) -> Forecast:
    known = {
        "kind": getattr(spec, "kind", "train-joint"),
        "title": "Train",
        "measured": MEASURED,
        "fits": True,
        "probe_seconds": 6.0,
    }
    return Forecast(**{**known, "memory_free_bytes": 7_600_000_000, "disk_free_bytes": 10**12, **changes})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Probes end at once; gives what forecasts are changed by."""
    changes: dict[str, Any] = {}

    def stages(spec: Any) -> Generator[str, None, Forecast]:
        yield "step 1 of 4"
        return outcome(spec, **changes)

    monkeypatch.setattr("ui.widgets.job_form._stages", stages)
    return changes


def settled(app: Any) -> Any:
    """The page after its probes have ended; that of a form is asked for."""
    for one in [one for one in app.button if one.label == "Measure it"]:
        one.click().run()
    for _ in range(20):
        if "Probe" not in "".join(one.proto.text for one in app.get("progress")) and not any(
            word in tables(app) for word in ("measuring", "waiting")
        ):
            break
        app.run()
    return app


def measured(app: Any) -> Any:
    """The page of what there can be made, after somebody asked for the costs."""
    named(app.button, "Measure them").click().run()
    return settled(app)


def tables(app: Any) -> str:
    return "\n".join(one.value.to_csv() for one in app.table)


def headings(app: Any) -> list[str]:
    return [one.value.partition(": ")[2] for one in app.header]


def test_one_question_at_a_time_from_text_to_a_form_that_is_filled_in() -> None:
    app = open_page("train", train__domains__text=["poems"])
    assert headings(app) == ["What do you have?"]
    named(app.button, "Continue with").click().run()
    assert headings(app) == ["What do you want?"]
    assert app.query_params["domain"] == "poems"
    assert named(app.radio, "What do you want?").options[:2] == ["One more expert", "Several experts together"]
    named(app.button, "Continue: one more expert").click().run()
    assert headings(app) == ["Check and start"]
    assert app.query_params["kind"] == "train-expert"
    assert (app.text_input(key="train-expert.name").value, app.selectbox(key="train-expert.domain").value) == (
        "poems",
        "poems",
    )
    named(app.button, "Train the expert").click().run()
    assert not app.error
    spec = read(jobs.get_job, app.session_state["train-expert.job"]).spec
    assert (spec["name"], spec["domain"], spec["mixture"]) == ("poems", "poems", "first")


def test_a_click_parses_its_spec_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit("train", {"kind": "train-joint", "domain": "poems"})
    app.text_input(key="train-joint.name").set_value("mine").run()
    monkeypatch.setattr("ui.widgets.on_demand._was_opened", lambda _: False)
    seen: list[str] = []

    def parse(spec: type[Spec], data: dict[str, Any]) -> Spec:
        seen.extend([data["kind"]] * (data.get("name") == "mine"))
        return parse_as(spec, data)

    for module in (specs, job_form):
        monkeypatch.setattr(module, "parse_as", parse)
    monkeypatch.setattr("jobs.queue.submit.call_workers", lambda *_: seen.append("stored"))
    named(app.button, "Train").click().run()
    assert seen[: seen.index("stored")] == ["train-joint"]


@pytest.mark.parametrize(("trained", "chosen"), [((), []), (("code", "prose"), [HOSTILE]), (("code",), [])])
def test_the_only_domain_without_an_expert_is_chosen_and_novel_ones_are_marked(
    trained: tuple[str, ...], chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = [SimpleNamespace(domains=[name]) for name in trained]
    monkeypatch.setattr("ui.studio.training.want_view.list_experts", lambda _: experts)
    app = open_page("train")
    assert app.session_state["train.domains.text"] == chosen
    options = named(app.get("button_group"), "Domains").options
    assert "poems (novel)" in [option.replace("\\", "") for option in options]


def test_every_choice_can_be_undone() -> None:
    app = open_page("train", train__domains__text=["poems"])
    named(app.button, "Continue with").click().run()
    named(app.radio, "What do you want?").set_value("A cheaper expert").run()
    named(app.button, "Continue: a cheaper expert").click().run()
    assert app.selectbox(key="train-joint.method").value == "lora"
    named(app.button, "Change what you want").click().run()
    assert headings(app) == ["What do you want?"]
    named(app.button, "Change what you have").click().run()
    assert headings(app) == ["What do you have?"]
    assert "kind" not in app.query_params


@pytest.mark.parametrize(
    ("title", "method"),
    [
        ("A cheaper expert", "lora"),
        ("Several experts together", "demix"),
        ("One model with a router", "moe"),
        ("One model without experts", "dense"),
    ],
)
def test_every_method_of_joint_training_has_a_row_of_its_own(title: str, method: str) -> None:
    app = open_page("train", train__domains__text=["poems"])
    named(app.button, "Continue with").click().run()
    named(app.radio, "What do you want?").set_value(title).run()
    named(app.button, f"Continue: {title[0].lower()}{title[1:]}").click().run()
    assert not app.exception
    assert app.query_params["kind"] == "train-joint"
    assert app.selectbox(key="train-joint.method").value == method
    assert f"-badge[{title}]" in output(app)


def test_an_expert_on_a_seed_model_without_training_is_not_the_default_and_carries_a_warning() -> None:
    offers = {**offers_now(), "mixture_to_extend": []}
    rows = rows_for(["code"], offers, train_forms())
    assert rows[0].outcome.title == "Several experts together"
    weak = [row.outcome.method for row in rows if "has not been trained" in row.description]
    assert weak == ["LoRA", "MoDE"]
    with transaction() as session:
        seeds.seed_row(session, "tiny").source = "folder"
    assert rows_for(["code"], offers, train_forms())[0].outcome.title == "A cheaper expert"


def test_a_form_opens_with_the_method_that_step_2_would_propose_for_its_seed_model() -> None:
    for source, method in (("fresh", "demix"), ("folder", "lora")):
        with transaction() as session:
            seeds.seed_row(session, "tiny").source = source
        app = open_page("train")
        app.button(key="train.open.train-joint").click().run()
        assert app.selectbox(key="train-joint.method").value == method
        linked = open_page("train", train__what=JOINT)
        assert linked.selectbox(key="train-joint.method").value == method


@pytest.mark.parametrize("kind", train_forms())
def test_every_kind_has_an_address_and_a_button(kind: str) -> None:
    app = open_page("train")
    named([one for one in app.button if one.key == f"train.open.{kind}"], "").click().run()
    assert not app.exception
    assert headings(app) == ["Check and start"]
    assert app.query_params["kind"] == kind
    badges = "".join(one.value for one in app.markdown if "badge" in one.value).replace("\\", "")
    form = train_forms()[kind]
    assert any(f"[{title}]" in badges for title in [one.title for one in form.outcomes] or [form.title])


@pytest.mark.parametrize(
    ("address", "heading"),
    [
        ({"kind": "train-joint"}, "Check and start"),
        ({"kind": "no-such-kind"}, "What do you have?"),
        ({"domain": "poems"}, "What do you want?"),
        ({"domain": "nowhere"}, "What do you have?"),
    ],
)
def test_an_address_opens_its_step(address: dict[str, str], heading: str) -> None:
    app = visit("train", address)
    assert not app.exception
    assert headings(app) == [heading]


def test_a_reload_keeps_the_method() -> None:
    app = visit("train", {"kind": "train-joint", "domain": "poems"})
    assert "method" not in app.query_params
    app.selectbox(key="train-joint.method").select("lora").run()
    again = visit("train", dict(app.query_params))
    assert again.selectbox(key="train-joint.method").value == "lora"
    named(again.button, "Change what you want").click().run()
    assert "method" not in again.query_params


def test_an_unknown_kind_in_the_address_is_named() -> None:
    app = visit("train", {"kind": "nonsense"})
    assert "There is no training of the kind “nonsense”." in app.error[0].value


@pytest.mark.parametrize(("kind", "field"), [("train-expert", "domain"), ("train-joint", "domains")])
def test_a_form_opened_by_a_link_holds_the_domain_of_the_link(kind: str, field: str) -> None:
    for domain in ("poems", HOSTILE):
        app = visit("train", {"kind": kind, "domain": domain})
        assert not app.exception
        assert app.session_state[f"{kind}.{field}"] == (domain if field == "domain" else [domain])


def test_another_link_changes_the_domain_of_a_form_that_is_open() -> None:
    app = visit("train", {"kind": "train-expert", "domain": "poems"})
    app.text_input(key="train-expert.name").set_value("mine").run()
    app.query_params["domain"] = "prose"
    app.run()
    assert app.selectbox(key="train-expert.domain").value == "prose"
    assert app.text_input(key="train-expert.name").value == "mine"


def test_the_rows_are_measured_and_show_time_memory_disk_and_cost(quick: dict[str, Any]) -> None:
    app = open_page("train", train__domains__text=["poems"])
    named(app.button, "Continue with").click().run()
    assert set(app.table[0].value["Time"]) == {DASH}  # nothing is computed that nobody asked for
    app = measured(app)
    table = app.table[0].value
    assert list(table["You get"])[:2] == ["One more expert", "Several experts together"]
    first = table.iloc[0]
    costs = [first[name].replace("\\", "") for name in ("Time", "Memory", "Disk", "Cost per token", "Other experts")]
    assert costs == ["2 min 0 s", "310.0 MB", "9.5 MB", "7.67 MFLOPs", "bit-identical"]


def other_seeds() -> None:
    """Two seed models more, one before and one after that of the mixture by name."""
    with transaction() as session:
        storage = get_storage(get_settings())
        for name in ("alpha", "zeta"):
            seeds.register_seed(
                session,
                name=name,
                source="fresh",
                family="llama",
                config=CONFIG,
                num_parameters=9,
                tokenizer_sha256="cd" * 32,
                artifact=artifacts.register_artifact(session, storage, _stored(storage), "seed"),
            )


def _stored(storage: Storage) -> str:
    id = new_id()
    with storage.new(id) as folder:
        (folder / "data.txt").write_text("seed", encoding="utf-8")
    return id


def test_the_rows_start_from_the_seed_model_of_the_mixture_that_one_more_expert_joins(quick: dict[str, Any]) -> None:
    assert quick == {}
    other_seeds()
    rows = {row.outcome.title: row for row in rows_for(["poems"], offers_now(), train_forms())}
    cheaper = rows["A cheaper expert"].spec
    assert cheaper is not None
    assert getattr(cheaper, "seed_model", "") == "tiny"
    app = open_page("train", train__domains__text=["poems"])
    named(app.button, "Continue with").click().run()
    table = measured(app).table[0].value
    assert set(table["Seed model"][:2]) == {"tiny"}
    assert "do not compare" not in output(app)


def test_rows_of_different_seed_models_have_a_note_that_they_do_not_compare(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quick == {}
    other_seeds()
    monkeypatch.setattr("ui.studio.training.want_view._from_one_seed", lambda offers: offers)
    app = open_page("train", train__domains__text=["poems"])
    named(app.button, "Continue with").click().run()
    assert "so their costs do not compare" in output(settled(app))


def test_a_form_says_what_its_job_will_take_and_shows_its_first_batch(quick: dict[str, Any]) -> None:
    app = open_page("train", train__what="New expert")
    app.text_input(key="train-expert.name").set_value("poet").run()
    app = settled(app)
    rows = dict(zip(app.table[0].value["What"], app.table[0].value["How much"], strict=True))
    assert rows["Time"] == "2 min 0 s, measured: 7,800 tokens/s"
    assert rows["Memory"] == "310.0 MB of 7.6 GB free"
    assert rows["Disk"] == "2.4 MB, and 7.1 MB while it trains, of 1.0 TB free"
    [batch] = [one.value for one in app.code if one.value.startswith("‹")]
    assert batch == "‹Shall›| *I* <b> …"
    assert not named(app.button, "Train the expert").disabled


def test_a_probe_that_measured_nothing_shows_no_empty_table(quick: dict[str, Any]) -> None:
    quick.update(measured=None, problem="The probe took too long.")
    app = open_page("train", train__what="New expert")
    app.text_input(key="train-expert.name").set_value("poet").run()
    app = settled(app)
    assert "The probe took too long" in output(app)
    assert not app.table


def test_what_does_not_fit_cannot_be_started_until_its_nearest_is_taken(quick: dict[str, Any]) -> None:
    nearest = {"activation_checkpointing": True, "sequences_per_domain": 1, "accumulate": 2}
    quick.update(fits=False, problem="It takes 9 MB of memory.", nearest=nearest)
    app = open_page("train", train__what="New expert")
    app.text_input(key="train-expert.name").set_value("poet").run()
    app = settled(app)
    assert named(app.button, "Train the expert").disabled
    assert "It fits with --activation-checkpointing --sequences-per-domain 1 --accumulate 2." in app.error[
        0
    ].value.replace("\\", "")
    quick.clear()
    named(app.button, "Use these settings").click().run()
    app = settled(app)
    assert named(app.number_input, "Sequences per domain").value == 1
    assert not named(app.button, "Train the expert").disabled


def test_a_probe_that_fails_leaves_the_start_possible(quick: dict[str, Any]) -> None:
    quick.update(fits=None, measured=None, problem="The probe took too long.")
    app = open_page("train", train__what="New expert")
    app.text_input(key="train-expert.name").set_value("poet").run()
    app = settled(app)
    assert "The probe took too long." in app.warning[0].value.replace("\\", "")
    assert not named(app.button, "Train the expert").disabled


def test_the_command_and_the_call_that_are_shown_give_the_job_of_the_button() -> None:
    app = open_page("train", train__what="New expert")
    app.text_input(key="train-expert.name").set_value("it's *new*").run()
    named(app.number_input, "Steps").set_value(7).run()
    [call] = [one.value for one in app.code if one.value.startswith("curl")]
    words = shlex.split(call)
    named(app.button, "Train the expert").click().run()
    spec = read(jobs.get_job, app.session_state["train-expert.job"]).spec
    assert parse_spec(json.loads(words[words.index("-d") + 1])["spec"]) == parse_spec(spec)


def test_a_row_that_needs_a_mixture_names_an_option_of_the_page_and_does_not_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ui.studio.training.want_view.unfinished_jobs", list)
    with transaction() as session:
        session.execute(delete(MixtureMember))
        session.execute(delete(Mixture))
    app = visit("train", {"domain": "poems"})
    choice = named(app.radio, "What do you want?")
    assert "Choose “Several experts together”" in "".join(choice.proto.captions).replace("\\", "")
    choice.set_value("One more expert").run()
    assert named(app.button, "Continue: one more expert").disabled


def test_a_row_that_is_impossible_says_why_and_stands_last() -> None:
    offers = {**offers_now(), "mixture_to_extend": []}
    rows = rows_for(["code"], offers, train_forms())
    impossible = [row for row in rows if row.spec is None]
    assert rows[-len(impossible) :] == impossible
    assert [row.outcome.title for row in impossible] == ["One more expert", "One model for each cluster"]
    assert "no mixture yet with an expert that can be copied" in impossible[0].problem


def test_a_row_waits_for_what_an_unfinished_job_makes() -> None:
    offers = {**offers_now(), "mixture_to_extend": []}
    row = next(row for row in rows_for(["code"], offers, train_forms()) if row.outcome.title == "One more expert")
    assert row.problem.endswith("can be copied. “Train joint model second” makes one: wait until it is done.")


def test_a_kind_of_another_package_has_a_row_with_nothing_but_its_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = known_kinds()["train-mode"]
    foreign = replace(kind, probe=lambda spec: training_probe(spec, ("seed model", spec.seed_model)))
    monkeypatch.setitem(known_kinds(), "train-mode", foreign)
    bare = replace(train_forms()["train-mode"], outcomes=())
    rows = rows_for(["code"], offers_now(), {"train-mode": bare})[:-1]  # the last is the plan over clusters
    assert [(row.outcome.title, row.outcome.method) for row in rows] == [("MoDE expert", "—")]


def test_names_are_never_markup() -> None:
    app = visit("train", {"domain": HOSTILE})
    shown = [one.value for one in (*app.markdown, *app.caption)] + [one.label for one in app.button]
    assert not any(HOSTILE in one for one in shown)
    assert "law" in output(app)


# clusters and imports -------------------------------------------------------------------------------


def test_one_model_for_each_cluster_is_a_row_that_needs_clusters_first() -> None:
    row = rows_for(["poems"], offers_now(), train_forms())[-1]
    assert (row.outcome.method, row.spec) == ("C-BTM", None)
    assert "no clusters yet" in row.problem


def test_its_costs_are_measured_like_those_of_the_others(quick: dict[str, Any]) -> None:
    assert quick == {}
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()))
    app = measured(visit("train", {"domain": "letters"}))
    csv = next(line for line in tables(app).splitlines() if "One model for each cluster" in line)
    assert "not measured" not in csv
    assert "310.0 MB" in csv.replace("\\", "")


def test_the_row_opens_the_form_of_the_page_clusters() -> None:
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()))
    app = visit("train", {"domain": "letters"})
    named(app.radio, "What do you want?").set_value("One model for each cluster").run()
    named(app.button, "Continue: one model for each cluster").click().run()
    assert not app.exception
    assert "Train a model on each of 4 clusters" in output(app)
    assert app.text_input(key="train-clusters.name").value == "topics"


def measured_on_clusters() -> Any:
    """The form that trains on clusters, once its probe has ended."""
    return settled(visit("clusters", {"clusters.view": "Train on them"}))


def test_training_on_clusters_shows_what_all_models_take_before_the_start(quick: dict[str, Any]) -> None:
    assert quick == {}
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()))
    app = measured_on_clusters()
    assert "What it will take" in output(app)
    assert "310.0 MB" in tables(app)


def test_a_plan_that_does_not_fit_cannot_be_started(quick: dict[str, Any]) -> None:
    quick.update(fits=False, problem="It takes 9 GB of memory, and 1 GB are free.")
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()))
    app = measured_on_clusters()
    assert named(app.button, "Train a model on each").disabled


def test_clusters_without_domains_are_measured_on_the_largest_domain_that_was_clustered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with transaction() as session:
        fill_clustering(session, get_storage(get_settings()))
    measured = []

    def forecast(spec: Any, settings: Any) -> Generator[str, None, Forecast]:
        measured.append(spec)
        yield "step 1 of 4"
        return outcome(spec)

    monkeypatch.setattr(clusterings, "forecast", forecast)
    spec = parse_as(TrainClusters, {"clustering": "topics", "name": "all", "seed_model": "tiny"})
    list(clusterings.forecast_training(spec))
    assert [one.domains for one in measured] == [["letters"]]
    assert measured[0].training.num_steps == 250  # of 1000 for four models


def test_the_import_of_an_expert_is_measured_unless_it_is_a_download() -> None:
    probe = known_kinds()["import-expert"].probe
    assert probe is not None
    local = parse_spec({"kind": "import-expert", "source": "/data/adapter", "seed_model": "tiny"})
    assert (probe(local).short, probe(local).num_steps) == (local, 0)
    with pytest.raises(BadSpecError, match="after its download"):
        probe(parse_spec({"kind": "import-expert", "source": "hub:a/b", "seed_model": "tiny"}))
