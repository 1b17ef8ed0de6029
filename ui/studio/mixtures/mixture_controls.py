"""The toggles, weights and gate settings of a mixture on this page; moving them saves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from ui.present.charts.colours import Looks, chip
from ui.present.forms.settings_in_address import MemberSetting, member_values, not_used, read_members
from ui.present.pages import PLAYGROUND, POSTERIORS
from ui.present.text.formatting import plain
from ui.present.text.posteriors import describe_inner_gates
from ui.studio.mixtures.gate_form import draw_gate
from ui.widgets.address import fresh, note, note_fault, show_fault
from ui.widgets.fields import faults_of
from workbench.answers.cards import MemberCard, MixtureCard
from workbench.formatting.palette import Look
from workbench.specs.requests import MixtureRequest

HEAVIEST = 5.0
MOST_DRAWN = 24  # rows of a mixture with more experts
_CHANGES, _GATE = "mixture.set", "mixture.gate"  # in the address


def saved_request(mixture: MixtureCard) -> MixtureRequest:
    """The mixture as the registry holds it, spelled out: once something else is saved, this is another request."""
    active = tuple(m.expert for m in mixture.members if m.active and m.enabled)
    weights = {m.expert: m.weight for m in mixture.members}
    return MixtureRequest(mixture.name, active, weights, mixture.gate)


def choose(mixture: MixtureCard, looks: Looks) -> MixtureRequest:
    """Draws the controls; the request that they stand for now."""
    st.header("Experts and their weights", anchor=False)
    _recall_changes(mixture)
    shown = _members_to_draw(mixture)
    controls = [
        _draw_member(mixture, member, looks.expert(member.expert))
        if member.expert_id in shown
        else _controls_of(mixture, member)
        for member in mixture.members
    ]
    ids = (one.expert_id for one in mixture.members)  # all choices are kept: a widget that is not drawn forgets its own
    st.session_state[f"{_form_key(mixture)}.held"] = dict(zip(ids, controls, strict=True))
    _note_changes(mixture, controls)
    active = tuple(m.expert for m, (is_on, _) in zip(mixture.members, controls, strict=True) if is_on)
    _point_to_parts(mixture)
    weights = {m.expert: weight for m, (_, weight) in zip(mixture.members, controls, strict=True)}
    return MixtureRequest(mixture.name, active, weights, draw_gate(_form_key(mixture), mixture.gate, _GATE))


def _recall_changes(mixture: MixtureCard) -> None:
    """Sets the controls to what the address newly says; an expert that it does not name is as saved."""
    values = fresh(_CHANGES)
    if values is None:
        return
    members, faults = read_members(values, _saved_members(mixture))
    for member in mixture.members:
        setting = members.get(member.expert, MemberSetting(False, member.weight))
        key = f"{_form_key(mixture)}.{member.expert_id}"
        st.session_state[f"{key}.on"], st.session_state[f"{key}.weight"] = setting.is_on, setting.weight
    note_fault(_CHANGES, not_used(faults), member_values(_saved_members(mixture), members))


def _saved_members(mixture: MixtureCard) -> dict[str, MemberSetting]:
    members = [member for member in mixture.members if member.enabled]
    return {one.expert: MemberSetting(one.active, one.weight, _heaviest(one)) for one in members}


def _note_changes(mixture: MixtureCard, controls: Sequence[tuple[bool, float]]) -> None:
    saved = _saved_members(mixture)
    members = zip(mixture.members, controls, strict=True)
    now = {one.expert: MemberSetting(is_on, weight) for one, (is_on, weight) in members if one.expert in saved}
    note(_CHANGES, member_values(saved, now))
    show_fault(_CHANGES)


def _heaviest(member: MemberCard) -> float:
    return max(HEAVIEST, member.weight)


def _members_to_draw(mixture: MixtureCard) -> set[str]:
    """The ids of the members whose controls are drawn: all of a small mixture, else those found, active ones first."""
    members = list(mixture.members)
    if len(members) > MOST_DRAWN:
        search = st.text_input("Search its experts", key=f"mixture_search.{mixture.id}", placeholder="Name or domain")
        words = search.casefold().split()
        matching = [
            member for member in members if all(word in f"{member.expert} {member.domain}".casefold() for word in words)
        ]
        members = sorted(matching, key=lambda one: not _controls_of(mixture, one)[0])[:MOST_DRAWN]
        st.caption(
            f"{len(members)} of {len(matching):,} experts are shown, those that are on first. Search for others."
        )
    return {member.expert_id for member in members}


def _controls_of(mixture: MixtureCard, member: MemberCard) -> tuple[bool, float]:
    """What a member's controls were left at, whether they are drawn or not."""
    key = f"{_form_key(mixture)}.{member.expert_id}"
    held = st.session_state.get(f"{_form_key(mixture)}.held", {})
    is_on, weight = held.get(member.expert_id, (member.active, member.weight))
    is_on, weight = st.session_state.get(f"{key}.on", is_on), st.session_state.get(f"{key}.weight", weight)
    return is_on and member.enabled, weight


