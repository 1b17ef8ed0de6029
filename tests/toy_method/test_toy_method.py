"""A method of somebody else's package: found through its entry point, with no file of the workbench changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from engine.files import EXPERT_CARD
from engine.methods.registry import method_of
from tests.toy_packages import WORDS, do, uninstall
from ui.api.app import create_app
from workbench.analysis import perplexity_tables
from workbench.errors import BadSpecError
from workbench.kinds.kind import parse_spec
from workbench.questions.costs import CostRequest
from workbench.registry import corpora, experts
from workbench.registry.database import reading
from workbench.settings import Settings
from workbench.store.storage import get_storage

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("installed")
STUDIO = Path(__file__).parents[2] / "ui" / "studio" / "app.py"
TRAIN: dict[str, Any] = {
    "kind": "train-joint",
    "name": "toys",
    "seed_model": "seed",
    "domains": ["court", "sea"],
    "method": "toy",
    "options": {"strength": 2.0},
    "training": {"num_steps": 20, "block_size": 32, "learning_rate": 1e-2, "clip": 1.0, "evaluate_every": 10},
}


def test_it_is_trained_scored_opened_and_used_like_the_built_in_methods(seeded: Path) -> None:
    result = do(TRAIN).result
    assert result["experts"] == ["toys/court", "toys/sea"]
    with reading() as session:
        rows = [experts.expert_row(session, name) for name in result["experts"]]
        assert {row.method for row in rows} == {"toy"}
        assert all(row.config["options"] == {"strength": 2.0} and row.base.kind == "seed" for row in rows)
        assert all(row.num_parameters == 2 * 32 for row in rows)
        assert (get_storage().path(rows[0].artifact_id) / EXPERT_CARD).is_file()
        costs = CostRequest(mixture="toys", context=32).answer(session, get_storage())
    assert costs.adapting < costs.training

    do({"kind": "evaluate", "mixture": "toys", "block_size": 32, "max_tokens": 300})
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, "toys")
        domains = [corpora.get_domain(session, name).name for name in WORDS]
    perplexity = dict(zip(table.domains, zip(*table.perplexity, strict=True), strict=True))
    assert set(perplexity) == set(domains)
    assert perplexity["court"][0] < perplexity["court"][1]
    assert perplexity["sea"][1] < perplexity["sea"][0]

    with TestClient(create_app(Settings(home=seeded), playground=False), base_url="http://127.0.0.1:8000") as api:
        answer = api.post("/v1/completions", json={"model": "toys", "prompt": "the court", "max_tokens": 3})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["text"]


def test_its_settings_are_checked_by_its_own_config(home: Path) -> None:
    for options, words in (({"strength": -1}, "Strength must be above 0"), ({"size": 2}, "It takes: strength")):
        with pytest.raises(BadSpecError, match=words):
            parse_spec({**TRAIN, "options": options})
    with pytest.raises(BadSpecError, match="has no options"):
        parse_spec({**TRAIN, "method": "domain-token"})
    with pytest.raises(BadSpecError, match="set lora instead"):
        parse_spec({**TRAIN, "method": "lora"})
    with pytest.raises(BadSpecError, match=r"there is no such method; choose one of demix, .*toy"):
        parse_spec({**TRAIN, "method": "nothing"})


def test_the_studio_offers_it_with_its_settings(seeded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.widgets.on_demand._was_opened", lambda _: True)  # the box with the command
    app = AppTest.from_file(str(STUDIO), default_timeout=120)
    app.session_state["train.what"] = "DEMix, LoRA, MoE or dense"
    app.session_state["train-joint.method"] = "toy"
    app.run()
    app.switch_page("app_pages/train.py").run()
    (method,) = [box for box in app.selectbox if box.label == "Method"]
    assert "Toy: each domain has only a vector of its own in each layer" in method.options
    (strength,) = [one for one in app.number_input if one.label == "Strength"]
    strength.set_value(3.0).run()
    assert any("--options '{\"strength\": 3.0}'" in one.value for one in app.code)


def test_experts_of_a_method_that_is_gone_are_shown_and_not_loaded(seeded: Path) -> None:
    do(TRAIN)
    uninstall(FOLDER)
    with reading() as session:
        card = experts.get_expert(session, "toys/court")
        assert not method_of(card.method).can_be_copied
    with TestClient(create_app(Settings(home=seeded), playground=False), base_url="http://127.0.0.1:8000") as api:
        answer = api.post("/v1/completions", json={"model": "toys", "prompt": "the court", "max_tokens": 3})
    assert answer.status_code >= 400
    assert "No method is installed" in answer.text
