"""The numbers of the page Overview are those of `mixture inference-modes`, `evaluate show` and a calibration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import delete, select

from tests.journeys.conftest import Do
from ui.cli.app import main
from ui.present.headlines import best_single, last_headline, signed_text
from ui.present.picture import scores_of
from ui.studio.shared import contents
from ui.studio.shared.contents import read_contents
from workbench.analysis import perplexity_tables
from workbench.analysis.perplexity_intervals import intervals_of
from workbench.formatting.number_format import number
from workbench.questions.calibration import calibrate_evidence
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.perplexities import MixedScores, MixRequest
from workbench.questions.question import ask
from workbench.registry.database import reading, transaction
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import get_mixture, save_calibration
from workbench.schema.tables import Evaluation, Mixture
from workbench.store.storage import get_storage


class Server:
    """The API server's answers, without a server."""

    def ask(self, question: MixRequest) -> MixedScores:
        return ask(question.answer)


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    assert main([*command, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_overview_shows_what_the_commands_print(
    trained: Do, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("test", "dev"):
        card = trained({"kind": "evaluate", "mixture": "small", "split": split, "block_size": 32, "max_tokens": 700})
        assert card.state == "done", card.error
    monkeypatch.setattr(contents, "kept_client", lambda _settings: Server())
    have = read_contents()
    [best] = contents._measure(have.mixtures, {one.name: one for one in have.experts})
    assert best.tokenizer == have.experts[0].tokenizer_sha256
    assert best.domains == {"court", "kitchen"}  # the sea trained nobody
    averages = printed(capsys, "mixture", "inference-modes", "small")["averages"]
    assert best.mean == pytest.approx(averages["train"]["mixture"], rel=1e-12)

    table = printed(capsys, "evaluate", "show", "small")
    cells = {
        (expert, domain): value
        for expert, row in zip(table["experts"], table["perplexity"], strict=True)
        for domain, value in zip(table["domains"], row, strict=True)
    }
    assert {key: card.perplexity for key, card in scores_of(have.evaluations).of.items()} == pytest.approx(cells)
    with reading() as session:
        own = perplexity_tables.in_domain_scores(session, "test")
        bounds = intervals_of(session, get_storage(), own.values())
    assert main(["evaluate", "show", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {expert for expert, _ in bounds} == set(own)
    for (expert, _), (low, high) in bounds.items():
        assert any(expert in line and line.split()[-2:] == [number(low, 2), number(high, 2)] for line in lines)
    single = best_single(best)
    assert single is not None
    assert single.by_domain == pytest.approx({domain: cells[single.name, domain] for domain in best.domains})

    with reading() as session:
        fitted = calibrate_evidence(session, get_storage(), "small")
    with transaction() as session:
        saved = save_calibration(session, fitted.model_copy(update={"keeps": False}))
    assert saved.calibration is not None
    assert saved.calibration.model_dump(exclude={"at"}) == fitted.gain.model_dump()
    with transaction() as session:
        session.scalars(select(Mixture).where(Mixture.name == "small")).one().notes = "Mine: tuned on a Friday."
        edited = get_mixture(session, "small")
        kept = save_calibration(session, fitted.model_copy(update={"keeps": True}))
    assert kept.calibration == edited.calibration == saved.calibration  # neither a note nor a proposal changes it
    shown = last_headline([], [edited])
    assert (shown.value, shown.state) == (f"{signed_text(fitted.gain.value)} %", {"mixture": "small"})
    assert shown.label.startswith("Last measured change, ")


def test_an_expert_without_scores_is_left_out_by_name_and_the_numbers_stay(trained: Do) -> None:
    card = trained({"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 700})
    assert card.state == "done", card.error
    full = ask(MixRequest(mixture="small").answer)
    assert {tuple(row.without) for row in full.domains} == {()}
    with transaction() as session:
        unscored = expert_row(session, "small/kitchen").id
        session.execute(delete(Evaluation).where(Evaluation.expert_id == unscored))
    partial = ask(MixRequest(mixture="small").answer)
    assert [row.domain for row in partial.domains] == [row.domain for row in full.domains]
    assert {tuple(row.without) for row in partial.domains} == {("small/kitchen",)}
    others = [name for name in full.experts if name != "small/kitchen"]
    without_it = ask(MixRequest(mixture="small", active=others).answer)
    assert [row.perplexity for row in partial.domains] == [row.perplexity for row in without_it.domains]
    modes = ask(InferenceModesRequest(mixture="small").answer)
    assert (modes.experts, modes.without) == (others, ["small/kitchen"])
    assert ask(MixRequest(mixture="small", active=["small/kitchen"]).answer).domains == []
