"""The form of few-shot classification."""

from __future__ import annotations

from ui.kinds.form import CLASSIFY, MIXTURE, TrainForm

FORM = TrainForm(
    title=CLASSIFY,
    about="Classifies labelled texts from a few demonstrations, with each routing method (C-BTM §5).",
    label="Classify the texts",
    tucked=("top_k", "num_shots", "num_validation", "num_seeds", "max_examples", "normalise", "newest_weight"),
    needs=(MIXTURE,),
    position=80,
)
