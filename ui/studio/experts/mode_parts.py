"""The parts of an expert, and links to compose it with others."""

from __future__ import annotations

import streamlit as st

from ui.present.forms.form_choices import backbone_of, backbones
from ui.present.pages import COMPOSITION, TRAIN
from ui.present.text.formatting import millions, plain
from ui.widgets.address import go_to
from ui.widgets.data_table import show_table
from workbench.answers.cards import ExpertCard
from workbench.registry import expert_parts, experts
from workbench.registry.database import reading
from workbench.store.storage import get_storage


def show_parts(card: ExpertCard) -> None:
    """Each part with where it comes from and how large it is."""
    with reading() as session:
        parts = expert_parts.parts_of(session, get_storage(), card.name)
    st.markdown(f"##### Parts beside the backbone {plain(backbone_of(card))}")
    rows = [
        {
            "part": part.name,
            "trained on": ", ".join(part.domains),
            "trained as": "this expert" if part.origin == card.name else part.origin or "an expert that is gone",
            **part.shape,
            "own parameters": millions(part.num_parameters),
        }
        for part in parts
    ]
    show_table(rows, f"parts_{card.id}", f"Parts of {card.name}")
    st.caption(
        "The backbone and its size are not counted: it stays as it is, and is kept once. Each part's gate weighs it "
        "against the backbone, token by token; on the page Posteriors you see how much."
    )


def offer_composition(card: ExpertCard) -> None:
    """Links to the form for compositions, with this expert chosen, and another one with it."""
    backbone = backbone_of(card)
    with reading() as session:
        beside = [experts.get_expert(session, name) for name in backbones()[backbone] if name != card.name]
    compositions = [one.name for one in beside if one.config.get("composed_of") and not _holds(one, card)]
    with st.container(horizontal=True):
        _offer("Compose…", backbone, [card.name], f"compose_{card.id}")
        if compositions:
            with st.popover("Add to a composition", icon=":material/add:"):
                for name in compositions:
                    _offer(f"Add to {name}", backbone, [name, card.name], f"compose_{card.id}_{name}")


def _holds(composition: ExpertCard, card: ExpertCard) -> bool:
    return card.id in {part["id"] for part in composition.config["composed_of"]}


def _offer(label: str, backbone: str, chosen: list[str], key: str) -> None:
    widget_values = {"train.what": COMPOSITION, "compose-mode.backbone": backbone, "compose-mode.experts": chosen}
    if st.button(plain(label), icon=TRAIN.icon, key=key, on_click=st.session_state.update, args=(widget_values,)):
        go_to(TRAIN)
