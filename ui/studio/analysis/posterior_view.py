"""Posteriors of all scored domains and of a text, and the gates inside an expert, from the API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from engine.config import PAPER_BLOCKS
from engine.events import BACKBONE
from ui.client import Client
from ui.present.charts.colours import in_order, read_looks
from ui.present.charts.heatmap import in_order_of_homes
from ui.present.charts.mode_gate_charts import gate_strip, gates_by_block
from ui.present.charts.posteriors import (
    posterior_heatmap,
    posterior_paths,
)
from ui.present.charts.token_view import weight_data
from ui.present.forms.settings_in_address import not_used, part_values, read_parts
from ui.present.text.formatting import plain, pluralize
from ui.present.text.measures import describe_without
from ui.present.text.mode_gates import Gates, num_blocks, rows_inside
from ui.present.text.posteriors import describe_short_domains, posterior_title
from ui.studio.analysis.text_reader import show_reading
from ui.studio.job_views.pending_jobs import empty_until_scored, how_to_score
from ui.studio.mixtures.gate_form import choose_evidence
from ui.widgets.address import choose_number, choose_one, choose_split, fresh, note, note_fault
from ui.widgets.background import ask_scores, fetch_in_background
from ui.widgets.charts_and_tables import click_position, show_chart
from ui.widgets.elements.components import show_tokens
from ui.widgets.notices import explain_problems
from workbench.analysis.sample_texts import passages
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import PosteriorAnswer
from workbench.formatting.chart_template import CaptionedChart
from workbench.questions.posteriors import DomainPosterior, PosteriorMap, PosteriorMapRequest
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage

_TITLES = {True: "Training domains", False: "Novel domains"}  # of the experts that take part
_KEYS = {True: "training", False: "novel"}


def show_domains(saved: MixtureRequest) -> None:
    """Heatmaps of training and of novel domains, a passage of one, and how the posterior changed block by block."""
    mixture = saved.model
    question = _draw_options(saved)
    answer = (
        ask_scores("posterior_map", question, "Reading the stored scores block by block", saved) if question else None
    )
    if answer is None:
        return
    # Rows as the columns' own domains, so that a text that is taken for its own expert's is on the diagonal.
    by_domain = {row.domain: row for row in answer.domains}
    ordered = [by_domain[name] for name in in_order_of_homes([*by_domain], answer.homes)]
    answer = answer.model_copy(update={"domains": ordered})
    if not answer.domains:
        why = (
            describe_short_domains(answer)
            or f"The {answer.split} text is not scored under every expert that takes part."
        )
        empty_until_scored(why, how_to_score(mixture, answer.split), mixture, answer.split)
        return
    st.markdown(f"**{plain(posterior_title(answer))}**")
    for words in (describe_without(answer.without, answer.split), describe_short_domains(answer)):
        if words:
            st.caption(plain(words))
    looks = read_looks()
    groups = {is_trained: [row for row in answer.domains if row.is_trained == is_trained] for is_trained in _TITLES}
    for is_trained, rows in groups.items():
        if rows:
            _show_heatmap(posterior_heatmap(answer, rows, _TITLES[is_trained], looks), rows, _KEYS[is_trained])
    with st.container(border=True), explain_problems():
        show_passages(answer, saved)
    for is_trained, rows in groups.items():
        if rows:
            with st.expander(f"{_TITLES[is_trained]}, block by block", icon=":material/show_chart:"):
                picture = posterior_paths(answer, rows, _TITLES[is_trained], looks)
                show_chart(picture, f"posterior_paths_{_KEYS[is_trained]}")


def _show_heatmap(picture: CaptionedChart, rows: Sequence[DomainPosterior], name: str) -> None:
    key = f"posterior_map_{name}"

    def choose() -> None:
        if (place := click_position(key)) and place[1] < len(rows):
            st.session_state[DOMAIN] = rows[place[1]].domain
            _go_to_first_passage()

    show_chart(picture, key, choose)
    st.caption("Click a cell to read a passage of its domain below.")


def _draw_options(saved: MixtureRequest) -> PosteriorMapRequest | None:
    """The choices above the heatmaps; None while the number of blocks is out of its range."""
    columns = st.columns([2, 2, 2, 1], vertical_alignment="bottom")
    evidence = choose_evidence(columns[0], "posteriors.evidence", saved.gate)
    estimate = choose_one(
        columns[1].segmented_control,
        "Estimate",
        ["updating", "mean"],
        default="updating",
        key="posteriors.estimate",
        required=True,
        help="updating: the prior that learns from block to block (paper, figure 4); mean: the mean of all blocks.",
    )
    split = choose_split(columns[2], "posteriors.split", default="dev")
    blocks, fault = choose_number(
        "Max blocks",
        key="posteriors.blocks",
        usual=PAPER_BLOCKS,
        lowest=1,
        highest=10_000,
        help="The paper: 100.",
        container=columns[3],
    )
    if fault:
        return None
    return PosteriorMapRequest(
        mixture=saved.model, evidence=evidence, estimate=estimate, split=split, num_blocks=blocks
    )


DOMAIN, PASSAGE = "posteriors.domain", "posteriors.passage"


def _go_to_first_passage() -> None:
    st.session_state[PASSAGE] = 1


def show_passages(answer: PosteriorMap, saved: MixtureRequest) -> None:
    """A passage of one domain and the weights of the experts at each of its words. Both stand in the address."""
    domains = [row.domain for row in answer.domains]
    title = st.empty()
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    domain = choose_one(left.selectbox, "Domain of the text", domains, key=DOMAIN, on_change=_go_to_first_passage)
    title.markdown(f"## A passage of {plain(domain)}")
    with reading() as session:
        texts = passages(session, get_storage(), saved.model, domain, answer.split)
    if not texts:
        st.info(plain(f"The {answer.split} text of {domain} has no document."))
        return
    numbers = list(range(1, len(texts) + 1))
    number = choose_one(right.segmented_control, "Passage", numbers, default=1, key=PASSAGE, required=True)
    read = read_text("posterior_passage", saved, texts[number - 1], "Reading the passage", as_saved=True)
    if read and read.tokens:
        st.caption("The beginning of a held-out document, read with the mixture's own gate.")
        show_reading(MixtureRequest(saved.model), texts[number - 1], read, "posterior_passage")


def read_text(
    key: str, request: MixtureRequest, text: str, doing: str, *, as_saved: bool = False
) -> PosteriorAnswer | None:
    """A text read by a mixture; the server knows one that is `as_saved`, which then tells only when to read again."""
    changes = {} if as_saved else request.changes()

    def fetch() -> PosteriorAnswer:
        with Client(get_settings()) as client:
            return client.posterior(model=request.model, text=text, **changes)

    answer: PosteriorAnswer | None = fetch_in_background(key, (request, text), fetch, doing)
    return answer


_ALL = "All, on average"


def draw_parts(mixture: MixtureCard, address: str) -> dict[str, list[str]]:
    """Switches for the parts of every expert that has some; those that are on, by expert.

    Those that are off stand in the page's address under the key `address`; `show_fault` says what it could not mean.
    """
    parts = {member.expert: list(member.parts) for member in mixture.members if member.parts}
    keys = {one.expert: f"inside.{mixture.id}.{one.expert_id}.parts" for one in mixture.members}
    if (values := fresh(address)) is not None:
        on, faults = read_parts(values, parts)
        st.session_state.update({keys[expert]: names for expert, names in on.items()})
        note_fault(address, not_used(faults), part_values(parts, on))
    chosen = {
        expert: st.pills(
            f"Active parts of {plain(expert)}",
            names,
            selection_mode="multi",
            default=st.session_state.get(keys[expert], names),
            format_func=plain,
            key=keys[expert],
            help="Parts next to a frozen backbone (MoDE). With no part selected, only the backbone is used.",
        )
        for expert, names in parts.items()
    }
    note(address, part_values(parts, chosen))
    return chosen


def show_inside(answer: PosteriorAnswer, parts: Mapping[str, Sequence[str]]) -> None:
    """What the gates weighed inside each expert that spoke; `parts` are all of each, so that each keeps its colour."""
    for expert, names in parts.items():
        if any(expert in weight for weight in answer.gate_weights):
            _show_expert(expert, names, answer.tokens, answer.gate_weights)


def _show_expert(expert: str, parts: Sequence[str], tokens: Sequence[str], gates: Gates) -> None:
    st.markdown(f"## Inside {plain(expert)}: words coloured by what weighed most, backbone or part")
    blocks = range(num_blocks(gates, expert))
    key = f"inside.{expert}"
    chosen = st.segmented_control(
        "Block",
        [_ALL, *(str(block + 1) for block in blocks)],
        default=_ALL,
        key=f"{key}.block",
        required=True,
        help="Each block of layers has gates of its own; in each, the weights add up to 1.",
    )
    rows = rows_inside(gates, expert, parts, None if chosen == _ALL else int(chosen) - 1)
    tokens_read = [token for token, gate in zip(tokens, gates, strict=True) if expert in gate]
    names = [BACKBONE, *parts]
    looks = [*map(in_order(parts).expert, names)]
    show_tokens(
        weight_data(tokens_read, rows, names, looks, parts=("legend", "text"), num_shown=len(names)),
        f"{key}.tokens",
    )
    st.caption(plain(_words(gates, expert, parts, len(tokens) - len(tokens_read))))
    show_chart(gate_strip(tokens_read, rows, parts), f"{key}.strip")
    show_chart(gates_by_block([rows_inside(gates, expert, parts, block) for block in blocks], parts), f"{key}.blocks")


def _words(gates: Gates, expert: str, parts: Sequence[str], num_asleep: int) -> str:
    active = next(gate[expert].parts for gate in gates if expert in gate)
    off = [part for part in parts if part not in active]
    sentences = [
        "Hover a word to read the weights; a stronger colour is a higher weight.",
        f"Switched off, so their weight is 0: {', '.join(off)}." if off else "",
        f"For {pluralize(num_asleep, 'token')} of the text this expert had weight 0 and was not computed."
        if num_asleep
        else "",
    ]
    return " ".join(filter(None, sentences))
