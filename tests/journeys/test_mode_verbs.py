"""`workbench mode`: trained and composed from the command line, with words for what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ui.cli.app import main

QUICK = ["--blocks", "2", "--expert-layers", "1", "--steps", "4", "--block-size", "32", "--here"]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_two_experts_are_trained_composed_and_shown(trained, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained
    for name, domain in (("law", "court"), ("food", "kitchen")):
        made = ask(capsys, "train", "mode", name, "--seed-model", "seed", "--domains", domain, *QUICK)
        assert (made["state"], made["result"]["expert"]) == ("done", f"{name}/{domain}")
    both = ["mode", "compose", "both", "--experts", "law/court,food/kitchen"]
    card = ask(capsys, *both, "--domains", "court,kitchen", "--frozen", "--steps", "4", "--block-size", "32", "--here")
    assert (card["title"], card["spec"]["frozen"]) == ("Compose experts into both", True)
    assert card["result"]["parts"] == ["court", "kitchen"]
    assert main(["mode", "compose", "less", "--experts", "both/composed", "--without", "court", "--here"]) == 0
    capsys.readouterr()
    assert main(["mixture", "cost", "both"]) == 0
    assert main(["generate", "both", "the court", "--max-tokens", "2"]) == 0
    assert main(["expert", "show", "both/composed"]) == 0
    assert "mode" in capsys.readouterr().out
    (curve,) = ask(capsys, "mode", "history", "both/composed")
    assert {one["domain"] for one in curve["domains"]} == {"court", "kitchen"}
    assert main(["mode", "history", "law/court", "both/composed"]) == 0
    assert "backbone" in capsys.readouterr().out


TRAIN = ("train", "mode")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["train", "mode", "deep", "--seed-model", "seed", "--domains", "court", "--blocks", "3"],
            "at most the 2 layers",
        ),
        (
            ["train", "mode", "odd", "--seed-model", "seed", "--domains", "court", "--parts", "2"],
            "copies would learn the same",
        ),
        ([*TRAIN, "away", "--seed-model", "sed", "--domains", "court"], "no seed model called “sed”"),
        (["mode", "compose", "x", "--experts", "small/court,small/kitchen"], "have no parts"),
        (["mode", "compose", "x", "--experts", "a,a"], "Name each expert once"),
    ],
)
def test_what_cannot_be_is_refused_immediately(
    trained, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert trained
    assert main(arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())
