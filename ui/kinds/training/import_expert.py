"""The form that imports an expert."""

from __future__ import annotations

from ui.kinds.form import SEED_MODEL, TrainForm

FORM = TrainForm(
    title="Import an expert",
    about="An adapter of PEFT, or a fine-tuned model, trained elsewhere from a seed model of this workbench.",
    label="Import it",
    needs=(SEED_MODEL,),
    position=90,
)
