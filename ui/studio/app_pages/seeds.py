"""Seed models: those that are stored, and small real models that one can be made of."""

from __future__ import annotations

from typing import Any

import streamlit as st

from jobs.queue.submit import submit
from ui.kinds.form import JOINT
from ui.kinds.form import SEED as SEED_FORM
from ui.present.pages import PLAYGROUND, SEEDS, TRAIN
from ui.present.text import seed_offers as texts
from ui.present.text.formatting import clock, parameters_text, plain, plain_with_code, pluralize, size
from ui.present.text.seed_offers import OfferSource
from ui.studio.job_views.job_view import show_job
from ui.studio.shared.use_it import show_use
from ui.widgets.address import choose_one
from ui.widgets.charts_and_tables import show_table
from ui.widgets.notices import cannot_change, empty, explain_problems, offer_deletion
from ui.widgets.on_demand import content_of
from ui.widgets.page_head import show_head
from workbench.answers.cards import SeedCard
from workbench.answers.seed_offers import SeedOffer
from workbench.job_records.jobs import get_job
from workbench.registry import seeds
from workbench.registry.database import reading
from workbench.registry.seed_offers import list_offers, seed_spec
from workbench.specs.base import SEED
from workbench.store.storage import get_storage

_COLUMNS = 3  # cards side by side
_JOB = "seeds.job"  # the job that a card submitted last


def show() -> None:
    """Draws the page."""
    show_head(SEEDS)
    with reading() as session:
        cards, offers = seeds.list_seeds(session), list_offers(session)
    _show_last()
    if cards:
        _show_stored(cards)
    else:
        empty("There is no seed model yet.", "Every expert starts from one. Make one of a model below, with one click.")
    _show_offers(offers, [card.name for card in cards])


def _show_last() -> None:
    """The job that a card submitted last, until it is done: then its seed model is on the page."""
    job_id = st.session_state.get(_JOB)
    if job_id is None:
        return
    with reading() as session:
        is_done = get_job(session, job_id).state == "done"
    if is_done:
        del st.session_state[_JOB]
    else:
        show_job(job_id, key="seeds_job")


# stored -----------------------------------------------------------------------------------------------


def _show_stored(cards: list[SeedCard]) -> None:
    st.header("Stored here", anchor=False)
    if len(cards) > 1:
        show_table([_row(card) for card in cards], "seeds", "The seed models that are stored")
    by_name = {card.name: card for card in cards}
    chosen = cards[0].name
    if len(cards) > 1:
        chosen = choose_one(st.selectbox, "Seed model", list(by_name), key="seeds.chosen")
    with st.container(border=True), explain_problems():
        _show_one(by_name[chosen])


def _row(seed: SeedCard) -> dict[str, Any]:
    return {
        "seed model": seed.name,
        "family": seed.family,
        "parameters": parameters_text(seed.num_parameters),
        "size": size(seed.size_bytes),
        "source": seed.source,
        "made": clock(seed.created_at),
    }


def _show_one(card: SeedCard) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(plain(card.name), anchor=False, width="content")
        st.badge(plain(card.family), color="gray")
    tokens = seeds.context_of(card)
    context = f"context {tokens:,}" if tokens else "context not bounded"
    facts = [f"{parameters_text(card.num_parameters)} parameters", size(card.size_bytes), context, card.source]
    st.caption(plain(" · ".join(facts)))
    with st.container(horizontal=True):
        name = SEED + card.name
        st.page_link(PLAYGROUND.script, label="Open in playground", icon=PLAYGROUND.icon, query_params={"left": name})
        train = {"train.what": JOINT, "train-joint.seed_model": card.name}
        if st.button("Train experts on it", key="seeds.train", icon=TRAIN.icon, on_click=_remember, args=(train,)):
            st.switch_page(TRAIN.script, query_params={})
        offer_deletion(
            plain(f"Deletes {card.name}; refused while an expert, a mixture, a clustering or a job needs it."),
            f"seeds.delete.{card.name}",
            lambda session: seeds.delete_seed(session, card.name),
            f"The seed model “{card.name}” is deleted.",
        )
    key = f"seeds.more.{card.name}"
    box = st.expander("Use it from programs, and how it writes a conversation", key=key, on_change="rerun")
    if content := content_of(box, key):
        with content, explain_problems():
            show_use(name, "expert")
            _show_text(card.name)


def _show_text(name: str) -> None:
    with reading() as session:
        text = seeds.seed_text(session, get_storage(), name)
    st.caption(plain(f"Begins with: {text.begins_with or 'nothing'} · stops at: {' '.join(text.stops) or 'nothing'}"))
    if text.changes:
        st.caption(plain(text.changes))
    if text.conversation:
        st.caption("What its chat template makes of “Hello?”")
        st.code(text.conversation, language=None, wrap_lines=True)
    else:
        st.caption("It has no chat template: it goes on from texts, and answers no conversation.")


def _remember(state: dict[str, Any]) -> None:
    st.session_state.update(state)


# offered ----------------------------------------------------------------------------------------------


def _show_offers(offers: list[SeedOffer], taken: list[str]) -> None:
    st.header("Models to start from", anchor=False)
    st.caption(
        f"{pluralize(len(offers), 'small model')}, each with one click. Another causal language model, or a fresh one "
        "with random weights, has a form."
    )
    if st.button(f"Open the form “{SEED_FORM}”", key="seeds.form", icon=TRAIN.icon, type="tertiary"):
        st.session_state["train.what"] = SEED_FORM
        st.switch_page(TRAIN.script, query_params={})
    st.caption(texts.ESTIMATE)
    for start in range(0, len(offers), _COLUMNS):
        for column, offer in zip(st.columns(_COLUMNS), offers[start : start + _COLUMNS], strict=False):
            with column.container(border=True, height="stretch", key=f"offer_{offer.name}"):
                _show_offer(offer, taken)


def _show_offer(offer: SeedOffer, taken: list[str]) -> None:
    st.subheader(plain(offer.title), anchor=False)
    st.caption(plain(texts.describe_licence(offer)))
    st.markdown(plain(texts.describe_facts(offer)))
    if offer.stored:
        st.badge(plain(f"stored as {', '.join(offer.stored)}"), icon=":material/check:", color="green")
    st.table(texts.need_rows(offer), border="horizontal", hide_index=True)
    for source in texts.sources_of(offer):
        _show_source(offer, source, taken)


def _show_source(offer: SeedOffer, source: OfferSource, taken: list[str]) -> None:
    """What a source needs, as a command and as a button; the sentence comes first, since a click may download."""
    st.caption(plain_with_code(f"{source.sentence} The same as a command: `{source.command}`"))
    is_package = source.name == "package"
    label = "Make it from the package" if is_package else f"Download {size(offer.download_bytes)}"
    if st.button(
        label,
        key=f"offer.{source.name}.{offer.name}",
        type="primary" if is_package and source.is_ready and not offer.stored else "secondary",
        icon=":material/inventory_2:" if is_package else ":material/download:",
        disabled=cannot_change() or not source.is_ready,
    ):
        with explain_problems():
            st.session_state[_JOB] = submit(seed_spec(offer, source.name, taken))
            st.rerun()


if __name__ == "__main__":
    show()
