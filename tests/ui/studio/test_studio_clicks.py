"""Clicks do what they say, in the registry; and what cannot be done is refused with its next step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from streamlit.testing.v1 import AppTest

from tests.ui.studio.modes import add_composition, add_mode_expert
from tests.ui.studio.visits import STUDIO, answer_as, drawn_tokens, named, open_page, output, read, settled
from ui.client import Client
from ui.errors import ServerDownError
from ui.kinds.form import EXPERT
from ui.widgets import background
from workbench.answers.posteriors import Manifest, PosteriorAnswer
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.kinds.analysis import Evaluate, SelfCheck
from workbench.kinds.training.train_expert import TrainExpert
from workbench.questions.forgetting import Forgetting
from workbench.questions.parent_proposal import ParentProposal
from workbench.questions.perplexities import MixedDomain, MixedScores
from workbench.registry import experts, mixtures, reports
from workbench.registry.database import get_engine, transaction
from workbench.requests import planning
from workbench.settings import get_settings
from workbench.store.storage import get_storage

pytestmark = pytest.mark.usefixtures("filled_home")


def test_a_toggle_disables_an_expert_everywhere() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    named(app.toggle, "Enabled").set_value(False).run()
    assert not app.exception
    assert read(experts.get_expert, "first/code").enabled is False


def test_a_switch_made_elsewhere_is_seen_here() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    with transaction() as session:
        experts.set_enabled(session, ["first/code"], False)
    assert named(app.run().toggle, "Enabled").value is False


def test_several_experts_are_compared() -> None:
    app = open_page("experts", experts__chosen=["first/code", "first/prose"])
    assert "Bar chart of perplexity by domain. Lowest: " in output(app)


def test_an_expert_that_others_came_from_is_not_deleted() -> None:
    hostile = next(card.name for card in read(experts.list_experts) if "law" in card.name and "/" in card.name)
    app = open_page("experts", experts__chosen=[hostile])
    assert "needed by expert laws again" in output(app)
    assert not [button for button in app.button if button.label == "Delete"]


def test_an_expert_that_a_composition_has_copies_of_is_deleted_as_anywhere_else() -> None:
    with transaction() as session:
        part = add_mode_expert(session, "apps", "code")
        add_composition(session, "both", part, add_mode_expert(session, "prose", "prose"))
        mixtures.delete_mixture(session, "apps")
    app = open_page("experts", experts__chosen=[part.name])
    assert "cannot be deleted" not in output(app)
    named(app.checkbox, "for good").check().run()
    named(app.button, "Delete").click().run()
    assert f"{part.name} is deleted" in output(app)


def test_an_expert_that_nothing_needs_is_deleted_after_a_second_thought() -> None:
    app = open_page("experts", experts__chosen=["laws again"])
    assert named(app.button, "Delete").disabled
    named(app.checkbox, "for good").check().run()
    named(app.button, "Delete").click().run()
    assert "laws again is deleted" in output(app)
    assert "laws again" not in {card.name for card in read(experts.list_experts)}


def test_an_expert_is_renamed_and_stays_in_sight() -> None:
    app = open_page("experts", experts__chosen=["laws again"])
    named(app.text_input, "New name").set_value("statutes")
    named(app.button, "Rename").click().run()
    assert app.session_state["experts.chosen"] == ["statutes"]
    assert read(experts.get_expert, "statutes").name == "statutes"


def test_an_expert_that_a_job_names_is_not_renamed_and_the_page_says_why() -> None:
    with transaction() as session:
        rows.create_job(session, Evaluate(mixture="first", experts=["laws again"]), "Score it, too")
    app = open_page("experts", experts__chosen=["laws again"])
    named(app.text_input, "New name").set_value("statutes")
    named(app.button, "Rename").click().run()
    assert "cannot be renamed: it is needed by job “Score it, too”" in output(app)
    assert read(experts.get_expert, "laws again")


CERTIFICATE = {
    "expert": "first/code",
    "mixture": "first",
    "ok": True,
    "sentence": "Nothing that existed was changed.",
    "folders": [{"what": "the base", "num_files": 4, "sha256": "ab", "recorded_before": True, "faults": []}],
    "domains": [
        {"domain": "prose", "num_tokens": 9, "before": 8.0, "after": 7.5, "is_new": False, "change_percent": -6.25},
        {"domain": "code", "num_tokens": 9, "before": 4.0, "after": 2.0, "is_new": True, "change_percent": -50.0},
    ],
    "alone": [{"domain": "code", "expert": 2.5, "parent": None}],
}


def test_an_addition_is_certified_from_the_experts_card() -> None:
    with transaction() as session:
        mixtures.add_member(session, "first", "laws again")
    app = open_page("experts", experts__chosen=["laws again"])
    assert "has not been certified" in output(app)
    named(app.button, "Certify the addition").click().run()
    assert not app.exception
    (job,) = [one for one in read(rows.list_jobs) if one.kind == "certify-addition"]
    assert (job.spec["expert"], job.spec["mixture"], job.title) == (
        "laws again",
        "first",
        "Certify addition laws again",
    )
    assert "Certify addition laws again" in output(app)


def test_an_expert_that_came_with_its_model_has_no_addition_to_certify() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert "was trained together with its model" in output(app)
    assert not [one for one in app.button if one.label == "Certify the addition"]


@pytest.mark.parametrize("ok", [True, False])
def test_a_certificate_is_read_on_the_experts_card(ok: bool) -> None:
    with transaction() as session:
        about = experts.get_expert(session, "first/code").id
        for sentence in ("An older one.", "<b>NEWEST</b>"):
            outcome = {**CERTIFICATE, "ok": ok, "sentence": sentence}
            reports.register_report(session, "addition", "Addition", outcome, about_id=about)
    app = open_page("experts", experts__chosen=["first/code"])
    assert not app.exception
    boxes = [one.value.replace("\\", "") for one in (app.success if ok else app.error)]
    assert boxes == ["<b>NEWEST</b>"]
    assert "An older one." in output(app)
    assert "Alone on code: perplexity 2.5 per token, its parent was not scored." in output(app)
    table = next(one.value for one in app.dataframe if "which" in one.value.columns)
    assert list(table["domain"]) == ["code", "prose"]


def test_an_expert_in_no_mixture_has_no_addition_to_certify() -> None:
    app = open_page("experts", experts__chosen=["laws again"])
    assert "there is no addition to certify" in output(app)
    assert not [one for one in app.button if one.label == "Certify the addition"]


def test_the_form_offers_to_train_the_full_model_and_to_watch_others() -> None:
    app = open_page("train", train__what=EXPERT)
    app.text_input(key="train-expert.name").set_value("dapt").run()
    app.selectbox(key="train-expert.domain").select("poems").run()
    named(app.checkbox, "Train the whole model instead").check().run()
    app.multiselect(key="train-expert.watch").select("code").run()
    assert "--full-model --watch code" in "".join(one.value for one in app.code)
    named(app.button, "Train the expert").click().run()
    spec = read(rows.get_job, app.session_state["train-expert.job"]).spec
    assert (spec["full_model"], spec["watch"], spec["domain"]) == (True, ["code"], "poems")


def test_the_form_queues_the_certificate_as_the_command_line_does() -> None:
    app = open_page("train", train__what=EXPERT)
    app.text_input(key="train-expert.name").set_value("poet").run()
    app.selectbox(key="train-expert.domain").select("poems").run()
    named(app.button, "Train the expert").click().run()
    training = app.session_state["train-expert.job"]
    (certificate,) = [one for one in read(rows.list_jobs) if one.kind == "certify-addition"]
    assert (certificate.after, certificate.spec["expert"]) == ([training], "poet")
    app = open_page("train", train__what=EXPERT)
    app.selectbox(key="train-expert.domain").select("poems").run()
    app.checkbox(key="train-expert.certify").uncheck().run()
    assert "--no-certificate" in "".join(one.value for one in app.code)
    app.text_input(key="train-expert.name").set_value("second").run()
    named(app.button, "Train the expert").click().run()
    assert len([one for one in read(rows.list_jobs) if one.kind == "certify-addition"]) == 1


def _nearest(_self: Client, **job_spec: Any) -> ParentProposal:
    return ParentProposal(
        **job_spec,
        parent="first/prose",
        posterior={"first/code": 0.1, "first/prose": 0.9},
        perplexity={"first/code": 90.0, "first/prose": 40.0},
        num_blocks=12,
        block_size=128,
        split="dev",
        learning_rate=5e-4,
    )


def test_the_parent_is_proposed_before_the_training_where_scores_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_page("train", train__what=EXPERT)
    assert "workbench evaluate run first --split dev --domains poems" in output(app)
    monkeypatch.setattr("ui.widgets.parents.unscored_parents", lambda *_: ([], 3))
    answer_as(monkeypatch, "nearest", _nearest)
    app = open_page("train", train__what=EXPERT)
    assert (
        "Proposed parent: first/prose, with a mean posterior of 0.90 over 12 held-out blocks of 128 tokens"
        in output(app)
    )
    assert "learns at 0.0005, a tenth of the rate of its first ancestor" in output(app)


def test_what_an_adapted_model_forgot_stands_on_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []

    def forgetting(_self: Client, **job_spec: Any) -> Forgetting:
        requested.append(job_spec)
        row = {"role": "train", "num_tokens": 9, "block_size": 8, "before": 10.0}
        answer = {
            **job_spec,
            "split": "test",
            "domains": [
                {**row, "domain": "code", "is_target": False, "after": 15.0, "change_percent": 50.0},
                {**row, "domain": "prose", "is_target": True, "after": 5.0, "change_percent": -50.0},
            ],
            "averages": {
                "target": {"num_domains": 1, "change_percent": -50.0},
                "train": {"num_domains": 1, "change_percent": 50.0},
                "novel": {"num_domains": 0, "change_percent": None},
            },
        }
        return Forgetting.model_validate(answer)

    answer_as(monkeypatch, "forgetting", forgetting)
    app = open_page("experts", experts__chosen=["laws again"])
    assert requested == []
    with transaction() as session:
        experts.expert_row(session, "laws again").config = {"full_model": True}
    app = open_page("experts", experts__chosen=["laws again"])
    assert not app.exception
    assert requested[0]["after"] == "laws again"
    assert "On the target: −50.0 %." in output(app)
    assert "On average over 1 train domain: +50.0 %." in output(app)
    table = next(one.value for one in app.dataframe if "change (%)" in one.value.columns)
    assert list(table["domain"]) == ["prose", "code"]


def test_what_was_watched_and_why_this_parent_stand_on_the_job() -> None:
    job_spec = TrainExpert(name="poet", domain="poems", mixture="first", watch=["code"])
    result = {"expert": "poet", "parent": "first/prose", "parent_blocks": 12}
    result["parent_posterior"] = {"first/prose": 0.9, "first/code": 0.1}
    with transaction() as session:
        job_id = rows.create_job(session, job_spec)
        fence = leases.claim(session, job_id, "test", 60.0, 3)
        curve = [(f"dev_loss/{name}", step, loss) for name in ("poems", "code") for step, loss in ((0, 3.0), (9, 2.0))]
        leases.record(session, job_id, fence, progress=0.9, note="", metrics=curve)
        leases.finish(session, job_id, fence, "done", result=result)
    app = open_page("jobs_page", job=job_id)
    assert not app.exception
    assert "While the target was learned" in output(app)
    assert "Why this parent" in output(app)
    assert "The mean over 12 held-out blocks" in output(app)


def test_the_train_form_submits_a_job() -> None:
    app = open_page("train", train__what=EXPERT)
    app.text_input(key="train-expert.name").set_value("poet").run()
    app.selectbox(key="train-expert.preset").select("Quick look (60 steps)").run()
    app.selectbox(key="train-expert.domain").select("poems").run()
    named(app.button, "Train the expert").click().run()
    job = read(rows.get_job, app.session_state["train-expert.job"])
    assert (job.spec["name"], job.spec["domain"], job.spec["training"]["num_steps"]) == ("poet", "poems", 60)
    assert "“Train expert poet” is submitted." in output(app)
    assert app.query_params["job"] == job.id  # of the page Jobs, where its card is in view
    assert "Waiting for a free worker" in "".join(one.proto.text for one in app.get("progress")).replace("\\", "")


def test_a_form_that_is_not_filled_in_says_what_is_missing() -> None:
    app = open_page("train", train__what=EXPERT)
    named(app.button, "Train the expert").click().run()
    assert "a name must have 1 to 80 characters" in app.error[0].value.replace("\\", "")
    assert "train-expert.job" not in app.session_state


def test_a_failed_job_shows_its_cause_and_is_retried() -> None:
    failed = next(job for job in read(rows.list_jobs) if job.state == "failed")
    app = open_page("jobs_page", job=failed.id)
    assert "The loss is NaN at step 12." in output(app)
    assert "Choose a smaller learning_rate" in output(app)
    named(app.button, "Retry").click().run()
    assert read(rows.get_job, failed.id).state == "queued"


def test_a_running_job_that_was_cancelled_is_shown_as_stopping() -> None:
    running = next(job for job in read(rows.list_jobs) if job.state == "running")
    app = open_page("jobs_page", job=running.id)
    assert "This also cancels 1 job that waits for it: Evaluate first." in output(app)
    assert "this one from its last checkpoint" in output(app)
    named(app.button, "Cancel the job").click().run()
    assert read(rows.get_job, running.id).stop_requested == "cancel"
    assert "stopping (cancel requested)" in output(app)


def test_a_job_just_submitted_that_no_other_waits_for_is_cancelled_by_one_click() -> None:
    with transaction() as session:
        job_id = rows.create_job(session, Evaluate(mixture="first"))
    app = open_page("jobs_page", job=job_id, evaluate__job=job_id)
    named(app.button, "Cancel").click().run()
    assert read(rows.get_job, job_id).state == "cancelled"


def mixed(_self: Client, **job_spec: Any) -> MixedScores:
    """An honest stand-in for the server: the perplexity is the number of experts that take part."""
    active = job_spec.get("active") or [m.expert for m in read(mixtures.get_mixture, "first").members if m.active]
    row = MixedDomain(
        domain="code",
        num_tokens=9,
        block_size=8,
        perplexity=float(len(active)),
        best_expert="first/code",
        perplexity_by_expert={"first/code": 9.0},
    )
    return MixedScores(experts=list(active), domains=[row], seconds=0.002)


def test_moving_a_toggle_saves_nothing_until_it_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    app = open_page("mixtures")
    assert "These are the saved settings." in output(app)
    settled(named(app.toggle, "first/code").set_value(False).run())
    assert "from 3.0 to 2.0 per token" in output(app)
    assert all(member.active for member in read(mixtures.get_mixture, "first").members)
    settled(app.button(key="mixture.save").click().run())
    assert [m.active for m in read(mixtures.get_mixture, "first").members] == [False, True, True]
    assert "These are the saved settings." in output(app)


def test_two_who_save_a_mixture_do_not_overwrite_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    one, other = open_page("mixtures"), open_page("mixtures")
    settled(named(other.toggle, "first/prose").set_value(False).run())  # not saved
    settled(named(one.toggle, "first/code").set_value(False).run())
    settled(one.button(key="mixture.save").click().run())
    settled(other.button(key="mixture.save").click().run())
    assert [m.active for m in read(mixtures.get_mixture, "first").members] == [False, True, True]  # the first one's
    settled(other.run())
    assert "saved elsewhere meanwhile: without first/code" in output(other)
    assert not named(other.toggle, "first/prose").value
    settled(other.button(key="mixture.load").click().run())
    assert [named(other.toggle, name).value for name in ("first/code", "first/prose")] == [False, True]
    assert "These are the saved settings." in output(other)


def test_a_click_on_a_toggle_reads_the_mixture_and_its_scores_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[dict[str, Any]] = []

    def mix(client: Client, **request: Any) -> MixedScores:
        if "gate" in request:  # of this page: the overview, where a visit starts, names the mixture alone
            requests.append(request)
        return mixed(client, **request)

    answer_as(monkeypatch, "mix", mix)
    app = open_page("mixtures")
    assert len(requests) == 1  # what is chosen is what is saved
    with statements_by_name("mixtures") as by_name:
        settled(named(app.toggle, "first/code").set_value(False).run())
        assert len(by_name) == 1  # as it is saved now; the choice of a mixture has listed all of them
        read(planning.plan, get_storage(get_settings()), "first")  # as the API server does for the same click
        assert len(by_name) == 2
    (request,) = requests[1:]
    assert (request["mixture"], len(request["active"])) == ("first", 2)


@contextmanager
def statements_by_name(table: str) -> Iterator[list[str]]:
    """The statements that look for a row of this table by its name meanwhile."""
    outcome: list[str] = []

    def see(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if f"WHERE {table}.name = " in statement:
            outcome.append(statement)

    engine = get_engine()
    event.listen(engine, "before_cursor_execute", see)
    try:
        yield outcome
    finally:
        event.remove(engine, "before_cursor_execute", see)


def test_a_choice_of_nobody_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    app = open_page("mixtures")
    for toggle in [one for one in app.toggle if one.value]:
        toggle.set_value(False)
    settled(app.run())
    assert output(app).count("Switch on at least one.") == 1
    assert app.button(key="mixture.save").disabled


def test_an_api_server_that_is_away_is_named_with_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_self: Client, **_spec: Any) -> MixedScores:
        raise ServerDownError("The API server does not answer.", "Start it with `workbench up`.")

    answer_as(monkeypatch, "mix", away)
    app = open_page("mixtures")
    assert "Start it with `workbench up`" in output(app)
    answer_as(monkeypatch, "mix", mixed)
    settled(named(app.button, "Retry").click().run())
    assert "Exact, from stored scores" in output(app)


def test_an_api_server_that_is_back_is_seen_without_a_click(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_self: Client, **_spec: Any) -> MixedScores:
        raise ServerDownError("The API server does not answer.", "Start it with `workbench up`.")

    monkeypatch.setattr(background, "_LOOK_AGAIN_SECONDS", 0.0)
    answer_as(monkeypatch, "mix", away)
    app = open_page("mixtures")
    assert "Exact, from stored scores" not in output(app)
    answer_as(monkeypatch, "mix", mixed)
    settled(app.run())
    assert "Exact, from stored scores" in output(app)


def test_a_posterior_is_shown_as_words_lines_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = PosteriorAnswer(
        experts=["e", "f"],
        tokens=["<b>", "x"],
        weights=[[0.7, 0.3], [0.2, 0.8]],
        logprobs=[-1.0, -1.0],
        best=[("x", -1.0), ("x", -1.0)],
        gate_weights=[{}, {}],
        manifest=Manifest(model="first", experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None),
    )
    monkeypatch.setattr(Client, "posterior", lambda _self, **_spec: answer)
    app = open_page("posteriors")
    app.text_area(key="posterior.text").set_value("<b>x").run()
    settled(named(app.button, "Show the posterior").click().run())
    assert "f has the largest mean weight" in output(app)
    (drawn,) = drawn_tokens(app)
    assert drawn["tokens"] == ["<b>", "x"]
    assert drawn["weights"] == answer.weights
    assert drawn["leads"] == [0, 1]
    assert drawn["titles"]["strip"] == "e leads at 50 % of the tokens; the lead changes 1 time"


def test_a_text_that_was_read_stands_in_the_address_unless_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def posterior(_self: Client, **request: Any) -> PosteriorAnswer:
        requested.append(request["text"])
        raise ServerDownError("The API server does not answer.", "Start it.")

    monkeypatch.setattr(Client, "posterior", posterior)
    app = open_page("posteriors")
    app.query_params["posterior.text"] = "from a link"
    settled(app.run())
    assert requested == ["from a link"]
    assert app.text_area(key="posterior.text").value == "from a link"

    app.text_area(key="posterior.text").set_value("<i> & more").run()
    assert app.query_params["posterior.text"] == "from a link"  # not read yet
    settled(named(app.button, "Show the posterior").click().run())
    assert app.query_params["posterior.text"] == "<i> & more"

    app.text_area(key="posterior.text").set_value("é" * 1001).run()
    settled(named(app.button, "Show the posterior").click().run())
    assert "posterior.text" not in app.query_params
    assert "too long for an address" in output(app)
    assert requested == ["from a link", "<i> & more", "é" * 1001]


def test_no_text_is_reported_as_missing() -> None:
    app = open_page("posteriors")
    settled(named(app.button, "Show the posterior").click().run())
    assert "There is no text yet." in app.warning[0].value


@pytest.mark.parametrize(
    ("choice", "button"),
    [
        ("Seed model", "Make the seed model"),
        ("DEMix, LoRA, MoE or dense", "Train the experts"),
        ("New expert", "Train the expert"),
        ("Evaluation", "Score the experts"),
        ("Average", "Average them"),
        ("Few-shot classification", "Classify the texts"),
    ],
)
def test_every_form_of_the_train_page_opens(choice: str, button: str) -> None:
    app = open_page("train", train__what=choice)
    assert not app.exception
    assert named(app.button, button)
    assert any("workbench" in one.value for one in app.code)


def test_the_queue_says_that_it_is_cut_and_finds_an_old_job_by_its_state() -> None:
    with transaction() as session:
        for _ in range(rows.NEWEST):
            rows.create_job(session, SelfCheck())
    app = open_page("jobs_page")
    assert f"The newest {rows.NEWEST} of " in output(app)
    app.pills(key="job_states").set_value(["failed"]).run()
    assert "NaN" in output(app)
    assert "The newest" not in output(app)
    links = AppTest.from_file(STUDIO, default_timeout=120).run().get("page_link")
    assert f"See {rows.NEWEST + 3} unfinished jobs" in [link.proto.label for link in links]


def test_an_example_of_two_domains_is_there_to_start_from() -> None:
    app = open_page("posteriors")
    named(app.button, "Take an example").click().run()
    text = app.text_area(key="posterior.text").value
    assert "def add" in text
    assert "bright cold day" in text
