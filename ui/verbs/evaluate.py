"""workbench eval: score experts on held-out text, and read the result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ui.verbs.following import submit
from ui.verbs.options import How, Json, takes
from ui.verbs.output import print_json, print_table, say
from workbench.specs import Evaluate

app = typer.Typer(no_args_is_help=True, help="Evaluate: perplexities and specialization of experts.")


@app.command("run")
@takes(Evaluate, "mixture")
def run(spec: Evaluate, how: How) -> None:
    """Score every expert of a mixture on every domain, and keep each token's log-likelihood."""
    submit(spec, how)


@app.command("show")
def show(
    mixture: Annotated[str, typer.Argument(help="Name of a mixture.")],
    split: Annotated[str, typer.Option(help="Which held-out part: dev or test.")] = "test",
    as_json: Json = False,
) -> None:
    """Perplexity of each expert on each domain, and its ratio to the domain's own expert."""
    from workbench.database import reading
    from workbench.services.evaluations import perplexity_table

    with reading() as session:
        found = perplexity_table(session, mixture, split)
    if as_json:
        print_json(found)
        return
    _print("Perplexity (lower is better)", found, found["perplexity"])
    if found.get("specialization"):
        say("")
        _print(
            "Ratio to the domain's own expert (above 1: that expert is worse there)",
            found,
            found["specialization"],
        )


def _print(title: str, found: dict[str, Any], values: list[list[float | None]]) -> None:
    say(title)
    rows = [[expert, *row] for expert, row in zip(found["experts"], values, strict=True)]
    print_table(
        ["Expert \\ domain", *found["domains"]],
        rows,
        empty="There are no scores yet. Make them with: workbench eval run MIXTURE",
    )
