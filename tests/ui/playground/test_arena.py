"""Votes, blind rounds, the history and links of the playground: all of it through the registry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from starlette.datastructures import QueryParams

from engine.errors import ModelError
from tests.ui.playground.test_playground import HOSTILE, inputs, played
from ui.api.app import create_app
from ui.playground.arena import Arena, history_html, pairs_of, votes_html
from ui.playground.opening import Opening
from ui.playground.player import FAILED_BLIND, Player
from ui.playground.rounds import Memory, Round
from workbench.analysis.ratings import Rating, RatingTable, RatingTables
from workbench.registry.comparisons import get_comparison, list_comparisons
from workbench.registry.database import reading, transaction
from workbench.requests.verification import linked_comparison
from workbench.schema.tables import Artifact
from workbench.settings import Settings


@pytest.fixture
def state(mixed: Path, host: Any) -> Any:
    return create_app(Settings(home=mixed), host, playground=False).state.workbench


def test_a_vote_counts_while_a_setting_is_empty(state: Any) -> None:
    memory, values = stored(state, "both/code", "both/law")
    values[5] = None  # the tokens
    assert "1 vote" in Arena(state).vote("a", memory, "A–B", *values)[-1]


def test_each_answer_of_a_stored_conversation_keeps_its_own_turns(state: Any) -> None:
    player, memory = Player(state), Memory()
    values = inputs(player, "both/code", "both/law", answer_format="Chat")
    _, memory = played(player, memory, *values)
    spoken = ["I am code.", "I am law."]
    earlier = {pane: (turns[0], {**turns[1], "content": spoken[pane]}) for pane, turns in memory.turns.items()}
    _, memory = played(player, replace(memory, turns=earlier), *values)
    memory, *_ = Arena(state).store(memory, *values)

    *_, opened = Opening(state).show_stored(Memory(replayed=memory.comparison))

    assert opened.turns == memory.turns
    with reading() as session:
        linked = linked_comparison(get_comparison(session, memory.comparison), state.generations.plan).answers
    assert [answer.request["messages"][1]["content"] for answer in linked] == spoken


def stored(state: Any, *models: str, **changes: Any) -> tuple[Memory, list[Any]]:
    """A round that has been stored, with the inputs that it was made of."""
    player = Player(state)
    values = inputs(player, *models, **changes)
    _, memory = played(player, Memory(), *values)
    memory, link, problem = Arena(state).store(memory, *values)
    assert problem == ""
    assert f'href="?r={memory.comparison}"' in link
    return memory, values


def test_a_vote_is_a_row_and_moves_the_table(state: Any) -> None:
    memory, values = stored(state, "both", "both/law")
    assert "0 votes" in Arena(state).ratings(memory, "A–B")
    *_, ratings = Arena(state).vote("a", memory, "A–B", *values)
    assert "1 vote" in ratings
    assert "both/law" in ratings
    with reading() as session:
        card = get_comparison(session, memory.comparison)
    assert [(vote.a, vote.b, vote.choice, vote.is_blind) for vote in card.votes] == [("A", "B", "a", False)]
    assert [answer.model for answer in card.answers] == ["both", "both/law"]
    assert card.answers[0].text == " sea0 sea1 sea2"


def test_the_same_vote_again_withdraws_it_and_another_one_replaces_it(state: Any) -> None:
    memory, values = stored(state, "both", "both/law", "both/code")
    arena = Arena(state)

    def votes() -> list[Any]:
        with reading() as session:
            return [vote.choice for vote in get_comparison(session, memory.comparison).votes]

    assert 'data-pressed="a"' in arena.vote("a", memory, "A–B", *values)[-1]
    assert 'data-pressed="both-bad"' in arena.vote("both_bad", memory, "A–B", *values)[-1]
    assert votes() == ["both_bad"]
    assert 'data-pressed=""' in arena.ratings(memory, "A–C")
    assert 'data-pressed=""' in arena.vote("both_bad", memory, "A–B", *values)[-1]
    assert votes() == []


def test_a_pair_of_three_answers_is_voted_on(state: Any) -> None:
    assert pairs_of(3) == ["A–B", "A–C", "B–C"]
    memory, values = stored(state, "both", "both/law", "both/code")
    Arena(state).vote("b", memory, "A–C", *values)
    with reading() as session:
        (vote,) = get_comparison(session, memory.comparison).votes
    assert (vote.a, vote.b, vote.choice) == ("A", "C", "b")


def test_without_two_answers_there_is_nothing_to_vote_on(state: Any) -> None:
    values = inputs(Player(state), "both", "both/law")
    memory, link, _ = Arena(state).store(Memory(), *values)
    assert link == ""
    with pytest.raises(gr.Error, match="nothing to vote on"):
        Arena(state).vote("a", memory, "A–B", *values)


def test_a_blind_round_names_nobody_until_the_vote(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.playground.rounds.random.shuffle", lambda order: order.reverse())
    player = Player(state)
    values = inputs(player, "both", "both/law", blind=True)
    drawn, memory = played(player, Memory(), *values)
    shown = "".join(one for update in drawn for one in update[:4] if isinstance(one, str))
    assert "sea2" in shown
    assert [word for word in ("both", "law", "code", "ab" * 32, "background") if word in shown] == []

    memory, _, _ = Arena(state).store(memory, *values)
    after, first, second, *rest = Arena(state).vote("tie", memory, "A–B", *values)
    assert after.order == ()
    assert "both/law</b> is the only expert" in first
    assert "75.0%" in second
    assert [rest[2 + 3 * place] for place in (0, 1)] == ["both/law", "both"]
    with reading() as session:
        card = get_comparison(session, memory.comparison)
    assert [answer.model for answer in card.answers] == ["both/law", "both"]
    assert card.votes[0].is_blind


def test_a_model_that_fails_in_a_blind_round_is_not_named(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ModelError("“both” has no chat template.", "Ask for a completion.")

    async def shown(memory: Memory) -> list[Any]:
        return [frame async for frame in player.answer(Round.of(values), 0, memory)]

    player = Player(state)
    monkeypatch.setattr(player, "request_of", refuse)
    values = inputs(player, "both", "both/law", blind=True)
    assert "“both” has no chat template" in str(asyncio.run(shown(Memory())))
    assert asyncio.run(shown(Memory(order=(0, 1)))) == [FAILED_BLIND]


class Query:
    """A request for the page with a query."""

    def __init__(self, **query: str) -> None:
        self.query_params = QueryParams(query)


def test_a_link_makes_the_same_text_again_and_says_so(state: Any) -> None:
    memory, _ = stored(state, "both", "both/law")
    player = Player(state)
    opened, answer_format, count, prompt, _, max_tokens, _, _, _, seed, *panes = Opening(state).load(
        Query(r=memory.comparison)
    )  # type: ignore[arg-type]
    assert (answer_format, count, prompt, max_tokens, seed) == ("Completion", 2, "the sea", 3, 1)
    assert [panes[3 * place]["value"] for place in (0, 1)] == ["both", "both/law"]
    last = again(player, opened)
    assert all("The same text as stored." in one for one in last)
    assert all("Changed since" not in one for one in last)


def test_a_link_shows_what_is_stored_and_generates_nothing(state: Any, host: Any) -> None:
    memory, _ = stored(state, "both", "both/law")
    num_generated = len(host.seeds)
    *shown, now = Opening(state).show_stored(Memory(replayed=memory.comparison))
    assert len(host.seeds) == num_generated
    for html in shown[:2]:
        assert "Stored answer: max tokens reached. 3 tokens. Seed 1." in html
        assert "The same text" not in html
    assert now.comparison == memory.comparison
    assert [now.answers[place].generated for place in (0, 1)] == [" sea0 sea1 sea2"] * 2
    assert now.answers[0].mean("both/code") == pytest.approx(0.75)


def test_a_stored_text_that_other_tokens_would_write_is_shown_as_it_is_stored(state: Any, host: Any) -> None:
    memory, _ = stored(state, "both", "both/law")
    host.first_id = 7  # other tokens
    first, *_ = Opening(state).show_stored(Memory(replayed=memory.comparison))
    assert " sea0 sea1 sea2" in first
    assert "Stored answer." in first


def test_a_link_says_what_differs(state: Any, host: Any) -> None:
    memory, _ = stored(state, "both", "both/law")
    host.first_id = 7  # other tokens
    with transaction() as session:
        row = session.query(Artifact).filter_by(kind="expert").order_by(Artifact.id).all()
        for one in row:
            one.sha256 = "99" * 32
    last = again(Player(state), Memory(replayed=memory.comparison))
    assert all("Differs from the stored text from token 1." in one for one in last)
    assert "Changed since: expert both/code; expert both/law." in last[0]


def test_a_stored_text_is_shown_where_it_cannot_be_made_again(state: Any, host: Any) -> None:
    from workbench.registry import mixtures

    memory, _ = stored(state, "both", "both/law")
    with transaction() as session:
        mixtures.delete_mixture(session, "both")
    first, second = again(Player(state), Memory(replayed=memory.comparison))
    assert "sea0 sea1 sea2" in first
    assert 'role="alert"' in first
    assert "The same text" in second


def again(player: Player, memory: Memory) -> list[str]:
    """What the panes show at the end of a replay."""

    async def collect() -> list[list[Any]]:
        return [update async for update in player.replay(memory)]

    drawn = asyncio.run(collect())
    return [next(one[place] for one in reversed(drawn) if isinstance(one[place], str)) for place in (0, 1)]


def test_the_history_is_searched_and_each_entry_is_a_link(state: Any) -> None:
    memory, _ = stored(state, "both", "both/law")
    html = Arena(state).history("sea1")
    assert f'href="?r={memory.comparison}"' in html
    assert "1 comparison." in html
    assert "0 comparisons." in Arena(state).history("mountain")


def test_names_prompts_and_sentences_are_no_markup(state: Any) -> None:
    memory, _ = stored(state, "both", "both/law")
    with reading() as session:
        page = list_comparisons(session)
    head = page.data[0].model_copy(update={"prompt": HOSTILE, "models": [HOSTILE], "id": f'"{HOSTILE}'})
    row = Rating(
        label=HOSTILE,
        model=HOSTILE,
        num_votes=1,
        wins=1,
        losses=0,
        ties=0,
        rating=None,
        low=None,
        high=None,
        why=HOSTILE,
    )
    table = RatingTable(
        domain=HOSTILE, sentence=HOSTILE, num_votes=1, num_blind=0, num_both_bad=0, rows=[row], pairs=[]
    )
    shown = history_html(page.model_copy(update={"data": [head]})) + votes_html(
        RatingTables(tables=[table], least_votes=10, is_blind_only=False), HOSTILE
    )
    assert memory.comparison
    assert "<img" not in shown
    assert shown.count("&lt;img") >= 6
