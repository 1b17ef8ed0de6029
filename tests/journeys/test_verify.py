"""An answer of the API is stored, and made again by its manifest: the same tokens, or the first that differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ui.api.app import create_app
from ui.cli.app import main
from workbench.settings import get_settings

from .conftest import Do

ASK = {
    "model": "small",
    "prompt": ["the court", "bake in"],
    "max_tokens": 6,
    "n": 2,
    "seed": 5,
    "return_token_ids": True,
    "ignore_eos": True,
    "repetition_penalty": 1.1,
    "logit_bias": {"9": -1},
    "experts": [{"id": "small/court", "weight": 3}, {"id": "small/kitchen", "weight": 1}],
    "gate": {"kind": "posterior", "evidence": "last_token"},
    "logprobs": 2,
}
Stored = Callable[..., Path]


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The answer, made one time."""
    return {}


@pytest.fixture
def stored(trained: Do, tmp_path: Path, kept: dict[str, Any]) -> Stored:
    """The file of an answer, with changes."""
    assert trained
    if not kept:
        app = create_app(get_settings(), playground=False)
        with TestClient(app, base_url="http://127.0.0.1:8000") as api:
            kept.update(api.post("/v1/completions", json=ASK).json())

    def store(change: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
        answer = json.loads(json.dumps(kept))
        change(answer)
        path = tmp_path / "answer.json"
        path.write_text(json.dumps(answer), encoding="utf-8")
        return path

    return store


def test_every_choice_of_an_answer_is_made_again_token_by_token(
    stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(stored()), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["agrees"], result["changed"]) == (True, [])
    assert [(one["num_tokens"], one["first_difference"]) for one in result["choices"]] == [(6, None)] * 4


def test_the_first_token_that_differs_is_named(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    def change(answer: dict[str, Any]) -> None:
        answer["choices"][2]["token_ids"][3] += 1
        answer["manifest"]["versions"]["torch"] = "1.0"
        answer["manifest"]["experts"][0]["sha256"] = "00" * 32

    assert main(["verify", str(stored(change))]) == 1
    shown = capsys.readouterr().out
    assert "Choice 2: token 4 of 6 differs." in shown
    assert "Choice 3: all 6 tokens are the same." in shown
    assert "Changed since: expert small/court." in shown
    assert "Changed since: torch 1.0, now " in shown


def test_another_seed_gives_other_tokens(stored: Stored) -> None:
    assert main(["verify", str(stored(lambda answer: answer["manifest"]["sampling"].update(seed=99)))]) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda answer: answer["choices"][0].update(token_ids=None), "return_token_ids"),
        (lambda answer: answer.pop("manifest"), "is not an answer of the API"),
        (lambda answer: answer["manifest"].update(sampling={"top_q": 1}), "is not an answer of the API"),
    ],
)
def test_what_cannot_be_made_again_is_refused(
    stored: Stored, change: Callable[[dict[str, Any]], None], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(stored(change))]) == 2
    assert sentence in capsys.readouterr().err
