"""What an answer would be without an expert, and the grid of prompts and models."""

from __future__ import annotations

import asyncio
import csv
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from engine.events import Done
from tests.ui.playground.test_playground import HOSTILE, inputs
from ui.api.app import create_app
from ui.playground import app, grid
from ui.playground.player import Player
from ui.playground.rounds import NUM_PANES, Memory
from ui.playground.view import words_diff
from workbench.settings import Settings


@pytest.fixture
def player(mixed: Path, host: Any) -> Player:
    return Player(create_app(Settings(home=mixed), host, playground=False).state.workbench)


def test_words_that_went_and_came_are_marked_and_never_markup() -> None:
    assert words_diff("the old sea", "the new sea") == "the <del>old</del><ins>new</ins> sea"
    assert words_diff("same", "same") == "same"
    shown = words_diff(f"a {HOSTILE}", f"b {HOSTILE}")
    assert "<img" not in shown
    assert "&lt;img" in shown


@pytest.mark.parametrize("num_panes", [1, 2])
def test_the_pane_beside_takes_the_model_without_the_expert(player: Player, num_panes: int) -> None:
    values = inputs(player, "both", "both/law")[11:]
    values[1] = {**values[1], "without": "both/law"}
    count, *updates = player.leave_out(num_panes, *values, index=0)
    model, chips, _ = updates[3:6]
    assert (count, model) == (2, "both")
    assert [one["name"] for one in chips["experts"] if one["on"]] == ["both/code"]
    assert len(updates) == 3 * NUM_PANES


def test_the_pane_beside_ends_as_a_diff_of_words(player: Player, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = inputs(player, "both", "both/law")
    stream = host.stream

    def without_code(plan: Any, prompt: Any, sampling: Any, stop: Any = ()) -> Any:
        is_full = len(plan.experts) == 2
        for one in stream(plan, prompt if is_full else "the hill", sampling, stop):
            yield one if is_full or isinstance(one, Done) else replace(one, id=one.id + 50)

    monkeypatch.setattr(host, "stream", without_code)

    async def collect() -> list[list[Any]]:
        return [update async for update in player.play(Memory(), *values, without_of=0)]

    last = next(update[1] for update in reversed(asyncio.run(collect())) if isinstance(update[1], str))
    assert "Differs from A at once:" in last
    assert "<del>sea0</del><ins>hill0</ins>" in last
    assert "Show tints" in last


def filled(player: Player, models: list[str], lines: str) -> list[str]:
    async def collect() -> list[str]:
        return [one async for one in grid.fill(player, models, lines, 2, 0.0, 1.0, 0, 1, False)]

    return asyncio.run(collect())


def test_every_prompt_meets_every_model_one_after_another(player: Player, host: Any) -> None:
    drawn = filled(player, ["both", "both/law"], f"the sea\n\n{HOSTILE}\n")
    assert ["download" in one for one in drawn] == [False] * 4 + [True]
    assert host.most_open == 1
    assert "<img" not in drawn[-1]
    link = re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', drawn[-1])
    assert link is not None
    rows = list(csv.reader(StringIO(unquote(link[1]))))
    assert rows[0] == ["prompt", "model", "text"]
    assert [row[:2] for row in rows[1:]] == [
        [one, model] for one in ("the sea", HOSTILE) for model in ("both", "both/law")
    ]
    assert rows[1][2] == " sea0 sea1"


def test_a_grid_of_nothing_or_of_too_much_is_refused(player: Player) -> None:
    for models, lines in (([], "the sea"), (["both"], " \n"), (["both"], "x\n" * (grid.MOST_CELLS + 1))):
        (shown,) = filled(player, models, lines)
        assert "one in a line" in shown


@pytest.mark.parametrize(("num_prompts", "is_filled"), [(1, True), (17, False)])
def test_the_link_of_a_large_grid_waits_for_a_click(player: Player, num_prompts: int, is_filled: bool) -> None:
    lines = "\n".join(["the sea"] * num_prompts)

    async def collect() -> list[str]:
        pages = grid.fill_if_requested(player, Memory(fills=True), ["both"], lines, 2, 0.0, 1.0, 0, 1, False)
        return [page async for page in pages]

    *_, last = asyncio.run(collect())
    assert ("1 of 1 cells" in last) is is_filled
    assert (f"Press “{grid.FILL}”" in last) is not is_filled


def test_the_sentence_on_a_large_grid_names_the_button() -> None:
    assert f'"{grid.FILL}"' in Path(app.__file__).read_text(encoding="utf-8")
