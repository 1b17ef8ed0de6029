"""Numbers out of their range: the studio says so beside the field, and sends nothing in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ui.studio.visits import named, open_page
from ui.present.forms.questions import number_fault
from workbench.job_records import jobs
from workbench.registry.database import reading

UI = Path(__file__).parents[3] / "ui"
pytestmark = pytest.mark.usefixtures("filled_home")


def errors(app: Any) -> list[str]:
    assert not app.exception
    return [one.value.replace("\\", "") for one in app.error]


def num_jobs() -> int:
    with reading() as session:
        return len(jobs.list_jobs(session))


def test_a_number_out_of_its_range_is_named_and_no_job_is_submitted() -> None:
    before = num_jobs()
    app = open_page("train", train__what="New expert")
    app.text_input(key="train-expert.name").set_value("fresh").run()
    app.number_input(key="train-expert.training.num_steps").set_value(-5)
    named(app.button, "Train the expert").click().run()  # one answer to both, as of a click straight from the field
    assert errors(app) == ["Steps must be a whole number from 1 to 2,147,483,647, not -5."]
    assert named(app.button, "Train the expert").disabled
    assert num_jobs() == before


def test_a_gate_with_a_number_out_of_its_range_is_not_saved() -> None:
    app = open_page("mixtures")
    named(app.selectbox, "Weights come from").select("updating").run()
    weight = next(one for one in app.number_input if "newest_weight" in one.key)
    weight.set_value(7.0).run()
    assert any(
        f"{weight.label} must be a number from 0 to 1, not 7. Used until then: 0." in error for error in errors(app)
    )
    assert named(app.button, "Save to").disabled
    assert app.query_params["mixture.gate"] == "kind:updating"
    named(app.button, "Discard changes").click().run()
    assert not any("must be a number" in error for error in errors(app))


def test_a_weight_below_zero_is_refused_when_the_average_is_submitted() -> None:
    app = open_page("train", train__what="Average")
    app.multiselect(key="average-experts.experts").set_value(["first/code", "first/prose"]).run()
    named(app.checkbox, "by hand").check().run()
    named(app.number_input, "Weight of first/prose").set_value(-1.0).run()
    before = num_jobs()
    named(app.button, "Average them").click().run()
    assert any("Weight of first/prose must be a number of at least 0, not -1." in error for error in errors(app))
    assert num_jobs() == before


def test_a_prior_of_too_many_blocks_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("ui.client.Client.estimate_prior", lambda _, **options: calls.append(options))
    app = open_page("mixtures")
    app.text_input(key="prior.estimate.name").set_value("mine")
    app.number_input(key="prior.estimate.blocks").set_value(20_000)
    named(app.button, "Estimate").click().run()
    assert any(
        "Blocks of dev text must be a whole number from 1 to 10,000, not 20,000." in error for error in errors(app)
    )
    assert calls == []
    app.number_input(key="prior.estimate.blocks").set_value(20)
    named(app.button, "Estimate").click().run()
    assert [call["num_blocks"] for call in calls] == [20]


def test_every_number_of_the_studio_is_drawn_in_one_place() -> None:
    places = {path.name for path in UI.rglob("*.py") if "number_input(" in path.read_text(encoding="utf-8")}
    assert places == {"fields.py"}


@pytest.mark.parametrize(
    ("value", "bounds", "is_integer", "fault"),
    [
        (5, (1, 5), True, ""),
        (None, (1, 5), True, ""),
        (2.5, (1, 5), True, "It must be a whole number from 1 to 5, not 2.5."),
        (2.0**60, (0, 2**53 - 1), True, f"It must be a whole number from 0 to {2**53 - 1:,}, not {2**60:,}."),
        (0.5, (None, 0.1), False, "It must be a number of at most 0.1, not 0.5."),
        (-3, (None, None), True, ""),
    ],
)
def test_a_fault_names_the_range(value: Any, bounds: tuple[Any, Any], is_integer: bool, fault: str) -> None:
    assert number_fault("It", value, *bounds, is_integer) == fault
