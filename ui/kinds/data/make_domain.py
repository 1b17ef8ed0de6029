"""Making a domain of chosen documents; its form is on the map of the clusters."""

from __future__ import annotations

from functools import partial
from typing import Any

from ui.kinds.screen import Result, ResultLink, Screen, stored_sentence
from ui.kinds.train_form_parts import JOINT
from ui.present.forms.cli_command import command_line
from ui.present.pages import TRAIN
from workbench.kinds.data.make_domain import MakeDomain


def _dense_training(result: Result) -> dict[str, Any]:
    return {"train.what": JOINT, "train-joint.method": "dense", "train-joint.domains": [result["domain"]]}


SCREEN = Screen(
    command=partial(command_line, "cluster choose", MakeDomain, ("clustering", "name")),
    sentence=stored_sentence,
    link=ResultLink(TRAIN, "Train on it", _dense_training),
    form=None,
)
