"""The overview: a text read by the experts, three numbers, the picture of text and experts, and what runs now."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from jobs.plans.demo import DemoSize, is_fresh, submit_demo, why_not_real
from ui.present.charts.colours import Looks, looks_of
from ui.present.jobs.failure_text import cause_of
from ui.present.jobs.job_status import StateStyle, style_of
from ui.present.next_steps import (
    StartStep,
    StepState,
    first_steps,
    first_visit_title,
    suggestions,
)
from ui.present.pages import CORPORA, EXPERTS, JOBS, OVERVIEW
from ui.present.picture import (
    card_of,
    cards_to_show,
    describe_serving,
    members_off,
    picture_legend,
    picture_of,
    place_of,
    scores_of,
)
from ui.present.text.formatting import ago, plain, plain_with_code, pluralize
from ui.present.text.measures import describe_comparability, odd_measures
from ui.serving.login import LOGOUT_PATH
from ui.studio.analysis.opening_text import show_field, show_opening
from ui.studio.job_views.job_line import show_line
from ui.studio.job_views.notifications import offer_notification
from ui.studio.shared.contents import (
    Contents,
    curves_of,
    mixture_of_page,
    read_contents,
    show_numbers,
    with_intervals,
)
from ui.studio.shared.health import API_SERVER, Sign, signs_of_health
from ui.studio.shared.seed_answer import show_seed_answer
from ui.widgets.elements.components import show_cards, show_picture
from ui.widgets.notices import cannot_change, explain_problems, keep
from ui.widgets.page_head import show_head, show_next_step
from workbench.access.home_token import needs_token
from workbench.answers.cards import JobCard, MixtureCard
from workbench.settings import get_settings

MOST_RUNNING, MOST_RECENT = 4, 5
_RUNNING, _ENDED = "overview.running", "overview.ended"  # ids of jobs, and the words on those that ended last


def show_unfinished(unfinished: Sequence[JobCard], count: int) -> None:
    """The jobs at work with their progress and the time left, and those that wait as a number."""
    with st.container(border=True, key="at_work"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.header("Running now", anchor=False, width="content")
            st.space("stretch")
            with st.container(width="content", key="small_link_jobs"):
                st.page_link(
                    JOBS.script, label=f"See {pluralize(count, 'unfinished job')}" if count else "all jobs", icon=""
                )
        if not unfinished:
            st.caption("No job is running. Jobs appear here with their progress and ETA.")
        for job in unfinished[:MOST_RUNNING]:
            show_line(job)
            offer_notification(job, "overview")


def show_recent(over: Sequence[JobCard]) -> None:
    """The jobs that ended last, a line each."""
    with st.container(border=True, key="recent"):
        st.header("Recent", anchor=False)
        if not over:
            st.caption("No job has ended yet.")
        for job in sorted(over, key=lambda job: -(job.finished_at or job.created_at))[:MOST_RECENT]:
            look = style_of(job)
            why = f" — {plain_with_code(cause_of(job))}" if job.error else ""
            text = f"{plain(job.title)}, {ago(job.finished_at or job.created_at)}{why}"
            st.markdown(f":{look.colour}-badge[{look.icon} {look.word}] {text}")  # one text: a long one flows on


def announce_ends(unfinished: Sequence[JobCard], over: Sequence[JobCard]) -> None:
    """Reads aloud which jobs have ended while the page is open; for the eye they stand under “Recent”."""
    running: set[str] = st.session_state.get(_RUNNING, set())
    st.session_state[_RUNNING] = {job.id for job in unfinished}
    if ended := [f"{job.title}: {style_of(job).word}" for job in over if job.id in running]:
        st.session_state[_ENDED] = html.escape(". ".join(ended))
    if words := st.session_state.get(_ENDED):
        st.html(f'<p class="unseen" role="alert">{words}</p>')


_LOOKS = {
    True: StateStyle("well", "green", ":material/check:"),
    False: StateStyle("not well", "red", ":material/error:"),
    None: StateStyle("unknown", "gray", ":material/help:"),
}


def show_health(signs: Sequence[Sign]) -> None:
    """One word on all parts; it opens the details and, where there is a login, the way out."""
    ill = [sign for sign in signs if sign.is_well is False]
    label = "All processes run" if not ill else f"{pluralize(len(ill), 'part')} not well"
    look = _LOOKS[not ill]
    with st.popover(label, icon=look.icon, key="health", type="tertiary", width="content"):
        for sign in signs:
            _show_sign(sign)
        if needs_token(get_settings()):
            st.html(f'<a href="{LOGOUT_PATH}" target="_self" style="color: inherit">Log out</a>')


def _show_sign(sign: Sign) -> None:
    look = _LOOKS[sign.is_well]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(sign.part)}**")
        st.badge(look.word, color=look.colour, icon=look.icon)
    next_step = f"  \n**Next step:** {plain_with_code(sign.next_step)}" if sign.next_step else ""
    st.caption(plain_with_code(sign.sentence) + next_step)


GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"
REFUSED_HEADING = "## Refused words"  # what follows is for contributors


def glossary_text() -> str:
    """The terms as Markdown; empty for an installation without documents."""
    if not GLOSSARY.is_file():
        return ""
    terms = GLOSSARY.read_text(encoding="utf-8").partition(REFUSED_HEADING)[0]
    return terms[terms.index("\n## ") :].replace("\n## ", "\n#### ")


_ICONS: Mapping[StepState, str] = {
    "done": ":material/check_circle:",
    "now": ":material/pending:",
    "later": ":material/radio_button_unchecked:",
}
_THREE_WORDS = """**Expert**: a part of a language model, or a whole model, trained on one domain.

