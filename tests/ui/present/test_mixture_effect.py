"""What a choice does to every domain as text and bars, and how two mixtures differ."""

from __future__ import annotations

import shlex
from functools import partial

import pytest

from tests.ui.present.test_colours import LOOKS
from ui.cli.app import main
from ui.present.mixture_effect import (
    MOST_ROWS,
    bars_of,
    change_to_speak,
    command_of,
    describe_changes,
    describe_effect,
    difference_rows,
    effect_rows,
    effect_title,
)
from ui.present.text.measures import describe_left_out
from workbench.questions.perplexities import MixedDomain, MixedScores
from workbench.specs.requests import MixtureRequest

SAVED = MixtureRequest("m", ("m/law", "m/sea"), {"m/law": 1.0, "m/sea": 1.0}, {"kind": "posterior", "top_k": None})


def row(domain: str, perplexity: float) -> MixedDomain:
    single = {"best_expert": "e", "perplexity_by_expert": {"e": 9.0}}
    return MixedDomain(domain=domain, num_tokens=9, block_size=8, perplexity=perplexity, **single)


def test_the_title_counts_and_the_largest_change_is_spoken() -> None:
    before, now = [row("law", 10), row("sea", 8), row("art", 5)], [row("law", 15), row("sea", 7), row("art", 5.02)]
    rows = effect_rows(before, now)
    assert effect_title(rows) == "Of 3 domains, 1 got worse, 1 got better and 1 changed by less than 1 %"
    assert change_to_speak(rows) == "law: 15.0, up 50.0 %"
    assert describe_effect(rows) == "The largest change is on law, from 10.0 to 15.0 per token (+50.0 %)."
    assert effect_title(effect_rows(now, now)) == "The same on every domain"
    assert change_to_speak(effect_rows(now, now)) == "No change"
    assert effect_title(effect_rows([row("art", 5)], [row("art", 5.02)])) == "No domain changes by 1 %"


def test_bars_share_one_scale_and_have_the_colour_of_their_domain() -> None:
    data = bars_of(effect_rows([row("law", 10), row("new", 8)], [row("law", 5), row("new", 20)]), LOOKS, "Saved")
    law, new = data["rows"]
    assert (law["now"], law["before"], new["now"]) == (0.25, 0.5, 1.0)
    assert law["look"]["colour"] == LOOKS.domain("law").colour != new["look"]["colour"]
    assert law["words"] == ["10.0", "5.0", "−50.0 %"]
    assert (law["verdict"], new["verdict"]) == (["↓ better", "good"], ["↑ worse", "bad"])


def test_a_domain_that_was_not_scored_before_has_no_line() -> None:
    [bar] = bars_of(effect_rows([], [row("law", 5)]), LOOKS, "Saved")["rows"]
    assert (bar["before"], bar["words"][0], bar["verdict"][0]) == (None, "—", "not compared")


def test_of_very_many_domains_those_that_change_most_are_shown() -> None:
    names = [f"d{number}" for number in range(100)]
    rows = effect_rows([row(name, 10) for name in names], [row(name, 10 + i / 10) for i, name in enumerate(names)])
    shown = [one["name"] for one in bars_of(rows, LOOKS, "Saved")["rows"]]
    assert shown == names[: -MOST_ROWS - 1 : -1]


def test_what_differs_in_two_mixtures_is_listed_and_nothing_else() -> None:
    other = MixtureRequest("n", ("m/law",), {"m/law": 2.0}, {"kind": "posterior", "top_k": 2})
    assert difference_rows(SAVED, other) == [
        {"setting": "weight of m/law", "m now": "1", "n": "2"},
        {"setting": "weight of m/sea", "m now": "1", "n": "—"},
        {"setting": "gate: top_k", "m now": "none", "n": "2"},
    ]
    assert difference_rows(SAVED, SAVED) == []


def test_what_is_not_saved_is_named() -> None:
    choice = MixtureRequest("m", ("m/law",), {"m/law": 2.0, "m/sea": 1.0}, SAVED.gate)
    assert describe_changes(SAVED, choice) == "without m/sea, 1 weight changed"
    assert describe_changes(SAVED, SAVED) == ""


def test_the_command_is_one_that_the_command_line_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[MixtureRequest] = []

    def ask(service: partial[MixedScores]) -> object:
        seen.append(service.keywords["request"])
        raise KeyboardInterrupt

    from ui.cli.commands import mixture
    from ui.cli.mix_options import Members

    members = Members({"m/law": "law", "m/sea": "sea"}, ["m/law", "m/sea"])
    monkeypatch.setattr(mixture, "ask", ask)
    monkeypatch.setattr(mixture, "members_of", lambda _name: members)
    choice = MixtureRequest("m", ("m/law",), {"m/law": 2.5, "m/sea": 1.0}, SAVED.gate)
    main(shlex.split(command_of(SAVED, choice, "dev"))[1:])
    assert (seen[0].model, list(seen[0].active or ()), dict(seen[0].weights or {})) == ("m", ["m/law"], {"m/law": 2.5})
    assert command_of(SAVED, SAVED, "test") == "workbench mixture perplexity m"
    assert command_of(SAVED, MixtureRequest("m", SAVED.active, SAVED.weights, {"kind": "fixed"}), "test") == ""


def test_numbers_without_an_expert_name_it_and_where() -> None:
    rows = [row("law", 10).model_copy(update={"without": ["new"]}), row("sea", 8)]
    assert describe_left_out(rows, "test") == (
        "These are numbers of the mixture without new on law: not scored on the same test text yet."
    )
    assert describe_left_out(rows[:1], "dev").startswith("These are numbers of the mixture without new: not scored on")
    assert describe_left_out(rows[1:], "test") == ""
