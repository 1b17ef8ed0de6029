"""A text by token: tinted by leading expert or by difference, with the strip of weights and the numbers of a token.

`drawTokens` of the scripts depends on nothing but a root element and the data, and may be called again with longer data
while text is written. The strip can be saved as a picture. The studio and the playground mount it. Tokens and names
are user data: they are set as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from ui.present.text.posteriors import Weights, leaders
from workbench.formatting.palette import GREY, Look

SAVE, PICTURE, VIEW, CSS = (
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("save_file.js", "strip_picture.js", "token_view.js", "token_view.css")
)
DRAW = SAVE + PICTURE + VIEW
HTML = '<div class="token-view"></div>\n'
Part = Literal["strip", "legend", "text", "detail"]
DRAWN_FROM = 0.005  # nats: a smaller difference has no tint (token_view.js)
SHOWN = 7  # experts that are drawn one by one; all others are one


class Drawn(TypedDict):
    """An expert as it is drawn."""

    name: str
    mark: str
    colour: str
    letters: str


class TokenPassage(TypedDict):
    """A text before the tokens, with the name of who says it, if anybody; `kind` is its class in CSS."""

    kind: str
    who: str
    text: str


class TokenData(TypedDict, total=False):
    """The data that the script draws. Either `weights` with `leads` and `shares`, or `differences`, is given."""

    label: str  # what the text is, for screen readers
    parts: Sequence[Part]  # in their order; without `detail` the numbers float next to the token
    titles: Mapping[Part, str]  # a part without one joins the part before it, if that has one
    captions: Mapping[Part, str]
    before: Sequence[TokenPassage]  # what stands before the tokens
    tokens: Sequence[str]
    after: str  # text that is of no token yet
    experts: Sequence[Drawn]
    weights: Weights  # token × drawn expert
    leads: Sequence[int]  # the drawn expert that leads at each token
    shares: Sequence[float]  # the weight of the leading expert, which may be one of the others
    off: Sequence[str]  # experts that are switched off
    answered: Sequence[str]  # those that were switched off when the page was drawn; given: the legend has switches
    full: Weights  # the weights while all are on; left out where all are
    differences: Sequence[float]  # nats
    sides: Sequence[str]  # the expert, and the one that it is compared with


def weight_data(
    tokens: Sequence[str],
    weights: Weights,
    experts: Sequence[str],
    looks: Sequence[Look],
    *,
    label: str = "Words coloured by their leading expert",
    parts: Sequence[Part] = ("text", "strip", "legend"),
    titles: Mapping[Part, str] | None = None,
    captions: Mapping[Part, str] | None = None,
    num_shown: int = SHOWN,
    full: Weights | None = None,
) -> TokenData:
    """The data of tokens and the weight of each expert at each of them; `looks` has one for each expert.

    The `num_shown` experts with the greatest mean weight keep their own colour. All others are one, in grey.
    `full` are the weights while all experts are on, if some are off now.
    """
    kept = _most_weighty(full or weights, len(experts), num_shown)
    rest = [place for place in range(len(experts)) if place not in kept]
    drawn = [_expert_to_draw(experts[place], looks[place]) for place in kept]
    if rest:
        drawn.append({"name": f"{len(rest)} others", "mark": "+", "colour": GREY, "letters": "#000000"})
    leading = leaders(weights)
    place_of = {place: number for number, place in enumerate(kept)}

    def rounded(of: Weights) -> Weights:
        return [
            [round(row[place], 4) for place in kept] + ([round(sum(row[place] for place in rest), 4)] if rest else [])
            for row in of
        ]

    data: TokenData = {
        "label": label,
        "parts": list(parts),
        "titles": dict(titles or {}),
        "captions": dict(captions or {}),
        "tokens": list(tokens),
        "experts": drawn,
        "weights": rounded(weights),
        "leads": [place_of.get(place, len(kept)) for place in leading],
        "shares": [round(row[place], 4) for row, place in zip(weights, leading, strict=True)],
    }
    return data | {"full": rounded(full)} if full else data


def difference_data(
    tokens: Sequence[str],
    differences: Sequence[float],
    expert: str,
    rival: str,
    parts: Sequence[Part] = ("text", "legend"),
) -> TokenData:
    """The data of tokens and how much better than its rival an expert predicted each (nats)."""
    return {
        "label": f"Where {expert} is better and worse than {rival}",
        "parts": list(parts),
        "titles": {},
        "captions": {},
        "tokens": list(tokens),
        "differences": [round(value, 4) for value in differences],
        "sides": [expert, rival],
    }


def _most_weighty(weights: Weights, num_experts: int, num_shown: int) -> list[int]:
    """The places of the experts that are drawn one by one, in their order."""
    if num_experts <= num_shown + 1:  # one other expert is drawn as well as named
        return list(range(num_experts))
    sums = [sum(column) for column in zip(*weights, strict=True)] or [0.0] * num_experts
    return sorted(sorted(range(num_experts), key=lambda number: -sums[number])[:num_shown])


def _expert_to_draw(name: str, look: Look) -> Drawn:
    return {"name": name, "mark": look.mark, "colour": look.colour, "letters": look.letters}
