"""The notebook's objects: each verb does what the command line does, with the same words."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.errors import MixtureError, Problem, ScoresError
from jobs.attempt.attempt import run_here
from tests.journeys.conftest import SHAPE, TRAINING, trained_home, write_domain
from ui.cli.app import main
from ui.errors import JobFailedError
from ui.notebook import NotebookJob, NotebookMixture, Workbench
from workbench.answers.cards import JobCard
from workbench.errors import BadSettingsError, BadSpecError, NameTakenError, NoRegistryError, NotFoundError
from workbench.questions.perplexities import PerplexitiesRequest
from workbench.registry.database import close_engines, transaction
from workbench.registry.experts import set_enabled
from workbench.settings import Settings, get_settings

__all__ = ["trained_home"]  # a fixture
SAMPLING = {"max_tokens": 12, "seed": 4}
SCORING = {"max_tokens": 400, "block_size": 32}


@pytest.fixture
def empty(home: Path) -> Workbench:
    return Workbench(home, quiet=True)


@pytest.fixture
def wb(home: Path, trained_home: Path) -> Workbench:
    """A copy of the home with the mixture “small”; only the object knows where it is."""
    folder = home.parent / "copy"
    shutil.copytree(trained_home, folder)
    return Workbench(folder, quiet=True)


@pytest.fixture
def small(wb: Workbench) -> NotebookMixture:
    return wb.mixture("small")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_engines()


def message(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line prints about this command that it refuses."""
    assert main(list(arguments)) == 2
    return capsys.readouterr().err.strip()


def test_a_folder_without_a_registry_gets_one(tmp_path: Path) -> None:
    wb = Workbench(tmp_path / "new", quiet=True)
    assert (tmp_path / "new" / "registry.db").is_file()
    assert repr(wb) == f"Workbench({str(tmp_path / 'new')!r})"
    assert wb.experts().empty
    assert list(wb.jobs().columns[:2]) == ["kind", "title"]


def test_without_a_folder_it_is_the_one_of_the_command_line(home: Path) -> None:
    assert Workbench().settings == get_settings()
    assert Workbench().settings.root == home


def test_a_registry_of_another_version_is_not_changed(home: Path) -> None:
    from sqlalchemy import text

    with transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    close_engines()
    with pytest.raises(NoRegistryError, match="has version 0001"):
        Workbench(home)


def test_settings_of_the_environment_count_and_wrong_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE_BYTES", "1")
    with pytest.raises(BadSettingsError, match="WORKBENCH_CACHE_BYTES"):
        Workbench(tmp_path / "new")


def test_from_text_to_a_mixture(empty: Workbench, tmp_path: Path) -> None:
    court = empty.domain("court", write_domain(tmp_path, "court"))
    [kitchen] = empty.corpus("kitchen", path=write_domain(tmp_path, "kitchen")).domains
    assert court.card.num_documents == 60
    seed = empty.seed("seed", domains=[court, kitchen], vocab_size=320, **SHAPE)
    assert seed.card.config["num_hidden_layers"] == 2
    job = empty.train("small", seed_model=seed, domains=[court, "kitchen"], **TRAINING)
    assert job.card.spec["training"]["num_steps"] == 30
    assert job.card.state == "done"
    assert [expert.name for expert in empty.mixture("small").experts] == ["small/court", "small/kitchen"]
    assert list(empty.domains().index) == ["court", "kitchen"]
    assert list(empty.seeds().index) == ["seed"]
    assert sorted(empty.experts()["method"]) == ["demix", "demix"]
    assert list(empty.mixtures().index) == ["small"]
    assert abs(pd.Timestamp.now("UTC") - empty.jobs()["finished_at"].min()) < pd.Timedelta(hours=1)
    assert list(empty.jobs()["kind"]) == ["train-joint", "make-seed", "import-corpus", "import-corpus"]


def test_a_name_opens_what_exists_and_nothing_else(wb: Workbench) -> None:
    assert wb.domain("sea").card.role == "train"
    assert wb.seed("seed").card.family == "llama"
    assert wb.corpus("sea").domains[0].name == "sea"
    for get, what in (
        (wb.domain, "domain"),
        (wb.corpus, "corpus"),
        (wb.seed, "seed model"),
        (wb.expert, "expert"),
        (wb.mixture, "mixture"),
        (wb.job, "job"),
    ):
        with pytest.raises(NotFoundError, match=f"There is no {what} called “moon”"):
            get("moon")