def _draw_member(mixture: MixtureCard, member: MemberCard, look: Look) -> tuple[bool, float]:
    key = f"{_form_key(mixture)}.{member.expert_id}"
    switch, slider = st.columns([3, 2], vertical_alignment="center")
    is_on_now, weight_now = _controls_of(mixture, member)
    away = "" if member.enabled else " (disabled in the registry)"
    with switch, st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.html(chip(look), width="content")
        is_on = st.toggle(
            plain(member.expert) + away,
            is_on_now,
            key=f"{key}.on",
            disabled=not member.enabled,
            wrap=True,
        )
    weight = slider.slider(
        f"Weight of {plain(member.expert)}",
        0.0,
        _heaviest(member),
        weight_now,
        0.05,
        key=f"{key}.weight",
        label_visibility="collapsed",
        disabled=not is_on,
    )
    return is_on and member.enabled, weight


def _point_to_parts(mixture: MixtureCard) -> None:
    if words := describe_inner_gates(mixture):
        explanation = (
            f"{words} Stored scores are of all parts together. To see the effect of switching a part, try it on your "
            "own text on these pages."
        )
        st.caption(plain(explanation))
        with st.container(horizontal=True):
            for page in (POSTERIORS, PLAYGROUND):
                st.page_link(page.script, label=f"Switch parts: {page.title}", icon=page.icon)


def base_of(mixture: MixtureCard) -> MixtureCard:
    """The saved mixture that the controls started from; another user may have saved another one since."""
    base: MixtureCard = st.session_state.setdefault(f"{_form_key(mixture)}.base", mixture)
    return base


def reset(mixture: MixtureCard) -> None:
    """Resets the controls to the saved choice. They are new ones: a browser goes on showing those that it knows."""
    for key in [key for key in st.session_state if str(key).startswith(f"{_form_key(mixture)}.")]:
        del st.session_state[key]
    st.session_state[_times_key(mixture)] = st.session_state.get(_times_key(mixture), 0) + 1
    for key in (_CHANGES, _GATE):
        note_fault(key)


def is_at_fault(mixture: MixtureCard) -> bool:
    """Whether a number of its gate is out of its range, so that nothing can be saved."""
    return bool(faults_of(_form_key(mixture)))


def set_weights(mixture: MixtureCard, shares: Mapping[str, float]) -> None:
    """Sets the sliders to shares, the largest at 1; an expert without a share keeps its weight."""
    largest = max(shares.values())
    for member in mixture.members:
        if member.expert in shares:
            st.session_state[f"{_form_key(mixture)}.{member.expert_id}.weight"] = shares[member.expert] / largest


def _form_key(mixture: MixtureCard) -> str:
    return f"mixture_controls.{mixture.id}.{st.session_state.get(_times_key(mixture), 0)}"


def _times_key(mixture: MixtureCard) -> str:
    return f"mixture_controls.{mixture.id}#resets"
