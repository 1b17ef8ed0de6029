"""The HTML of votes, ratings and the history. All text of users is escaped."""

from __future__ import annotations

import html
import time

from ui.playground.address import fits
from ui.present.text.formatting import pluralize
from workbench.analysis.ratings import Rating, RatingTable, RatingTables
from workbench.answers.history import ComparisonHead, ComparisonPage

CHOICES = {"a": "{a} is better", "b": "{b} is better", "tie": "tie", "both_bad": "both bad"}


def link_html(id: str) -> str:
    """The link that makes a comparison again, which becomes the page's address; nothing while there is none."""
    address = html.escape(f"?r={id}", quote=True)
    return f'<a href="{address}" data-address="{address}">This comparison</a>' if id else ""


def settings_html(address: str, turn: int | None = None) -> str:
    """The address of the panes' settings, for the button that copies it; the page's, too, where one was changed.

    `turn` is the number of that change: the page leaves out the answer to one that a later answer has overtaken.
    """
    if not address:
        return ""
    own = html.escape(address if fits(address) else "", quote=True)
    as_page = "" if turn is None else f' data-address="{own}" data-turn="{int(turn)}"'
    return f'<i data-settings="{own}"{as_page}></i>'


def votes_html(tables: RatingTables, domain: str) -> str:
    """The ratings of the prompt's domain in one line, or of all prompts, and all tables behind it."""
    all_prompts = tables.tables[0]
    table = next((one for one in tables.tables if one.domain == domain), all_prompts) if domain else all_prompts
    where = f" on {html.escape(table.domain)}" if table.domain else ""
    rated = [row for row in table.rows if row.rating is not None][:3]
    words = " · ".join(f"{html.escape(row.label)} {_rating(row)}" for row in rated) or html.escape(table.sentence)
    every = "".join(_table(one) for one in tables.tables)
    return (
        f"<span>{pluralize(table.num_votes, 'vote')}{where}: {words}</span> <details><summary>Table</summary>"
        f'<div tabindex="0">{every}<p><a href="/v1/workbench/ratings?format=csv" download="ratings.csv">CSV</a></p>'
        "</div></details>"
    )


def _rating(row: Rating) -> str:
    if row.rating is None:
        return html.escape(row.why)
    low, high = ("?" if bound is None else f"{bound:,.0f}" for bound in (row.low, row.high))
    return f"{row.rating:,.0f} [{low}–{high}]"


def _table(table: RatingTable) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(row.label)}</td><td>{_rating(row)}</td><td>{row.num_votes}</td>"
        f"<td>{row.wins} / {row.losses} / {row.ties}</td></tr>"
        for row in table.rows
    )
    return (
        f"<table><caption>{html.escape(table.domain or 'All prompts')}: {html.escape(table.sentence)}.</caption>"
        "<thead><tr><th>Model</th><th>Rating, 95 %</th><th>Votes</th><th>Won / lost / tied</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


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


def _item(one: ComparisonHead) -> str:
    when = time.strftime("%d %b %H:%M", time.localtime(one.created_at))
    votes = ", ".join(CHOICES[vote.choice].format(a=vote.a, b=vote.b) for vote in one.votes)
    models = html.escape(" · ".join(one.models))
    return (
        f'<a href="?r={html.escape(one.id, quote=True)}"><b>{html.escape(one.prompt.strip()[:90]) or "(empty)"}</b></a>'
        f"<small>{when} · {models}{f' · {html.escape(votes)}' if votes else ''}</small>"
    )
