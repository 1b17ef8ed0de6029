"""The documents chosen by a search, on the map or in a table: read, or made a domain and an expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from jobs.plans.clusterings import submit_selection
from jobs.queue.submit import submit
from ui.present.forms.form_choices import free_name, offers_now
from ui.present.forms.option_help import STEPS_HELP
from ui.present.pages import SEEDS
from ui.present.text.formatting import listed, plain, pluralize
from ui.widgets.address import write_text
from ui.widgets.background import fetch_in_background
from ui.widgets.fields import draw_number, drop_unknown
from ui.widgets.notices import cannot_change, explain_problems
from workbench.answers.cards import ClusteringCard
from workbench.kinds.data import MakeDomain
from workbench.kinds.kind import parse_spec
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.clusters.cluster_documents import DocumentMatches, search_documents
from workbench.registry.corpora import list_corpora
from workbench.registry.database import reading
from workbench.store.storage import get_storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


JOBS = "cluster_map"  # the key of the jobs that were submitted together
_NAME, _PROPOSED = "make-domain.name", "make-domain.proposed"
_TRAINS = "cluster_map.trains"  # the selection whose training is asked about
_EXPERT, _MIXTURE, _STEPS = "cluster_map.expert", "cluster_map.mixture", "cluster_map.steps"
_NO_MIXTURE = "none: a first expert, of a seed model"


def offer_domain(
    card: ClusteringCard, number: int, largest: int, areas: Sequence[str], clusters: Sequence[str]
) -> None:
    """What can be made of the chosen documents, mostly of the cluster `largest`."""
    where = "in the area" if areas else f"in {pluralize(len(clusters), 'cluster')}"
    selection = (card.id, *areas, *clusters)
    with st.container(border=True):
        st.markdown(f"**{pluralize(number, 'document')} {where}**")
        st.caption("Documents that are held out stay held out." + (" Only what is on the map." if areas else ""))
        _propose_name(card, largest)
        name = st.text_input("Name of the new domain", key=_NAME, placeholder="what they are about")
        fields = {"clustering": card.name, "name": name, "areas": list(areas), "clusters": list(clusters)}
        with st.container(horizontal=True):
            if st.button("Train an expert on it", type="primary", key="cluster_map.train", icon=":material/school:"):
                st.session_state[_TRAINS] = selection
            if st.button(f"Make a domain of these {number:,}", key="make-domain.submit", disabled=cannot_change()):
                st.session_state.pop(_TRAINS, None)
                with explain_problems():
                    st.session_state["make-domain.job"] = submit(parse_spec({"kind": "make-domain", **fields}))
                    st.rerun()
        if st.session_state.get(_TRAINS) == selection:
            _offer_training(fields)


def _propose_name(card: ClusteringCard, largest: int) -> None:
    """Fills in the strongest words of the largest cluster, unless the person wrote another name."""
    if st.session_state.get(_NAME, "") != st.session_state.get(_PROPOSED, ""):
        return
    terms = card.clusters[largest].terms[:2] or [card.clusters[largest].name]
    with reading() as session:
        taken = {*(corpus.name for corpus in list_corpora(session)), *offers_now()["domain"]}
    st.session_state[_NAME] = st.session_state[_PROPOSED] = free_name(" ".join(terms), taken)


def _offer_training(fields: dict[str, Any]) -> None:
    offers = offers_now()
    mixtures = [*offers["mixture_to_extend"], *([_NO_MIXTURE] if offers["seed_model"] else [])]
    if not mixtures:
        st.caption("There is no seed model yet, from which an expert could start.")
        st.page_link(SEEDS.script, label="Make a seed model", icon=SEEDS.icon)
        return
    taken = {*offers["mixture"], *offers["experts"], *(name.partition("/")[0] for name in offers["experts"])}
    proposal = free_name(fields["name"] or "new", taken)
    left, middle, right = st.columns([3, 3, 2])
    expert = left.text_input("Name of the expert", proposal, key=f"{_EXPERT}.{proposal}")
    drop_unknown(_MIXTURE, mixtures)
    mixture = middle.selectbox("Joins the mixture", mixtures, key=_MIXTURE)
    steps, fault = draw_number("Steps", key=_STEPS, default=None, lowest=1, help=STEPS_HELP, container=right)
    st.caption(
        "One job makes the domain, one trains the expert on it, one scores it. All can be cancelled on the page Jobs."
    )
    if st.button(
        "Start both",
        type="primary",
        key="cluster_map.start",
        icon=":material/send:",
        disabled=cannot_change() or bool(fault),
    ):
        with explain_problems():
            training = _training(expert, str(fields["name"]), mixture, steps, offers["seed_model"])
            domain = parse_spec({"kind": "make-domain", **fields})
            assert isinstance(domain, MakeDomain)
            st.session_state[f"{JOBS}.jobs"] = submit_selection(domain, training)
            st.session_state.pop(_TRAINS, None)
            st.rerun()


def _training(
    expert: str, domain: str, mixture: str, num_steps: int | None, seed_models: Sequence[str]
) -> TrainExpert | TrainJoint:
    """A copy of the nearest expert of a mixture, or the first expert of a seed model. Raises BadSpecError."""
    if mixture == _NO_MIXTURE:
        fields = {"kind": "train-joint", "seed_model": seed_models[0], "domains": [domain]}
    else:
        fields = {"kind": "train-expert", "mixture": mixture, "domain": domain}
    spec = parse_spec({**fields, "name": expert, "training": {"num_steps": num_steps}})
    assert isinstance(spec, TrainExpert | TrainJoint)
    return spec


_SHOWN = 8  # clusters in a sentence


def show_search(card: ClusteringCard) -> DocumentMatches | None:
    """The field; the matching documents once it holds words and they were found."""
    text = write_text(
        st.text_input,
        "Find words in documents",
        key="clusters.find",
        placeholder="all of these words, in upper or lower case",
    )
    words = text.split()
    if not words:
        return None
    if named := clusters_with(card, words):
        st.caption(plain(f"Clusters with such words: {listed(named, _SHOWN)}."))

    def fetch() -> DocumentMatches:
        with reading() as session:
            return search_documents(session, get_storage(), card.name, words)

    matches: DocumentMatches | None = fetch_in_background(
        "cluster_search", (card.id, card.num_documents, tuple(words)), fetch, "Reading the documents"
    )
    return matches


def clusters_with(card: ClusteringCard, words: Sequence[str]) -> list[str]:
    """The clusters whose name or strongest words hold one of these words."""
    wanted = [word.lower() for word in words]
    return [
        cluster.name
        for cluster in card.clusters
        if any(word in text.lower() for word in wanted for text in (cluster.name, *cluster.terms))
    ]


def choose_match(card: ClusteringCard, matches: DocumentMatches, on_map: NDArray[np.int64]) -> int | None:
    """The list of matches; the number of the chosen document."""
    number = len(matches.numbers)
    if not number:
        st.info("No document holds all of these words.")
        return None
    st.markdown(f"**{pluralize(number, 'document')}**, {len(on_map):,} of them on the map")
    shown = list(matches.passages)
    if number > len(shown):
        st.caption(f"The first {len(shown)} are listed; on the map all are pointed out.")
    with st.container(height=260 if len(shown) > 4 else "content"):
        chosen: int | None = st.radio(
            "Matches",
            shown,
            index=None,
            format_func=lambda one: plain(matches.passages[one]),
            key=f"cluster_map.match.{card.id}.{hash(tuple(shown))}",
            label_visibility="collapsed",
        )
    return chosen
