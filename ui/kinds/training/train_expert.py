"""Training one more expert."""

from __future__ import annotations

from functools import partial

import streamlit as st

from jobs.queue.submit import submit
from ui.kinds.screen import Outcome, Screen, TrainForm
from ui.kinds.train_form_parts import DOMAINS, EXPERT, MIXTURE, MIXTURE_TO_EXTEND
from ui.present.forms.cli_command import command_line
from ui.present.forms.form_choices import offers_for_expert
from ui.present.forms.questions import Offers
from ui.present.pages import EXPERTS
from ui.present.text.formatting import listed
from ui.present.text.parents import blocks_words, known_words
from ui.widgets.fields import drop_unknown
from ui.widgets.job_form import show_job_form
from ui.widgets.parents import show_proposal
from workbench.formatting.number_format import weight
from workbench.kinds.kind import Result, ResultLink
from workbench.kinds.training.train_expert import TrainExpert

_command = partial(command_line, "train expert", TrainExpert, ("name",))


def _draw(offers: Offers) -> None:
    mixtures = offers["mixture_to_extend"]
    drop_unknown("train-expert.mixture", mixtures)
    mixture = st.session_state.get("train-expert.mixture", mixtures[0])
    choices = offers_for_expert(mixture)
    drop_unknown("train-expert.parent", (None, *choices["parent"]))
    chosen = st.session_state.get("train-expert.domain")
    show_proposal(mixture, chosen if chosen in choices["domain"] else choices["domain"][0])
    offers = {**offers, "mixture": mixtures, **choices}
    certify = st.checkbox(
        "Certify its addition afterwards",
        value=True,
        key="train-expert.certify",
        help="A separate job after the training certifies that no existing file changed, and what each domain gained.",
    )
    if certify:
        show_job_form("train-expert", offers, "Train the expert", command=_command, send=_submit_with_certificate)
    else:
        show_job_form("train-expert", offers, "Train the expert", command=_command, beside={("certificate",): False})


def _submit_with_certificate(spec: TrainExpert) -> str:
    job_id = submit(spec)
    if spec.certificate:
        submit(spec.certificate, after=[job_id])
    return job_id


def _sentence(result: Result) -> str:
    posterior = result.get("parent_posterior") or {}
    ranked = sorted(posterior.items(), key=lambda pair: -pair[1])
    blocks = blocks_words(result["parent_blocks"]) if result.get("parent_blocks") else "held-out text"
    shares = listed([f"{name} {weight(share)}" for name, share in ranked])
    reason = f", the nearest by the posterior on {blocks} ({shares})" if ranked else ""
    origin = f"It began as a copy of {result['parent']}{reason}. {known_words(result, result['parent'])}"
    mixture = result.get("mixture")
    return f"{origin.rstrip()} It is in the mixture {mixture}." if mixture else origin.rstrip()


SCREEN = Screen(
    command=_command,
    sentence=_sentence,
    link=ResultLink(EXPERTS.address, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=TrainForm(
        title=EXPERT,
        about="A copy of a parent expert learns one more domain; everything else stays bit-identical (DEMix §6).",
        draw=_draw,
        needs=(DOMAINS, MIXTURE, MIXTURE_TO_EXTEND),
        outcomes=(
            Outcome(
                "One more expert",
                "copies the nearest expert and trains the copy",
                "DEMix",
                "bit-identical",
                lambda offers: {("mixture",): offers["mixture_to_extend"][0]},
                position=10,
            ),
        ),
        position=30,
    ),
)
