"""An answer of a pretrained seed model as it is, to read and ask while its first experts train."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.text.chat.template import load_chat_template
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import plain
from ui.widgets.background import kept_client, poll
from ui.widgets.notices import explain_problems
from workbench.answers.cards import SeedCard
from workbench.registry.database import reading
from workbench.registry.seeds import seed_row
from workbench.settings import get_settings
from workbench.specs.base import SEED
from workbench.store.storage import get_storage

_FIELD, _CALL = "overview.question", "overview.seed_answer"
_QUESTION = "What is a software licence for?"
_MAX_TOKENS = 60
MOST_PARAMETERS = 1e9  # a larger model is asked in the playground only


def show_seed_answer(seeds: Sequence[SeedCard]) -> None:
    """A question and the answer of the newest pretrained seed model that is small; nothing without one."""
    small = [card for card in seeds if card.source != "fresh" and card.num_parameters <= MOST_PARAMETERS]
    if not small:
        return
    seed = max(small, key=lambda card: card.created_at)
    with st.container(border=True, key="seed_answer"):
        st.header(plain(f"Ask {seed.name} as it is"), anchor=False)
        question = st.text_input("Question", _QUESTION, key=_FIELD, label_visibility="collapsed").strip()
        if question:
            _show_answer(seed.name, question)
        chosen = {"left": f"{SEED}{seed.name}", "format": "chat", "panes": "1", "prompt": question}
        st.page_link(PLAYGROUND.script, label="Go on in the playground", icon="", query_params=chosen)


def _show_answer(seed: str, question: str) -> None:
    call = poll(_CALL, (seed, question), lambda: _answer(seed, question))
    if not call.is_done():
        st.caption("The model is loaded and answers; that takes some seconds.")
    elif call.failure is not None:
        with explain_problems():
            raise call.failure
    else:
        st.text(call.answer)
        st.caption(f"At most {_MAX_TOKENS} tokens, the most probable ones. No expert takes part yet.")


def _answer(seed: str, question: str) -> str:
    """The answer to a question; from a model without a chat template how it goes on from the text."""
    request = {"model": f"{SEED}{seed}", "max_tokens": _MAX_TOKENS, "temperature": 0}
    client = kept_client(get_settings())
    with reading() as session:
        folder = get_storage().kept(seed_row(session, seed).artifact).folder
    if load_chat_template(folder) is None:
        return question + client.complete(**request, prompt=question).choices[0].text
    messages = [{"role": "user", "content": question}]
    chunks = client.converse(**request, messages=messages)
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
