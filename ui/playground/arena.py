"""Comparisons in the playground: stored at the end of a round, voted on, listed, and rated."""

from __future__ import annotations

import html
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gradio as gr

from engine.errors import Problem
from ui.playground.address import CHAT, fits
from ui.playground.mode_gates import table_html
from ui.playground.player import Player
from ui.playground.rounds import LETTERS, NUM_PANES, Memory, Round
from ui.playground.view import PaneAnswer, answer_html, problem_html
from ui.present.next_step_text import problem_text
from ui.present.text.formatting import pluralize
from workbench.analysis.ratings import Rating, RatingTable, RatingTables, rating_tables
from workbench.answers.history import ComparisonHead, ComparisonPage, NewAnswer, NewComparison, NewVote, Turn
from workbench.registry import comparisons

if TYPE_CHECKING:
    from ui.generation.app_state import AppState
    from workbench.answers.history import Choice, ComparisonCard


CHOICES = {"a": "{a} is better", "b": "{b} is better", "tie": "tie", "both_bad": "both bad"}


def link_html(id: str) -> str:
    """The link that shows a comparison again, which becomes the page's address; nothing while there is none."""
    address = html.escape(f"?r={id}", quote=True)
    return f'<a href="{address}" data-address="{address}">This comparison</a>' if id else ""


def settings_html(address: str, turn: int | None = None) -> str:
    """The address of the panes' settings, for the button that copies it; also the page's, where one was changed.

    `turn` is the number of that change: the page leaves out the answer to one that a later answer has overtaken.
    """
    if not address:
        return ""
    own = html.escape(address if fits(address) else "", quote=True)
    as_page = "" if turn is None else f' data-address="{own}" data-turn="{int(turn)}"'
    return f'<i data-settings="{own}"{as_page}></i>'


def votes_html(tables: RatingTables, domain: str, pressed: Choice | None = None) -> str:
    """The ratings of the prompt's domain in one line, or of all prompts, and all tables behind it.

    `pressed` is the vote that stands: the page shows its button pressed.
    """
    all_prompts = tables.tables[0]
    table = next((one for one in tables.tables if one.domain == domain), all_prompts) if domain else all_prompts
    where = f" on {html.escape(table.domain)}" if table.domain else ""
    rated = [row for row in table.rows if row.rating is not None][:3]
    words = " · ".join(f"{html.escape(row.label)} {_rating(row)}" for row in rated) or html.escape(table.sentence)
    every = "".join(_table(one) for one in tables.tables)
    return (
        f'<span data-pressed="{(pressed or "").replace("_", "-")}">'
        f"{pluralize(table.num_votes, 'vote')}{where}: {words}</span> <details><summary>Table</summary>"
        f'<div tabindex="0">{every}<p><a href="/v1/workbench/ratings?format=csv" download="ratings.csv">CSV</a></p>'
        "</div></details>"
    )


def _rating(row: Rating) -> str:
    if row.rating is None:
        return html.escape(row.why)
    low, high = ("?" if bound is None else f"{bound:,.0f}" for bound in (row.low, row.high))
    return f"{row.rating:,.0f} [{low}–{high}]"


def _table(table: RatingTable) -> str:
    heads = ("Model", "Rating, 95 %", "Votes", "Won / lost / tied")
    rows = (
        [html.escape(row.label), _rating(row), str(row.num_votes), f"{row.wins} / {row.losses} / {row.ties}"]
        for row in table.rows
    )
    caption = f"{html.escape(table.domain or 'All prompts')}: {html.escape(table.sentence)}."
    return table_html(caption, [(head, "") for head in heads], rows)


def history_html(page: ComparisonPage) -> str:
    """The stored comparisons, each a link to it."""
    if not page.history_days:
        return "<p>The history is off: WORKBENCH_HISTORY_DAYS is 0.</p>"
    items = "".join(f"<li>{_item(one)}</li>" for one in page.data)
    days = pluralize(round(page.history_days), "day")
    return (
        f"<p>{pluralize(page.total, 'comparison')}. Text is stored for {days}; votes stay.</p>"
        f"{f'<ol>{items}</ol>' if items else ''}"
    )


def _item(comparison: ComparisonHead) -> str:
    when = time.strftime("%d %b %H:%M", time.localtime(comparison.created_at))
    votes = ", ".join(CHOICES[vote.choice].format(a=vote.a, b=vote.b) for vote in comparison.votes)
    models = html.escape(" · ".join(comparison.models))
    prompt = html.escape(comparison.prompt.strip()[:90]) or "(empty)"
    return (
        f'<a href="?r={html.escape(comparison.id, quote=True)}"><b>{prompt}</b></a>'
        f"<small>{when} · {models}{f' · {html.escape(votes)}' if votes else ''}</small>"
    )


