"""A plan has the precision that was chosen for its weights, and a choice that nobody asked for is said once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.loading import loaded_base
from engine.loading.loaded_base import ChosenPrecision
from ui.cli.app import main
from ui.generation.model_host import ModelHost
from workbench.answers.posteriors import Manifest
from workbench.settings import Settings
from workbench.specs.requests import MixtureRequest

BECAUSE = "This CPU has no instructions for bfloat16."


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ChosenPrecision("float32", BECAUSE)
    monkeypatch.setattr(loaded_base, "choose_precision", lambda *_: chosen)


@pytest.mark.usefixtures("in_float32")
def test_a_choice_for_this_machine_is_in_the_manifest_and_logged_once(
    mixed: Path, host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    generations = ModelHost(Settings(home=mixed), host)
    plans = [generations.plan(MixtureRequest("both")) for _ in range(2)]
    assert [Manifest.of(plan).precision for plan in plans] == ["float32", "float32"]
    assert caplog.messages == [f"{BECAUSE} WORKBENCH_SERVE_PRECISION=stored serves them as they are stored."]


def test_an_explicit_setting_is_taken_without_a_word(mixed: Path, host: Any, caplog: pytest.LogCaptureFixture) -> None:
    generations = ModelHost(Settings(home=mixed, serve_precision="bf16"), host)
    assert generations.plan(MixtureRequest("both")).precision == "bf16"
    assert not caplog.messages


@pytest.mark.usefixtures("in_float32", "server")
def test_the_terminal_says_what_a_server_computes_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "both", "the sea", "--max-tokens", "3"]) == 0
    assert (
        "The server holds these weights in float32: its WORKBENCH_SERVE_PRECISION decides." in capsys.readouterr().err
    )
