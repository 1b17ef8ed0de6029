"""From one page to the next: the selection is kept, and each page opens on what there is to see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.text.tokenizer import train_tokenizer
from tests.ui.studio.conftest import TEXTS
from tests.ui.studio.modes import add_composition, add_mode_expert
from tests.ui.studio.visits import answer_as, named, open_page, output, read
from ui.api.app import create_app
from ui.kinds.form import EXPERT
from ui.playground.opening import FIRST_PROMPT, Opening
from ui.present.pages import LEARNED_AND_KEPT
from workbench.job_records import jobs
from workbench.questions.perplexities import MixedScores
from workbench.registry import aliases, experts, mixtures
from workbench.registry.database import transaction
from workbench.schema.tables import Evaluation
from workbench.settings import get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

pytestmark = pytest.mark.usefixtures("filled_home")


@pytest.fixture
def beside(filled_home: object) -> None:
    """Experts of MoDE beside “tiny” that nobody scored: “c/code”, “p/prose”, both in “both/composed”."""
    with transaction() as session:
        pair = [add_mode_expert(session, name, domain) for name, domain in (("c", "code"), ("p", "prose"))]
        add_composition(session, "both", *pair)


def next_page(app: Any, button: str, page: str) -> Any:
    """The page that a button leads to."""
    named(app.button, button).click().run()
    assert not app.exception
    app.switch_page(f"app_pages/{page}.py").run()
    assert not app.exception
    return app


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("page", ["mixtures", "specialization"])
def test_missing_scores_lead_to_the_form_that_makes_them(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", lambda _self, **_spec: MixedScores(experts=[], domains=[], seconds=0.0))
    monkeypatch.setattr("ui.studio.job_views.pending_jobs.coming", lambda *_: None)
    key = {"mixtures": "mixture", "specialization": "specialization.mixture"}[page]
    app = open_page(page, **{key: "p", f"{page.removesuffix('s')}.split": "dev"})
    app = next_page(app, "Evaluate", "train")
    assert app.selectbox(key="evaluate.mixture").value == "p"
    assert app.selectbox(key="evaluate.split").value == "dev"


@pytest.mark.usefixtures("beside")
def test_experts_that_were_ticked_are_compared_though_the_mixture_chosen_has_no_scores() -> None:
    app = open_page("experts", experts__chosen=["first/code", "c/code"])
    named(app.button, "learning and forgetting").click().run()
    app.session_state["specialization.mixture"] = "p"
    app.switch_page("app_pages/specialization.py").run()
    assert not app.exception
    assert named(app.multiselect, "Experts to compare").value == ["first/code", "c/code"]
    assert "None of these experts has been scored" not in output(app)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(
    ("page", "key"),
    [
        ("specialization", "specialization.mixture"),
        ("mixtures", "mixture"),
        ("posteriors", "posterior.mixture"),
        ("train", "train-expert.mixture"),
    ],
)
def test_a_page_opens_on_the_newest_mixture_that_was_scored(
    page: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_as(monkeypatch, "mix", lambda _self, **_spec: MixedScores(experts=[], domains=[], seconds=0.0))
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="a blend", experts=["first/code", "c/code"]))
    app = open_page(page, **({"train.what": EXPERT} if page == "train" else {}))
    assert app.selectbox(key=key).value == "first"


@pytest.mark.usefixtures("beside")
def test_the_default_mixture_is_served_or_has_most_scores_and_is_not_the_newest() -> None:
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="later", experts=["first/prose"]))
        mixtures.add_member(session, "first", "c/code")  # which has no scores
    assert [card.name for card in read(mixtures.most_useful_first)] == ["first", "later", "c", "p", "both"]
    with transaction() as session:
        aliases.set_alias(session, "pair@production", "p")
    assert read(mixtures.most_useful_first)[0].name == "p"


@pytest.mark.usefixtures("beside")
def test_learned_and_kept_opens_on_the_mixture_and_on_what_it_is_composed_of() -> None:
    app = open_page("specialization", specialization__view=LEARNED_AND_KEPT, specialization__mixture="both")
    assert not app.exception
    assert named(app.multiselect, "Experts to compare").value == ["both/composed", "c/code", "p/prose"]
    assert named(app.multiselect, "Target domains").value == ["code", "prose"]
    app.selectbox(key="specialization.mixture").set_value("c").run()
    assert named(app.multiselect, "Experts to compare").value == ["c/code"]


@pytest.mark.usefixtures("beside")
def test_what_is_missing_is_scored_by_a_click() -> None:
    chosen = {"specialization.view": LEARNED_AND_KEPT, "specialization.compared": ["first/code", "c/code"]}
    app = open_page("specialization", **chosen)
    named(app.button, "Score what is missing").click().run()
    assert not app.exception
    assert not app.error
    specs = [job.spec for job in read(jobs.list_jobs) if job.kind == "evaluate" and job.spec["max_tokens"]]
    assert [(spec["mixture"], spec["experts"], spec["max_tokens"]) for spec in specs] == [("c", ["first/code"], 2048)]


def test_an_example_is_cut_to_what_the_model_can_read() -> None:
    tokenizer = train_tokenizer(TEXTS.values(), 300)
    base = get_storage().path(read(experts.get_expert, "first/code").base_id)
    tokenizer.save(base)
    (base / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    app = open_page("posteriors", posterior__mixture="first")
    named(app.button, "Take an example").click().run()
    assert not app.exception
    assert not app.error
    text = app.text_area(key="posterior.text").value
    assert 40 < len(tokenizer.encode(text)) < 63
    assert "def add" in text
    assert "clocks" in text


@pytest.mark.usefixtures("beside")
def test_experts_that_were_measured_on_different_tokens_can_be_scored_on_the_same() -> None:
    app = open_page("experts", experts__chosen=["first/code", "c/code"])
    assert "No domain was scored with all of them" in output(app)
    named(app.button, "Score what is missing").click().run()
    assert not app.exception
    requests = [job.spec for job in read(jobs.list_jobs) if job.spec.get("domains") == ["code"]]
    assert [request["experts"] for request in requests if request["kind"] == "evaluate"] == [["first/code"]]
    assert "Score what is missing" not in str(
        open_page("experts", experts__chosen=["first/code", "first/prose"]).button
    )


def test_who_cannot_be_compared_is_named() -> None:
    with transaction() as session:
        experts.expert_row(session, "laws again").tokenizer_sha256 = "cd" * 32
    app = open_page(
        "specialization",
        **{"specialization.view": LEARNED_AND_KEPT, "specialization.compared": ["first/code", "laws again"]},
    )
    assert named(app.multiselect, "Experts to compare").value == ["first/code"]
    assert any("laws again" in box.value and "tokenizer" in box.value for box in app.info)


def test_the_playground_begins_with_text_of_what_its_mixture_knows() -> None:
    opening = Opening(create_app(get_settings(), playground=False).state.workbench)
    assert "def add" in opening.first_prompt("first", ["first"])
    assert opening.first_prompt("no mixture", ["first"]) == FIRST_PROMPT


def test_empty_cells_of_the_heatmap_are_named_and_scored_by_a_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.studio.job_views.pending_jobs.coming", lambda *_: None)
    with transaction() as session:
        for score in session.query(Evaluation):
            if (score.expert.name, score.domain.name) == ("first/code", "prose"):
                session.delete(score)
    app = open_page("specialization")
    assert "Not scored yet: first/code on prose." in output(app)
    named(app.button, "Score what is missing").click().run()
    assert not app.exception
    assert "1 evaluation job is queued for first." in output(app)
    job = read(jobs.list_jobs)[0]
    spec = {name: job.spec[name] for name in ("mixture", "domains", "split", "block_size", "max_tokens")}
    assert (job.kind, spec) == (
        "evaluate",
        {"mixture": "first", "domains": ["prose"], "split": "test", "block_size": 128, "max_tokens": 2048},
    )
