"""The analysis pages: what they request, how they describe the answer, and what a click selects."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from engine.mixing.evidence import EvidenceRule
from tests.ui.conftest import FakeHost
from tests.ui.studio.visits import answer_as, drawn_tokens, named, open_page, output, read, settled
from ui.api.app import create_app
from ui.client import Client
from ui.errors import ServerRefusedError
from ui.studio.analysis import posterior_view
from workbench.analysis.sample_texts import passages
from workbench.answers.cards import PriorCard
from workbench.answers.posteriors import Change, EvidenceCalibration, Manifest, PosteriorAnswer
from workbench.job_records import jobs
from workbench.questions.inference_modes import InferenceModeAverages, InferenceModeComparison, InferenceModeDomain
from workbench.questions.perplexities import MixedDomain, MixedScores
from workbench.questions.posteriors import DomainPosterior, PosteriorMap
from workbench.questions.removal import RemovalTable
from workbench.questions.token_comparison import Passage, TokenComparison
from workbench.registry import corpora, mixtures, priors, reports
from workbench.registry.corpora import preview_documents
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Evaluation
from workbench.settings import get_settings
from workbench.store.storage import get_storage

pytestmark = pytest.mark.usefixtures("filled_home")
DOMAINS = ["code", "prose", "poems"]
METHODS = ("mix", "inference_modes", "posteriors", "posterior", "contrast", "estimate_prior", "calibration")
OF_OVERVIEW = {"mixture": "first", "split": "test"}  # what the page that is opened first asks


CALIBRATION = EvidenceCalibration(
    mixture="first",
    experts=["first/code", "first/prose"],
    domains=["code", "prose"],
    missing=[],
    now=EvidenceRule(1.0, 1.0),
    best=EvidenceRule(0.9, 0.3),
    keeps=False,
    decays=[0.9, 1.0],
    powers=[0.3, 1.0],
    change=[[-4.0, -2.0], [-1.0, 0.0]],
    gain=Change(value=-3.9, low=-4.5, high=-3.1),
    gain_present=Change(value=-0.4, low=-0.6, high=-0.1),
    gain_left_out=Change(value=-7.4, low=-8.0, high=-6.5),
    seconds=0.1,
)


class Answers:
    """An honest stand-in for the server: keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = METHODS) -> None:
        self.requested: list[dict[str, Any]] = []
        for name in names:
            answer_as(monkeypatch, name, self._keeping(getattr(self, name)))

    def _keeping(self, answer: Any) -> Any:
        def ask(_client: Client, **job_spec: Any) -> Any:
            self.requested.append(job_spec)
            return answer(**job_spec)

        return ask

    def mix(self, **_: Any) -> MixedScores:
        best = {"best_expert": "first/code", "perplexity_by_expert": {"first/code": 4.0}}
        row = MixedDomain(domain="code", num_tokens=9, block_size=8, perplexity=4.0, **best)
        return MixedScores(experts=["first/code"], domains=[row], seconds=0.002)

    def inference_modes(self, **_: Any) -> InferenceModeComparison:
        variants = {
            "naive": 3.0,
            "label": 3.0,
            "average": 6.0,
            "uniform": 5.0,
            "updating": 4.0,
            "cached": None,
            "mixture": 5.0,
            "oracle": 2.5,
        }
        rows = [
            InferenceModeDomain(
                domain=name, role=_role(name), is_trained=name in DOMAINS[:2], num_tokens=90, **variants
            )
            for name in DOMAINS
        ]
        averages = InferenceModeAverages.model_validate({"train": variants, "novel": variants})
        return InferenceModeComparison(experts=["first/code"], domains=rows, averages=averages)

    def calibration(self, **_: Any) -> EvidenceCalibration:
        return CALIBRATION

    def posteriors(self, **job_spec: Any) -> PosteriorMap:
        def row(name: str, stable: int | None) -> DomainPosterior:
            return DomainPosterior(
                domain=name,
                role=_role(name),
                is_trained=name in DOMAINS[:2],
                num_blocks=2,
                block_size=8,
                posterior=[0.9, 0.1],
                trajectory=[[0.5, 0.8, 0.9], [0.5, 0.2, 0.1]],
                stable_after=stable,
            )

        rows = [row("code", 1), row("prose", 2), row("poems", None)]
        del job_spec["mixture"]
        return PosteriorMap(
            **job_spec,
            experts=["first/code", "first/prose"],
            homes=["code", "prose"],
            newest_weight=0.7,
            domains=rows,
            too_short=["drops"],
        )

    def posterior(self, *, model: str, text: str, **_: Any) -> PosteriorAnswer:
        made_by = Manifest(model=model, experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None)
        numbers: dict[str, Any] = {"logprobs": [-1.0] * 2, "best": [("x", -1.0)] * 2, "gate_weights": [{}] * 2}
        return PosteriorAnswer(
            experts=["first/code", "first/prose"],
            tokens=[text[:3], text[3:]],
            weights=[[0.9, 0.1], [0.2, 0.8]],
            manifest=made_by,
            **numbers,
        )

    def contrast(self, **job_spec: Any) -> TokenComparison:
        passage = Passage(document=3, mean=-0.5, num_tokens=9, tokens=["<b>", "x"], differences=[-1.5, 0.5])
        return TokenComparison(**job_spec, overall=-0.25, num_passages=9, num_documents=7, worst=[passage], best=[])

    def estimate_prior(self, **_: Any) -> PriorCard:
        raise ServerRefusedError("Estimating this prior needs 100 blocks; there are 2.", "Score more.")


