"""The experts of a pane as chips: a switch and a weight for each, drawn in the browser from plain data.

The template escapes what it writes; names are data of users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ui.present.forms.settings_in_address import MemberSetting, member_values, read_members
from workbench.answers.mixture_request import MixtureRequest
from workbench.formatting.palette import look_of

if TYPE_CHECKING:
    from workbench.answers.cards import ExpertCard, MixtureCard
    from workbench.answers.posteriors import Manifest

HEAVIEST = 2  # of the sliders in chips.html
MOST_CHIPS = 64  # more experts than anybody switches by hand; a request without changes still takes all of them


def chips_of(card: MixtureCard | ExpertCard | None) -> dict[str, Any]:
    """The chips of a mixture or of an expert. The largest weight stands as 1."""
    if card is None:
        return {"experts": [], "open": False}
    members = [one for one in getattr(card, "members", ()) if one.enabled][:MOST_CHIPS]
    largest = max((one.weight for one in members), default=1.0) or 1.0
    shown = [_chip(one.expert, one.mark, one.colour_number, one.active, one.weight / largest) for one in members]
    if not hasattr(card, "members"):
        shown = [_chip(card.name, card.mark, card.colour_number, True, 1.0)]
    return {"experts": shown, "open": False}


def _chip(name: str, mark: str, number: int, is_on: bool, weight: float) -> dict[str, Any]:
    look = look_of(number)
    return {
        "name": name,
        "mark": mark,
        "colour": look.colour,
        "letters": look.letters,
        "on": is_on,
        "active": is_on,  # as stored; so are the next two at first
        "weight": round(weight, 2),
        "stored": round(weight, 2),
    }


def chips_as(chips: dict[str, Any], manifest: Manifest | None) -> dict[str, Any]:
    """The chips as they were in a stored answer."""
    if manifest is None:
        return chips
    given = {one.name: one.weight for one in manifest.experts}
    largest = max(given.values(), default=1.0) or 1.0
    experts = [
        {**one, "on": True, "weight": round(given[one["name"]] / largest, 2)}
        if one["name"] in given
        else {**one, "on": False}
        for one in chips["experts"]
    ]
    return {**chips, "experts": experts}


def chips_with(chips: dict[str, Any], values: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The chips as an address sets them, and a sentence for each value that cannot be used."""
    settings, faults = read_members(values, _stored(chips))
    experts = [
        {**one, "on": settings[one["name"]].is_on, "weight": settings[one["name"]].weight} for one in chips["experts"]
    ]
    return {**chips, "experts": experts}, faults


def chips_chosen(chips: dict[str, Any], sent: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    """The chips with what a browser chose: which are on, but never `without`, and their weights."""
    chosen = {one["name"]: (one["on"] and one["name"] != without, one["weight"]) for one in sent["experts"]}
    experts = []
    for one in chips["experts"]:
        is_on, weight = chosen.get(one["name"], (one["on"], one["weight"]))
        experts.append({**one, "on": is_on, "weight": min(HEAVIEST, max(0.0, weight))})
    return {**chips, "experts": experts}


def chip_values(chips: Mapping[str, Any] | None) -> list[str]:
    """What was switched and weighed, as an address has it. The largest stored weight is 1."""
    experts = (chips or {}).get("experts", ())
    now = {str(one["name"]): MemberSetting(bool(one["on"]), float(one["weight"])) for one in experts}
    return member_values(_stored(chips or {}), now)


def _stored(chips: Mapping[str, Any]) -> dict[str, MemberSetting]:
    return {
        str(one["name"]): MemberSetting(bool(one["active"]), float(one["stored"]), HEAVIEST)
        for one in chips.get("experts", ())
    }


def request_of(
    model: str, chips: Mapping[str, Any] | None, num_members: int, parts: Mapping[str, Sequence[str]]
) -> MixtureRequest:
    """The request of a pane. Weights that nobody moved are left as they are stored."""
    experts = list((chips or {}).get("experts", ()))
    if num_members > len(experts):  # more than there are chips for
        return MixtureRequest(model, parts=parts)
    active = [str(one["name"]) for one in experts if one["on"]]
    moved = any(one["weight"] != one["stored"] for one in experts)
    weights = {str(one["name"]): float(one["weight"]) for one in experts if one["on"]} if moved else None
    return MixtureRequest(model, active, weights, parts=parts)
