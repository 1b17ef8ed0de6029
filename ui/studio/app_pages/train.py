"""Make a seed model, train experts, add one, average, score and try them: forms that say what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import streamlit as st

from engine.methods.base import Method
from engine.methods.registry import joint_methods
from jobs.queue.submit import submit
from ui.present.form_choices import (
    backbones,
    missing,
    num_layers,
    offers_for_composition,
    offers_for_expert,
    offers_now,
)
from ui.present.pages import COMPOSITION, CORPORA, EVALUATION, Page
from ui.present.questions import Offers, changed, questions_of_config
from ui.present.text.formatting import plain
from ui.studio.experts.parents import show_proposal
from ui.studio.forms.averaging_form import ask_average
from ui.studio.forms.forecast import show_forecast
from ui.studio.forms.job_form import ask_for
from ui.studio.forms.widgets import Answers, ask
from ui.studio.job_views.pending_jobs import empty_until
from workbench.training_specs import TrainExpert

SEED, DEMIX, EXPERT = "Seed model", "DEMix model", "New expert"
AVERAGE, CLASSIFY = "Average", "Few-shot classification"
MODE = "MoDE expert"
_ABOUT = {
    SEED: "A small decoder that all experts start from, with its tokenizer: fresh, or one that you have.",
    DEMIX: "One expert for each domain, everything else shared; the experts make a mixture (DEMix §3). "
    "Or one of the baselines that the paper compares it with (§4.2).",
    EXPERT: "A copy of a parent expert learns one more domain; nothing else changes by one bit (DEMix §6).",
    MODE: "A few transformer layers and a gate, in parallel to a seed model that stays as it is (MoDE §3.2, stage 1).",
    COMPOSITION: "Experts of MoDE side by side on their backbone, weighed token by token by gates that learn together "
    "on mixed text (MoDE §3.2, stage 2). What it is made of stays as it is.",
    EVALUATION: "Scores every expert on held-out text, once; toggles, weights and heatmaps read those scores.",
    AVERAGE: "One model of several: the weighted average of their parameters (BTM), which costs what one of them does.",
    CLASSIFY: "Labelled texts answered from a few demonstrations, under each way to choose experts (C-BTM §5).",
}
# What must exist before, and what to do when it does not.
_NEEDS: dict[str, tuple[str, ...]] = {
    SEED: ("domains",),
    DEMIX: ("domains", "seed_model"),
    EXPERT: ("domains", "mixture", "mixture_to_extend"),
    MODE: ("domains", "seed_model"),
    COMPOSITION: ("mode_expert",),
    EVALUATION: ("mixture",),
    AVERAGE: ("experts", "parent"),
    CLASSIFY: ("mixture",),
}
_MISSING: dict[str, tuple[str, str, Page | None]] = {
    "domains": ("There is no domain yet.", "Import some text first.", CORPORA),
    "seed_model": ("There is no seed model yet.", f"Choose “{SEED}” above and make one.", None),
    "mixture": ("There is no mixture yet.", f"Choose “{DEMIX}” above: its experts make one.", None),
    "mixture_to_extend": (
        "There is no mixture yet with an expert that can be copied: those of MoDE stand beside their seed model.",
        f"Choose “{DEMIX}” above and add to that one, or “{MODE}”, and train another beside the same seed model.",
        None,
    ),
    "experts": ("There is no expert yet.", f"Choose “{DEMIX}” above: it makes one for each domain.", None),
    "parent": ("All experts here are of MoDE, which are not averaged.", f"Choose “{COMPOSITION}” above.", None),
    "mode_expert": ("There is no expert of MoDE yet.", f"Choose “{MODE}” above, once for each domain.", None),
}

_MAKERS = {  # kinds of job
    "domains": "import-corpus",
    "seed_model": "make-seed",
    "mixture": "train-demix",
    "experts": "train-demix",
    "mixture_to_extend": "train-demix",
    "parent": "train-demix",
    "mode_expert": "train-mode",
}


def show() -> None:
    """Draws the page."""
    st.title("Train")
    offers = offers_now()
    choice = st.segmented_control(
        "What do you want to make?", list(_ABOUT), default=_first(offers), key="train.what", required=True
    )
    st.caption(plain(_ABOUT[choice]))
    absent = missing(offers, *_NEEDS[choice])
    if absent:
        why, next_step, room = _MISSING[absent]
        empty_until(_MAKERS[absent], why, next_step, room.script if room else "", f"Go to {room.title}" if room else "")
        return
    _FORMS[choice](offers)


def _first(offers: Offers) -> str:
    """The first thing on the way that is not there yet."""
    if not offers["seed_model"]:
        return SEED
    if offers["mixture_to_extend"]:
        return EXPERT
    return MODE if offers["mode_expert"] else DEMIX


def _ask_seed(offers: Offers) -> None:
    sources = [source for source in _SOURCES if source != "expert" or offers["parent"]]
    source = st.selectbox("Where does it come from?", sources, format_func=_SOURCES.__getitem__, key="seed.source")
    given: Answers = {("source",): source}
    if source == "expert":
        given["expert",] = st.selectbox("Expert to copy", offers["parent"], key="make-seed.expert")
    skip = [field for field in _SEED_FIELDS if source not in _SEED_FIELDS[field]]
    ask_for("make-seed", offers, "Make the seed model", skip=("source", "expert", *skip), given=given)


_SOURCES = {
    "fresh": "Begin a fresh small one",
    "folder": "A folder on this machine",
    "hub": "Hugging Face hub (downloads)",
    "expert": "An expert that is trained",
}
_SEED_FIELDS = {  # and the sources that are asked for it
    "location": ("folder", "hub"),
    **dict.fromkeys(("domains", "vocab_size", "seed", "shape"), ("fresh",)),
}


def _ask_demix(offers: Offers) -> None:
    methods = joint_methods()
    name = st.selectbox(
        "Method", list(methods), format_func=lambda name: f"{name}: {methods[name].sentence}", key="train-demix.method"
    )
    method = methods[name]
    groups = {one.config_field for one in methods.values()} - {method.config_field}
    skip = {"method", "options", *groups}
    if not method.only_expert:
        skip.add("retain")  # it is measured under one expert
    given: Answers = {("method",): name}
    if options := _ask_options(method):
        given["options",] = options
    ask_for("train-demix", offers, "Train the experts", skip=skip, given=given)


def _ask_options(method: Method) -> dict[str, Any]:
    """The settings of a method that has no group of its own in the spec, as far as they are not its defaults."""
    if method.config is None or method.config_field != "options":
        return {}
    questions = questions_of_config(method.name, method.config())
    answers = {question.path: ask("train-demix", question) for question in questions}
    return {path[-1]: value for path, value in changed(questions, answers).items()}


def _ask_expert(offers: Offers) -> None:
    mixtures = offers["mixture_to_extend"]
    _keep_known("train-expert.mixture", mixtures)
    mixture = st.session_state.get("train-expert.mixture", mixtures[0])
    found = offers_for_expert(mixture)
    _keep_known("train-expert.parent", (None, *found["parent"]))
    offers = {**offers, "mixture": mixtures, **found}
    asked = st.session_state.get("train-expert.domain")
    domain = next((name for name in offers["domain"] if name == asked), offers["domain"][0])
    show_proposal(mixture, domain)
    certify = st.checkbox(
        "Certify its addition afterwards",
        value=True,
        key="train-expert.certify",
        help="A job of its own, after the training: that nothing which was there changed, and what each domain gained.",
    )
    if certify:
        ask_for("train-expert", offers, "Train the expert", send=_with_certificate)
    else:
        ask_for("train-expert", offers, "Train the expert", beside={("certificate",): False})


def _with_certificate(spec: TrainExpert) -> str:
    job_id = submit(spec)
    if spec.certificate:
        submit(spec.certificate, after=[job_id])
    return job_id


def _ask_mode(offers: Offers) -> None:
    _keep_known("train-mode.seed_model", offers["seed_model"])
    most = num_layers(st.session_state.get("train-mode.seed_model", offers["seed_model"][0]))
    if st.session_state.get(_BLOCKS, 1) > most:
        st.session_state[_BLOCKS] = most
    limits: dict[tuple[str, ...], int] = {("shape", "num_blocks"): most}
    ask_for("train-mode", offers, "Train the expert", foretell=show_forecast, limits=limits)


_BLOCKS = "train-mode.shape.num_blocks"


def _ask_composition(offers: Offers) -> None:
    there = backbones()
    _keep_known("compose-mode.backbone", there)
    backbone = st.selectbox(
        "Backbone",
        list(there),
        key="compose-mode.backbone",
        help="Experts stand side by side on the seed model that they were trained beside, in as many blocks.",
    )
    found = offers_for_composition(backbone, st.session_state.get("compose-mode.experts", ()))
    for field, names in found.items():
        _keep_known(f"compose-mode.{field}", names)
    ask_for("compose-mode", {**offers, **found}, "Compose them", foretell=show_forecast)


def _keep_known(key: str, names: Collection[str | None]) -> None:
    """Lets go of a choice that is no more offered; writing down the same would undo a click that is on its way."""
    chosen = st.session_state.get(key)
    if isinstance(chosen, list):
        if not set(chosen) <= set(names):
            st.session_state[key] = [name for name in chosen if name in names]
    elif chosen not in names:
        st.session_state.pop(key, None)


def _ask_average(offers: Offers) -> None:
    ask_average({**offers, "experts": offers["parent"]})  # whole models, such as can be copied


def _ask_score(offers: Offers) -> None:
    ask_for("evaluate", offers, "Score the experts", skip=("experts",))


def _ask_classify(offers: Offers) -> None:
    ask_for("classify", offers, "Classify the texts", tucked=_COUNTED)


_COUNTED = ("top_k", "num_shots", "num_validation", "num_seeds", "max_examples", "normalise", "newest_weight")
_FORMS: dict[str, Callable[[Offers], None]] = {
    SEED: _ask_seed,
    DEMIX: _ask_demix,
    EXPERT: _ask_expert,
    MODE: _ask_mode,
    COMPOSITION: _ask_composition,
    EVALUATION: _ask_score,
    AVERAGE: _ask_average,
    CLASSIFY: _ask_classify,
}


if __name__ == "__main__":
    show()
