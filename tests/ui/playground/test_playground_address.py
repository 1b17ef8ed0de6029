"""The playground's address: what is written is read again, and what cannot be used is named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from engine.errors import ChatTemplateError
from tests.ui.playground.test_playground import HOSTILE, inputs
from ui.addresses import LONGEST_QUERY
from ui.api.app import create_app
from ui.playground import grid
from ui.playground.address import (
    SAMPLING,
    PlaygroundAddress,
    fits,
    grid_address,
    panes_address,
    read_address,
)
from ui.playground.opening import Opening
from ui.playground.player import Player
from ui.playground.rounds import Memory
from workbench.settings import Settings

USUAL = {name: one.usual for name, one in SAMPLING.items()}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
OUTPUTS_BEFORE_PANES = 10  # memory, format, number of panes, prompt, system prompt, five settings of sampling


def read(address: str) -> PlaygroundAddress:
    return read_address(parse_qsl(address.removeprefix("?"), keep_blank_values=True))


@given(st.lists(TEXT, min_size=1), st.lists(TEXT, min_size=1), st.integers(0, 2**53 - 1))
def test_what_a_grid_writes_is_read_again(models: list[str], prompts: list[str], seed: int) -> None:
    requested = read(grid_address(models, prompts, {**USUAL, "seed": seed}))
    assert (list(requested.grid_models), list(requested.grid_prompts), requested.faults) == (models, prompts, ())
    assert requested.sampling == {**USUAL, "seed": seed}


@given(TEXT, TEXT, TEXT, st.lists(TEXT, unique=True), st.floats(0, 2))
def test_what_panes_write_is_read_again(
    model: str, prompt: str, system: str, changes: list[str], temperature: float
) -> None:
    panes = [(model, changes, []), ("b", [], ["e: part"]), ("c", [], [])]
    requested = read(panes_address(panes, prompt, system, "Chat", {**USUAL, "temperature": temperature}))
    assert requested.models == {"left": model, "right": "b", "third": "c"}
    assert requested.changes == ({"left.set": changes} if changes else {}) | {"right.off": ["e: part"]}
    assert (requested.prompt, requested.system) == (prompt, system)
    assert (requested.count, requested.answer_format) == (3, "Chat")
    assert requested.sampling == {**USUAL, "temperature": temperature}
    assert requested.faults == ()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("seed=-1", "“seed” is a whole number from 0"),
        ("seed=1.5", "not “1.5”"),
        ("temperature=nan", "“temperature” is a number from 0 to 2, not “nan”."),
        ("max_tokens=513", "from 1 to 512"),
        ("panes=5", "“panes” is 1, 2, 3 or 4, not “5”."),
        ("format=poem", "“format” is chat or completion, not “poem”."),
        ("tempreature=1", "“tempreature” is not a setting of the playground."),
        ("left=a&left=b", "“left” is there more than once."),
    ],
)
def test_what_an_address_cannot_ask_for_is_named(address: str, words: str) -> None:
    (fault,) = read(address).faults
    assert words in fault


def test_the_theme_of_the_frame_is_no_fault() -> None:
    assert read("__theme=dark&left=a").faults == ()


@pytest.fixture
def state(composed: Path, host: Any) -> Any:
    return create_app(Settings(home=composed), host, playground=False).state.workbench


def load(state: Any, *pairs: tuple[str, str]) -> tuple[Memory, list[Any], str, list[Any]]:
    """The memory, the inputs of the panes, the notice, and the models, prompts and cells of the grid."""
    outputs = Opening(state).load(SimpleNamespace(query_params=QueryParams(list(pairs))))  # type: ignore[arg-type]
    memory, panes = outputs[0], outputs[OUTPUTS_BEFORE_PANES:-4]
    return memory, panes, outputs[-4], outputs[-3:]


def test_an_address_sets_experts_weights_and_parts_of_a_pane(state: Any) -> None:
    pairs = [("left", "both"), ("left.set", "both/law:off"), ("left.set", "both/code:0.5")]
    _, panes, notice, _ = load(state, *pairs, ("right", "apps"), ("right.off", "apps/composed: law"))
    assert [(one["name"], one["on"], one["weight"]) for one in panes[1]["experts"]] == [
        ("both/code", True, 0.5),
        ("both/law", False, 0.33),
    ]
    assert panes[5]["value"] == ['["apps/composed", "code"]']
    assert notice == ""


def test_the_address_of_panes_opens_them_as_they_are(state: Any) -> None:
    player = Player(state)
    values = inputs(player, "both", "apps")
    values[12]["experts"][1]["on"] = False
    values[-1] = ['["apps/composed", "law"]']
    address = player.address(*values)
    assert "left.set=both/law%3Aoff" in address
    _, panes, notice, _ = load(state, *parse_qsl(address[1:]))
    assert notice == ""
    assert [one["on"] for one in panes[1]["experts"]] == [True, False]
    assert panes[5]["value"] == values[-1]
    again = inputs(player, "both", "apps")
    again[-5:] = [panes[1], [], "apps", panes[4], panes[5]["value"]]
    assert player.address(*again) == address


def test_a_grid_is_filled_only_where_all_of_its_address_can_be_used(state: Any) -> None:
    memory, _, notice, (models, prompts, cells) = load(state, ("x", "both"), ("y", "the sea"), ("y", "a hill"))
    assert (memory.fills, notice, models["value"], prompts, cells) == (True, "", ["both"], "the sea\na hill", "")
    for wrong in (("x", HOSTILE), ("seed", "x"), ("left", "nobody"), ("left.set", "nobody:off"), ("foo", "1")):
        memory, _, notice, (*_, cells) = load(state, ("x", "both"), ("y", "the sea"), wrong)
        assert not memory.fills
        assert 'role="alert"' in notice
        assert cells == notice
        assert "<img" not in notice


def test_a_link_to_a_chat_opens_an_empty_one_or_says_why_it_is_a_completion(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> tuple[Any, Any, str]:
        outputs = Opening(state).load(SimpleNamespace(query_params=QueryParams("left=both&format=chat")))  # type: ignore[arg-type]
        return outputs[1], outputs[3], outputs[-4]

    assert opened() == ("Chat", "", "")

    def refuse(*_: Any, **__: Any) -> None:
        raise ChatTemplateError("“both” has no chat template.", "Make experts of another seed model.")

    monkeypatch.setattr(state.generations.host, "conversation_prompt", refuse)
    answer_format, prompt, notice = opened()
    assert (answer_format, bool(prompt)) == ("Completion", True)
    assert "“both” has no chat template." in notice


def test_an_unknown_comparison_leaves_a_page_that_can_be_used(state: Any) -> None:
    memory, panes, notice, _ = load(state, ("r", "abc"))
    assert memory.replayed == ""
    assert "There is no comparison" in notice
    assert panes[0]["value"] == "both"  # the oldest


def filled(state: Any, lines: str, seed: int | None) -> list[str]:
    async def collect() -> list[str]:
        return [page async for page in grid.fill(Player(state), ["both"], lines, 2, 0.0, 1.0, 0, seed, False)]

    return asyncio.run(collect())


def test_a_grid_without_a_seed_gets_one_that_its_address_names(state: Any, host: Any) -> None:
    first, *_, last = filled(state, "the sea\nthe hill", None)
    assert all(f'seed={host.sampling.seed}"' in page for page in (first, last))


def test_a_grid_too_long_for_an_address_says_so_and_has_none(state: Any) -> None:
    long = "the sea " * 70
    *_, last = filled(state, "\n".join(f"{number} {long}" for number in range(12)), 1)
    assert grid.TOO_LONG in last
    assert 'data-address=""' in last
    assert not fits(f"?{urlencode({'prompt': 'a' * LONGEST_QUERY})}")
