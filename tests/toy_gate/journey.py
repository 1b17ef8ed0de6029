"""A mixture with the toy gate, from the command line to the studio.

Run by `test_toy_gate.py` in a process of its own, where the plug-in is on the import path from the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from engine.loading.plan import GenerationPlan, gate_of
from engine.mixing.gate_type import gate_types
from tests.ui.conftest import FakeHost
from tests.ui.studio.visits import named, open_page, read
from ui.api.app import create_app
from ui.cli.app import main
from workbench.kinds.kind import parse_as
from workbench.registry import mixtures
from workbench.registry.database import transaction
from workbench.settings import Settings
from workbench.specs.requests import MixtureSpec

pytest_plugins = ("tests.ui.conftest",)
STORED = {"kind": "tempered", "top_k": None, "softness": 4.0}
MADE = ["mixture", "create", "soft", "--experts", "both/code,both/law", "--weights", "16,1", "--gate", "tempered"]


class GateHost(FakeHost):
    """Weighs the experts by the plan's gate, as the host with real weights does."""

    def _weights(self, plan: GenerationPlan) -> dict[str, float]:
        weights_E = gate_of(plan).start().log_weights().exp().tolist()
        return dict(zip((expert.name for expert in plan.experts), weights_E, strict=True))


@pytest.fixture
def soft(mixed: Path) -> Path:
    """A home with the mixture `soft` of the toy gate, made on the command line."""
    assert main([*MADE, "--softness", "4"]) == 0
    return mixed


@pytest.fixture
def api(soft: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(home=soft), GateHost(), playground=False), base_url="http://127.0.0.1") as one:
        yield one


def test_the_gate_is_listed() -> None:
    assert "tempered" in gate_types()


def test_the_command_line_makes_a_mixture_and_changes_its_gate(soft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(mixtures.get_mixture, "soft").gate == STORED
    capsys.readouterr()
    assert main(["mixture", "gate", "soft", "--softness", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gate"] == STORED | {"softness": 2.0}
    assert read(mixtures.get_mixture, "soft").gate == STORED | {"softness": 2.0}


def test_the_service_makes_a_mixture(mixed: Path) -> None:
    gate = {"kind": "tempered", "softness": 4}
    with transaction() as session:
        spec = parse_as(MixtureSpec, {"name": "soft", "experts": ["both/code", "both/law"], "gate": gate})
        assert mixtures.create_mixture(session, spec).gate == STORED


def test_settings_of_other_gates_and_settings_out_of_bounds_are_refused(
    soft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mixture", "gate", "soft", "--evidence", "prefix"]) != 0
    assert "The gate “tempered” has no setting “evidence”. It has: top_k, softness." in capsys.readouterr().err
    assert main(["mixture", "gate", "soft", "--softness", "11"]) != 0
    assert "softness must be at most 10" in capsys.readouterr().err


def test_the_api_generates_with_it_and_knows_its_settings(api: TestClient) -> None:
    requested = {"model": "soft", "prompt": "the sea", "max_tokens": 2}
    result = api.post("/v1/completions", json=requested).json()
    assert result["manifest"]["gate"] == STORED
    assert result["choices"][0]["expert_weights"][0] == pytest.approx({"both/code": 2 / 3, "both/law": 1 / 3})
    sharper = api.post("/v1/completions", json={**requested, "gate": {"softness": 1}}).json()
    assert sharper["choices"][0]["expert_weights"][0] == pytest.approx({"both/code": 16 / 17, "both/law": 1 / 17})
    refused = api.post("/v1/completions", json={**requested, "gate": {"kind": "tempered", "softness": 11}})
    assert refused.status_code in (400, 422)
    assert "softness" in refused.json()["error"]["message"]
    assert "softness" in json.dumps(api.get("/openapi.json").json())


def test_the_studio_shows_and_saves_its_settings(soft: Path) -> None:
    app = open_page("mixtures", mixture="soft")
    assert named(app.selectbox, "Weights come from").value == "tempered"
    softness = named(app.number_input, "Softness")
    assert (softness.value, softness.help) == (4.0, "How alike the weights become: 1 leaves them as they are.")
    app = softness.set_value(30.0).run()
    assert any("to 10, not 30" in one.value.replace("\\", "") for one in app.error)
    assert named(app.button, "Save to the mixture").disabled
    app = named(app.number_input, "Softness").set_value(3.0).run()
    named(app.button, "Save to the mixture").click().run()
    assert read(mixtures.get_mixture, "soft").gate == STORED | {"softness": 3.0}
