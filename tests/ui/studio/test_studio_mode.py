"""MoDE in the studio: its two stages are asked for by forms, its parts stand on the card, the way on is a click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.models.flops import Shape
from jobs.probe.forecast import forecast
from tests.ui.studio.modes import add_composition, add_mode_expert
from tests.ui.studio.visits import named, open_page, output, read
from ui.cli.app import main
from ui.kinds.form import AVERAGE, EXPERT, MODE
from ui.present.jobs.throughput import counting_note, describe_costs
from ui.present.pages import COMPOSITION
from ui.present.text.posteriors import describe_inner_gates
from ui.studio.app_pages.experts import differences
from ui.studio.job_views.training_charts import gate_shares, gates_picture
from workbench.answers.cards import MetricPoint
from workbench.errors import BadSpecError
from workbench.job_records import jobs as rows
from workbench.kinds.training.mode import TRAIN_MODE, TrainMode
from workbench.questions.costs import MixtureCosts
from workbench.registry import experts, mixtures
from workbench.registry.database import transaction
from workbench.schema.base import new_id
from workbench.specs.requests import MixtureSpec

pytestmark = pytest.mark.usefixtures("filled_home")


@pytest.fixture
def beside(filled_home: object) -> None:
    """Experts of MoDE beside “tiny”: “c/code”, “p/prose”, both in “both/composed”, and “alone/poems”."""
    with transaction() as session:
        pair = [add_mode_expert(session, name, domain) for name, domain in (("c", "code"), ("p", "prose"))]
        add_composition(session, "both", *pair)
        add_mode_expert(session, "alone", "poems")


def requested(name: str) -> dict[str, Any]:
    (job,) = [card for card in read(rows.list_jobs) if card.spec.get("name") == name]
    return job.spec


def fill(app: Any, kind: str, label: str, value: Any) -> None:
    named(getattr(app, kind), label).set_value(value).run()
    assert not app.exception


def command_of(app: Any) -> str:
    return next(
        block.value for block in app.code if block.value.startswith(("workbench mode ", "workbench train mode "))
    )


def test_stage_one_is_requested_with_what_must_not_be_forgotten() -> None:
    app = open_page("train", train__what=MODE)
    assert [one.label for one in app.expander][:2] == [
        "Shape of the expert: blocks, layers, how it starts",
        "Training details",
    ]
    fill(app, "text_input", "Name", "poet")
    fill(app, "multiselect", "Domains", ["poems"])
    fill(app, "multiselect", "must not be forgotten", ["prose"])
    fill(app, "number_input", "Blocks of the backbone", 2)
    assert named(app.button, "Measure it")
    assert command_of(app) == "workbench train mode poet --seed-model tiny --domains poems --blocks 2 --retain prose"
    named(app.button, "Train the expert").click().run()
    assert not app.exception
    assert not app.error
    spec = requested("poet")
    assert (spec["kind"], spec["seed_model"], spec["retain"], spec["shape"]["num_blocks"]) == (
        "train-mode",
        "tiny",
        ["prose"],
        2,
    )


def test_what_cannot_be_is_refused_before_a_job_exists() -> None:
    app = open_page("train", train__what=MODE)
    fill(app, "text_input", "Name", "poet")
    fill(app, "multiselect", "Domains", ["poems"])
    fill(app, "number_input", "Experts side by side", 2)
    named(app.button, "Train the expert").click().run()
    assert "need the random init" in app.error[0].value


def test_no_more_blocks_are_taken_than_the_seed_model_has_layers() -> None:
    app = open_page("train", train__what=MODE)
    blocks = app.number_input(key="train-mode.shape.num_blocks")
    assert blocks.value == 2
    blocks.set_value(3).run()
    assert "must be a whole number from 1 to 2, not 3" in app.error[0].value.replace("\\", "")
    assert named(app.button, "Train the expert").disabled
    app.number_input(key="train-mode.shape.num_blocks").set_value(2).run()
    fill(app, "text_input", "Name", "poet")
    fill(app, "multiselect", "Domains", ["poems"])
    assert command_of(app) == "workbench train mode poet --seed-model tiny --domains poems --blocks 2"
    named(app.button, "Train the expert").click().run()
    assert not app.error


def test_what_an_impossible_shape_takes_is_not_shown_and_its_refusal_names_field_and_option() -> None:
    spec = TrainMode(name="poet", seed_model="tiny", domains=["poems"])
    with pytest.raises(BadSpecError, match="Blocks of the backbone"):
        next(forecast(spec))
    (output,) = read(TRAIN_MODE.complaints, spec)
    assert output.startswith("Blocks of the backbone (--blocks) must be at most the 2 layers of “tiny”, not 3")
    assert "num_blocks" not in output


def test_without_an_expert_of_mode_there_is_nothing_to_compose_yet() -> None:
    assert "There is no MoDE expert yet." in output(open_page("train", train__what=COMPOSITION))


@pytest.mark.usefixtures("beside")
def test_stage_two_is_requested_and_offers_the_parts_to_leave_out() -> None:
    app = open_page("train", train__what=COMPOSITION)
    fill(app, "text_input", "Name", "more")
    fill(app, "multiselect", "Experts", ["both/composed", "alone/poems"])
    assert named(app.multiselect, "Parts to leave out").options == ["code", "prose", "poems"]
    fill(app, "multiselect", "Parts to leave out", ["code"])
    fill(app, "checkbox", "Frozen", True)
    fill(app, "multiselect", "Domains", ["prose", "poems"])
    assert command_of(app) == (
        "workbench mode compose more --experts both/composed,alone/poems --without code --domains prose,poems --frozen"
    )
    named(app.button, "Compose them").click().run()
    assert not app.exception
    assert not app.error
    spec = requested("more")
    assert (spec["experts"], spec["without"], spec["frozen"]) == (["both/composed", "alone/poems"], ["code"], True)


@pytest.mark.usefixtures("beside")
def test_a_part_that_is_offered_no_more_is_left_out_no_more() -> None:
    app = open_page("train", train__what=COMPOSITION)
    fill(app, "multiselect", "Experts", ["c/code", "p/prose"])
    fill(app, "multiselect", "Parts to leave out", ["code"])
    fill(app, "multiselect", "Experts", ["p/prose"])
    assert named(app.multiselect, "Parts to leave out").value == []


@pytest.mark.usefixtures("beside")
def test_only_experts_on_one_backbone_are_offered_together() -> None:
    with transaction() as session:
        shape = {"num_blocks": 3, "expert_layers": 1, "init": "copy", "start": "backbone", "seed": 0}
        row = experts.expert_row(session, "alone/poems")
        parts = [{**part, "shape": shape} for part in row.config["parts"]]
        row.config = {**row.config, "shape": shape, "parts": parts}
    app = open_page("train", train__what=COMPOSITION)
    assert named(app.multiselect, "Experts").options == ["both/composed", "c/code", "p/prose"]
    fill(app, "multiselect", "Experts", ["c/code"])
    fill(app, "selectbox", "Backbone", "tiny in 3 blocks")
    assert (named(app.multiselect, "Experts").options, named(app.multiselect, "Experts").value) == (["alone/poems"], [])


@pytest.mark.usefixtures("beside")
def test_a_new_expert_is_offered_only_where_an_expert_can_be_copied() -> None:
    app = open_page("train", train__what=EXPERT)
    assert app.selectbox(key="train-expert.mixture").options == ["first"]
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="blend", experts=["first/code", "c/code"]))
    app = open_page("train", train__what=EXPERT, **{"train-expert__mixture": "blend"})
    assert app.selectbox(key="train-expert.mixture").options == ["first", "blend"]
    assert app.selectbox(key="train-expert.parent").options == ["choose for me", "first/code"]


@pytest.mark.usefixtures("beside")
def test_what_only_mode_has_can_be_neither_copied_nor_averaged() -> None:
    with transaction() as session:
        for card in experts.list_experts(session):
            experts.expert_row(session, card.name).method = "mode"
    assert "no mixture yet with an expert that can be copied" in output(open_page("train", train__what=EXPERT))
    assert "No expert here can be copied, so none can be averaged." in output(open_page("train", train__what=AVERAGE))


@pytest.mark.usefixtures("beside")
def test_an_average_is_offered_only_of_full_models() -> None:
    app = open_page("train", train__what=AVERAGE)
    assert not any(
        name in app.multiselect(key="average-experts.experts").options for name in ("c/code", "both/composed")
    )


@pytest.mark.usefixtures("beside")
def test_a_mixture_of_one_expert_with_parts_says_what_mixes_and_compares_no_inference_modes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    by_itself = (
        "One model: inside both/composed (code, prose) gates mix the frozen backbone and the parts, again at every"
    )
    app = open_page("mixtures", mixture="both")
    assert not app.exception
    words = output(app)
    assert by_itself in words
    assert "One expert takes part" in words
    assert "Perplexity by inference mode" not in words
    assert main(["mixture", "show", "both"]) == 0
    assert by_itself in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("beside")
def test_a_mixture_of_several_says_that_its_gate_weighs_full_models() -> None:
    with transaction() as session:
        pair = mixtures.create_mixture(session, MixtureSpec(name="pair", experts=["c/code", "alone/poems"]))
        assert describe_inner_gates(pair).startswith(
            "This mixture's gate weighs whole models. Inside c/code (code), alone/poems (poems) gates mix"
        )
        assert describe_inner_gates(mixtures.get_mixture(session, "first")) == ""
    assert "Perplexity by inference mode" in output(open_page("mixtures", mixture="pair"))


def test_what_a_token_costs_is_shown_for_one_model_with_parts() -> None:
    costs = MixtureCosts(
        context=256,
        num_experts=1,
        num_parts=[2],
        forward=1_000_000,
        mixture=1_000_000,
        training=3_000_000,
        adapting=2_000_000,
        composing={"experts": 4_000_000, "gates": 2_500_000},
        shape=Shape(1, 8, 8, 8, 32, 2, 300, 8),
    )
    assert describe_costs(costs) == (
        "A token in a context of 256 costs 1 MFLOPs: one forward pass of one model. Its gates mix the backbone and "
        "2 parts inside. A token of training costs, forward and backward in this context: one part next to the frozen "
        "backbone 2 MFLOPs, all 2 at once 4 MFLOPs, only the gates 2.5 MFLOPs; the full backbone without parts 3 "
        "MFLOPs."
    )
    several = describe_costs(costs.model_copy(update={"num_experts": 2, "num_parts": [2, 1], "mixture": 2_000_000}))
    assert "that of the first expert; the mixture of 2 costs 2 MFLOPs." in several
    of_both = costs.model_copy(update={"num_experts": 2, "num_parts": [2, 0], "mixture": 2_000_000})
    assert "this mixture of 2 experts costs 2 MFLOPs" in describe_costs(of_both)
    for one in (costs, of_both):
        assert "dense model" not in describe_costs(one)
        assert "DEMix" not in counting_note(one)
    assert "DEMix" in counting_note(costs.model_copy(update={"num_parts": [0, 0]}))


def tables(app: Any) -> list[list[dict[str, Any]]]:
    return [frame.value.to_dict("records") for frame in app.dataframe]


@pytest.mark.usefixtures("beside")
def test_the_card_of_a_composition_shows_its_parts_and_what_it_is_made_of() -> None:
    app = open_page("experts", experts__chosen=["both/composed"])
    assert not app.exception
    (parts,) = [rows for rows in tables(app) if rows and "layers in each block" in rows[0]]
    assert [(row["part"], row["trained as"], row["own parameters"]) for row in parts] == [
        ("code", "c/code", "1 K"),
        ("prose", "p/prose", "2 K"),
    ]
    words = output(app)
    for made_of in ("c/code", "p/prose"):
        assert f"expert {made_of} → expert both/composed" in words


@pytest.mark.usefixtures("beside")
def test_the_comparison_names_parts_and_what_they_are_of() -> None:
    rows = differences([read(experts.get_expert, name) for name in ("both/composed", "c/code")])
    output = {row["property"]: (row["both/composed"], row["c/code"]) for row in rows}
    assert (output["parts"], output["composed of"]) == (("code, prose", "code"), ("c/code, p/prose", ""))
    assert not {"setting: parts", "setting: composed of"} & set(output)


@pytest.mark.usefixtures("beside")
def test_from_the_card_an_expert_goes_into_a_composition() -> None:
    app = open_page("experts", experts__chosen=["alone/poems"])
    assert "layers in each block" in str(tables(app))
    named(app.button, "Add to both/composed").click().run()
    assert not app.exception
    app.switch_page("app_pages/train.py").run()
    assert not app.exception
    assert named(app.multiselect, "Experts").value == ["both/composed", "alone/poems"]
    held = open_page("experts", experts__chosen=["c/code"])
    assert not [one.label for one in held.button if "Add to" in one.label]


@pytest.mark.usefixtures("beside")
def test_a_part_whose_expert_is_gone_says_so() -> None:
    with transaction() as session:
        row = experts.expert_row(session, "both/composed")
        parts = [{**part, "of": new_id()} for part in row.config["parts"]]
        row.config = {**row.config, "parts": parts}
    app = open_page("experts", experts__chosen=["both/composed"])
    assert "an expert that is gone" in str(tables(app))


def test_other_experts_have_no_parts() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert "Parts" not in [tab.label for tab in app.tabs]
    assert not [one.label for one in app.button if "Compose" in one.label]


def evaluated(**shares: Sequence[Sequence[float]]) -> list[MetricPoint]:
    """Of each domain the shares of backbone and parts at steps 0, 10, ..."""
    return [
        MetricPoint(name=f"gate/{number}/{domain}", step=10 * place, value=share)
        for domain, looks in shares.items()
        for place, look in enumerate(looks)
        for number, share in enumerate(look)
    ]


def test_the_gates_are_drawn_by_domain_with_one_colour_for_a_part() -> None:
    points = evaluated(code=[(1, 0, 0), (0.5, 0.4, 0.1)], law=[(1, 0, 0), (0.7, 0.1, 0.2)])
    picture = gates_picture(gate_shares(points), ["backbone", "code", "law"])
    assert picture.title == "Gate shares: each part weighs most on its own domain; a wider band is a larger weight"
    assert "After 10 steps: on code backbone 0.50, code 0.40, law 0.10, on law backbone 0.70" in picture.description
    assert [list(band.y) for band in picture.figure.data[:3]] == [[1, 0.5], [0, 0.4], [0, 0.1]]
    assert [band.line.color for band in picture.figure.data[:3]] == [
        band.line.color for band in picture.figure.data[3:]
    ]
    assert picture.table[1] == {"domain": "code", "step": 10, "backbone": 0.5, "code": 0.4, "law": 0.1}


def test_a_part_that_has_more_weight_elsewhere_is_not_called_in_domain() -> None:
    points = evaluated(code=[(0.5, 0.1, 0.4)], law=[(0.6, 0.2, 0.2)])
    title = gates_picture(gate_shares(points), ["backbone", "code", "law"]).title
    assert title.startswith("Gate shares: 0 of 2 parts weigh most on their own domain")


def test_a_difference_that_nobody_sees_is_no_say() -> None:
    def title(*names: str, **shares: Sequence[float]) -> str:
        looks = gate_shares(evaluated(**{domain: [look] for domain, look in shares.items()}))
        return gates_picture(looks, ["backbone", *names]).title.removeprefix("Gate shares: ")

    apart = "the gates do not distinguish the domains yet"
    assert title("code", "law", code=(0.36, 0.334, 0.306), law=(0.36, 0.331, 0.309)).startswith(apart)
    assert title("code", code=(0.4995, 0.5005), law=(0.5, 0.5)).startswith(apart)
    assert title("code", code=(0.4, 0.6), law=(0.5, 0.5)).startswith(
        "code has more weight on its own domain than elsewhere"
    )
    assert title("code", code=(0.6, 0.4), law=(0.5, 0.5)).startswith(
        "code has no more weight on its own domain than elsewhere"
    )
    assert title("code", "law", code=(0.3, 0.4, 0.3), law=(0.4, 0.305, 0.295)).startswith(
        "1 of 2 parts weighs most on its own domain"
    )


def test_an_incomplete_evaluation_is_not_drawn() -> None:
    points = evaluated(code=[(1, 0), (0.5, 0.5)])
    assert gate_shares(points[:-1]) == {"code": {0: [1, 0]}}
    assert gate_shares([]) == {}