def _role(name: str) -> str:
    return "novel" if name == "poems" else "train"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def measured() -> None:
    """An overlap of the trained domains, as the job leaves it."""
    with transaction() as session:
        cards = [card for card in corpora.list_domains(session) if card.role == "train"]
        matrix = [[1.0 if i == j else 0.1 * (i + j) for j in range(len(cards))] for i in range(len(cards))]
        findings = {
            "domains": [card.name for card in cards],
            "data_sha256": [card.data_sha256 for card in cards],
            "overlap": matrix,
        }
        reports.register_report(session, "overlap", "Bigram overlap", findings)


# specialization --------------------------------------------------------------------------------------


def test_the_overlap_is_measured_at_a_click() -> None:
    app = open_page("specialization", specialization__view="Overlap")
    assert "has not been measured yet" in output(app)
    named(app.button, "Measure the overlap").click().run()
    assert [job.spec for job in read(jobs.list_jobs) if job.kind == "measure-overlap"] == [
        {"kind": "measure-overlap", "domains": []}
    ]
    assert named(app.run().button, "Measure the overlap").disabled


def test_the_report_of_an_overlap_shows_its_numbers_and_leads_to_the_specialization() -> None:
    measured()
    app = open_page("reports")
    table = next(one.value for one in app.dataframe if "domain" in one.value.columns)
    assert table.set_index("domain").to_numpy().diagonal().tolist() == [1.0] * len(table)
    link = named([one.proto for one in app.get("page_link")], "See it next to the specialization")
    assert link.query_string == "specialization.view=Overlap"


def test_the_correlation_is_shown_with_its_numbers() -> None:
    measured()
    app = open_page("specialization", specialization__view="Overlap")
    assert "Specialization ratio by overlap: if points fall" in output(app)
    assert "shared text helps and r is above 0: r = " in output(app)
    assert "r is of affinity, which is minus the ratio" in output(app)
    assert "over 6 cells" in output(app)
    assert "r = 0.40, t = 3.45" in output(app)  # the paper's


def test_the_oracle_gap_is_shown_in_nats(answers: Answers) -> None:
    app = settled(open_page("specialization", specialization__view="Oracle gap"))
    assert answers.requested[-1]["mixture"] == "first"
    assert "The mixture loses most on code (0.69 nats/token)" in output(app)  # log(5 / 2.5)


