"""Clusters one by one, their sizes, domains and settings, edits of them, and the training of a model on each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from engine.text.split_names import HeldOutSplit
from jobs.plans.clusterings import submit_training
from jobs.queue.submit import submit
from ui.present.charts.cluster_charts import overlap_picture, sizes_picture
from ui.present.charts.colours import read_looks
from ui.present.charts.setting_grids import describe_temperature, grid_picture
from ui.present.forms.form_choices import missing, offers_now
from ui.present.forms.options import command_line
from ui.present.forms.questions import Offers, QuestionForm, questions_of
from ui.present.pages import SEEDS
from ui.present.text.clusters import cluster_row, describe_stale_experts, describe_text_changes
from ui.present.text.formatting import listed, moment, plain, pluralize
from ui.present.text.measures import describe_missing_scores
from ui.studio.clusters.cluster_map_view import show_text
from ui.studio.job_views.job_line import show_outcome
from ui.studio.job_views.job_view import show_form_and_job, show_last
from ui.studio.job_views.pending_jobs import empty_until, empty_until_scored, show_plan
from ui.studio.mixtures.mixture_controls import saved_request
from ui.widgets.address import choose_one, choose_split
from ui.widgets.background import ask_scores, fetch_in_background, forget
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.fields import Answers, key_of
from ui.widgets.job_form import show_job_form
from ui.widgets.notices import apply, cannot_change, empty, explain_problems, offer_deletion
from workbench.answers.cards import ClusterCard, ClusteringCard, ExpertCard
from workbench.answers.posteriors import TextChanges
from workbench.kinds.analysis import Evaluate
from workbench.questions.cluster_grid import ClusterGrid, ClusterGridRequest
from workbench.registry import experts, mixtures
from workbench.registry.clusters import cluster_documents
from workbench.registry.clusters.clusterings import delete_clustering, describe_cluster
from workbench.registry.database import reading
from workbench.specs.requests import TrainClusters
from workbench.store.storage import get_storage


def show_clusters(card: ClusteringCard) -> None:
    """Every cluster in a row, then one of them whole, then their sizes."""
    st.markdown("## Clusters and their strongest words")
    show_table([cluster_row(one) for one in card.clusters], "clusters", f"Clusters of {card.name}")
    names = [cluster.name for cluster in card.clusters]
    name = choose_one(st.selectbox, "Cluster", names, key=f"clusters.one.{card.id}")
    _show_cluster(card, card.clusters[names.index(name)])
    show_chart(sizes_picture(card, read_looks()), "cluster_sizes")


def _show_cluster(card: ClusteringCard, cluster: ClusterCard) -> None:
    with st.container(border=True):
        st.markdown(f"**{plain(cluster.name)}**, {pluralize(cluster.num_documents, 'document')}")
        st.caption(plain(f"Strongest words: {listed(cluster.terms, len(cluster.terms))}."))
        _show_name_form(cluster)
        st.markdown("The documents nearest to its centre")
        with explain_problems(), reading() as session:
            storage = get_storage()
            documents = [
                cluster_documents.get_document(session, storage, card.name, id) for id in cluster.representatives
            ]
            for tab, document in zip(st.tabs([str(n + 1) for n in range(len(documents))]), documents, strict=True):
                with tab:
                    show_text(document)


def _show_name_form(cluster: ClusterCard) -> None:
    left, right = st.columns([2, 3])
    name = left.text_input("Name", cluster.name, key=f"clusters.name.{cluster.id}")
    notes = right.text_input("Notes", cluster.notes, key=f"clusters.notes.{cluster.id}")
    if st.button(
        "Save", key="clusters.save", disabled=cannot_change() or (name, notes) == (cluster.name, cluster.notes)
    ):
        apply(
            lambda session: describe_cluster(session, cluster.id, name, notes),
            f"Saved: “{name}”. No document moved, and no expert became stale.",
        )


def show_overlap(card: ClusteringCard) -> None:
    """How clusters go with the domains that their documents came from (figure 16)."""
    show_chart(overlap_picture(card, read_looks()), "cluster_overlap")


def show_changes(card: ClusteringCard) -> None:
    """Which documents are missing or new since the clustering was made, and how many."""
    st.caption("Compares every document that was clustered with the text of the same domains as it is now.")
    key = f"clusters.changes.{card.id}"
    if st.button("Compare with the current text", icon=":material/difference:", key="clusters.compare"):
        st.session_state[key] = True
        forget("cluster_changes")
    if not st.session_state.get(key):
        return

    def fetch() -> TextChanges:
        with reading() as session:
            return cluster_documents.changes(session, get_storage(), card.name)

    changes: TextChanges | None = fetch_in_background(
        "cluster_changes", card.id, fetch, "Reading the ids of all documents"
    )
    if changes is None:
        return
    notice = st.warning if changes.num_missing or changes.num_new else st.success
    notice(plain(describe_text_changes(changes)))
    listed_ids = {"missing": changes.missing, "new": changes.new}
    rows = [{"document": id, "what": what} for what, ids in listed_ids.items() for id in ids]
    if rows:
        show_table(rows, "changed_documents", "The first documents that are missing or new")
        st.caption(
            "Find clusters again under another name to take new text in; what is missing must be imported again."
        )


_TUCKED = ("sample_size", "seed")


def show_edits(card: ClusteringCard) -> None:
    """The forms, each with its job beneath it."""
    st.caption(
        "Experts of clusters that change become stale, and can be retrained; all others stay as they are. "
        "To put single documents elsewhere, click them on the map."
    )
    names = [cluster.name for cluster in card.clusters]
    offers: Offers = {"clusters": names, "cluster": names}
    given: Answers = {("clustering",): card.name}
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("## Merge clusters")
        show_form_and_job("merge-clusters", offers, "Merge", skip=("clustering",), given=given)
    with right:
        st.markdown("## Split a cluster")
        show_form_and_job("split-cluster", offers, "Split", skip=("clustering",), given=given, tucked=_TUCKED)
    offer_deletion(
        plain(f"Deletes {card.name} with its map. The domains that were made of it stay."),
        "clusters.delete",
        lambda session: delete_clustering(session, card.name),
        f"“{card.name}” is deleted.",
        "Delete the clustering …",
    )


_ALL = "All of it"


def show_grid(card: ClusteringCard) -> None:
    """Perplexities at every temperature and top-k of one mixture that weighs by nearness to these clusters."""
    with reading() as session:
        ours = {
            mixture.name: mixture
            for mixture in mixtures.list_mixtures(session)
            if mixture.gate.get("clustering") == card.id
        }
    if not ours:
        why = "No mixture weighs its experts by nearness to these clusters yet."
        empty(why, "“Train on them” above trains a model on each cluster, and makes a mixture with such a gate.")
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    name = choose_one(left.selectbox, "Mixture", list(ours), key="clusters.grid_of")
    split = choose_split(right, "clusters.grid_split")
    question, doing = ClusterGridRequest(mixture=name, split=split), "Mixing the stored scores with every setting"
    if grid := ask_scores("cluster_grid", question, doing, saved_request(ours[name])):
        _show(grid, name, split)


def _show(grid: ClusterGrid, mixture: str, split: HeldOutSplit) -> None:
    if not grid.domains:
        why = describe_missing_scores(grid.experts, split)
        empty_until_scored(why, "Evaluate the mixture once.", mixture, split)
        return
    by_domain = {row.domain: row.perplexity for row in grid.domains}
    text = choose_one(st.selectbox, "Text", [_ALL, *by_domain], key="clusters.grid_text")
    show_chart(grid_picture(grid, by_domain.get(text, grid.perplexity)), "cluster_grid")
    caption = f"Exact, from stored scores of the {split} split, in {moment(grid.seconds)}; all experts weigh alike."
    st.caption(plain(caption))
    if grid.proposed:
        st.markdown(plain(describe_temperature(grid.proposed)))


_FORM = "train-clusters"


def show_training(card: ClusteringCard) -> None:
    """Which clusters have a domain and an expert, and the forms that make them."""
    rows = [
        {
            "cluster": cluster.name,
            "domain": cluster.domain or "none yet",
            "experts": ", ".join(cluster.experts) or "none yet",
            "stale": "stale" if cluster.stale else "",
        }
        for cluster in card.clusters
    ]
    show_table(rows, "cluster_experts", "Which clusters have a domain and an expert")
    offers = offers_now()
    if missing(offers, "seed_model"):
        why, step = "There is no seed model yet.", "Every cluster's model starts as a copy of one."
        empty_until("make-seed", why, step, SEEDS.script, "Make a seed model")
        return
    _offer_stale(card, questions_of(TrainClusters, offers, skip=("clustering",)))
    st.markdown(f"## Train a model on each of {pluralize(len(card.clusters), 'cluster')}, and mix them")
    st.caption(plain(TrainClusters.model_fields["training"].description))
    show_job_form(
        _FORM,
        offers,
        "Train a model on each",
        command=partial(command_line, "train clusters", TrainClusters, ("clustering", "name")),
        skip=("clustering",),
        given={("clustering",): card.name},
        send=_send,
        show_outcome=show_outcome,
        plan=TrainClusters,
        proposed={("seed_model",): offers["seed_model"][0]},  # a spec that branches from an expert names none
    )
    st.caption(
        "Submitting again under the same name resumes: existing models are kept, except those of changed clusters. "
        "It is a plan of several jobs, for which HTTP has no single call: submit its jobs one by one."
    )
    show_plan(_FORM)
    show_last(_FORM)
    with st.expander("Make domains of the clusters only", icon=":material/library_books:"):
        show_form_and_job(
            "make-cluster-domains",
            {},
            "Make domains",
            skip=("clustering", "domains"),
            given={("clustering",): card.name},
        )


def _send(spec: TrainClusters) -> str:
    ids = submit_training(spec)
    scores = submit(Evaluate(mixture=spec.name), after=ids[-1:])
    st.session_state[f"{_FORM}.jobs"] = [*ids, scores]
    return ids[-1]  # the mixture of them all


def _offer_stale(card: ClusteringCard, questions: Sequence[QuestionForm]) -> None:
    if not card.stale_experts:
        return
    with reading() as session:
        stale = [experts.get_expert(session, name) for name in card.stale_experts]
        mixtures = sorted({mixture for one in stale for mixture in one.mixtures})
        members = {name: _members(session, name) for name in mixtures}
    with st.container(border=True):
        st.warning(plain(describe_stale_experts(card)), icon=":material/update:")
        for name in mixtures:
            st.button(
                plain(f"Fill in what {name} was trained with"),
                icon=":material/edit_note:",
                key=f"{_FORM}.again.{name}",
                on_click=st.session_state.update,
                args=(_answers(name, members[name], questions),),
            )
        st.caption("Under the name of a mixture that holds them, “Train a model on each” below retrains only those.")


def _members(session: Any, mixture: str) -> list[ExpertCard]:
    return [expert for expert in experts.list_experts(session) if mixture in expert.mixtures]


def _answers(mixture: str, members: Sequence[ExpertCard], questions: Sequence[QuestionForm]) -> dict[str, Any]:
    """The form's answers as they were for a mixture; the steps are those of all its models together."""
    first = members[0]
    options = {**first.config.get("training", {}), "name": mixture, "seed_model": first.seed}
    options["num_steps"] = sum(member.config.get("training", {}).get("num_steps", 0) for member in members)
    return {
        key_of(_FORM, question): options[question.path[-1]]
        for question in questions
        if options.get(question.path[-1]) is not None
    }