**Gate**: gives each expert its weight at each token.

**Mixture**: a named list of experts with a gate. It is what you generate with."""


def show_first_visit(have: Contents) -> None:
    """The steps at the left, a text and three words at the right."""
    left, right = st.columns([2, 1])
    with left, st.container(border=True, key="first_steps"):
        holdings = have.holdings()
        st.header(plain(first_visit_title(holdings)), anchor=False)
        st.caption("Text becomes domains, domains become experts.")
        if not have.unfinished and not have.experts:
            _offer_start()
        for number, step in enumerate(first_steps(holdings, [domain.name for domain in have.domains], have.over), 1):
            _show_step(number, step)
    with right:
        show_seed_answer(have.seeds)
        show_field("Meanwhile: paste a text")
        with st.container(border=True, key="words"):
            st.header("Three words to know", anchor=False)
            st.markdown(_THREE_WORDS)
        if have.over:
            show_recent(have.over)


def _show_step(number: int, step: StartStep) -> None:
    label = f"{number}. {plain(step.title)} ({step.state})"
    st.markdown(f"{_ICONS[step.state]} **{label}**" if step.state != "later" else f"{_ICONS[step.state]} {label}")
    if step.job:
        st.progress(step.progress)
    st.caption(plain(step.sentence))


def _offer_start() -> None:
    reason = why_not_real()
    with st.container(horizontal=True, vertical_alignment="center"):
        if is_fresh():
            if not reason:
                _offer_demo("Make the demo", "real", "SmolLM2, a pretrained model, becomes five experts.")
            _offer_demo("Make the small demo", "small", "A tiny model with random weights becomes five experts.")
        st.page_link(CORPORA.script, label="Use my own text", icon="")
    if reason and is_fresh():
        st.caption(plain(f"There is no demo of a pretrained model here. {reason}"))


def _offer_demo(label: str, size: DemoSize, about: str) -> None:
    if st.button(
        label,
        key=f"overview.demo.{size}",
        icon=":material/play_arrow:" if size == "real" else ":material/compress:",
        help=about,
        disabled=cannot_change(),
    ):
        with explain_problems():
            submit_demo(size)
            keep(f"The demo is on its way. {about}")
        st.rerun()


_LOOK_AGAIN = 2.0  # seconds


def show() -> None:
    """Draws the page."""
    _live()
    if text := glossary_text():
        with st.expander("Glossary: what the terms mean", icon=":material/menu_book:"):
            st.markdown(text)


@st.fragment(run_every=_LOOK_AGAIN)
def _live() -> None:
    right = show_head(OVERVIEW)
    with explain_problems():
        have = read_contents()
        steps = suggestions(have.holdings())
        signs = signs_of_health(get_settings(), have.unfinished)
        with right:
            show_health(signs)
            if len(steps) > 1 and steps[1].label != steps[0].label:  # two buttons alike would lead to the same page
                with st.container(width="content", key="other_step"):
                    st.page_link(steps[1].page.script, label=steps[1].label, icon="")
        show_next_step(right, steps[0])
        st.caption(plain(steps[0].sentence))
        announce_ends(have.unfinished, have.over)
        if have.is_scored:
            _show_all(have, is_served=next(sign.is_well for sign in signs if sign.part == API_SERVER))
        else:
            show_first_visit(have)


def _show_all(have: Contents, *, is_served: bool | None) -> None:
    looks, mixture = looks_of(have.experts), mixture_of_page(have)
    if mixture is not None:
        show_opening(mixture, have.experts)
    show_numbers(have, mixture)
    left, right = st.columns([2, 1])
    with left:
        _show_picture(have, mixture, looks, is_served)
    with right:
        show_unfinished(have.unfinished, have.num_unfinished)
        show_recent(have.over)
    _show_experts(have, mixture, looks)


def _show_picture(have: Contents, mixture: MixtureCard | None, looks: Looks, is_served: bool | None) -> None:
    with st.container(border=True, key="picture"):
        st.header("What is here: text, experts, and what they are mixed into", anchor=False)
        st.caption(plain(picture_legend(mixture)))
        state = describe_serving(have.aliases_of(mixture.name), is_served) if mixture else ""
        data = picture_of(have.domains, have.experts, mixture, scores_of(have.evaluations), looks, state)
        _open(show_picture(data, "living_picture"))


def _show_experts(have: Contents, mixture: MixtureCard | None, looks: Looks) -> None:
    shown = cards_to_show(have.experts, mixture)
    off = members_off(have.mixtures)
    domains = {domain.name: domain for domain in have.domains}
    certified = {addition.about_id for addition in have.additions if addition.findings.get("ok")}
    scores, curves = with_intervals(scores_of(have.evaluations), shown), curves_of(shown)
    measures = scores.measures(shown)
    odd = odd_measures(measures)
    cards = [
        card_of(
            one,
            domains.get(one.domain),
            scores,
            looks,
            curves.get(one.id, ()),
            one.id in certified,
            off,
            odd.get(one.name, ""),
        )
        for one in shown
    ]
    _open(show_cards(cards, "expert_cards"))
    if words := describe_comparability(measures):
        st.caption(words)
    if more := len(have.experts) - len(shown):
        with st.container(key="small_link_experts"):
            st.page_link(EXPERTS.script, label=f"and {pluralize(more, 'more expert')}", icon="")


def _open(id: str) -> None:
    if id.partition(":")[0].rstrip("s") in ("domain", "expert", "mixture"):
        page, chosen = place_of(id)
        st.switch_page(page.script, query_params=chosen)


if __name__ == "__main__":
    show()
