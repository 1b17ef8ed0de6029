"""What was chosen on the map or in the table: documents that become a domain, and an expert in the same go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from jobs.plans.clusterings import submit_selection
from jobs.queue.submit import submit
from ui.present.forms.form_choices import offers_now
from ui.present.forms.text_in_hand import free_name
from ui.present.pages import TRAIN
from ui.present.text.formatting import pluralize
from ui.widgets.fields import drop_unknown
from ui.widgets.notices import explained
from ui.widgets.numbers import draw_number
from ui.widgets.rights import cannot_change
from workbench.answers.cards import ClusteringCard
from workbench.kinds.data import MakeDomain
from workbench.kinds.parse_spec import parse_spec
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.corpora import list_corpora
from workbench.registry.database import reading

JOBS = "cluster_map"  # the key of the jobs that were submitted together
_NAME, _PROPOSED = "make-domain.name", "make-domain.proposed"
_TRAINS = "cluster_map.trains"  # the selection whose training is asked about
_EXPERT, _MIXTURE, _STEPS = "cluster_map.expert", "cluster_map.mixture", "cluster_map.steps"
_NO_MIXTURE = "none: a first expert, of a seed model"


def offer_domain(
    card: ClusteringCard, number: int, largest: int, areas: Sequence[str], clusters: Sequence[str]
) -> None:
    """What can be made of the chosen documents, most of which are of the cluster `largest`."""
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
                _submit_domain(fields)
        if st.session_state.get(_TRAINS) == selection:
            _offer_training(fields)


def _propose_name(card: ClusteringCard, largest: int) -> None:
    """Fills in the strongest words of the largest cluster, unless the person wrote another name."""
    if st.session_state.get(_NAME, "") != st.session_state.get(_PROPOSED, ""):
        return
    terms = card.clusters[largest].terms[:2] or [card.clusters[largest].name]
    with reading() as session:
        taken = {*(one.name for one in list_corpora(session)), *offers_now()["domain"]}
    st.session_state[_NAME] = st.session_state[_PROPOSED] = free_name(" ".join(terms), taken)


def _submit_domain(fields: dict[str, Any]) -> None:
    with explained():
        st.session_state["make-domain.job"] = submit(parse_spec({"kind": "make-domain", **fields}))
        st.rerun()


def _offer_training(fields: dict[str, Any]) -> None:
    """The names that the expert would have, and the button that starts both jobs."""
    offers = offers_now()
    mixtures = [*offers["mixture_to_extend"], *([_NO_MIXTURE] if offers["seed_model"] else [])]
    if not mixtures:
        st.caption("There is no seed model yet, from which an expert could start.")
        st.page_link(TRAIN.script, label="Make a seed model", icon=TRAIN.icon)
        return
    taken = {*offers["mixture"], *offers["experts"], *(name.partition("/")[0] for name in offers["experts"])}
    proposal = free_name(fields["name"] or "new", taken)
    left, middle, right = st.columns([3, 3, 2])
    expert = left.text_input("Name of the expert", proposal, key=f"{_EXPERT}.{proposal}")
    drop_unknown(_MIXTURE, mixtures)
    mixture = middle.selectbox("Joins the mixture", mixtures, key=_MIXTURE)
    steps, fault = draw_number("Steps", key=_STEPS, default=300, lowest=1, place=right)
    st.caption(
        "First a job makes the domain, then one trains the expert on it. Both can be cancelled on the page Jobs."
    )
    if st.button(
        "Start both",
        type="primary",
        key="cluster_map.start",
        icon=":material/send:",
        disabled=cannot_change() or bool(fault),
    ):
        with explained():
            training = _training(expert, str(fields["name"]), mixture, steps, offers["seed_model"])
            domain = parse_spec({"kind": "make-domain", **fields})
            assert isinstance(domain, MakeDomain)
            st.session_state[f"{JOBS}.jobs"] = submit_selection(domain, training)
            st.session_state.pop(_TRAINS, None)
            st.rerun()


def _training(
    expert: str, domain: str, mixture: str, num_steps: int, seed_models: Sequence[str]
) -> TrainExpert | TrainJoint:
    """A copy of the nearest expert of a mixture, or the first expert of a seed model. Raises BadSpecError."""
    if mixture == _NO_MIXTURE:
        spec = parse_spec(
            {
                "kind": "train-joint",
                "name": expert,
                "seed_model": seed_models[0],
                "domains": [domain],
                "training": {"num_steps": num_steps},
            }
        )
    else:
        spec = parse_spec(
            {
                "kind": "train-expert",
                "name": expert,
                "domain": domain,
                "mixture": mixture,
                "training": {"num_steps": num_steps},
            }
        )
    assert isinstance(spec, TrainExpert | TrainJoint)
    return spec
