"""Choices and the page's address: what one holds is what the other says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.studio.conftest import HOSTILE
from tests.ui.studio.visits import STUDIO, named
from ui.present.jobs.job_status import by_turn
from workbench.job_records import jobs, leases
from workbench.kinds.analysis import Evaluate
from workbench.registry.database import reading, transaction

pytestmark = pytest.mark.usefixtures("filled_home")


def visit(page: str, address: dict[str, Any] | None = None) -> AppTest:
    """A page, opened by its address in a new browser."""
    app = AppTest.from_file(STUDIO, default_timeout=120).run()
    app.query_params.update(address or {})
    app.switch_page(f"app_pages/{page}.py").run()
    assert not app.exception
    return app


def warnings(app: AppTest) -> list[str]:
    """What the page warns of, without Markdown's backslashes."""
    return [re.sub(r"\\(.)", r"\1", one.value) for one in app.warning]


def test_an_address_opens_the_choices_that_it_names() -> None:
    app = visit("experts", {"experts.search": "first", "experts.chosen": ["first/code", f"first/{HOSTILE}"]})
    assert named(app.text_input, "Search").value == "first"
    assert app.multiselect(key="experts.chosen").value == ["first/code", f"first/{HOSTILE}"]


def test_a_browser_that_is_late_shows_the_choices_of_the_address_too() -> None:
    """The session's value is sent once: a field that is drawn after the next run shows its default."""
    address = {"experts.search": "first", "experts.method": "demix", "experts.split": "dev", "experts.view": "Cards"}
    app = visit("experts", address)
    assert named(app.text_input, "Search").proto.default == "first"
    groups = {one.label: one.proto for one in app.get("button_group")}
    assert [groups[name].default for name in ("Held-out text", "View")] == [[1], [0]]
    assert groups["Method"].default
    app = visit("experts", {"experts.chosen": ["first/code"]})
    assert app.multiselect(key="experts.chosen").proto.default


def test_a_choice_is_written_into_the_address_and_the_usual_one_is_not() -> None:
    app = visit("experts")
    assert app.query_params == {}
    app.multiselect(key="experts.chosen").set_value(["first/code"]).run()
    named(app.text_input, "Search").set_value("co").run()
    assert app.query_params == {"experts.chosen": "first/code", "experts.search": "co"}
    app.multiselect(key="experts.chosen").set_value([]).run()
    assert app.query_params == {"experts.search": "co"}


def test_the_open_tab_of_an_expert_has_an_address() -> None:
    address = {"experts.chosen": "first/code", "experts.tab": "Lineage"}
    app = visit("experts", address)
    assert app.session_state["experts.tab"] == "Lineage"
    assert app.query_params == address
    app.session_state["experts.tab"] = "Use it"  # the first, which is the usual one
    assert app.run().query_params == {"experts.chosen": "first/code"}
    assert visit("experts", address | {"experts.tab": "nothing"}).query_params == {"experts.chosen": "first/code"}


def test_what_is_switched_and_weighed_on_a_mixture_has_an_address() -> None:
    address = {"mixture": "first", "mixture.set": ["first/code:off", "first/prose:0.5", "nobody:off"]}
    app = visit("mixtures", address)
    assert not named(app.toggle, "first/code").value
    assert named(app.slider, "Weight of first/prose").value == 0.5
    assert app.query_params["mixture.set"] == ["first/code:off", "first/prose:0.5"]
    named(app.toggle, "first/code").set_value(True).run()
    assert app.query_params["mixture.set"] == "first/prose:0.5"
    named(app.button, "Discard changes").click().run()
    assert "mixture.set" not in app.query_params
    assert named(app.slider, "Weight of first/prose").value == 1.0


