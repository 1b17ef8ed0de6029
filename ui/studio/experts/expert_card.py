"""The view of one expert: switch, numbers, lineage, curve, provenance, notes, rename and delete."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from engine.methods.registry import method_of
from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import read_looks
from ui.present.charts.lineage import describe_lineage, lineage_dot
from ui.present.forms.form_choices import backbone_of, backbones
from ui.present.headlines import perplexity_text
from ui.present.pages import COMPOSITION, PLAYGROUND, TRAIN
from ui.present.picture import scores_of
from ui.present.text.formatting import clock, listed, parameters_text, plain, pluralize, size
from ui.present.text.measures import in_percent
from ui.studio.experts.certificates import show_additions, show_removal_certificates
from ui.studio.job_views.training_charts import show_curves, show_forgetting, show_forgotten, show_gates
from ui.studio.shared.contents import with_intervals
from ui.studio.shared.use_it import show_aliases, show_job_popover, show_use
from ui.widgets.address import go_to, open_tabs
from ui.widgets.charts_and_tables import show_table
from ui.widgets.notices import apply, cannot_change, explain_problems, keep
from ui.widgets.parents import show_posterior
from workbench.analysis import perplexity_tables
from workbench.analysis.changes.additions import additions_of, worse_than_before
from workbench.analysis.perplexity_tables import in_domain_scores
from workbench.analysis.routers import RouterFacts, describe_routers, facts_of
from workbench.answers.cards import ExpertCard
from workbench.exports.facts import old_masks
from workbench.formatting.number_format import DASH
from workbench.job_records import jobs as rows
from workbench.kinds.training.train_expert import known_to_parent
from workbench.questions import removal
from workbench.registry import expert_parts, experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.store.storage import get_storage


def show_parts(card: ExpertCard) -> None:
    """Each part with where it comes from and how large it is."""
    with reading() as session:
        parts = expert_parts.parts_of(session, get_storage(), card.name)
    st.markdown(f"## Parts next to the backbone {plain(backbone_of(card))}")
    rows = [
        {
            "part": part.name,
            "trained on": ", ".join(part.domains),
            "trained as": "this expert" if part.origin == card.name else part.origin or "an expert that is gone",
            **part.shape,
            "own parameters": parameters_text(part.num_parameters),
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


def show_end(card: ExpertCard) -> None:
    """A form for another name, and the way to deletion."""
    _show_renaming(card)
    st.divider()
    with reading() as session:
        users = experts.users_of(session, card.name)
    mixed_in = users.pop("mixture")
    if needed := [f"{what} {listed(sorted(set(names)))}" for what, names in users.items() if names]:
        st.warning(plain(f"It cannot be deleted: it is needed by {'; '.join(needed)}. Delete what needs it first."))
    elif mixed_in:
        _show_member_removal(card)
    else:
        _show_deletion(card)


def _show_renaming(card: ExpertCard) -> None:
    with st.form(f"rename_{card.id}"):
        name = st.text_input("New name", card.name)
        if st.form_submit_button("Rename", disabled=cannot_change()):
            with transaction() as session:
                renamed = experts.rename(session, card.name, name)
            st.session_state["experts.open"] = [renamed.name]
            keep(f"It is called {renamed.name} now.")
            st.rerun()


def _show_member_removal(card: ExpertCard) -> None:
    st.warning(plain(f"It cannot be deleted while it is in {listed(card.mixtures)}. Remove it from there first."))
    if not _certificates(card):
        st.caption("To certify its removal, use the tab Removal above while it is still in a mixture.")
    for name in card.mixtures:
        if st.button(f"Remove from {plain(name)}", key=f"out_{card.id}_{name}", disabled=cannot_change()):
            apply(
                partial(mixtures.remove_member, mixture=name, expert=card.name), f"{card.name} is no longer in {name}."
            )


def _show_deletion(card: ExpertCard) -> None:
    with reading() as session:
        scored = [evaluation.domain for evaluation in perplexity_tables.list_evaluations(session, expert=card.name)]
    lost = f"its weights and its scores on {listed(scored)}" if scored else "its weights"
    st.markdown(plain(f"Nothing depends on it. Deleting removes {lost}; this cannot be undone."))
    stays = _certificates(card)
    none = "Its removal has not been certified; that requires a mixture that contains it."
    st.caption(f"{pluralize(stays, 'certificate')} of its removal will stay." if stays else none)
    sure = st.checkbox("I want to delete it for good", key=f"sure_{card.id}")
    if st.button("Delete", key=f"delete_{card.id}", type="primary", disabled=cannot_change() or not sure):
        apply(lambda session: experts.delete_expert(session, card.name), f"{card.name} is deleted.")


def _certificates(card: ExpertCard) -> int:
    with reading() as session:
        return len(removal.removal_reports(session, card.name))


def show_switch(card: ExpertCard) -> None:
    """The toggle of one expert; it takes effect at once, everywhere."""
    key = f"enabled_{card.id}"
    st.session_state[key] = card.enabled  # the registry is the truth: another screen may have switched it

    def switch() -> None:
        with explain_problems(), transaction() as session:
            experts.set_enabled(session, [card.name], bool(st.session_state[key]))

    help = "A disabled expert is used in no mixture and no generation, but stays in the registry."
    st.toggle("Enabled", key=key, on_change=switch, help=help, disabled=cannot_change())


def show_bulk_switches(cards: Sequence[ExpertCard]) -> None:
    """Buttons that switch all the chosen experts."""
    names = [card.name for card in cards]
    with st.container(horizontal=True):
        for label, wanted in (("Enable", True), ("Disable", False)):
            if st.button(f"{label} {pluralize(len(names), 'expert')}", key=f"bulk_{label}", disabled=cannot_change()):
                done = f"{pluralize(len(names), 'expert')} {'enabled' if wanted else 'disabled'}."
                apply(partial(experts.set_enabled, names=names, enabled=wanted), done)


def show_expert(card: ExpertCard, split: HeldOutSplit) -> None:
    """The card of an expert, with its score on one split."""
    st.header(plain(card.name), divider="gray")
    with st.container(horizontal=True, vertical_alignment="center"):
        show_switch(card)
        _show_certificate(card)
        for tag in card.tags:
            st.badge(plain(tag), color="gray")
        show_aliases(card.name)
        show_job_popover("export-expert", "expert", card.name, "Export")
        show_job_popover("pack-expert", "expert", card.name, "Pack", ":material/package_2:")
        show_job_popover("push-expert", "expert", card.name, "Push to the hub", ":material/cloud_upload:")
        if card.enabled:
            with st.container(width="content", key="other_step"):
                st.page_link(PLAYGROUND.script, label="Open in playground", icon="", query_params={"left": card.name})
    _show_numbers(card, split)
    if worse := worse_than_before(card.metrics):
        st.warning(worse, icon=":material/trending_down:")
    if card.stale:
        st.warning(
            "The documents of its cluster have changed since it was trained. Train a model on the new ones "
            "with `workbench train clusters`; this one stays as it is.",
            icon=":material/history:",
        )
    with reading() as session:
        warning = old_masks(session, get_storage(), card.name)
    if warning:
        st.warning(warning, icon=":material/history:")
    parts = _PARTS
    if facts := facts_of(card):
        parts = {"Routers": partial(_show_routers, facts)} | parts
    if experts.has_parts(card):
        offer_composition(card)
        parts = {"Parts": show_parts} | parts
    for tab, draw in zip(open_tabs(list(parts), key="experts.tab"), parts.values(), strict=True):
        with tab, explain_problems():
            draw(card)


def _show_certificate(card: ExpertCard) -> None:
    with reading() as session:
        is_certified = any(report.findings.get("ok") for report in additions_of(session, card.name))
    if is_certified:
        st.badge("certified", color="green", icon=":material/verified:", help="See the tab Addition.")


def _show_numbers(card: ExpertCard, split: HeldOutSplit) -> None:
    with reading() as session:
        home = in_domain_scores(session, split).get(card.name)
    scores = with_intervals(scores_of([home] if home else [], split), [card])
    numbers = {
        f"Perplexity ({split}) ↓": perplexity_text(home.perplexity) if home else DASH,
        "Domain": card.domain or pluralize(len(card.domains), "domain"),
        "Method": method_of(card.method).title,
        "Parameters": parameters_text(card.total_parameters),
        "Own parameters": parameters_text(card.num_parameters),
        "Size on disk": size(card.size_bytes),
    }
    for column, (label, value) in zip(st.columns(len(numbers)), numbers.items(), strict=True):
        column.metric(label, plain(value))
    if measured := scores.measured_text(card):
        st.caption(plain(f"Perplexity: {measured}."))


def _show_lineage(card: ExpertCard) -> None:
    with reading() as session:
        lineage = experts.lineage(session, card.name)
    words = describe_lineage(lineage)
    st.markdown("## Lineage, from left to right")
    st.graphviz_chart(lineage_dot(lineage, card.name, read_looks()), alt=words)
    st.caption(plain(words))
    if known := known_to_parent(card.metrics, card.parent or "Its parent"):
        st.caption(plain(known))
    show_posterior(card.metrics, card.parent or "", f"expert_{card.id}")


def _show_routers(facts: RouterFacts, card: ExpertCard) -> None:
    rows = [
        {
            "dev text of": name,
            "tokens": facts.num_held_out[number],
            **{f"to {chosen} (%)": in_percent(share) for chosen, share in zip(facts.experts, shares, strict=True)},
            "lowest layer (%)": in_percent(min(facts.accuracy[number] or (0.0,))),
        }
        for number, (name, shares) in enumerate(zip(facts.experts, facts.chosen, strict=True))
        if shares is not None
    ]
    show_table(rows, f"routers_{card.id}", f"Where the routers of {card.name} send each expert's text")
    for sentence in describe_routers(facts):
        st.caption(plain(sentence))


def _show_curve(card: ExpertCard) -> None:
    with reading() as session:
        job = rows.get_job(session, card.job_id) if card.job_id else None
        points = rows.metrics(session, job.id) if job else []
    if job and points:
        show_curves(points, f"expert_{card.id}", card.name, job.id)
        show_forgetting(job, points, f"expert_{card.id}")
        show_gates(job, points, f"expert_{card.id}")
    else:
        st.caption("No curve was recorded for this expert: it was not trained by a job of this registry.")


def _show_scores(card: ExpertCard) -> None:
    with reading() as session:
        scores = perplexity_tables.list_evaluations(session, expert=card.name)
    if not scores:
        st.caption("Not scored yet. Evaluate a mixture that holds it (page Train).")
        return
    values = [
        {
            "domain": score.domain,
            "perplexity (per token)": score.perplexity,
            "accuracy (%)": in_percent(score.accuracy),
            "split": score.split,
            "tokens": score.num_tokens,
            "context (tokens)": score.block_size,
            "scored": clock(score.created_at),
        }
        for score in scores
    ]
    show_table(values, f"scores_{card.id}", f"Perplexities of {card.name}")


def _show_provenance(card: ExpertCard) -> None:
    values = {
        "made": clock(card.created_at),
        "domains": ", ".join(card.domains),
        "parent experts": ", ".join(card.parents) or "none",
        "seed model": card.seed or "none",
        "weights SHA-256": card.sha256,
        "tokenizer SHA-256": card.tokenizer_sha256,
        "data SHA-256": card.data_sha256,
        "base": card.base_id,
        "code version": card.code_version,
        "reproducible from": card.reproducible_from or "not recorded",
        "job": card.job_id or "none",
    }
    origin = [{"property": name, "value": value} for name, value in values.items()]
    show_table(origin, f"origin_{card.id}", f"Origin of {card.name}")
    config = [{"setting": name, "value": json.dumps(value)} for name, value in flat(card.config)]
    show_table(config, f"config_{card.id}", f"Configuration of {card.name}")


def _show_notes(card: ExpertCard) -> None:
    with st.form(f"notes_{card.id}"):
        notes = st.text_area("Notes", card.notes)
        tags = st.text_input("Tags, separated by commas", ", ".join(card.tags))
        if st.form_submit_button("Save", disabled=cannot_change()):
            kept = [tag.strip() for tag in tags.split(",") if tag.strip()]
            apply(lambda session: experts.describe(session, card.name, notes=notes, tags=kept), "Saved.")


def flat(config: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """The leaves of a nested config with the words of a form: `training: steps` for `num_steps` in `training`."""
    leaves: list[tuple[str, Any]] = []
    for name, value in config.items():
        words = before + name.removeprefix("num_").replace("_", " ").strip()
        leaves += flat(value, f"{words}: ") if isinstance(value, dict) else [(words, value)]
    return leaves


_PARTS: dict[str, Callable[[ExpertCard], None]] = {
    "Use it": lambda card: show_use(card.name, "expert", card.enabled),
    "Lineage": _show_lineage,
    "Curve": _show_curve,
    "Perplexities": _show_scores,
    "Forgetting": show_forgotten,
    "Addition": show_additions,
    "Removal": lambda card: show_removal_certificates(card.name, card.mixtures),
    "Provenance": _show_provenance,
    "Notes & tags": _show_notes,
    "Rename or delete": show_end,
}