def test_wrong_options_are_refused_with_the_words_of_the_command_line(
    wb: Workbench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(wb.settings.home))
    get_settings.cache_clear()
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"domains": ["moon"]}, ["--domains", "moon"]),
        ({"domains": ["court", "court"]}, ["--domains", "court,court"]),
        ({"domains": ["court"], "num_steps": 0}, ["--domains", "court", "--steps", "0"]),
        ({"domains": ["court"], "method": "magic"}, ["--domains", "court", "--method", "magic"]),
    ]
    for settings, arguments in cases:
        with pytest.raises(BadSpecError) as refused:
            wb.train("new", seed_model="seed", **settings)
        words = message(capsys, "train", "joint", "new", "--seed-model", "seed", *arguments)
        assert str(refused.value).replace("num_steps: ", "--steps: ").replace("method: ", "--method: ") == words
    with pytest.raises(NameTakenError) as taken:
        wb.mixture("small", experts=["small/court"])
    assert str(taken.value) == message(capsys, "mixture", "create", "small", "--experts", "small/court")


def test_every_wrong_option_is_named_together(wb: Workbench) -> None:
    with pytest.raises(BadSpecError) as refused:
        wb.train("new", seed_model="seed", domains=[], num_step=3, training=3)
    complaints = refused.value.complaints
    assert "num_step: there is no such field." in complaints
    assert "domains: must have at least 1 entry, not 0." in complaints
    assert any(complaint.startswith("training: must be") for complaint in complaints)
    with pytest.raises(BadSpecError, match="kind: is unknown: 'dance'; choose one of"):
        wb.run("dance")


def test_knobs_may_be_given_by_their_group_too(wb: Workbench) -> None:
    job = wb.train("new", here=False, seed_model="seed", domains=["court"], training={"block_size": 32}, clip=1.0)
    assert (job.card.spec["training"]["block_size"], job.card.spec["training"]["clip"]) == (32, 1.0)
    assert job.card.spec["training"]["num_steps"] == 300


def test_a_queued_job_is_waited_for(wb: Workbench) -> None:
    job = wb.train("late", here=False, seed_model="seed", domains=["sea"], **TRAINING)
    assert job.card.state == "queued"
    assert "state='queued'" in repr(job)
    assert job.curve().empty
    list(run_here(job.name, wb.settings))  # a worker
    assert job.wait() is job
    assert wb.job(job.name).card.state == "done"
    assert wb.expert("late/sea").card.job_id == job.name


