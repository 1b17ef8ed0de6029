"""The certificate of an addition says what it found: nothing changed, or which file; and what each domain gained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.queue.submit import submit
from tests.journeys.conftest import Do
from ui.cli.app import main
from workbench.analysis import scores
from workbench.analysis.changes.additions import additions_of
from workbench.answers.cards import ReportCard
from workbench.errors import BadSpecError, InUseError
from workbench.job_records import jobs
from workbench.kinds.training.train_expert import TrainExpert
from workbench.questions.perplexities import mix_scores
from workbench.registry import experts, mixtures, reports
from workbench.registry.database import reading, transaction
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage

NEW = {
    "kind": "train-expert",
    "name": "sailor",
    "domain": "sea",
    "mixture": "small",
    "parent": "small/court",
    "training": {"num_steps": 30, "block_size": 32, "learning_rate": 2e-2, "clip": 1.0},
}
SPEC = {"kind": "certify-addition", "expert": "sailor", "mixture": "small", "block_size": 32, "max_tokens": 400}


@pytest.fixture
def added(trained: Do) -> Do:
    assert trained(NEW).state == "done"
    return trained


def newest(expert: str = "sailor") -> ReportCard:
    with reading() as session:
        return additions_of(session, expert)[0]


def of_expert(name: str) -> Path:
    with reading() as session:
        return get_storage().path(experts.get_expert(session, name).id)


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_an_addition_that_changed_nothing_is_certified_with_what_each_domain_gained(added: Do) -> None:
    card = added(SPEC)
    assert card.state == "done", card.error
    report = newest()
    outcome = report.findings
    assert (card.result["ok"], card.result["report"], report.kind) == (True, report.id, "addition")
    assert [one["what"] for one in outcome["folders"]] == ["the base", "expert small/court", "expert small/kitchen"]
    assert all(one["recorded_before"] and not one["faults"] and one["num_files"] >= 2 for one in outcome["folders"])
    assert outcome["base_sha256"] == outcome["folders"][0]["sha256"]
    num_files = sum(one["num_files"] for one in outcome["folders"])
    assert f"{num_files} files and {outcome['num_tensors']} tensors are unchanged" in outcome["sentence"]
    assert [(one["domain"], one["is_new"]) for one in outcome["domains"]] == [
        ("court", False),
        ("kitchen", False),
        ("sea", True),
    ]
    storage = get_storage()
    with reading() as session:
        after = mix_scores(session, storage, "small").domains
        request = MixtureRequest("small", active=["small/court", "small/kitchen"])
        before = mix_scores(session, storage, request).domains
    for one, old, new in zip(outcome["domains"], before, after, strict=True):
        assert (one["before"], one["after"]) == (old.perplexity, new.perplexity)
        assert one["change_percent"] == pytest.approx((one["after"] / one["before"] - 1) * 100)
    sea = outcome["domains"][2]
    assert sea["change_percent"] < -10
    shown = f"{sea['change_percent']:+.1f}".replace("-", "−")
    assert f"Perplexity changed by {shown} % on sea and by at most" in outcome["sentence"]
    (by_itself,) = outcome["alone"]
    by_expert = after[2].perplexity_by_expert
    assert (by_itself["expert"], by_itself["parent"]) == (by_expert["sailor"], by_expert["small/court"])


@pytest.mark.parametrize("which", ["small/kitchen", "small/court", "base"])
def test_a_changed_file_is_detected_and_reported(added: Do, which: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert added(SPEC).result["ok"]
    with reading() as session:
        base = get_storage().path(experts.get_expert(session, "sailor").base_id)
    flip_a_bit(base / "shared.safetensors" if which == "base" else of_expert(which) / "expert.safetensors")
    card = added(SPEC)
    assert (card.state, card.result["ok"]) == ("done", False)
    what = "the base" if which == "base" else f"expert {which}"
    assert card.result["sentence"].startswith("NOT certified")
    assert f"safetensors of {what} is not the file that was written: its bytes changed." in card.result["sentence"]
    assert [one["what"] for one in newest().findings["folders"] if one["faults"]] == [what]
    assert main(["expert", "certify", "sailor", "--mixture", "small", "--block-size", "32", "--here"]) == 1
    assert "NOT certified" in capsys.readouterr().out
    with reading() as session:
        assert len(additions_of(session, "sailor")) == 3


def test_a_file_replaced_together_with_its_manifest_is_detected_by_the_registrys_record(added: Do) -> None:
    from engine.files import write_manifest

    flip_a_bit(of_expert("small/kitchen") / "expert.safetensors")
    write_manifest(of_expert("small/kitchen"))
    card = added(SPEC)
    assert card.result["ok"] is False
    assert "manifest.json of expert small/kitchen is not the one that was recorded." in card.result["sentence"]


def test_a_missing_file_is_detected(added: Do) -> None:
    (of_expert("small/kitchen") / "expert.json").unlink()
    assert "expert.json of expert small/kitchen is missing." in added(SPEC).result["sentence"]


def test_a_certificate_is_of_the_tokens_that_the_mixture_was_scored_on(trained: Do) -> None:
    assert trained({"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 400}).state == "done"
    assert trained(NEW).state == "done"
    job_spec = TrainExpert.model_validate(NEW).certificate
    assert job_spec is not None
    with reading() as session:
        before = mix_scores(session, get_storage(), MixtureRequest("small", active=["small/court"])).domains
    assert trained(job_spec.model_dump(mode="json")).state == "done"
    assert newest().findings["block_size"] == 32
    with reading() as session:
        after = mix_scores(session, get_storage(), MixtureRequest("small", active=["small/court"])).domains
    assert [one.perplexity for one in after] == [one.perplexity for one in before]
    assert {one.block_size for one in after} == {32}


def test_what_is_scored_already_is_not_scored_again(added: Do) -> None:
    job_spec = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 400}
    assert added(job_spec).result["scored"] == 9
    card = added(SPEC)
    with reading() as session:
        shown = [one.job_id for one in scores.scored_domains(session, _plan(session), "test")["sea"]]
    assert card.id not in shown
    assert added(job_spec).result["scored"] == 0


def _plan(session: Any) -> Any:
    from workbench.requests.planning import plan

    return plan(session, get_storage(), "small")


def test_a_new_expert_of_an_old_domain_is_certified_too(added: Do) -> None:
    assert added({**NEW, "name": "judge", "domain": "court", "parent": None}).state == "done"
    card = added({**SPEC, "expert": "judge"})
    assert card.result["ok"]
    outcome = newest("judge").findings
    assert [one["domain"] for one in outcome["domains"] if one["is_new"]] == ["court"]
    assert [one["what"] for one in outcome["folders"]][1:] == [
        "expert sailor",
        "expert small/court",
        "expert small/kitchen",
    ]
    again = added(SPEC)  # of the older one: the younger was not there before it, and is hashed all the same
    assert again.result["ok"]
    assert [one["recorded_before"] for one in newest().findings["folders"]] == [True, False, True, True]


def test_what_came_later_is_reported_and_not_judged(added: Do) -> None:
    assert added({**NEW, "name": "judge", "domain": "court", "parent": None}).state == "done"
    flip_a_bit(of_expert("judge") / "expert.safetensors")
    card = added(SPEC)
    assert (card.state, card.result["ok"]) == ("done", True), card.error
    outcome = newest().findings
    older = [one for one in outcome["folders"] if one["recorded_before"]]
    assert [one["what"] for one in older] == ["the base", "expert small/court", "expert small/kitchen"]
    assert f"{sum(one['num_files'] for one in older)} files and" in outcome["sentence"]
    assert "was not measured: of what was added later, expert.safetensors of expert judge" in outcome["sentence"]
    assert outcome["domains"] == []


@pytest.mark.parametrize("which", ["small/court", "dapt/sea"])
def test_what_came_with_its_model_was_never_added_and_is_refused(trained: Do, which: str) -> None:
    if which == "dapt/sea":
        assert trained({**NEW, "name": "dapt", "full_model": True}).state == "done"
    card = trained({**SPEC, "expert": which, "mixture": which.partition("/")[0]})
    assert (card.state, card.result) == ("failed", {})
    assert f"“{which}” was not added to an existing model" in card.error


def test_an_expert_that_takes_no_part_is_refused_with_words(trained: Do) -> None:
    assert trained({**NEW, "join": False}).state == "done"
    card = trained(SPEC)
    assert (card.state, card.result) == ("failed", {})
    assert "“sailor” does not take part in “small” together with another expert" in card.error
    assert "mixture add" in card.next_step
    with transaction() as session:
        mixtures.add_member(session, "small", "sailor")
        experts.set_enabled(session, ["sailor"], False)
    assert "does not take part" in trained(SPEC).error


def test_a_spec_of_something_missing_is_refused_at_the_click(trained: Do) -> None:
    assert trained
    with pytest.raises(BadSpecError, match="no expert called “sailor”"):
        submit(SPEC)


def test_a_certificate_outlives_its_job_and_its_expert(added: Do) -> None:
    card = added(SPEC)
    with transaction() as session:
        assert not jobs.delete_job(session, card.id)  # its report names it
        mixtures.remove_member(session, "small", "sailor")
        experts.delete_expert(session, "sailor")
    with reading() as session:
        assert reports.get_report(session, card.result["report"]).findings["expert"] == "sailor"


def test_an_expert_is_not_deleted_while_it_is_to_be_certified(added: Do) -> None:
    assert added
    submit(SPEC)
    with pytest.raises(InUseError, match="Certify addition sailor"), transaction() as session:
        experts.delete_expert(session, "sailor")


TRAIN = [
    "train",
    "expert",
    "sailor",
    "--domain",
    "sea",
    "--mixture",
    "small",
    "--parent",
    "small/court",
    "--steps",
    "5",
    "--block-size",
    "32",
]


def test_the_command_line_certifies_what_it_trained(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained
    assert main([*TRAIN, "--here"]) == 0
    assert "Nothing that existed was changed" in capsys.readouterr().out
    assert main(["expert", "additions", "sailor"]) == 0
    shown = capsys.readouterr().out
    assert "expert small/kitchen" in shown
    assert "the new one" in shown
    assert "Alone on sea" in shown
    assert main(["expert", "additions", "sailor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["findings"]["ok"] is True


def test_in_the_queue_the_certificate_waits_for_the_training(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained
    assert main([*TRAIN, "--json"]) == 0
    training = json.loads(capsys.readouterr().out)
    with reading() as session:
        (certificate,) = jobs.list_jobs(session, kind="certify-addition")
    assert certificate.after == [training["id"]]
    assert certificate.spec["expert"] == "sailor"
    assert certificate.spec["block_size"] is None  # that of the mixture's scores, when its turn comes


@pytest.mark.parametrize("option", ["--no-certificate", "--no-join", "--full-model"])
def test_without_an_addition_or_if_declined_nothing_is_certified(trained: Do, option: str) -> None:
    assert trained
    assert main([*TRAIN, option]) == 0
    with reading() as session:
        assert not jobs.list_jobs(session, kind="certify-addition")