def test_the_gate_of_a_mixture_has_an_address() -> None:
    address = {"mixture": "first", "mixture.gate": ["kind:updating", "newest_weight:0.75"]}
    app = visit("mixtures", address)
    assert named(app.selectbox, "Weights come from").value == "updating"
    weight = next(one for one in app.number_input if one.value == 0.75)
    assert app.query_params["mixture.gate"] == address["mixture.gate"]
    weight.set_value(0.5).run()
    assert app.query_params["mixture.gate"] == ["kind:updating", "newest_weight:0.5"]
    named(app.button, "Discard changes").click().run()
    assert "mixture.gate" not in app.query_params
    assert named(app.selectbox, "Weights come from").value == "posterior"


def test_a_new_mixture_has_an_address() -> None:
    address = {
        "mixture.new.name": "fresh",
        "mixture.new.experts": ["first/code", "first/prose"],
        "mixture.new.gate": ["kind:updating", "newest_weight:0.75"],
    }
    app = visit("mixtures", address)
    assert next(one for one in app.expander if one.label == "New mixture").proto.expanded
    assert app.text_input(key="mixture.new.name").value == "fresh"
    assert app.multiselect(key="mixture.new.experts").value == ["first/code", "first/prose"]
    assert app.number_input(key="mixture.new.gate.newest_weight").value == 0.75
    assert app.query_params == address
    app.text_input(key="mixture.new.name").set_value("").run()
    assert "mixture.new.name" not in app.query_params
    app = visit("mixtures", {"mixture.new.experts": ["nobody", "first/code"], "mixture.new.gate": "kind:magic"})
    assert any("Experts in the address: there is no “nobody” here." in warning for warning in warnings(app))
    assert any("There is no gate “magic”" in warning for warning in warnings(app))
    assert app.query_params == {"mixture.new.experts": "first/code"}
    assert not next(one for one in visit("mixtures").expander if one.label == "New mixture").proto.expanded


@pytest.mark.parametrize(
    ("key", "page", "address", "label"),
    [
        ("posteriors.blocks", "posteriors", {"posterior.view": "All domains"}, "Max blocks"),
        ("modes.blocks", "mixtures", {}, "Dev blocks for a cached prior"),
    ],
)
def test_a_number_of_blocks_has_an_address(key: str, page: str, address: dict[str, Any], label: str) -> None:
    app = visit(page, address | {key: "40"})
    assert app.number_input(key=key).value == 40
    app.number_input(key=key).set_value(60).run()
    assert app.query_params[key] == "60"
    app.number_input(key=key).set_value(20_000).run()
    errors = [one.value.replace("\\", "") for one in app.error]
    assert any("must be a whole number from 1 to 10,000, not 20,000" in error for error in errors)
    assert app.query_params[key] == "60"  # what is no state of the page has no address
    app.number_input(key=key).set_value(100).run()
    assert key not in app.query_params
    for wrong in ("0", "many", "1.5", "²", "9" * 5000):
        app = visit(page, address | {key: wrong})
        fault = f"{label} in the address: “{wrong}” is not a whole number from 1 to 10,000. Shown instead: 100."
        assert fault in warnings(app)
        assert app.number_input(key=key).value == 100
        assert key not in app.query_params


def test_evidence_by_numbers_has_an_address() -> None:
    numbers = ["evidence.decay:0.9", "evidence.power:0.3", "evidence.slow_decay:1.0", "evidence.slow_power:0.0"]
    app = visit("mixtures", {"mixture": "first", "mixture.gate": numbers})
    assert app.query_params["mixture.gate"] == numbers
    assert {0.9, 0.3} <= {one.value for one in app.number_input}


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ({"mixture": "nobody"}, "there is no “nobody” here. Shown instead: first"),
        ({"mixture.gate": "kind:magic"}, "There is no gate “magic”"),
        ({"mixture.gate": "temperature:1"}, "has no setting “temperature”"),
        ({"mixture.gate": "top_k:0"}, "must be at least 1"),
        ({"mixture.set": "first/prose:99"}, "“first/prose:99” is neither on, off nor a weight from 0 to 5"),
        ({"mixture.set": ["nobody:off", "<b>"]}, "“nobody:off” names no expert that can take part here"),
    ],
)
def test_what_an_address_cannot_mean_is_shown_until_something_is_chosen(address: dict[str, Any], words: str) -> None:
    app = visit("mixtures", {"mixture": "first"} | address)
    (warning,) = warnings(app)
    assert words in warning
    assert app.query_params.get("mixture", "first") == "first"
    assert not {"mixture.gate", "mixture.set"} & set(app.query_params)
    assert len(app.run().warning) == 1  # a part of the page that draws itself again does not take it away
    named(app.toggle, "first/code").set_value(False).run()
    if "mixture.set" in address:
        assert not app.warning