def test_the_oracle_needs_one_mixture(answers: Answers) -> None:
    open_page("specialization", specialization__view="Oracle gap", specialization__mixture="All experts")
    assert answers.requested == [OF_OVERVIEW]


def test_removals_have_their_view(monkeypatch: pytest.MonkeyPatch) -> None:
    no_removals = RemovalTable(mixture="first", split="test", evidence="prefix", num_blocks=100, rows=[])
    answer_as(monkeypatch, "removal", lambda _client, **_: no_removals)
    app = settled(open_page("specialization", specialization__view="Removal"))
    assert not app.exception
    assert app.selectbox(key="removal.expert").options[0] == "first/code"
    all_of_them = open_page("specialization", specialization__view="Removal", specialization__mixture="All experts")
    assert "choose one above" in all_of_them.info[0].value


def test_a_cell_leads_to_its_text(answers: Answers) -> None:
    app = settled(open_page("specialization", contrast__expert="first/prose", contrast__domain="code"))
    job_spec = {"domain": "code", "expert": "first/prose", "rival": "first/code", "split": "test"}
    assert answers.requested[-1] == job_spec
    assert "first/prose predicts worse than first/code by 0.25 nats/token" in output(app)
    (shown,) = drawn_tokens(app)
    assert shown["tokens"] == ["<b>", "x"]
    assert shown["differences"] == [-1.5, 0.5]
    assert shown["sides"] == ["first/prose", "first/code"]
    field = app.selectbox(key="contrast.expert").proto
    assert field.options[field.default] == "first/prose"  # else a browser that is late shows the first
    assert "workbench evaluate contrast code first/prose first/code" in output(app)


def test_without_a_choice_the_story_begins_at_the_greatest_cell(answers: Answers) -> None:
    app = settled(open_page("specialization"))
    expert, domain = answers.requested[-1]["expert"], answers.requested[-1]["domain"]
    (chosen,) = [one for one in app.metric if "perplexity" in one.label]
    table = next(one.value for one in app.dataframe if "ratio to own expert" in one.value.columns)
    away = table[~table["in-domain"]]
    greatest = away.loc[away["ratio to own expert"].idxmax()]
    assert (expert, domain) == (greatest["expert"], greatest["domain"])
    assert chosen.value == f"{greatest['ratio to own expert']:.2f} ×"

    app.session_state["contrast.passage"] = 1
    settled(named(app.button, "Next cell").click().run())
    assert (answers.requested[-1]["expert"], answers.requested[-1]["domain"]) != (expert, domain)
    settled(named(app.button, "Previous cell").click().run())
    assert (answers.requested[-1]["expert"], answers.requested[-1]["domain"]) == (expert, domain)


def test_at_home_there_is_nobody_to_compare_with(answers: Answers) -> None:
    app = settled(open_page("specialization", contrast__expert="first/code", contrast__domain="code"))
    assert "choose a cell of another domain" in app.info[0].value
    assert answers.requested == [OF_OVERVIEW]


# posteriors ------------------------------------------------------------------------------------------


def test_all_domains_are_shown_by_role_with_their_stability(answers: Answers) -> None:
    app = settled(open_page("posteriors", posterior__view="All domains"))
    assert next(one for one in answers.requested if "num_blocks" in one) == {
        "mixture": "first",
        "evidence": "prefix",
        "estimate": "updating",
        "split": "dev",
        "num_blocks": 100,
    }
    words = output(app)
    assert "Training domains: read a row" in words
    assert "Novel domains: where lines are flat" in words
    assert "code after 1 of 2 blocks" in words
    assert "poems not within 2 blocks" in words
    assert "Less than one full block: drops." in words


