"""The overview: three numbers, the picture of text, experts and mixture, what runs now, and the next step."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from ui.present.pages import CORPORA, EXPERTS, JOBS, OVERVIEW, POSTERIORS
from ui.present.picture import (
    card_of,
    cards_to_show,
    describe_serving,
    look_data,
    members_off,
    picture_legend,
    picture_of,
    place_of,
    scores_of,
)
from ui.present.text.formatting import ago, plain, plain_with_code, pluralize
from ui.present.text.measures import describe_comparability, odd_measures
from ui.serving.login import LOGOUT_PATH
from ui.studio.job_views.job_view import show_line
from ui.studio.shared.contents import (
    Contents,
    curves_of,
    mixture_of_page,
    read_contents,
    show_numbers,
)
from ui.studio.shared.health import API_SERVER, Sign, signs_of_health
from ui.widgets.background import forget, kept_client, poll
from ui.widgets.elements.components import show_cards, show_expert_shares, show_picture
from ui.widgets.notices import cannot_change, explain_problems, keep
from ui.widgets.page_head import show_head, show_next_step
from workbench.access.home_token import needs_token
from workbench.analysis.sample_texts import example
from workbench.answers.cards import JobCard, MixtureCard
from workbench.answers.posteriors import PosteriorAnswer
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

_FIELD, _KEPT, _CALL = "overview.text", "overview.kept_text", "overview.reading"
MOST_EXPERTS = 4
MOST_LINKED = 2_000  # characters of a text in a link; the rest is left out
EXAMPLE = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"


def show_own_text(title: str, mixture: MixtureCard | None, looks: Looks, is_first: bool) -> None:
    """The field, and who reads the text that was given; `mixture` is None while none can read."""
    with st.container(border=True, key="own_text"):
        st.subheader(title, anchor=False)
        if mixture is None:
            st.caption("It is read automatically as soon as the experts can read, if you do not reload this page.")
        _draw_field(is_first, mixture.name if mixture else "")
        text = st.session_state.get(_KEPT, "")
        if text and mixture is None:
            st.markdown(":material/bookmark: Your text is kept.")
        elif text and mixture:
            _show_reading(text, mixture, looks)


def _draw_field(is_first: bool, reader: str) -> None:
    if _FIELD not in st.session_state:
        st.session_state[_FIELD] = st.session_state.get(_KEPT, "")
    st.text_area(
        "Your text",
        key=_FIELD,
        height=130 if is_first else 90,
        label_visibility="collapsed",
        placeholder="Paste a few sentences or lines of code.",
    )
    with st.container(horizontal=True):
        st.button("Read this text" if reader else "Read it when ready", key="overview.read", on_click=_keep)
        st.button("Take an example", key="overview.example", type="tertiary", on_click=_take_example, args=(reader,))


def _keep() -> None:
    st.session_state[_KEPT] = st.session_state[_FIELD].strip()
    forget(_CALL)


def _take_example(reader: str) -> None:
    with explain_problems(), reading() as session:
        st.session_state[_FIELD] = (example(session, get_storage(), reader) if reader else "") or EXAMPLE
    _keep()


def _show_reading(text: str, mixture: MixtureCard, looks: Looks) -> None:
    def fetch() -> PosteriorAnswer:
        return kept_client(get_settings()).posterior(model=mixture.name, text=text)

    call = poll(_CALL, (mixture.name, text), fetch)
    if not call.is_done():
        st.caption("The experts are reading it.")
    elif call.failure is not None:
        with explain_problems():
            raise call.failure
    else:
        answer: PosteriorAnswer = call.answer
        show_expert_shares(reading_rows(answer, looks), "overview_reading")
        st.caption(plain(f"Mean weight over {pluralize(len(answer.tokens), 'token')}, by {mixture.name}."))
        chosen = {"posterior.mixture": mixture.name, "posterior.text": text[:MOST_LINKED]}
        st.page_link(POSTERIORS.script, label="See every word", icon="", query_params=chosen)


def reading_rows(answer: PosteriorAnswer, looks: Looks) -> list[dict[str, Any]]:
    """The experts with the largest mean weights over a text, and all others as one row."""
    count = max(1, len(answer.weights))
    means = {name: sum(row[i] for row in answer.weights) / count for i, name in enumerate(answer.experts)}
    order = sorted(means, key=lambda name: -means[name])
    rows = [_row(name, means[name], looks) for name in order[:MOST_EXPERTS]]
    if rest := order[MOST_EXPERTS:]:
        rows.append(_row(pluralize(len(rest), "other"), sum(means[name] for name in rest), Looks()))
    return rows


def _row(name: str, share: float, looks: Looks) -> dict[str, Any]:
    return {
        "name": name,
        "look": look_data(looks.expert(name)),
        "share": round(share, 4),
        "words": f"{share:.0%}".replace("%", " %"),
    }


MOST_RUNNING, MOST_RECENT = 4, 5
_RUNNING, _ENDED = "overview.running", "overview.ended"  # ids of jobs, and the words on those that ended last


def show_unfinished(unfinished: Sequence[JobCard], count: int) -> None:
    """The jobs at work with their progress and the time left, and those that wait as a number."""
    with st.container(border=True, key="at_work"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.subheader("Running now", anchor=False, width="content")
            st.space("stretch")
            with st.container(width="content", key="small_link_jobs"):
                st.page_link(
                    JOBS.script, label=f"See {pluralize(count, 'unfinished job')}" if count else "all jobs", icon=""
                )
        if not unfinished:
            st.caption("No job is running. Jobs appear here with their progress and ETA.")
        for job in unfinished[:MOST_RUNNING]:
            show_line(job)


def show_recent(over: Sequence[JobCard]) -> None:
    """The jobs that ended last, a line each."""
    with st.container(border=True, key="recent"):
        st.subheader("Recent", anchor=False)
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
        st.subheader(plain(first_visit_title(holdings)), anchor=False)
        st.caption("Text becomes domains, domains become experts. The demos download nothing.")
        if not have.unfinished and not have.experts:
            _offer_start()
        for number, step in enumerate(first_steps(holdings, [domain.name for domain in have.domains], have.over), 1):
            _show_step(number, step)
    with right:
        show_own_text("Meanwhile: paste a text", None, looks_of(have.experts), is_first=True)
        with st.container(border=True, key="words"):
            st.subheader("Three words to know", anchor=False)
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
    show_numbers(have, mixture)
    left, right = st.columns([2, 1])
    with left:
        _show_picture(have, mixture, looks, is_served)
    with right:
        show_unfinished(have.unfinished, have.num_unfinished)
        is_training = any(job.state == "running" and job.kind.startswith("train-") for job in have.unfinished)
        title = "While it trains: which expert reads your text?" if is_training else "Which expert reads your text?"
        show_own_text(title, mixture, looks, is_first=False)
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
    scores, curves = scores_of(have.evaluations), curves_of(shown)
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