def test_what_the_gate_of_a_text_sees_has_an_address() -> None:
    app = visit("posteriors", {"posterior.mixture": "first", "posterior.gate": "evidence:last_token"})
    assert app.query_params["posterior.gate"] == "evidence:last_token"
    assert "last_token" in [one.value for one in app.selectbox]
    app = visit("posteriors", {"posterior.mixture": "first", "posterior.gate": "kind:fixed", "posterior.off": "a: b"})
    assert any("cannot be set here, where evidence can" in warning for warning in warnings(app))
    assert any("names no part of an expert here" in warning for warning in warnings(app))


def test_a_job_has_an_address() -> None:
    with reading() as session:
        failed = jobs.list_jobs(session, state="failed")[0].id
    app = visit("jobs_page", {"job": failed})
    assert app.selectbox(key="job").value == failed
    assert "job" not in visit("jobs_page").query_params  # the usual one changes with time


def test_the_page_jobs_opens_on_the_job_whose_turn_is_first() -> None:
    with transaction() as session:
        later = [jobs.create_job(session, Evaluate(mixture="first"), f"Later {number}") for number in range(2)]
        first = by_turn(jobs.list_jobs(session))[0].id
    assert first not in later[1:]
    assert visit("jobs_page").selectbox(key="job").value == first


def test_the_page_jobs_stays_on_the_job_of_the_address_when_it_ends() -> None:
    with transaction() as session:
        watched = jobs.create_job(session, Evaluate(mixture="first"), "The watched")
        fence = leases.claim(session, watched, "test", 600.0, 3)
    assert fence is not None
    app = visit("jobs_page", {"job": watched, "job_states": ["running"]})
    sent_back = app.selectbox(key="job").options
    with transaction() as session:
        leases.finish(session, watched, fence, "cancelled")
    app.run()
    assert app.selectbox(key="job").value == watched
    assert set(sent_back) <= set(app.selectbox(key="job").options)
    assert app.query_params["job"] == watched


def test_an_unknown_job_in_the_address_is_named() -> None:
    app = visit("jobs_page", {"job": "abc"})
    assert "There is no job with the id “abc”." in app.error[0].value
    assert "Next step" in app.error[0].value


def test_what_an_address_names_and_is_not_there_is_left_out() -> None:
    app = visit("experts", {"experts.chosen": ["nobody", "first/code"], "experts.split": "train"})
    assert app.multiselect(key="experts.chosen").value == ["first/code"]
    assert app.query_params == {"experts.chosen": "first/code"}


def test_an_address_that_a_click_overtook_takes_no_choice_back() -> None:
    app = visit("experts")
    named(app.text_input, "Search").set_value("co").run()
    app.query_params.clear()  # as the browser sends it when the answer to the first click has not arrived
    app.multiselect(key="experts.chosen").set_value(["first/code"]).run()
    assert named(app.text_input, "Search").value == "co"
    assert app.query_params == {"experts.chosen": "first/code", "experts.search": "co"}


def test_another_page_reads_its_own_address() -> None:
    app = visit("experts", {"experts.search": "co"})
    app.query_params.clear()
    app.switch_page("app_pages/mixtures.py").run()
    app.query_params["experts.search"] = "prose"
    app.switch_page("app_pages/experts.py").run()
    assert named(app.text_input, "Search").value == "prose"


def test_a_link_may_name_the_usual_choice() -> None:
    app = visit("mixtures", {"mixture": "first"})
    assert app.query_params == {"mixture": "first"}  # taking it out would be an entry in the browser's history
