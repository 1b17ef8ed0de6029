"""Words, forms, states and next steps: what a screen says is true and safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from engine.errors import CorpusError
from ui.cli.job_progress import line as several_line
from ui.kinds.catalog import result_pages, result_sentence
from ui.present.forms.questions import DERIVED_FIELDS, assemble, changed_answers, questions_of
from ui.present.forms.readable_folders import keep_uploads, own_names, require_text, safe_suffix
from ui.present.jobs.failure_text import cause_of, next_step_of
from ui.present.jobs.job_status import (
    actions_of,
    coming,
    eta_range,
    percent_of,
    places_of,
    sentence_of,
    style_of,
    time_left,
)
from ui.present.next_steps import Holdings, first_steps, suggestions
from ui.present.pages import CORPORA, EXPERTS, SEEDS, TRAIN
from ui.present.text.formatting import ago, duration, moment, plain, plain_with_code, size
from ui.present.text.posteriors import posterior_title
from ui.studio.job_views.pending_jobs import by_turn
from ui.studio.shared import health
from ui.studio.shared.health import worker_sign
from ui.widgets.charts_and_tables import as_csv
from workbench.answers.cards import JobCard
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.kinds.training.train_expert import TrainExpert
from workbench.questions.posteriors import DomainPosterior, PosteriorMap

OFFERS = {"domain": ["d"], "domains": ["d"], "mixture": ["m"], "parent": ["p"], "seed_model": ["s"]}


def job(state: str = "running", **shown: object) -> JobCard:
    known = {
        "id": "0" * 32,
        "kind": "evaluate",
        "title": "t",
        "spec": {},
        "state": state,
        "attempt": 1,
        "stop_requested": "",
        "progress": 0.4,
        "progress_note": "",
        "eta_seconds": None,
        "error": "",
        "next_step": "",
        "result": {},
        "after": [],
        "owner": "",
        "created_at": 0.0,
        "started_at": None,
        "finished_at": None,
    }
    return JobCard.model_validate(known | shown)


def test_only_a_done_job_shows_full_progress() -> None:
    ends = [job("failed", progress=0.999), job("running", progress=0.999), job("done", progress=1.0)]
    assert [percent_of(end) for end in ends] == [99, 99, 100]


def test_only_a_job_that_waits_is_shown_as_waiting_for_a_worker() -> None:
    done = job("done", progress=1.0)
    assert several_line([done, done]) == "2 of 2 jobs done"
    assert several_line([done, job("queued")]) == "1 of 2 jobs done · waiting for a worker"
    assert several_line([done, job("running")]) == "1 of 2 jobs done · t 40 %"


@pytest.mark.parametrize("name", ["*a*", "[a](http://b)", "<b>x</b>", "`c`", ":red[d]", "$x$", "# h", "a_b_", "~~s~~"])
def test_a_name_is_no_markdown(name: str) -> None:
    assert MarkdownIt().render(plain(name)).count("<") == 2  # the paragraph alone
    assert plain(name).replace("\\", "").replace("\u2060", "") == name


def test_an_address_in_a_name_is_no_link() -> None:
    assert "http://" not in plain("http://evil.example").replace("\\", "")
    assert "www." not in plain("www.evil.example").replace("\\", "")


def test_only_our_own_backticks_are_code() -> None:
    assert plain_with_code("Run `workbench up`.") == "Run `workbench up`\\."
    assert "`" not in plain_with_code("a ` b").replace("\\`", "")


def test_numbers_carry_their_unit() -> None:
    assert (size(812), size(1_400_000)) == ("812 B", "1.4 MB")
    assert (moment(0.0372), moment(0.9996), moment(3.643)) == ("37 ms", "1.0 s", "3.6 s")
    assert (duration(8), duration(200), duration(7500)) == ("8 s", "3 min 20 s", "2 h 5 min")
    assert ago(0, now=3 * 86400) == "3 days ago"


def test_a_form_has_every_field_of_every_spec() -> None:
    for spec in (kind.spec for kind in known_kinds().values()):
        requested = {question.path[0] for question in questions_of(spec, OFFERS)}
        assert requested == set(spec.model_fields) - set(DERIVED_FIELDS)
        assert all(question.help for question in questions_of(spec, OFFERS))


def test_answers_make_the_matching_spec() -> None:
    questions = questions_of(TrainExpert, OFFERS)
    answers = {q.path: q.default for q in questions} | {("name",): "n", ("domain",): "d", ("mixture",): "m"}
    answers["training", "num_steps"] = 7
    spec = parse_spec({"kind": "train-expert", **assemble(answers)})
    assert (spec.training.num_steps, spec.training.learning_rate) == (7, None)
    assert set(changed_answers(questions, answers)) == {("name",), ("domain",), ("mixture",), ("training", "num_steps")}


def test_a_requested_stop_is_not_stopped_yet() -> None:
    assert style_of(job(stop_requested="cancel")).word == "stopping (cancel requested)"
    assert "only when its process has ended" in sentence_of(job(stop_requested="cancel"))
    assert actions_of(job(stop_requested="cancel")) == ()
    assert actions_of(job(stop_requested="pause")) == ("cancel",)


def test_cancel_never_takes_the_place_of_pause() -> None:
    stages = [job("queued"), job(), job(stop_requested="pause"), job("paused")]
    assert [list(places_of(stage)).index("cancel") for stage in stages] == [1, 1, 1, 1]
    assert places_of(job(stop_requested="pause")) == {"pause": False, "cancel": True}


def test_a_silent_job_is_not_running() -> None:
    assert style_of(job("interrupted")).word == "interrupted"
    assert worker_sign([job("interrupted")]).is_well is False


def test_a_job_that_nobody_takes_names_the_command() -> None:
    sign = worker_sign([job("queued")], now=100.0)
    assert sign.is_well is False
    assert "workbench up" in sign.next_step


@pytest.mark.parametrize(("is_seen", "is_well"), [(True, True), (False, None)])
def test_an_idle_worker_is_shown_as_alive_only_when_it_is_seen(
    is_seen: bool, is_well: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "worker_is_running", lambda: is_seen)
    assert worker_sign([]).is_well is is_well


def test_what_to_try_next_follows_what_there_is() -> None:
    assert suggestions(Holdings())[0].page is CORPORA
    assert suggestions(Holdings(domains=2))[0].page is SEEDS
    assert suggestions(Holdings(domains=2, seeds=1))[0].page is TRAIN
    assert len(suggestions(Holdings(9, 9, 9, 9, 9))) == 3


def test_nothing_pending_is_suggested() -> None:
    seed = job("running", kind="make-seed", title="Seed", eta_seconds=70.0)
    demix = job("queued", kind="train-joint", title="Experts", created_at=1.0)
    shown = [suggestion.sentence for suggestion in suggestions(Holdings(domains=2, unfinished=[demix, seed]))]
    assert shown == [
        "“Seed” is running, about 1 min 10 s left. All experts start from the seed model.",
        "“Experts” waits for its turn behind 1 job. Then you can generate text with a mixture.",
    ]


def test_the_imports_of_a_first_visit_are_one_step_with_the_one_at_work_and_all_that_is_done() -> None:
    last = job("queued", kind="import-corpus", title="Licences", created_at=1.0, progress=0.0)
    at_work = job("running", kind="import-corpus", title="Python", progress=0.5, progress_note="1 of 2 files")
    over = [job("done", kind="import-corpus")] * 2
    step = first_steps(Holdings(domains=2, unfinished=[last, at_work]), ["a", "b"], over)[0]
    assert (step.title, step.job) == ("Text becomes domains: 2 of 4 imported", at_work)
    assert step.sentence.startswith("1 of 2 files")
    assert step.progress == pytest.approx(2.5 / 4)


def test_a_later_training_is_no_step_of_a_first_visit_and_a_mixture_can_be_talked_to() -> None:
    own = job("running", kind="train-expert", title="Train expert own")
    steps = first_steps(Holdings(domains=2, seeds=1, experts=2, mixtures=1, unfinished=[own]), ["a", "b"], [])
    assert [step.state for step in steps] == ["done", "done", "done", "later", "now"]


def test_an_expert_without_scores_is_named_with_what_to_do() -> None:
    shown = [suggestion.sentence for suggestion in suggestions(Holdings(9, 9, 9, 9, 9, unscored=["poet"]))]
    assert "1 expert without scores: poet. Evaluate" in shown[0]


def test_a_failure_is_shown_with_its_own_next_step() -> None:
    taken = job("failed", title="Import", next_step="Choose another name.")
    assert suggestions(Holdings(failed=[taken]))[0].sentence == "“Import” has failed. Choose another name."


def test_a_failure_is_shown_with_its_cause() -> None:
    broken = job(
        "failed", title="Import", error="x.jsonl, line 2: The line is not JSON.", next_step="Fix or remove it."
    )
    sentence = suggestions(Holdings(failed=[broken]))[0].sentence
    assert sentence == "“Import” has failed: x.jsonl, line 2: The line is not JSON. Fix or remove it."


def test_a_suggestion_about_a_job_leads_to_that_job() -> None:
    old, new = (job("failed", id=name, finished_at=at) for name, at in (("old", 1.0), ("new", 2.0)))
    seed = job("queued", id="seed", kind="make-seed")
    later = job("queued", id="later", kind="evaluate", created_at=9.0)
    shown = suggestions(Holdings(domains=2, unfinished=[later, seed], failed=[old, new]))
    assert [one.query for one in shown] == [{"job": "new"}, {"job": "seed"}]


def test_what_runs_stands_before_what_waits() -> None:
    jobs = [job("queued", created_at=3.0), job("queued", created_at=1.0), job("running", created_at=2.0)]
    assert [one.created_at for one in by_turn(jobs)] == [2.0, 1.0, 3.0]


def test_a_cell_of_a_table_is_no_formula() -> None:
    assert as_csv([{"name": "=1+1", "n": -2}]).splitlines()[1] == "'=1+1,-2"


class Upload:
    def __init__(self, name: str, data: bytes) -> None:
        self.name, self._data = name, data

    def getbuffer(self) -> memoryview:
        return memoryview(self._data)


def test_the_name_of_an_upload_is_never_a_path(tmp_path: Path) -> None:
    folder = keep_uploads([Upload("../../evil.jsonl.gz", b"1"), Upload("a/b.t$t", b"2")], tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["0001.jsonl.gz", "0002.txt"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.json"]
    assert folder.parent == tmp_path / "uploads"
    assert safe_suffix("report.docx") == ".docx"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("photo.png", b"1", "photo.png: The file has an unknown format: .png."),
        ("report.pdf", b"1", "report.pdf: The file has an unknown format: .pdf."),
        ("texts.zip", b"1", "texts.zip: The file is an archive, not text."),
        ("empty.txt", b"", "“empty.txt” is empty."),
    ],
)
def test_an_upload_that_cannot_be_read_is_refused_by_its_own_name(name: str, content: bytes, why: str) -> None:
    with pytest.raises(CorpusError) as refusal:
        require_text([Upload("fine.jsonl.gz", b"1"), Upload("no suffix", b"1"), Upload(name, content)])
    assert refusal.value.cause == why


def test_a_fault_in_an_upload_names_the_persons_own_file(tmp_path: Path) -> None:
    folder = keep_uploads([Upload("broken.jsonl", b"{"), Upload("0001.jsonl", b"{")], tmp_path)
    assert own_names("0001.jsonl, line 2: no.", str(folder), tmp_path) == "broken.jsonl, line 2: no."
    assert own_names("0002.jsonl:7", str(folder), tmp_path) == "0001.jsonl:7"
    assert own_names(f"{folder}: empty.", str(folder), tmp_path) == "broken.jsonl, 0001.jsonl: empty."
    assert own_names("0001.jsonl", "/elsewhere", tmp_path) == "0001.jsonl"


@pytest.mark.parametrize(
    "spec", [{"kind": "classify", "mixture": "m", "path": "HERE"}, {"kind": "uninstalled", "files": ["HERE"]}]
)
def test_a_fault_in_an_upload_that_any_kind_of_job_read_names_the_persons_own_file(
    home: Path, spec: dict[str, Any]
) -> None:
    folder = keep_uploads([Upload("broken.jsonl", b"{")], home)
    spec = json.loads(json.dumps(spec).replace("HERE", str(folder)))
    failed = job("failed", kind=spec["kind"], spec=spec, error="0001.jsonl, line 2: no.")
    assert cause_of(failed) == "broken.jsonl, line 2: no."


@pytest.mark.usefixtures("home")
def test_a_broken_record_may_be_left_out_and_one_sentence_says_so() -> None:
    shown = {"kind": "import-corpus", "error": "x.jsonl, line 2: not JSON.", "next_step": "Fix or remove it."}
    shown["failure"] = {"code": "corpus_error", "line": 2}
    assert "--skip-bad" in next_step_of(job("failed", **shown, spec={"skip_bad": False}))
    assert next_step_of(job("failed", **shown, spec={"skip_bad": True})) == "Fix or remove it."
    assert next_step_of(job("failed", **shown | {"failure": {"code": "corpus_error"}})) == "Fix or remove it."


def test_the_time_left_is_a_range_where_the_speed_varied() -> None:
    eta = {"eta_seconds": 200.0, "eta_soonest": 120.0, "eta_latest": 300.0}
    assert time_left(job("running", **eta)) == "2 min to 5 min left"
    assert eta_range(job("running", **eta)) == "2 min to 5 min"
    assert time_left(job("running", **eta | {"eta_soonest": 190.0, "eta_latest": 209.0})) == "about 3 min left"
    assert time_left(job("running", eta_seconds=10.0)) == "about 10 s left"
    assert time_left(job("running")) == ""


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (59, "59 s"), (600, "10 min"), (7500, "2 h 5 min")])
def test_durations_to_minutes_are_rounded(seconds: float, words: str) -> None:
    assert duration(seconds, to_minutes=True) == words


def test_a_mixture_waits_for_jobs_of_its_own() -> None:
    jobs = [job("queued", spec={"mixture": "other"})]
    assert coming(jobs, "evaluate") is not None
    assert coming(jobs, "evaluate", "mine") is None


def test_several_failures_are_counted() -> None:
    failed = [job("failed", title="Import", next_step="Choose another name.")] * 9
    assert suggestions(Holdings(failed=failed))[0].sentence.endswith("8 more jobs failed.")


def test_an_import_leads_to_its_domains_and_on_to_a_training() -> None:
    done = job("done", kind="import-corpus", result={"domains": ["essay"], "num_documents": 9})
    assert [(page.page, page.label) for page in result_pages(done)] == [
        (CORPORA, "See the domains"),
        (TRAIN, "Train an expert on it"),
    ]


def test_the_outcome_of_a_job_is_shown_with_its_reason() -> None:
    result = {"expert": "e", "parent": "m/a", "parent_posterior": {"m/b": 0.25, "m/a": 0.75}}
    done = job("done", kind="train-expert", result=result)
    assert result_sentence(done) == (
        "It began as a copy of m/a, the nearest by the posterior on held-out text (m/a 0.75, m/b 0.25)."
    )
    branch = {"expert": "e", "parent": "m/a", "parent_posterior": {}, "parent_documents": 0.974, "mixture": "n"}
    assert result_sentence(job("done", kind="train-expert", result=branch)) == (
        "It began as a copy of m/a. m/a was trained on 97 % of the same documents. It is in the mixture n."
    )
    shown = next(result_pages(done))
    assert (shown.page, shown.state) == (EXPERTS, {"experts.chosen": ["e"]})


def test_a_job_that_has_not_ended_has_no_result() -> None:
    assert result_sentence(job("running")) == ""
    assert list(result_pages(job("failed"))) == []


def test_a_posterior_is_described_after_as_many_blocks_as_were_used() -> None:
    assert posterior_title(posterior_after(31, 10)).startswith("Posterior after 10 to 31 blocks of dev text")
    assert posterior_title(posterior_after(1)).startswith("Posterior after 1 block of dev text")
    assert posterior_title(posterior_after()).startswith("Posterior after 100 blocks")


def posterior_after(*blocks: int) -> PosteriorMap:
    """A map with a domain for each number of blocks."""
    rows = [
        DomainPosterior(
            domain="d",
            role="train",
            is_trained=True,
            num_blocks=number,
            block_size=8,
            posterior=[],
            trajectory=[],
            stable_after=None,
        )
        for number in blocks
    ]
    return PosteriorMap(
        experts=[],
        homes=[],
        split="dev",
        evidence="prefix",
        estimate="mean",
        num_blocks=100,
        newest_weight=0.7,
        domains=rows,
        too_short=[],
    )
