"""The toggles, weights and gate settings of a mixture on this page; moving them saves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from ui.present.pages import PLAYGROUND, POSTERIORS
from ui.present.text.formatting import plain
from ui.present.text.mixtures import inside_words
from ui.studio.mixtures.gate_form import ask_gate
from workbench.registry.cards import MemberCard, MixtureCard

HEAVIEST = 5.0


@dataclass(frozen=True)
class Choice:
    """The current choice for one mixture."""

    active: tuple[str, ...]
    weights: Mapping[str, float]
    gate: Mapping[str, Any]

    def request(self, mixture: MixtureCard, split: str) -> dict[str, Any]:
        """The body of a request to `/v1/workbench/mix`."""
        weights = {name: self.weights[name] for name in self.active}
        gate = dict(self.gate)
        return {"mixture": mixture.name, "active": list(self.active), "weights": weights, "gate": gate, "split": split}


def saved_choice(mixture: MixtureCard) -> Choice:
    """The choice that the registry holds."""
    active = tuple(m.expert for m in mixture.members if m.active and m.enabled)
    return Choice(active, {m.expert: m.weight for m in mixture.members}, mixture.gate)


def state_of(mixture: MixtureCard) -> str:
    """The saved choice as text: part of the key of cached results, so that saving makes them new."""
    saved = saved_choice(mixture)
    return f"{saved.active} {saved.weights} {saved.gate}"


def choose(mixture: MixtureCard) -> Choice:
    """Draws the controls; gives their current choice."""
    st.markdown("##### Who takes part, with which weight")
    controls = [_ask_member(mixture, member) for member in mixture.members]
    active = tuple(m.expert for m, (is_on, _) in zip(mixture.members, controls, strict=True) if is_on)
    _point_to_parts(mixture)
    weights = {m.expert: weight for m, (_, weight) in zip(mixture.members, controls, strict=True)}
    return Choice(active, weights, ask_gate(_form_key(mixture), mixture.gate))


def _ask_member(mixture: MixtureCard, member: MemberCard) -> tuple[bool, float]:
    key = f"{_form_key(mixture)}.{member.expert_id}"
    switch, slider = st.columns([3, 2], vertical_alignment="center")
    away = "" if member.enabled else " (disabled in the registry)"
    is_on = switch.toggle(
        plain(member.expert) + away,
        member.active and member.enabled,
        key=f"{key}.on",
        disabled=not member.enabled,
        wrap=True,
    )
    weight = slider.slider(
        f"Weight of {plain(member.expert)}",
        0.0,
        max(HEAVIEST, member.weight),
        member.weight,
        0.05,
        key=f"{key}.weight",
        label_visibility="collapsed",
        disabled=not is_on,
    )
    return is_on and member.enabled, weight


def _point_to_parts(mixture: MixtureCard) -> None:
    """Explains the parts of MoDE experts, and links to the pages where they are switched."""
    if words := inside_words(mixture):
        explanation = (
            f"{words} Stored scores are of all parts together: what switching one does needs a forward pass, and is "
            "computed on a text of yours on these pages."
        )
        st.caption(plain(explanation))
        with st.container(horizontal=True):
            for page in (POSTERIORS, PLAYGROUND):
                st.page_link(page.script, label=f"Switch parts: {page.title}", icon=page.icon)


def reset(mixture: MixtureCard) -> None:
    """Resets the controls to the saved choice."""
    for key in [key for key in st.session_state if str(key).startswith(f"{_form_key(mixture)}.")]:
        del st.session_state[key]


def set_weights(mixture: MixtureCard, shares: Mapping[str, float]) -> None:
    """Sets the sliders to shares, the largest at 1; an expert without a share keeps its weight."""
    largest = max(shares.values())
    for member in mixture.members:
        if member.expert in shares:
            st.session_state[f"{_form_key(mixture)}.{member.expert_id}.weight"] = shares[member.expert] / largest


def _form_key(mixture: MixtureCard) -> str:
    return f"desk.{mixture.id}"