NOTHING = "There is nothing to vote on yet: generate two answers first."
log = logging.getLogger(__name__)


class Arena:
    """Handles the events about votes and history."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._player = Player(state)

    def store(self, memory: Memory, *values: Any) -> list[Any]:
        """Stores the answers of a round that has ended; gives the memory, the link, and an empty result of votes."""
        request = Round.of(values)
        answers = [memory.answers.get(number) for number in range(len(request.panes))]
        ended = [answer for answer in answers if answer is not None]
        if len(ended) < len(answers):  # not everywhere
            return [replace(memory, comparison=""), link_html(""), ""]
        try:
            id = self._store(request, ended)
        except Problem as problem:
            return [memory, link_html(""), problem_html(problem_text(problem))]
        return [replace(memory, comparison=id), link_html(id if self._state.settings.history_days else ""), ""]

    def _store(self, request: Round, answers: list[PaneAnswer]) -> str:
        first, is_chat = answers[0], request.answer_format == CHAT
        turns = _turns(first) if is_chat else []
        stored = [_new(answer, _turns(answer) if is_chat and answer.turns != first.turns else []) for answer in answers]
        new = NewComparison(prompt="" if turns else first.prompt, messages=turns, answers=stored)
        return self._state.write_by_viewer(comparisons.store_comparison, new, self._state.settings.history_days).id

    def vote(self, choice: Choice, memory: Memory, pair: str, *values: Any) -> list[Any]:
        """Records a vote on the two answers of a pair, or withdraws it if it is the one that stands.

        A blind round then shows who was behind the letters. Gives the memory, the ratings, the answers, and the inputs
        of each pane.
        """
        request = Round.of(values)
        if not memory.comparison or len(request.panes) < 2:
            raise gr.Error(NOTHING)
        a, b = pair.split("–")
        if _vote_on(self._state.read(comparisons.get_comparison, memory.comparison), pair) == choice:
            self._state.write_by_viewer(comparisons.withdraw_vote, memory.comparison, a, b)
        else:
            new = NewVote.model_validate({"choice": choice, "a": a, "b": b, "is_blind": bool(memory.order)})
            self._state.write_by_viewer(comparisons.vote, memory.comparison, new)
        return [*self._reveal(memory, request), self.ratings(memory, pair)]

    def ratings(self, memory: Memory, pair: str) -> str:
        """The ratings from the votes, on all prompts and by domain, and which button is pressed for a pair."""
        if not memory.comparison:
            return ""
        card = self._state.read(comparisons.get_comparison, memory.comparison)
        return votes_html(self._state.read(rating_tables), card.domain, _vote_on(card, pair))

    def _reveal(self, memory: Memory, request: Round) -> list[Any]:
        """The memory, answers and panes, each pane with the model that was behind its letter."""
        if not memory.order:
            return [memory, *[gr.skip()] * (NUM_PANES * 4)]
        answers = {index: replace(answer, is_blind=False) for index, answer in memory.answers.items()}
        shown = [answer_html(answers[index]) if index in answers else gr.skip() for index in range(NUM_PANES)]
        panes: list[Any] = []
        for index in range(NUM_PANES):
            if index >= len(memory.order):
                panes += [gr.skip()] * 3
                continue
            panes += self._player.inputs_of(request.panes[memory.order[index]])
        return [replace(memory, answers=answers, order=()), *shown, *panes]

    def history(self, search: str) -> str:
        """The stored comparisons whose prompt or answers have these words."""
        days = self._state.settings.history_days
        return history_html(self._state.read(comparisons.list_comparisons, search=search[:1000], history_days=days))


def pairs_of(count: int) -> list[str]:
    """The pairs of letters of so many panes."""
    return [f"{a}–{b}" for place, a in enumerate(LETTERS[:count]) for b in LETTERS[place + 1 : count]]


def _vote_on(card: ComparisonCard, pair: str) -> Choice | None:
    return next((vote.choice for vote in card.votes if pair == f"{vote.a}–{vote.b}"), None)


def _turns(answer: PaneAnswer) -> list[Turn]:
    return [Turn.model_validate(turn) for turn in answer.turns]


def _new(answer: PaneAnswer, messages: list[Turn]) -> NewAnswer:
    names = [expert.name for expert in answer.manifest.experts]
    return NewAnswer(
        manifest=answer.manifest,
        text=answer.generated,
        token_ids=list(answer.token_ids),
        prompt_token_ids=list(answer.prompt_ids),
        expert_weights=[
            {name: min(1.0, max(0.0, weight)) for name, weight in zip(names, row, strict=True)}
            for row in answer.weights
        ],
        finish_reason=answer.done.reason if answer.done else None,
        messages=messages,
    )
