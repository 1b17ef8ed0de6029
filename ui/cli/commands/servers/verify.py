"""workbench verify: makes a stored answer again and compares its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.options import Json
from ui.cli.output import print_json, say
from ui.generation.model_host import ModelHost

if TYPE_CHECKING:
    from workbench.answers.verification import Verification


def verify(
    answer: Annotated[Path, typer.Argument(help="File with an answer of the API, made with return_token_ids.")],
    as_json: Json = False,
) -> None:
    """Generate a stored answer again by its manifest, and compare the tokens."""
    from engine.device import prepare_process
    from workbench.requests.verification import read_answer
    from workbench.requests.verification import verify as compare
    from workbench.settings import get_settings

    settings = get_settings()
    stored, generations = read_answer(answer), ModelHost(settings)
    prepare_process(settings.threads)
    result = compare(stored, generations.plan(stored.request()), generations.stream)
    if as_json:
        print_json(result)
    else:
        print_verification(result)
    raise typer.Exit(0 if result.agrees else 1)


def print_verification(result: Verification) -> None:
    """What changed since, and the first token of each choice that differs."""
    for change in result.changed:
        say(f"Changed since: {change}.")
    for choice in result.choices:
        if choice.first_difference is None:
            say(f"Choice {choice.index}: all {choice.num_tokens} tokens are the same.")
        else:
            say(f"Choice {choice.index}: token {choice.first_difference + 1} of {choice.num_tokens} differs.")
