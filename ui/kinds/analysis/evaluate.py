"""The form that scores experts."""

from __future__ import annotations

from ui.kinds.form import MIXTURE, TrainForm
from ui.present.pages import EVALUATION

FORM = TrainForm(
    title=EVALUATION,
    about="Scores every expert on held-out text, once; toggles, weights and heatmaps read those scores.",
    label="Score the experts",
    draw=lambda _: {"skip": ("experts",)},
    tucked=("block_size", "again", "calibrate", "gpu_share"),
    needs=(MIXTURE,),
    position=60,
)
