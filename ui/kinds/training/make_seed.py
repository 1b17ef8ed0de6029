"""The form that makes a seed model."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.kinds.form import SEED, TrainForm
from ui.present.forms.options import command_line
from ui.present.forms.questions import Answers, Offers
from ui.present.pages import SEEDS
from ui.widgets.fields import Answers as FormAnswers
from workbench.formatting.shell_command import shell_command
from workbench.kinds.training.make_seed import MakeSeed

_SOURCES = {
    "fresh": "Begin a fresh small one",
    "folder": "A folder on this machine",
    "file": "A GGUF or safetensors file on this machine",
    "package": "An installed Python package",
    "hub": "Hugging Face hub (downloads)",
    "expert": "An expert that is trained",
}
_NEEDED = {"fresh": "domains", "expert": "parent"}  # of the registry, by source
_FIELDS = {  # of some sources only
    "location": ("folder", "file", "package", "hub"),
    "bf16": ("folder", "file", "package"),
    **dict.fromkeys(("domains", "vocab_size", "seed", "shape"), ("fresh",)),
    "chat_template": (),  # several lines: a file in the terminal, text in the API
}


def _draw(offers: Offers) -> dict[str, Any]:
    st.page_link(SEEDS.script, label="Small real models, one click each", icon=SEEDS.icon)
    lacking = {source for source, needed in _NEEDED.items() if not offers[needed]}
    sources = [source for source in _SOURCES if source not in lacking]
    if "fresh" in lacking:
        st.caption("A fresh one needs text for its tokenizer: import a domain first.")
    source = st.selectbox("Where does it come from?", sources, format_func=_SOURCES.__getitem__, key="seed.source")
    given: FormAnswers = {("source",): source}
    if source == "expert":
        given["expert",] = st.selectbox("Expert to copy", offers["parent"], key="make-seed.expert")
    skip = [field for field, asking in _FIELDS.items() if source not in asking]
    return {"skip": ("source", "expert", *skip), "given": given}


def _command(answers: Answers) -> str:
    source = answers.get(("source",), "fresh")
    if source == "fresh":
        return command_line("seed make", MakeSeed, ("name",), answers)
    flag = [] if source in ("folder", "file") else [f"--{source}"]
    location = answers.get(("expert",)) or answers.get(("location",), "")
    rounding = ["--bf16"] if answers.get(("bf16",)) else []
    return shell_command("seed", "add", str(answers.get(("name",), "")), *flag, str(location), *rounding)


FORM = TrainForm(
    title=SEED,
    about="A small decoder that all experts start from, with its tokenizer: fresh, or one that you have.",
    label="Make the seed model",
    draw=_draw,
    widgets_of=lambda spec: {"seed.source": spec["source"]},
    position=10,
    command=_command,
)
