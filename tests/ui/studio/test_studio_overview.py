"""The overview: a first visit is led through the demo, a pasted text is kept and read by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from tests.ui.studio.conftest import fill
from tests.ui.studio.test_studio_clicks import mixed
from tests.ui.studio.visits import STUDIO, answer_as, drawn_tokens, named, open_page, output
from ui.client import Client
from ui.errors import ServerDownError
from ui.present.next_steps import STEP_AFTER, suggestions
from ui.studio.analysis import opening_text, text_reader
from ui.studio.shared import seed_answer
from ui.studio.shared.contents import Contents, read_contents
from ui.widgets.elements import components
from workbench.answers.posteriors import Manifest, PosteriorAnswer
from workbench.job_records import leases
from workbench.job_records.jobs import create_job
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.train_joint import TrainJoint
from workbench.questions.perplexities import MixedDomain, MixedScores
from workbench.registry.database import transaction
from workbench.registry.mixtures import create_mixture
from workbench.schema.tables import SeedModel
from workbench.settings import get_settings
from workbench.specs.requests import MixtureSpec


@pytest.fixture(autouse=True)
def _reads(_reads_on_request: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_text, "MOST_PARAMETERS", 3e9)


def overview() -> AppTest:
    return AppTest.from_file(STUDIO, default_timeout=120).run()


def measured(app: AppTest) -> AppTest:
    """The page as it looks again and again, once the mixtures are measured."""
    for _ in range(100):
        if "The stored scores are being mixed." not in output(app):
            return app
        app.run()
    raise AssertionError("the mixtures are never measured")


def values(app: AppTest) -> dict[str, str]:
    return {one.label.partition(",")[0]: one.value for one in app.metric}


def read_text(_self: Client, *, model: str, text: str, active: Sequence[str] = ()) -> PosteriorAnswer:
    """An honest stand-in for the server: of two experts the second leads and predicts the text better."""
    made_by = Manifest(model=model, experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None)
    is_full = not active
    numbers: dict[str, Any] = {
        "logprobs": [-1.0 if is_full else -1.5],
        "best": [("x", -1.0)],
        "gate_weights": [{}],
        "weights": [[0.25, 0.75]] if is_full else [[1.0]],
    }
    experts = ["first/code", "first/prose"] if is_full else [*active]
    return PosteriorAnswer(experts=experts, tokens=[text], manifest=made_by, **numbers)


@pytest.mark.usefixtures("home")
def test_an_empty_registry_offers_the_demo_and_one_s_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[str] = []
    monkeypatch.setattr("jobs.plans.demo.submit_demo", submitted.append)
    monkeypatch.setattr("jobs.plans.demo.why_not_real", lambda: "")
    app = overview()
    assert "1. Text becomes domains (later)" in output(app)
    named(app.button, "Make the demo").click().run()
    named(app.button, "Make the small demo").click().run()
    assert submitted == ["real", "small"]
    assert not app.exception


@pytest.mark.usefixtures("home")
def test_only_the_small_demo_is_offered_where_the_real_one_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.plans.demo.why_not_real", lambda: "It takes 4 GB of memory.")
    app = overview()
    assert [button.label for button in app.button if "demo" in button.label] == ["Make the small demo"]
    assert "It takes 4 GB of memory" in output(app)


@pytest.mark.usefixtures("home")
def test_a_failure_is_the_next_step_until_the_same_kind_of_job_succeeds() -> None:
    def ended(state: str) -> None:
        with transaction() as session:
            job_id = create_job(session, ImportCorpus(name="a", path="/a"), title="Import a")
            fence = leases.claim(session, job_id, "test", 60.0, 3)
            assert fence is not None
            leases.finish(session, job_id, fence, state)

    ended("failed")
    assert "“Import a” has failed." in output(overview())
    ended("done")
    assert "has failed" not in output(overview())


@pytest.mark.usefixtures("home")
def test_a_first_visit_sees_how_far_its_first_expert_is() -> None:
    with transaction() as session:
        create_job(session, ImportCorpus(name="a", path="/a"), title="Import a")
    app = overview()
    assert "Text becomes domains: 0 of 1 imported" in output(app)
    assert not [one for one in app.button if "demo" in one.label]
    with transaction() as session:
        job = create_job(session, TrainJoint(name="demo", seed_model="s", domains=["a"]), title="Train 5 experts")
        fence = leases.claim(session, job, "test", 60.0, 3)
        assert fence is not None
        leases.record(session, job, fence, progress=0.4, note="step 4 of 10", eta_seconds=46.0, eta_range=(46.0, 46.0))
    app.run()
    assert app.header[0].value.replace("\\", "") == "Your first expert is 40 % done"
    assert "3. Train 5 experts (now)" in output(app)
    assert "step 4 of 10 · about 46 s left" in output(app)
    assert [one.proto.value for one in app.get("progress")] == [0, 40]  # of the import, too, which still waits


@pytest.mark.usefixtures("home")
def test_the_end_of_a_job_is_announced_once_it_ends() -> None:
    with transaction() as session:
        job = create_job(session, ImportCorpus(name="a", path="/a"), title="Import <a>")
    app = overview()
    assert not announced(app)
    with transaction() as session:
        fence = leases.claim(session, job, "test", 60.0, 3)
        assert fence is not None
        leases.finish(session, job, fence, "failed")
    app.run()
    assert announced(app) == ['<p class="unseen" role="alert">Import &lt;a&gt;: failed</p>']
    assert not announced(overview())  # in a window that was opened later


def announced(app: AppTest) -> list[str]:
    return [body for one in app.get("html") if 'role="alert"' in (body := str(one.proto.body))]


@pytest.mark.usefixtures("home")
def test_a_pasted_text_is_read_by_itself_when_the_first_mixture_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    monkeypatch.setattr(Client, "posterior", read_text)
    app = overview()
    app.text_area(key="overview.text").set_value("the clocks were striking").run()
    assert "Your text is kept." in output(app)
    fill(get_settings())
    app.run()  # as the page does every two seconds
    [drawn] = drawn_tokens(app)
    assert (drawn["tokens"], drawn["weights"]) == (["the clocks were striking"], [[0.25, 0.75]])
    assert app.text_area(key="overview.text").value == "the clocks were striking"


@pytest.mark.usefixtures("filled_home")
def test_the_page_opens_with_held_out_text_of_two_domains_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    monkeypatch.setattr(Client, "posterior", read_text)
    app = overview()
    ready = app.text_area(key="overview.text").value
    assert "def add" in ready
    assert "bright cold day" in ready
    [drawn] = drawn_tokens(app)
    assert (drawn["tokens"], drawn["titles"]["strip"]) == (
        [ready.strip()],
        "first/prose leads from the first token to the last",
    )
    app.text_area(key="overview.text").set_value("x").run()
    assert drawn_tokens(app)[0]["tokens"] == ["x"]
    named(app.button, "Take an example").click().run()
    assert app.text_area(key="overview.text").value == ready


@pytest.mark.usefixtures("filled_home")
def test_without_an_expert_the_words_that_change_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    monkeypatch.setattr(Client, "posterior", read_text)
    monkeypatch.setattr(text_reader, "switched_off", lambda *_: ["first/prose"])
    drawn, changes = drawn_tokens(overview())
    assert (drawn["weights"], drawn["full"], drawn["off"]) == ([[1.0, 0.0]], [[0.25, 0.75]], ["first/prose"])
    assert changes["differences"] == [-0.5]
    assert changes["sides"] == ["the mixture without first/prose", "the full mixture"]


@pytest.mark.usefixtures("filled_home")
def test_after_a_failure_no_expert_is_shown_as_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Client, **request: Any) -> PosteriorAnswer:
        if "active" in request:
            raise ServerDownError("The API server does not answer.", "Start it.")
        return read_text(self, **request)

    answer_as(monkeypatch, "mix", mixed)
    monkeypatch.setattr(Client, "posterior", refuse)
    monkeypatch.setattr(text_reader, "switched_off", lambda *_: ["first/prose"])
    app = overview()
    [drawn] = drawn_tokens(app)
    assert (drawn["off"], drawn["answered"]) == ([], ["first/prose"])
    assert "The API server does not answer." in output(app)


@pytest.mark.usefixtures("filled_home")
def test_a_large_mixture_reads_a_text_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)
    monkeypatch.setattr(Client, "posterior", read_text)
    monkeypatch.setattr(opening_text, "MOST_PARAMETERS", 0)
    app = overview()
    app.text_area(key="overview.text").set_value("x").run()
    assert not drawn_tokens(app)
    named(app.button, "Read this text").click().run()
    assert drawn_tokens(app)[0]["tokens"] == ["x"]
    app.text_area(key="overview.text").set_value("y").run()
    assert not drawn_tokens(app)


@pytest.mark.usefixtures("filled_home")
def test_the_three_numbers_stand_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", mixed)  # of one domain, perplexity 3
    app = measured(overview())
    first = "Mixture against its best expert"  # which no dense model is
    assert values(app) == {first: "better on 1 of 1", "Coverage": "3 of 3", "Last measured change": "—"}


@pytest.mark.usefixtures("filled_home")
def test_numbers_picture_and_reading_are_about_the_best_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction() as session:  # the newest mixture, of fewer domains
        create_mixture(session, MixtureSpec(name="newest", experts=["first/code", "first/prose"]))
    pictures: list[dict[str, Any]] = []

    def keep_picture(data: dict[str, Any], _key: str) -> str:
        pictures.append(data)
        return ""

    monkeypatch.setattr(components, "show_picture", keep_picture)
    answer_as(monkeypatch, "mix", mixed)
    monkeypatch.setattr(Client, "posterior", read_text)
    app = measured(overview())
    app.text_area(key="overview.text").set_value("x").run()
    words = output(app)
    [best] = {name for name in ("first", "newest") if f"{name} against" in words}
    assert pictures[-1]["mixture"]["name"] == best
    assert f"Which expert of {best} reads which word?" in words
    link = named([one.proto for one in app.get("page_link")], "Open in Posteriors")
    assert parse_qs(link.query_string) == {"posterior.mixture": [best], "posterior.text": ["x"]}
    link = named([one.proto for one in app.get("page_link")], "Go on with this text in Playground")
    assert parse_qs(link.query_string) == {"left": [best], "prompt": ["x"]}
    assert pictures[-1]["mixture"]["words"][1] == "not served now"  # no server answers here
    assert f"Dashed: text without an expert in {best}" in words


@pytest.mark.usefixtures("home")
def test_before_it_is_measured_the_page_is_about_the_mixture_with_most_scores() -> None:
    fill(get_settings())
    with transaction() as session:
        create_mixture(session, MixtureSpec(name="newest", experts=["first/code", "first/prose"]))
    have = read_contents()
    assert have.mixture is not None
    assert have.mixture.name == "first"


@pytest.mark.usefixtures("filled_home")
def test_without_a_server_the_number_is_a_dash_with_the_reason() -> None:
    app = measured(overview())
    assert values(app)["Mixture"] == "—"
    assert "does not answer" in output(app)
    assert not app.exception


def by_experts(_self: Client, **request: Any) -> MixedScores:
    """The perplexity is 10 for each expert that takes part."""
    active = request.get("active") or ["one"]
    single = {"best_expert": "e", "perplexity_by_expert": {"e": 9.0}, "num_tokens": 9, "block_size": 8}
    row = MixedDomain(domain="code", perplexity=10.0 * len(active), **single)
    return MixedScores(experts=list(active), domains=[row], seconds=0.002)


@pytest.mark.usefixtures("filled_home")
def test_two_mixtures_are_compared_in_numbers_and_in_what_they_are_made_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert tmp_path
    with transaction() as session:
        create_mixture(session, MixtureSpec(name="pair", experts=["first/code", "first/prose"]))
    answer_as(monkeypatch, "mix", by_experts)
    app = open_page("mixtures", mixture="first", mixture__other="pair")
    assert not app.exception
    assert "from 20.0 to 30.0 per token" in output(app)
    rows = app.table[0].value.to_dict("records")
    assert [row["pair"] for row in rows if "law" in row["setting"]] == ["—"]


WITH_AN_EXAMPLE = (
    "corpora",
    "clusters",
    "experts",
    "mixtures",
    "specialization",
    "posteriors",
    "reports",
    "selfcheck",
)


def headings(app: AppTest) -> list[str]:
    return [one.value.replace("\\", "") for one in app.header]


@pytest.mark.parametrize("page", WITH_AN_EXAMPLE)
@pytest.mark.usefixtures("home")
def test_an_empty_page_shows_what_it_will_hold(page: str) -> None:
    app = open_page(page)
    (heading,) = headings(app)
    assert heading.startswith("Example: ")
    assert "-badge[Example: measured on another machine]" in output(app)
    assert "From the demo: " in output(app) or page == "selfcheck"
    assert len(app.table) == 1
    assert not app.get("download_button")


@pytest.mark.parametrize("page", ["corpora", "experts", "mixtures", "specialization"])
@pytest.mark.usefixtures("filled_home")
def test_the_first_result_takes_the_example_away(page: str) -> None:
    app = open_page(page)
    assert not [heading for heading in headings(app) if heading.startswith("Example")]
    assert "-badge[Example: " not in output(app)


@pytest.mark.usefixtures("home")
def test_no_text_leads_to_the_form_that_imports_it() -> None:
    app = open_page("corpora")
    named(app.button, "Import text").click().run()
    assert app.get("file_uploader")


@pytest.mark.parametrize("page", ["overview", "corpora", "experts", "jobs_page"])
@pytest.mark.usefixtures("filled_home")
def test_a_page_has_its_next_step_beside_its_title(page: str) -> None:
    app = AppTest.from_file(STUDIO, default_timeout=120).run()
    app.switch_page(f"app_pages/{page}.py").run()
    links = [(link.proto.label, link.proto.help) for link in app.get("page_link")]
    steps = [(one.label, one.sentence) for one in (*STEP_AFTER.values(), *suggestions(read_contents().holdings()))]
    assert len([link for link in links if link in steps]) == 1


@pytest.mark.usefixtures("filled_home")
def test_a_first_visit_shows_an_answer_of_the_newest_small_pretrained_model(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[tuple[str, str]] = []

    def answer(seed: str, question: str) -> str:
        questions.append((seed, question))
        return "It says what others may do."

    monkeypatch.setattr(seed_answer, "_answer", answer)
    monkeypatch.setattr(Contents, "is_scored", False)
    assert "as it is" not in output(overview())  # the seed model here began at random
    with transaction() as session:
        session.scalars(select(SeedModel)).one().source = "package"
    app = overview()
    assert "Ask tiny as it is" in output(app)
    assert "It says what others may do." in [one.value for one in app.text]
    app.text_input(key="overview.question").set_value("Who?").run()
    assert questions == [("tiny", "What is a software licence for?"), ("tiny", "Who?")]
