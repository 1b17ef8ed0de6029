"""What the picture of the page Overview shows, as data: domains, the experts that lead on them, and a mixture."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from engine.methods.registry import method_of
from ui.present.charts.colours import NO_LOOK, Looks
from ui.present.headlines import perplexity_text
from ui.present.pages import CORPORA, EXPERTS, MIXTURES, PAGE_OF, Page
from ui.present.text.formatting import listed, parameters_text, pluralize
from ui.present.text.measures import TokenMeasure
from workbench.analysis.perplexity_tables import TextMeasure, most_scored_text
from workbench.answers.cards import DomainCard, EvaluationCard, ExpertCard, MixtureCard
from workbench.formatting.number_format import DASH
from workbench.formatting.palette import Look

MOST_EXPERTS, MOST_DOMAINS, MOST_CARDS = 7, 10, 12


@dataclass(frozen=True)
class PictureScores:
    """The evaluation of each expert on each domain, on one split."""

    of: Mapping[tuple[str, str], EvaluationCard]
    intervals: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def own_score(self, expert: ExpertCard) -> EvaluationCard | None:
        """An expert's score on the domain that trained it."""
        return self.of.get((expert.name, expert.domain))

    def measured_text(self, expert: ExpertCard) -> str:
        """How many tokens an expert's own number is of, with its interval where it is known."""
        score = self.own_score(expert)
        if score is None:
            return ""
        bounds = self.intervals.get((expert.name, expert.domain))
        between = f" · 95 %: {perplexity_text(bounds[0])} to {perplexity_text(bounds[1])}" if bounds else ""
        return f"n = {score.num_counted or score.num_tokens:,} tokens{between}"

    def own(self, expert: ExpertCard) -> float | None:
        """An expert's perplexity on the domain that trained it."""
        card = self.own_score(expert)
        return None if card is None else card.perplexity

    def instead(self, expert: ExpertCard) -> str:
        """What stands in place of the own number of a seed model, or of an expert of several domains."""
        elsewhere = sum(name == expert.name for name, _ in self.of)
        return f"scored on {pluralize(elsewhere, 'domain')}" if elsewhere else "not scored"

    def measures(self, experts: Sequence[ExpertCard]) -> dict[str, TokenMeasure]:
        """By name, what each expert's own number is measured in; nothing of experts without one."""
        cards = {one.name: (one.tokenizer_sha256, self.of.get((one.name, one.domain))) for one in experts}
        return {name: TokenMeasure(sha256, card.block_size) for name, (sha256, card) in cards.items() if card}

    def nearest(self, experts: Sequence[str], domain: str) -> str:
        """The expert with the lowest perplexity on the text of a domain with most scores; empty where none is there."""
        texts: dict[TextMeasure, list[EvaluationCard]] = {}
        for one in experts:
            if score := self.of.get((one, domain)):
                text = TextMeasure(score.num_tokens, score.block_size, num_counted=score.num_counted)
                texts.setdefault(text, []).append(score)
        if not texts:
            return ""
        return min(texts[most_scored_text(texts)], key=lambda score: (score.perplexity, score.expert)).expert


def scores_of(evaluations: Sequence[EvaluationCard], split: str = "test") -> PictureScores:
    """The score of each expert on each domain that is of most text; of as much text the newest."""
    of_split = [evaluation for evaluation in evaluations if evaluation.split == split]
    ordered = sorted(of_split, key=lambda one: (one.num_counted or one.num_tokens, one.block_size, one.created_at))
    return PictureScores({(one.expert, one.domain): one for one in ordered})


def picture_of(
    domains: Sequence[DomainCard],
    experts: Sequence[ExpertCard],
    mixture: MixtureCard | None,
    scores: PictureScores,
    looks: Looks,
    state: str = "",
) -> dict[str, Any]:
    """The data of `show_picture`. `state` says how the mixture is served."""
    shown = _experts_to_show(experts, mixture)
    hidden = len(experts) - len(shown)
    on = {member.expert for member in mixture.members if member.takes_part} if mixture else {one.name for one in shown}
    leaders = [one for one in shown if one.name in on]  # who is off leads nowhere
    names = [leader.name for leader in leaders]
    rows = [_domain(domain, leaders, names, scores) for domain in domains]
    rows.sort(key=lambda row: (row["expert"] is None, not row["own"], row["expert"]))  # few bands cross
    left_out = rows[MOST_DOMAINS:]
    more = _box("domains", pluralize(len(left_out), "more domain"), CORPORA, {}) | {"expert": None, "own": False}
    items = [_expert(one, one.name in on if mixture else None, scores, looks) for one in shown]
    if hidden:
        items.append(_box("experts", pluralize(hidden, "other"), EXPERTS, {}) | {"look": look_data(NO_LOOK)} | _AWAY)
    return {
        "domains": rows[:MOST_DOMAINS] + ([more] if left_out else []),
        "experts": items,
        "mixture": _mixture(mixture, state) if mixture else None,
    }


def describe_serving(names: Sequence[str], is_served: bool | None) -> str:
    """How programs reach a mixture now: `names` are its aliases; without one it is served by its own name."""
    if not is_served:
        return "not served now"
    return f"served as {listed(list(names), 2)}" if names else "served by this name"


def picture_legend(mixture: MixtureCard | None) -> str:
    """What solid and dashed bands mean."""
    where = f" in {mixture.name}" if mixture else ""
    return f"Solid: an expert of this text leads{where}. Dashed: text without an expert{where}, led by the nearest."


_AWAY = {"active": False, "words": ""}


