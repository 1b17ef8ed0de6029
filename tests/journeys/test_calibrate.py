"""Calibrating a mixture: the evidence is fitted on stored scores of dev text of its training domains, and saved."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from engine.errors import MixtureError, ScoresError
from tests.journeys.conftest import Do
from ui.api.app import create_app
from ui.cli.app import main
from ui.kinds.catalog import result_sentence
from ui.notebook import Workbench
from workbench.analysis import scores
from workbench.answers.posteriors import EvidenceCalibration
from workbench.errors import BadSpecError
from workbench.questions.calibration import calibrate_evidence
from workbench.questions.perplexities import mix_scores
from workbench.registry.database import reading, transaction
from workbench.registry.mixtures import get_mixture, save_calibration
from workbench.schema.tables import Domain, Evaluation, Mixture
from workbench.store.storage import get_storage

TEXT = {"mixture": "small", "block_size": 32, "max_tokens": 700}
TRAINED = ["court", "kitchen"]
TEMPERED = {"decay": 0.8, "power": 0.2, "slow_decay": 1.0, "slow_power": 0.0}


@pytest.fixture
def scored(trained: Do) -> Do:
    """The trained home with every domain scored, a novel one included."""
    for split in ("dev", "test"):
        card = trained({"kind": "evaluate", "split": split, **TEXT})
        assert card.state == "done", card.error
    return trained


def fitted(mixture: str = "small") -> EvidenceCalibration:
    with reading() as session:
        return calibrate_evidence(session, get_storage(), mixture)


def numbers(answer: EvidenceCalibration | dict[str, Any]) -> dict[str, Any]:
    data = answer if isinstance(answer, dict) else answer.model_dump(mode="json")
    return {name: value for name, value in data.items() if name != "seconds"}


@pytest.mark.usefixtures("scored")
def test_neither_novel_nor_test_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fitted()
    assert before.domains == TRAINED
    scores._checked_folder.cache_clear()
    with reading() as session:
        query = select(Evaluation).join(Evaluation.domain)
        others = session.scalars(query.where((Evaluation.split == "test") | Domain.name.not_in(TRAINED))).all()
        assert {(row.split, row.domain.name) for row in others} >= {("test", "court"), ("dev", "sea"), ("test", "sea")}
        for row in others:
            shutil.rmtree(get_storage().path(row.artifact_id))
    assert numbers(fitted()) == numbers(before)
    with pytest.raises(Exception, match=r"manifest\.json cannot be read"), reading() as session:
        mix_scores(session, get_storage(), "small", split="test")  # what is gone is noticed by whoever reads it


@pytest.mark.usefixtures("scored")
def test_the_command_saves_a_gain_and_the_api_and_the_notebook_agree(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TestClient(create_app(), base_url="http://127.0.0.1") as api:
        answer = api.post("/v1/workbench/calibration", json={"mixture": "small"}).json()
    assert main(["mixture", "calibrate", "small", "--no-save", "--json"]) == 0
    assert numbers(json.loads(capsys.readouterr().out)) == numbers(answer) == numbers(fitted())
    mixture = Workbench(home, quiet=True).mixture("small")
    assert numbers(mixture.calibration()) == numbers(answer)
    with reading() as session:
        untouched = get_mixture(session, "small")
    assert (untouched.gate["evidence"], untouched.notes) == ("prefix", "")
    expected = "prefix" if answer["keeps"] else answer["best"]
    assert mixture.calibrated().gate["evidence"] == expected
    assert main(["mixture", "calibrate", "small"]) == 0
    shown = capsys.readouterr().out
    assert "Power 0.3" in shown
    assert "dev text" in shown
    with reading() as session:
        card = get_mixture(session, "small")
    assert "Evidence calibrated on dev text of court, kitchen" in card.notes
    assert card.gate["evidence"] == expected


@pytest.mark.usefixtures("home", "scored")
def test_the_evidence_is_fitted_and_saved_over_http() -> None:
    with TestClient(create_app(), base_url="http://127.0.0.1") as api:
        answer = api.post("/v1/workbench/calibration", json={"mixture": "small"}).json()
        card = api.post("/v1/workbench/mixtures/small/calibrate").json()
        assert api.get("/v1/workbench/mixtures/small").json() == card
    assert "Evidence calibrated on dev text of court, kitchen" in card["notes"]
    assert card["gate"]["evidence"] == ("prefix" if answer["keeps"] else answer["best"])


@pytest.mark.usefixtures("scored")
def test_a_proposal_is_saved_only_if_it_gains() -> None:
    answer = fitted()
    changes = {"now": {"decay": 1.0, "power": 1.0}, "best": {"decay": 0.8, "power": 0.2}}
    for keeps, evidence in ((True, "prefix"), (False, TEMPERED)):
        given = EvidenceCalibration.model_validate(answer.model_dump() | changes | {"keeps": keeps})
        with transaction() as session:
            card = save_calibration(session, given)
        assert card.gate["evidence"] == evidence
    assert "decay 0.8, power 0.2, which changed decay 1, power 1 by" in card.notes
    same = answer.model_dump() | {"now": changes["now"], "best": changes["now"], "keeps": True}
    with transaction() as session:
        card = save_calibration(session, EvidenceCalibration.model_validate(same))
    assert card.notes.endswith("kept decay 1, power 1, since no other setting is clearly better.")


def test_without_dev_scores_the_command_that_makes_them_is_named(trained: Do) -> None:
    assert trained({"kind": "evaluate", "split": "test", **TEXT}).state == "done"
    with pytest.raises(ScoresError, match="None of the 2 domains") as caught:
        fitted()
    assert caught.value.next_step == "Score it: workbench evaluate run small --split dev --calibrate."


def test_a_job_that_scores_dev_text_may_calibrate(trained: Do) -> None:
    card = trained({"kind": "evaluate", "split": "dev", "calibrate": True, "domains": TRAINED, **TEXT})
    assert card.state == "done", card.error
    with reading() as session:
        notes = get_mixture(session, "small").notes
    assert notes.startswith("Evidence calibrated on dev text of court, kitchen")
    assert result_sentence(card) == f"4 pairs of expert and domain scored. {notes}"
    with transaction() as session:
        session.scalars(select(Mixture)).one().gate = {"kind": "fixed", "top_k": None}
    again = trained({"kind": "evaluate", "split": "dev", "calibrate": True, **TEXT})
    assert again.state == "done"
    assert "does not use evidence" in result_sentence(again)
    with pytest.raises(BadSpecError, match="calibrated on dev text"):
        trained({"kind": "evaluate", "split": "test", "calibrate": True, **TEXT})


@pytest.mark.parametrize("change", ["notes", "gate", "delete"])
def test_others_write_while_a_job_calibrates(trained: Do, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(session: Session, *arguments: Any) -> EvidenceCalibration:
        answer = calibrate_evidence(session, *arguments)
        with transaction() as writing:  # it would wait in vain for a transaction that waits for the fit
            row = writing.scalars(select(Mixture)).one()
            if change == "delete":
                writing.delete(row)
            elif change == "gate":
                row.gate = {"kind": "fixed", "top_k": None}
            else:
                row.notes = "Written meanwhile."
        return answer

    monkeypatch.setattr("jobs.kinds.analysis.evaluate.calibrate_evidence", write)
    card = trained({"kind": "evaluate", "split": "dev", "calibrate": True, "domains": TRAINED, **TEXT})
    assert (card.state, card.result["scored"]) == ("done", 4), card.error
    words = {"notes": "Evidence calibrated", "gate": "was changed while it was calibrated", "delete": "no mixture"}
    assert words[change] in card.result["calibration"]
    with reading() as session:
        assert len(session.scalars(select(Evaluation)).all()) == 4


@pytest.mark.usefixtures("scored")
def test_a_gate_without_evidence_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        session.scalars(select(Mixture)).one().gate = {"kind": "fixed", "top_k": None}
    with pytest.raises(MixtureError, match="does not use evidence"):
        fitted()
    assert main(["mixture", "calibrate", "small"]) == 2
    assert "--gate posterior" in capsys.readouterr().err


@pytest.mark.usefixtures("scored")
def test_evidence_of_a_request_is_scored_as_it_is_saved(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--evidence-decay", "0.8", "--evidence-power", "0.2", "--json"]
    assert main(["mixture", "perplexity", "small", *given]) == 0
    by_request = json.loads(capsys.readouterr().out)["domains"]
    assert main(["mixture", "gate", "small", *given]) == 0
    assert json.loads(capsys.readouterr().out)["gate"]["evidence"] == TEMPERED
    assert main(["mixture", "perplexity", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["domains"] == by_request
    assert main(["mixture", "inference-modes", "small", *given]) == 0
    rows = json.loads(capsys.readouterr().out)["domains"]
    assert [row["uniform"] for row in rows] == pytest.approx([row["perplexity"] for row in by_request])
    assert main(["mixture", "gate", "small", "--evidence-power", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gate"]["evidence"] == TEMPERED | {"power": 0.5}
    assert main(["mixture", "gate", "small", "--evidence", "prefix", "--evidence-power", "0.5"]) == 2


BOTH = ["small/court", "small/kitchen"]


@pytest.mark.usefixtures("scored")
def test_a_new_mixture_is_proposed_calibrated_wherever_it_is_made(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = numbers(fitted())
    expected_evidence = "prefix" if expected["keeps"] else expected["best"]

    def agrees(made: dict[str, Any], accepted: bool) -> None:
        without_name = {**expected, "mixture": made["name"]}
        assert numbers(made["proposal"]) == without_name
        assert made["gate"]["evidence"] == (expected_evidence if accepted else "prefix")
        assert made["accepted"] == (accepted and not expected["keeps"])

    command = ["mixture", "create"]
    given = ["--experts", ",".join(BOTH)]
    for name, flag, accepted in (("by command", [], False), ("accepted", ["--calibrate"], True)):
        assert main([*command, name, *given, *flag, "--json"]) == 0
        agrees(json.loads(capsys.readouterr().out), accepted)
    with TestClient(create_app(), base_url="http://127.0.0.1") as api:
        for name, choice, accepted in (("by http", {}, False), ("http accepted", {"calibrate": True}, True)):
            made = api.post("/v1/workbench/mixtures", json={"name": name, "experts": BOTH, **choice})
            assert made.status_code == 201, made.text
            agrees(made.json(), accepted)
    for name, calibrate, accepted in (("notebook", None, False), ("notebook accepted", True, True)):
        mixture = Workbench(home).mixture(name, experts=BOTH, calibrate=calibrate)
        assert mixture.gate["evidence"] == (expected_evidence if accepted else "prefix")
        assert "text perplexity changes by" in capsys.readouterr().out or expected["best"] == expected["now"]


@pytest.mark.usefixtures("scored")
def test_evidence_in_so_many_words_stays_and_nothing_is_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    explicit: list[tuple[list[str], object]] = [
        (["--evidence", "prefix", "--calibrate"], "prefix"),
        (["--evidence", "last_token"], "last_token"),
        (["--evidence-decay", "0.8", "--evidence-power", "0.2"], TEMPERED),
        (["--no-calibrate"], "prefix"),
    ]
    for number, (flags, evidence) in enumerate(explicit):
        assert main(["mixture", "create", f"m{number}", "--experts", ",".join(BOTH), *flags, "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert (made["gate"]["evidence"], made["proposal"], made["no_proposal"]) == (evidence, None, "")
    with TestClient(create_app(), base_url="http://127.0.0.1") as api:
        body = {"name": "h", "experts": BOTH, "gate": {"evidence": "prefix"}, "calibrate": True}
        assert api.post("/v1/workbench/mixtures", json=body).json()["proposal"] is None


@pytest.mark.usefixtures("scored")
def test_a_proposal_that_gains_is_named_with_the_command_that_accepts_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = fitted().model_dump() | {"best": {"decay": 0.8, "power": 0.2}, "keeps": False, "mixture": "my mix"}
    monkeypatch.setattr(
        "workbench.questions.calibration.calibrate_evidence",
        lambda *_: EvidenceCalibration.model_validate(given),
    )
    assert main(["mixture", "create", "my mix", "--experts", ",".join(BOTH)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Proposed: decay 0.8, power 0.2, instead of the whole prefix (paper)." in shown
    assert "Accept it: workbench mixture calibrate 'my mix'. Until then it has the whole prefix (paper)." in shown


def test_without_dev_scores_a_new_mixture_names_the_job_that_makes_them(
    trained: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mixture", "create", "pair", "--experts", ",".join(BOTH)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "None of the 2 domains" in shown
    assert "workbench evaluate run pair --split dev --calibrate" in shown
    assert main(["mixture", "create", "one", "--experts", BOTH[0]]) == 0
    assert "calibrat" not in capsys.readouterr().out


@pytest.mark.usefixtures("scored")
def test_gates_are_compared_on_the_stored_scores_of_a_registry(home: Path) -> None:
    pytest.importorskip("workbench_studies")
    script = Path(__file__).parents[2] / "benchmarks" / "gates_on_novel_text.py"
    module = runpy.run_path(str(script))
    texts = module["stored"](home, "small", None)
    assert [text.domain for text in texts.dev] == [text.domain for text in texts.training] == TRAINED
    assert [text.domain for text in texts.novel] == ["sea"]
    assert texts.left_out == "the mixture has no clustering; name one with --clustering"
    with reading() as session:
        by_page = mix_scores(session, get_storage(), "small", split="test")
    by_script = module["by_gate"](module["posterior"](module["READINGS"]["prefix"]))(texts.novel[0])
    assert by_script.value == pytest.approx({row.domain: row.perplexity for row in by_page.domains}["sea"])
