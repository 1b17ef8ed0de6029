"""The states of a job and their groups, and the kinds of its events. Type checkers refuse another word for a state."""

from typing import Literal, get_args

Ending = Literal["done", "failed", "cancelled", "paused"]  # of a claim
JobState = Literal["queued", "running", Ending]
# As a card shows it: `interrupted` is a running job whose lease has run out.
ShownState = Literal["queued", "running", "interrupted", "paused", "done", "failed", "cancelled"]

SHOWN_STATES: tuple[ShownState, ...] = get_args(ShownState)
UNFINISHED: tuple[ShownState, ...] = ("running", "interrupted", "queued", "paused")  # by turn
ACTIVE: tuple[ShownState, ...] = ("running", "interrupted", "queued")  # they go on unless somebody stops them
FINISHED: tuple[ShownState, ...] = ("done", "failed", "cancelled")  # only a retry runs a job again
UNSUCCESSFUL: tuple[ShownState, ...] = ("failed", "cancelled")
STOPPED: tuple[ShownState, ...] = get_args(Ending)  # nothing happens unless somebody starts the job again

# The kinds of job events that the code reads. Every other event is only a message.
CHECKPOINT = "checkpoint"  # a new checkpoint was written
PARTS = "parts"  # data: {"parts": [names]}, in the order of the gates of a training
SAMPLES = "samples"  # data: {"step": int, "samples": [{"domain", "prompt", "text"}]}
UPLOAD = "upload"  # data: {"host": the machine that received the uploaded files which the job reads}
PARENT = "parent"  # data: {"parent": id of the expert whose copy is trained}
REQUIREMENTS = "requirements"  # data: the fields of engine.events.Requirements: the least that a training takes
