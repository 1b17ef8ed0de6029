"""A method with a model of its own, from another package: trained, composed, packed and used with no file changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from engine.methods.registry import methods
from jobs.probe.processes import processes_of
from tests.toy_packages import WORDS, do, plugged_in, run_tests_with
from tests.ui.studio.visits import named, open_page
from ui.api.app import create_app
from ui.cli.app import main
from workbench.analysis.perplexity_tables import perplexity_table
from workbench.analysis.training_curves import training_history
from workbench.errors import BadSpecError
from workbench.job_records.devices import need_of
from workbench.kinds.kind import parse_spec
from workbench.kinds.training.mode import TrainMode
from workbench.questions.costs import CostRequest
from workbench.registry.database import close_engines, reading
from workbench.registry.expert_parts import parts_of
from workbench.registry.experts import get_expert
from workbench.settings import Settings
from workbench.store.storage import get_storage

FOLDER = Path(__file__).parent
TRAINING = {"num_steps": 30, "block_size": 32, "learning_rate": 5e-2, "clip": 1.0, "evaluate_every": 15}
TRAIN: dict[str, Any] = {"kind": "train-mode", "seed_model": "seed", "method": "heads", "training": TRAINING}
COMPOSE: dict[str, Any] = {"kind": "compose-mode", "name": "both", "experts": ["court/court", "sea/sea"]}


@pytest.fixture(scope="module")
def composed_home(seeded_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a head for each domain, and the two composed as `both/composed`, whose gates were trained."""
    home = tmp_path_factory.mktemp("composed") / "home"
    shutil.copytree(seeded_home, home)
    settings = Settings(home=home)
    with plugged_in(FOLDER):
        for domain in WORDS:
            do({**TRAIN, "name": domain, "domains": [domain], "options": {"size": 4}}, settings)
        do({**COMPOSE, "domains": list(WORDS), "frozen": True, "training": TRAINING}, settings)
    close_engines()
    return home


@pytest.fixture
def composed(installed: None, home: Path, composed_home: Path) -> Path:
    """A copy of that home."""
    return Path(shutil.copytree(composed_home, home, dirs_exist_ok=True))


@pytest.mark.usefixtures("composed")
def test_it_trains_in_one_process_whatever_the_settings_say() -> None:
    settings = Settings(processes=3)
    heads, mode = (TrainMode(name="m", seed_model="seed", domains=["sea"], method=name) for name in ("heads", "mode"))
    assert (processes_of(heads, settings), processes_of(mode, settings)) == ("one", "dividing")
    with reading() as session:
        leased = [need_of(session, one.kind, one.model_dump(), settings).count for one in (heads, mode)]
    assert leased == [1, 3]


@pytest.mark.usefixtures("composed")
def test_each_expert_is_better_on_its_domain_and_the_composition_knows_its_parts() -> None:
    assert main(["mixture", "create", "apart", "--experts", "court/court,sea/sea"]) == 0
    do({"kind": "evaluate", "mixture": "apart", "block_size": 32, "max_tokens": 300})
    with reading() as session:
        table = perplexity_table(session, "apart")
        card = get_expert(session, "both/composed")
        parts = parts_of(session, get_storage(), "both/composed")
        costs = CostRequest(mixture="both", context=32).answer(session, get_storage())
        history = training_history(session, "both/composed")
    of_court, of_sea = (dict(zip(table.domains, row, strict=True)) for row in table.perplexity)
    assert of_court["court"] < of_sea["court"]
    assert of_sea["sea"] < of_court["sea"]
    assert (card.method, card.parts, card.num_parameters) == ("heads", ["court", "sea"], 2 * (2 * 4 + 1) * 32)
    assert [(part.name, part.origin, part.shape) for part in parts] == [
        ("court", "court/court", {"size": 4}),
        ("sea", "sea/sea", {"size": 4}),
    ]
    assert costs.composing is not None
    assert costs.composing["gates"] < costs.composing["experts"] < costs.training
    assert {*history.domains[0].gates[-1]} == {"backbone", "court", "sea"}


def test_it_generates_with_any_of_its_parts_also_from_a_packed_file(
    composed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "both.expert")
    for command in (["expert", "pack", "both/composed", file], ["expert", "unpack", file, "--name", "again"]):
        assert main([*command, "--here"]) == 0
    assert main(["mixture", "create", "again", "--experts", "again"]) == 0
    prompt = {"prompt": "the court", "max_tokens": 2}
    with TestClient(create_app(Settings(home=composed), playground=False), base_url="http://127.0.0.1:8000") as api:
        for model, expert in (("both", "both/composed"), ("again", "again")):
            for active in (["court", "sea"], ["sea"], []):
                request = {"model": model, "parts": {expert: active}, **prompt}
                [choice] = api.post("/v1/completions", json=request).json()["choices"]
                weights = choice["gate_weights"][0][expert]
                assert [*weights["parts"]] == active
                assert sum(weights["backbone"]) + sum(map(sum, weights["parts"].values())) == pytest.approx(1)


@pytest.mark.usefixtures("installed")
def test_its_settings_are_checked_by_its_own_config() -> None:
    spec = {**TRAIN, "name": "court", "domains": ["court"]}
    for changes, message in (
        ({"options": {"size": 0}}, "Size must be at least 1"),
        ({"options": {"width": 2}}, "It takes: size, seed"),
        ({"method": "mode", "options": {"size": 2}}, "set shape instead"),
        ({"method": "lora"}, "choose one of mode, heads"),
    ):
        with pytest.raises(BadSpecError, match=message):
            parse_spec({**spec, **changes})


@pytest.mark.slow
@pytest.mark.usefixtures("composed")
def test_parts_of_two_methods_are_not_composed() -> None:
    do(
        {
            **TRAIN,
            "name": "blocks",
            "domains": ["sea"],
            "method": "mode",
            "shape": {"num_blocks": 2, "expert_layers": 1},
        }
    )
    with pytest.raises(BadSpecError, match="“blocks/sea” is of another method than “court/court”"):
        do({**COMPOSE, "name": "x", "experts": ["court/court", "blocks/sea"]})


@pytest.mark.usefixtures("composed")
def test_the_studio_trains_composes_and_shows_its_experts() -> None:
    app = open_page("train", **{"train.what": "MoDE expert", "train-mode.method": "heads"})
    assert named(app.selectbox, "Method").options[-1] == f"Heads: {methods()['heads'].sentence}"
    assert named(app.number_input, "Size").value == 8
    app = open_page("train", **{"train.what": "MoDE composition"})
    assert named(app.selectbox, "Backbone").options == ["seed"]


@pytest.mark.slow
def test_it_keeps_the_laws_of_every_method() -> None:
    output = run_tests_with(FOLDER, "tests/engine/methods/test_conformance.py", "-k", "heads", "-rN", "--no-header")
    assert "passed" in output


@pytest.mark.usefixtures("home")
def test_without_its_package_the_method_does_not_exist() -> None:
    assert "heads" not in methods()
