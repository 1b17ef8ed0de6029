"""The states of a job, and their groups. Type checkers refuse a comparison with any other word."""

from typing import Literal, get_args

Ending = Literal["done", "failed", "cancelled", "paused"]  # of a claim
JobState = Literal["queued", "running", Ending]
# As a card shows it: `interrupted` is a running job whose lease has run out.
ShownState = Literal["queued", "running", "interrupted", "paused", "done", "failed", "cancelled"]

SHOWN_STATES: tuple[ShownState, ...] = get_args(ShownState)
UNFINISHED: tuple[ShownState, ...] = ("running", "interrupted", "queued", "paused")  # by turn
ACTIVE: tuple[ShownState, ...] = ("running", "interrupted", "queued")  # they go on by themselves
FINISHED: tuple[ShownState, ...] = ("done", "failed", "cancelled")  # only a retry runs a job again
UNSUCCESSFUL: tuple[ShownState, ...] = ("failed", "cancelled")
STOPPED: tuple[ShownState, ...] = get_args(Ending)  # nothing happens unless somebody starts the job again