def test_a_cell_of_the_posteriors_leads_to_passages_of_its_domain(answers: Answers) -> None:
    app = settled(open_page("posteriors", posterior__view="All domains", posteriors__domain="prose"))
    with reading() as session:
        texts = passages(session, get_storage(get_settings()), "first", "prose", "dev")
        documents = preview_documents(session, get_storage(get_settings()), "prose", "dev", len(texts), 0)
    assert len(texts) > 1
    assert all(document.text.strip().startswith(text) for document, text in zip(documents, texts, strict=True))
    assert (answers.requested[-1]["model"], answers.requested[-1]["text"]) == ("first", texts[0])
    (shown,) = drawn_tokens(app)
    assert shown["tokens"] == [texts[0][:3], texts[0][3:]]
    app.session_state["posteriors.passage"] = 2
    settled(app.run())
    assert answers.requested[-1]["text"] == texts[1]
    assert app.query_params["posteriors.domain"] == "prose"
    assert app.query_params["posteriors.passage"] == "2"


@pytest.fixture
def api(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The API itself, which answers the panel of passages; only the models behind it are stand-ins."""

    def passed_on(request: httpx.Request) -> httpx.Response:
        answer = api.request(request.method, str(request.url), content=request.content, headers=request.headers)
        return httpx.Response(answer.status_code, content=answer.content)

    with TestClient(create_app(get_settings(), host, playground=False)) as api:
        monkeypatch.setattr(posterior_view, "Client", partial(Client, transport=httpx.MockTransport(passed_on)))
        yield api


def test_the_api_reads_a_passage_with_the_mixture_as_it_is_saved(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Answers(monkeypatch, [name for name in METHODS if name != "posterior"])
    with transaction() as session:
        mixtures.set_weight(session, "first", "first/code", 3.0)
        text = passages(session, get_storage(get_settings()), "first", "prose", "dev")[0]
    app = settled(open_page("posteriors", posterior__view="All domains", posteriors__domain="prose"))
    assert not app.error
    (shown,) = drawn_tokens(app)
    assert shown["tokens"] == re.findall(r" ?[^ ]+", text)
    assert shown["weights"][0] == [0.6, 0.2, 0.2]


def test_rows_of_the_posteriors_are_in_the_order_of_their_own_experts(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def posteriors(_client: Client, **request: Any) -> PosteriorMap:
        return answers.posteriors(**request).model_copy(update={"homes": ["prose", "code"]})

    answer_as(monkeypatch, "posteriors", posteriors)
    app = settled(open_page("posteriors", posterior__view="All domains"))
    assert named(app.selectbox, "Domain of the text").options == ["prose", "code", "poems"]
    assert "Click a cell to read a passage of its domain below." in output(app)


def test_a_text_is_kept_while_all_domains_are_shown(answers: Answers) -> None:
    app = open_page("posteriors")
    app.text_area(key="posterior.text").set_value("the sea").run()
    settled(named(app.button, "Show the posterior").click().run())
    app.text_area(key="posterior.text").set_value("the sea, the sky").run()
    for view in ("All domains", "One text"):
        settled(app.segmented_control(key="posterior.view").set_value(view).run())
    assert app.text_area(key="posterior.text").value == "the sea, the sky"
    assert drawn_tokens(app)[0]["tokens"] == ["the", " sea"]


def test_another_evidence_sends_another_request(answers: Answers) -> None:
    settled(open_page("posteriors", posterior__view="All domains", posteriors__evidence="last_token"))
    assert "last_token" in [one.get("evidence") for one in answers.requested]


def test_without_scores_the_command_that_makes_them_is_named(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = PosteriorMap(
        experts=[],
        homes=[],
        split="test",
        evidence="prefix",
        estimate="updating",
        num_blocks=100,
        newest_weight=0.7,
        domains=[],
        too_short=[],
    )
    answer_as(monkeypatch, "posteriors", lambda _client, **_: nothing)
    with transaction() as session:
        for job in jobs.list_jobs(session, kind="evaluate", state="queued"):
            jobs.request_stop(session, job.id, "cancel")
    app = settled(open_page("posteriors", posterior__view="All domains", posteriors__split="test"))
    assert "`workbench evaluate run first`" in output(app)


# mixtures --------------------------------------------------------------------------------------------


def test_the_best_mode_that_does_not_peek_is_bold(answers: Answers) -> None:
    app = settled(open_page("mixtures"))
    assert {"mixture": "first", "split": "test", "evidence": "prefix", "num_blocks": 100} in answers.requested
    table = app.table[0].value
    assert table["label"].iloc[0] == "**3.0**"
    assert table["naive"].iloc[0] == "3.0"
    assert "cached" not in table
    assert "Not shown: cached, since on every domain fewer than 100 dev blocks are scored." in output(app)
    assert table["domain"].iloc[-1] == "Mean of 2 domains that trained its experts"


def test_without_scores_every_part_of_the_page_says_so(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    experts = ["first/code", "first/prose"]
    nothing = answers.inference_modes().model_copy(update={"experts": experts, "domains": []})
    answer_as(monkeypatch, "mix", lambda _client, **_: MixedScores(experts=experts, domains=[], seconds=0.0))
    answer_as(monkeypatch, "inference_modes", lambda _client, **_: nothing)
    with transaction() as session:
        for job in jobs.list_jobs(session, kind="evaluate", state="queued"):
            jobs.request_stop(session, job.id, "cancel")
    app = settled(open_page("mixtures"))
    assert not app.error
    assert [one.label for one in app.button].count("Evaluate") == 2


def test_newer_scores_are_mixed_without_a_reload(answers: Answers) -> None:
    app = settled(open_page("mixtures"))
    num_requests = len(answers.requested)
    settled(app.run())
    assert len(answers.requested) == num_requests
    with transaction() as session:
        newest = session.query(Evaluation).first()
        assert newest is not None
        newest.created_at = time.time() + 1
    settled(app.run())
    effect, by_mode = answers.requested[num_requests:]
    assert (effect["mixture"], effect["split"]) == ("first", "test")
    assert by_mode == {"mixture": "first", "split": "test", "evidence": "prefix", "num_blocks": 100}


def test_evidence_is_calibrated_on_the_page_and_saved(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.studio.mixtures.mixture_edit.missing_scores", lambda *_: "")
    app = settled(open_page("mixtures"))
    settled(app.button(key="calibration.start").click().run())
    assert {"mixture": "first"} in answers.requested
    words = output(app)
    assert "Proposed: decay 0.9, power 0.3, instead of the whole prefix (paper)." in words
    assert "−7.4 % [−8.0, −6.5] without a domain's own, as if it were novel" in words
    assert "Below 0 is better." in words
    settled(app.button(key="calibration.save").click().run())
    card = read(mixtures.get_mixture, "first")
    assert card.gate["evidence"] == asdict(CALIBRATION.best)
    assert "which changed decay 1, power 1 by −3.9 %" in card.notes
    again = settled(open_page("mixtures"))
    assert "These are the saved settings." in output(again)  # the form holds what was saved
    assert "Evidence calibrated on dev text of code, prose" in output(again)


def test_the_controls_are_saved_as_a_prior_and_a_prior_is_loaded_into_the_controls(answers: Answers) -> None:
    app = settled(open_page("mixtures"))
    app.text_input(key="prior.keep.name").set_value("even")
    settled(named(app.button, "Keep").click().run())
    card = read(priors.get_prior, "even")
    assert [round(share, 6) for share in card.shares.values()] == [0.333333] * 3
    with transaction() as session:
        priors.give_prior(session, "lean", dict(zip(card.shares, (4, 2, 1), strict=True)))
    app.run()
    app.selectbox(key="prior.chosen").select("lean").run()
    settled(named(app.button, "Apply to the mixture").click().run())
    requested = [job_spec for job_spec in answers.requested if "weights" in job_spec]
    assert requested[-1]["weights"] == dict(zip(card.shares, (1.0, 0.5, 0.25), strict=True))
    assert {m.weight for m in read(mixtures.get_mixture, "first").members} == {1.0}  # nothing was saved
    named(app.button, "Delete this prior").click().run()
    assert [one.name for one in read(priors.list_priors)] == ["even"]


def test_a_prior_for_other_experts_cannot_be_loaded_into_the_controls(answers: Answers) -> None:
    with transaction() as session:
        priors.give_prior(session, "other", {"laws again": 1.0})
    app = settled(open_page("mixtures"))
    assert "has no share for first/code" in output(app)
    assert named(app.button, "Apply to the mixture").disabled


def test_too_little_text_for_a_prior_is_reported_in_the_servers_words(answers: Answers) -> None:
    app = settled(open_page("mixtures"))
    app.text_input(key="prior.estimate.name").set_value("for code")
    named(app.button, "Estimate").click().run()
    assert answers.requested[-1]["name"] == "for code"
    assert "needs 100 blocks; there are 2." in output(app)
    with reading() as session:
        assert priors.list_priors(session) == []


def test_a_training_reports_its_throughput_and_that_it_did_harm() -> None:
    from workbench.schema.job_tables import Job

    measured = {
        "num_steps": 100,
        "tokens_per_second": 4000.0,
        "flops_per_second": 2.5e12,
        "flops_per_update": 3.4e12,
        "flops_per_token": 2e6,
    }
    done = next(job for job in read(jobs.list_jobs) if job.state == "done")
    with transaction() as session:
        row = session.get_one(Job, done.id)
        worse = "The training made its model worse: the held-out loss rose."
        row.result = {"mixture": "first", "experts": ["first/code"], "throughput": measured, "worse": worse}
    app = open_page("jobs_page", job=done.id)
    assert worse in output(app)
    assert "4,000 tokens/s and 2.5 TFLOP/s over 100 updates; an update costs 3.4 TFLOPs" in output(app)


def test_a_new_mixture_opens_with_its_proposal_and_one_click_keeps_the_papers(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.studio.mixtures.mixture_edit.missing_scores", lambda *_: "")
    app = settled(open_page("mixtures"))
    app.text_input(key="mixture.new.name").set_value("fresh")
    app.multiselect(key="mixture.new.experts").set_value(["first/code", "first/prose"])
    settled(app.button(key="mixture.make").click().run())
    assert app.session_state["mixture"] == "fresh"
    assert {"mixture": "fresh"} in answers.requested
    assert "Proposed: decay 0.9, power 0.3" in output(app)
    settled(app.button(key="calibration.keep").click().run())
    assert "Proposed:" not in output(app)
    assert read(mixtures.get_mixture, "fresh").gate["evidence"] == "prefix"


def test_without_dev_scores_one_click_scores_and_calibrates_in_one_job(answers: Answers) -> None:
    app = settled(open_page("mixtures"))
    app.text_input(key="mixture.new.name").set_value("fresh")
    app.multiselect(key="mixture.new.experts").set_value(["first/code", "first/prose"])
    settled(app.button(key="mixture.make").click().run())
    assert "calibrating needs two" in output(app)
    settled(app.button(key="calibration.score").click().run())
    job = read(jobs.list_jobs)[0]
    assert (job.kind, job.spec["mixture"], job.spec["split"], job.spec["calibrate"]) == (
        "evaluate",
        "fresh",
        "dev",
        True,
    )
    assert {"mixture": "fresh"} not in answers.requested
    assert "It is on its way" in output(app)
    assert [one for one in app.button if one.key == "calibration.score"] == []


def test_an_evidence_that_was_chosen_in_the_form_is_not_proposed_away(answers: Answers) -> None:
    app = settled(open_page("mixtures"))
    app.text_input(key="mixture.new.name").set_value("fresh")
    app.multiselect(key="mixture.new.experts").set_value(["first/code", "first/prose"])
    app.selectbox(key="mixture.new.gate.evidence").set_value("last_token")
    settled(app.button(key="mixture.make").click().run())
    assert read(mixtures.get_mixture, "fresh").gate["evidence"] == "last_token"
    assert "calibrating needs two" not in output(app)
    assert {"mixture": "fresh"} not in answers.requested