def test_what_is_returned_exists_even_if_a_worker_makes_it(
    wb: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []

    def with_worker(job_id: str, *_: float, settings: Settings) -> Iterator[JobCard]:
        states.append(wb.job(job_id).card.state)
        list(run_here(job_id, settings))
        yield wb.job(job_id).card

    monkeypatch.setattr("ui.notebook.wait", with_worker)
    folder = wb.expert("small/court").export(tmp_path / "court", here=False)
    assert (folder / "config.json").is_file()
    assert wb.domain("more", write_domain(tmp_path, "sea"), here=False).card.num_documents == 60
    assert states == ["queued", "queued"]


def test_an_interrupt_pauses_a_job_and_it_can_be_resumed(wb: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    settings = {"seed_model": "seed", "domains": ["sea"], **TRAINING}
    full = wb.train("whole", **settings)
    monkeypatch.setattr("ui.notebook.REDRAW_SECONDS", 0)
    with monkeypatch.context() as stopping:
        stopping.setattr(NotebookJob, "show_progress", interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            wb.train("parts", **settings)
    job = wb.job(wb.jobs().index[0])
    assert job.card.state == "paused"
    assert raised.tb  # a notebook keeps it, and all its variables, to show it
    assert job.resume().card.state == "done"
    assert job.curve()["loss"].dropna().to_list() == full.curve()["loss"].dropna().to_list()


def test_a_cancelled_job_says_how_to_retry_it(wb: Workbench) -> None:
    job = wb.train("late", here=False, seed_model="seed", domains=["sea"], **TRAINING)
    job.cancel()
    with pytest.raises(JobFailedError) as failed:
        job.wait()
    assert str(failed.value) == f"Train joint model late was cancelled. Retry it with: workbench job retry {job.name}"


def test_a_failure_says_why_and_leaves_nothing(empty: Workbench, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(Exception, match=r"broken\.jsonl, line 2"):
        empty.domain("broken", tmp_path / "broken.jsonl")
    assert empty.domains().empty
    assert list(empty.jobs()["state"]) == ["failed"]


def test_progress_is_one_line_and_can_be_left_out(
    wb: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loud = Workbench(wb.settings.home)
    loud.expert("small/court").export(tmp_path / "one")
    shown = capsys.readouterr().out
    last = shown.split("\r")[-1]  # a slow export shows a state before
    assert last.startswith("Export expert small/court: done, 100 %. small/court is in ")
    assert shown.find("\n") == len(shown) - 1
    wb.expert("small/court").export(tmp_path / "two")
    assert capsys.readouterr().out == ""


def test_a_curve_has_a_row_for_each_step_and_a_unit_for_each_column(wb: Workbench) -> None:
    job = wb.job(wb.expert("small/court").card.job_id or "")
    curve = job.curve()
    assert list(curve.index) == list(range(31))  # at 0 what was measured before the first update
    curve = curve.loc[1:]
    assert curve["loss"].iloc[-1] < curve["loss"].iloc[0]
    assert list(job.curve()["dev_loss/court"].dropna().index) == [0, 15, 30]
    assert curve.attrs["units"]["loss"] == "nats per token"
    assert curve.attrs["units"]["tokens_per_second"] == "tokens per second"
    assert set(curve.attrs["units"]) == set(curve.columns)
    assert list(curve["tokens"].iloc[[0, -1]]) == [2 * 2 * 32, 30 * 2 * 2 * 32]  # two sequences of each domain
    mean_speed = job.card.result["throughput"]
    assert curve["tokens"].iloc[0] == round(mean_speed["flops_per_update"] / mean_speed["flops_per_token"])


def test_perplexities_are_domains_by_experts(wb: Workbench, small: NotebookMixture) -> None:
    for table in (lambda: wb.perplexities(small), lambda: small.perplexity()):
        with pytest.raises(ScoresError, match="There are no stored scores yet"):
            table()
    wb.evaluate(small, **SCORING)
    table = wb.perplexities("small")
    assert (list(table.index), list(table.columns)) == (["court", "kitchen", "sea"], ["small/court", "small/kitchen"])
    assert table.loc["court"].idxmin() == "small/court"
    assert table.loc["kitchen"].idxmin() == "small/kitchen"
    pd.testing.assert_frame_equal(wb.perplexities(), table)
    mixed = small.perplexity()
    assert list(mixed["best_expert"])[:2] == ["small/court", "small/kitchen"]
    assert (mixed["num_tokens"] >= 100).all()
    single = small.without("kitchen").perplexity()["perplexity"]
    pd.testing.assert_series_equal(single, table["small/court"], check_names=False)
    assert single["kitchen"] > mixed["perplexity"]["kitchen"]


def test_an_answer_without_rows_is_no_table(empty: Workbench) -> None:
    with pytest.raises(Problem, match="has no table"):
        empty.table(PerplexitiesRequest())


def test_tokens_are_streamed_with_the_weights_behind_them(small: NotebookMixture) -> None:
    tokens = list(small.stream("the court", **SAMPLING))
    assert 1 <= len(tokens) <= 12
    for token in tokens:
        assert set(token.weights) == {"small/court", "small/kitchen"}
        assert math.fsum(token.weights.values()) == pytest.approx(1, abs=1e-6)
        assert token.logprob < 0
    assert small.generate("the court", **SAMPLING) == "".join(token.text for token in tokens)
    with pytest.raises(TypeError, match="max_token"):
        small.generate("the court", max_token=3)


def test_text_that_was_held_back_comes_with_the_last_token(
    small: NotebookMixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.events import Done, Token

    events = [Token(1, "a", -1.0, {"small/court": 1.0}), Token(2, "", -1.0, {}), Done("length", 1, 2, "é")]
    monkeypatch.setattr(small.workbench.host, "stream", lambda *_: (event for event in events))
    assert [token.text for token in small.stream("x")] == ["a", "é"]
    monkeypatch.setattr(small.workbench.host, "stream", lambda *_: (event for event in events[2:]))
    assert list(small.stream("x")) == []


def test_an_expert_switched_off_takes_no_part_and_nothing_stored_changes(wb: Workbench, small: NotebookMixture) -> None:
    single = small.without("court")
    assert single.active == ["small/kitchen"]
    assert {name for token in single.stream("the", **SAMPLING) for name in token.weights} == {"small/kitchen"}
    assert single.generate("the", **SAMPLING) == wb.expert("small/kitchen").generate("the", **SAMPLING)
    assert small.without(wb.expert("small/court")).active == ["small/kitchen"]
    assert wb.mixture("small").active == small.active == ["small/court", "small/kitchen"]
    with pytest.raises(NotFoundError, match="There is no expert taking part called “moon”"):
        small.without("moon")
    with pytest.raises(MixtureError, match="Switch an expert on"):
        small.without("court", "kitchen").generate("the")


def test_an_expert_disabled_in_the_registry_is_not_active(wb: Workbench, small: NotebookMixture) -> None:
    with transaction(wb.settings) as session:
        set_enabled(session, ["small/court"], False)
    assert small.active == ["small/kitchen"]


def test_another_gate_is_another_object(wb: Workbench, small: NotebookMixture) -> None:
    fixed = small.with_gate("fixed")
    weights = [token.weights["small/court"] for token in fixed.stream("the court", **SAMPLING)]
    assert weights == pytest.approx([0.5] * len(weights))
    assert small.gate["kind"] == wb.mixture("small").gate["kind"] == "posterior"
    sharp = small.with_gate(evidence="last_token")
    assert (sharp.gate["kind"], sharp.gate["evidence"]) == ("posterior", "last_token")
    assert sharp.with_gate("fixed").without("court").gate["kind"] == "fixed"
    assert sharp.without("court").gate == sharp.gate
    with pytest.raises(MixtureError, match="The gate “fixed” has no setting “evidence”"):
        fixed.with_gate(evidence="prefix")
    stored = wb.mixture("level", experts=small.experts, gate=fixed.gate)
    assert (stored.gate["kind"], stored.active) == ("fixed", small.active)
    with pytest.raises(BadSpecError, match="gate: "):
        wb.mixture("other", experts=small.experts, gate="fixed")
    with pytest.raises(NotFoundError, match="There is no clustering called “moon”"):
        small.with_gate("cluster", clustering="moon")


def test_a_posterior_has_a_row_for_each_token(small: NotebookMixture) -> None:
    table = small.posterior("bake in a hot oven until golden")
    assert list(table.columns) == ["token", "log_likelihood", "small/court", "small/kitchen"]
    assert "".join(table["token"]).strip().endswith("golden")
    assert table["small/kitchen"].iloc[0] == pytest.approx(0.5)
    assert table["small/kitchen"].iloc[-1] > 0.7


def test_an_export_is_read_by_transformers(wb: Workbench, tmp_path: Path) -> None:
    expert = wb.expert("small/court")
    folder = expert.export(tmp_path / "court", format="hf")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer("the court", add_special_tokens=False).input_ids]])
    with torch.no_grad():
        theirs = model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
    assert expert.posterior("the court")["log_likelihood"].to_list() == pytest.approx(theirs.tolist(), abs=1e-4)
    with pytest.raises(BadSpecError, match="exists already"):
        expert.export(folder)
    with pytest.raises(BadSpecError, match="is not a LoRA adapter"):
        expert.export(tmp_path / "new", format="peft")


def test_names_are_data_in_html(empty: Workbench, tmp_path: Path) -> None:
    domain = empty.domain("<b>&law", write_domain(tmp_path, "court"))
    assert "<b>" not in domain._repr_html_()
    assert "<td>&lt;b&gt;&amp;law</td>" in domain._repr_html_()
    assert repr(domain) == f"Domain('<b>&law', role='train', num_documents='60', num_words='{60 * 60:,}')"
    assert "&lt;b&gt;&amp;law" in empty.job(empty.jobs().index[0])._repr_html_()


def test_each_object_shows_its_facts(wb: Workbench, small: NotebookMixture) -> None:
    assert repr(small).startswith("Mixture('small', experts='small/court, small/kitchen', gate='kind posterior")
    assert "experts='small/kitchen'" in repr(small.without("court"))
    assert "gate='kind fixed" in repr(small.with_gate("fixed"))
    assert "method='demix', domains='court'" in repr(wb.expert("small/court"))
    assert "family='llama'" in repr(wb.seed("seed"))
    assert "domains='sea'" in repr(wb.corpus("sea"))
    job = wb.job(wb.expert("small/court").card.job_id or "")
    assert "title='Train joint model small', state='done', percent='100'" in repr(job)
    for one in (small, job, wb.seed("seed"), wb.corpus("sea"), wb.domain("sea"), wb.expert("small/court")):
        sort = type(one).__name__.removeprefix("Notebook")
        assert one._repr_html_().startswith(f"<table><tr><th>{sort}</th><td>{one.name}</td></tr>")