def _experts_to_show(experts: Sequence[ExpertCard], mixture: MixtureCard | None) -> list[ExpertCard]:
    """The experts of the mixture, those with the largest weight first; without one the oldest."""
    if mixture is None:
        return sorted((expert for expert in experts if expert.enabled), key=lambda one: one.created_at)[:MOST_EXPERTS]
    by_name = {expert.name: expert for expert in experts}
    members = sorted(mixture.members, key=lambda member: -member.weight * member.takes_part)
    return [by_name[member.expert] for member in members if member.expert in by_name][:MOST_EXPERTS]


def _domain(
    domain: DomainCard, shown: Sequence[ExpertCard], names: Sequence[str], scores: PictureScores
) -> dict[str, Any]:
    own = next((expert.name for expert in shown if expert.domain == domain.name), "")
    leads = own or scores.nearest(names, domain.name)
    position = names.index(leads) if leads else None
    return _box(f"domain:{domain.name}", domain.name, CORPORA, {"domain": domain.name}) | {
        "expert": position,
        "own": bool(own),
    }


def _expert(expert: ExpertCard, active: bool | None, scores: PictureScores, looks: Looks) -> dict[str, Any]:
    """The box of an expert. `active` says whether it takes part in the mixture; None without a mixture."""
    value = scores.own(expert)
    words = f"perplexity {perplexity_text(value)}" if value is not None else scores.instead(expert)
    box = _box(f"expert:{expert.name}", expert.name, EXPERTS, {"experts.chosen": expert.name})
    words = f"{words}, off" if active is False else words
    return box | {"look": look_data(looks.expert(expert.name)), "words": words, "active": bool(active)}


def _mixture(mixture: MixtureCard, state: str) -> dict[str, Any]:
    words = [f"{mixture.gate['kind']} gate", *([state] if state else [])]
    return _box(f"mixture:{mixture.name}", mixture.name, MIXTURES, {"mixture": mixture.name}) | {"words": words}


def look_data(look: Look) -> dict[str, str]:
    """The data from which a component draws a mark."""
    return {"colour": look.colour, "letters": look.letters, "mark": look.mark}


def _box(id: str, name: str, page: Page, state: Mapping[str, str]) -> dict[str, Any]:
    return {"id": id, "name": name, "href": f"/{page.address}" + (f"?{urlencode(state)}" if state else "")}


def place_of(id: str) -> tuple[Page, dict[str, str]]:
    """The page, and what is chosen on it, that the id of a box stands for."""
    kind, _, name = id.partition(":")
    page, key = PAGE_OF[kind.rstrip("s")]
    return page, {key: name} if name else {}


def cards_to_show(experts: Sequence[ExpertCard], mixture: MixtureCard | None) -> list[ExpertCard]:
    """The experts that take part in the mixture first, then the newest, those that are off last: at most twelve."""
    members = {member.expert: place for place, member in enumerate(mixture.members)} if mixture else {}
    off = {member.expert for member in mixture.members if not member.takes_part} if mixture else set()

    def place(expert: ExpertCard) -> tuple[bool, int, float]:
        return not expert.enabled or expert.name in off, members.get(expert.name, len(members)), -expert.created_at

    return sorted(experts, key=place)[:MOST_CARDS]


def members_off(mixtures: Sequence[MixtureCard]) -> set[tuple[str, str]]:
    """The experts that are members of a mixture without taking part, each with the mixture's name."""
    return {
        (member.expert, mixture.name) for mixture in mixtures for member in mixture.members if not member.takes_part
    }


def card_of(
    expert: ExpertCard,
    domain: DomainCard | None,
    scores: PictureScores,
    looks: Looks,
    curve: Sequence[float],
    is_certified: bool,
    off: Collection[tuple[str, str]] = (),
    odd: str = "",
    instead: str = "",
) -> dict[str, Any]:
    """A card of `show_cards`: `curve` are the losses on dev text while it was trained, `off` as of `switched_off`.

    `odd` says why its perplexity does not compare with those of most other cards; `instead` stands for one that it has
    not, where `scores` does not hold all of its scores.
    """
    value = scores.own(expert)
    origin = f"copy of {expert.parent}" if expert.parent else f"from seed model {expert.seed}" if expert.seed else ""
    size = f"{parameters_text(expert.num_parameters)} parameters"
    text = f"{pluralize(domain.num_documents, 'document')}" if domain else f"{pluralize(len(expert.domains), 'domain')}"
    box = _box(f"expert:{expert.name}", expert.name, EXPERTS, {"experts.chosen": expert.name})
    memberships = [
        [f"off in {name}" if (expert.name, name) in off else f"in {name}", ""] for name in expert.mixtures[:2]
    ]
    return box | {
        "look": look_data(looks.expert(expert.name)),
        "badges": [
            *_badges(expert, "" if value is not None else instead or scores.instead(expert), is_certified),
            *memberships,
            *([[odd, "late"]] if odd else []),
        ],
        "value": DASH if value is None else perplexity_text(value),
        "unit": " · ".join(filter(None, ("perplexity ↓", scores.measured_text(expert)))),
        "curve": [round(point, 3) for point in curve],
        "words": [" · ".join(filter(None, (method_of(expert.method).title, origin, size))), text],
    }


def _badges(expert: ExpertCard, instead: str, is_certified: bool) -> list[list[str]]:
    if not expert.enabled:
        return [["disabled", ""]]
    if expert.stale:
        return [["its documents changed", "late"]]
    if instead:
        return [[instead, ""]]
    return [["certified", "good"]] if is_certified else []
