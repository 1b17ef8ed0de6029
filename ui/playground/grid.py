"""The X/Y grid: every prompt with every model, one cell after another, as a table and as CSV."""

from __future__ import annotations

import html
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import gradio as gr
from starlette.concurrency import run_in_threadpool

from ui.addresses import LONGEST_QUERY
from ui.generation.model_host import new_seed
from ui.playground.address import SAMPLING, fits, grid_address
from ui.playground.player import Player
from ui.playground.rounds import Memory, PaneRequest, Round
from ui.playground.view import PaneAnswer, problem_html
from ui.present.csv_text import csv_text

MOST_CELLS = 200
MOST_BY_LINK = 16  # cells that are filled without a click
FILL = "Fill the grid"  # the label of the page's button
TOO_LONG = f"This grid has no link: its prompts are too long for an address of {LONGEST_QUERY:,} characters."
Cells = Mapping[tuple[int, int], str]  # by prompt and model


async def fill(player: Player, models: Sequence[str], lines: str, *sampling: Any) -> AsyncGenerator[str, None]:
    """The growing grid. Each line is a prompt; `sampling` is as in `Round.of`, the last being the ablation."""
    prompts = prompts_of(lines)
    if not models or not prompts or len(models) * len(prompts) > MOST_CELLS:
        yield problem_html(f"Choose models and write prompts, one in a line: 1 to {MOST_CELLS} cells.")
        return
    *drawn, seed, ablation = sampling
    sampling = (*drawn, new_seed() if seed is None else seed, ablation)  # one seed, which the grid's address names
    if None in sampling:
        yield problem_html("A sampling setting is empty.")
        return
    address = grid_address(models, prompts, dict(zip(SAMPLING, sampling, strict=False)))
    cells: dict[tuple[int, int], str] = {}
    yield grid_html(models, prompts, cells, address)
    for row, prompt in enumerate(prompts):
        for column, model in enumerate(models):
            chips, parts = await run_in_threadpool(player.switches_of, model)
            pane = PaneRequest(model, chips, parts["value"])
            request = Round.of(["Completion", 1, False, prompt, "", *sampling, *vars(pane).values()])
            cells[row, column] = await _cell(player, request)
            yield grid_html(models, prompts, cells, address)


def prompts_of(lines: str) -> list[str]:
    """The prompts of a grid, one in a line."""
    return [line for line in lines.split("\n") if line.strip()]


async def fill_if_requested(
    player: Player, memory: Memory, models: Sequence[str], lines: str, *sampling: Any
) -> AsyncGenerator[Any, None]:
    """The growing grid that the address asks for, if it does; a problem of the address stays in its place.

    A large one waits for a click: whoever opens a link may not know what it computes.
    """
    if not memory.fills:
        yield gr.skip()
        return
    num_cells = len(models) * len(prompts_of(lines))
    if num_cells > MOST_BY_LINK:
        yield f"<p>The link is of a grid of {num_cells} answers. Press “{FILL}” to compute them.</p>"
        return
    async with aclosing(fill(player, models, lines, *sampling)) as pages:
        async for page in pages:
            yield page


async def _cell(player: Player, request: Round) -> str:
    """The whole answer, or the sentence of what went wrong."""
    text = ""
    async with aclosing(player.answer(request, 0)) as frames:
        async for frame in frames:
            text = frame.generated if isinstance(frame, PaneAnswer) else str(frame)
    return text


def grid_html(models: Sequence[str], prompts: Sequence[str], cells: Cells, address: str) -> str:
    """The table, a link to its CSV once it is full, and its address, which becomes the page's."""
    head = "".join(f'<th scope="col">{html.escape(model)}</th>' for model in models)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(prompt)}</th>'
        + "".join(f"<td>{html.escape(cells.get((row, column), '…'))}</td>" for column in range(len(models)))
        + "</tr>"
        for row, prompt in enumerate(prompts)
    )
    total = len(models) * len(prompts)
    is_full = len(cells) == total
    data = quote(grid_csv(models, prompts, cells)) if is_full else ""
    link = f'<a download="grid.csv" href="data:text/csv;charset=utf-8,{data}">CSV</a>' if is_full else ""
    too_long = "" if fits(address) else f" {TOO_LONG}"
    becomes_address = html.escape(address if fits(address) else "", quote=True)
    state = f'<p data-address="{becomes_address}">{len(cells)} of {total} cells {link}{too_long}</p>'
    return (
        f'{state}<div class="cells" tabindex="0"><table><thead><tr><th>Prompt</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def grid_csv(models: Sequence[str], prompts: Sequence[str], cells: Cells) -> str:
    """One row for each cell: prompt, model, text."""
    rows = ([prompts[row], models[column], answer] for (row, column), answer in cells.items())
    return csv_text(rows, ["prompt", "model", "text"])
