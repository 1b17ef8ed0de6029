"""The inputs and the environment of a job's attempts: later attempts, and replays, must have those of the first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from engine.device import differences, library_versions
from engine.events import Note
from engine.files import new_file, reading_own
from engine.text.blocks import MASK_RULE
from engine.text.chat.answers import OLD_RULE
from jobs.attempt.work import Work
from workbench.registry.reproducible import ROW_ORDER, describe_environment

MASKS, SOURCES = "masks", "sources"


def read_inputs(work: Work, what: str) -> Any:
    """The JSON that an earlier attempt wrote; None if there is none."""
    path = work.folder / f"{what}.json"
    if not path.exists():
        return None
    with reading_own(str(path), "Submit the job again."):
        return json.loads(path.read_text(encoding="utf-8"))


def write_inputs(work: Work, what: str, values: Any) -> None:
    """Writes values for later attempts, atomically."""
    with new_file(work.folder / f"{what}.json") as file:
        file.write_text(json.dumps(values), encoding="utf-8")


def order_of_rows(work: Work) -> str:
    """How the experts of a batch are ordered: “spec”, as the spec names them.

    “ids”, by their random ids, in a training that an earlier version began: so it goes on, and is replayed, to the
    bit. Ask before `require_same`, whose note shows that the training has begun.
    """
    order: str | None = read_inputs(work, ROW_ORDER)
    if order is None:
        has_started = read_inputs(work, SOURCES) is not None or any(work.folder.rglob("step-*"))
        order = "ids" if has_started else "spec"
        write_inputs(work, ROW_ORDER, order)
    return order


def write_mask_rule(work: Work, rule: int) -> None:
    """Writes the rule by which the training masks conversations; later attempts and replays keep it."""
    write_inputs(work, MASKS, {"rule": rule})


def mask_rule(work: Work) -> int:
    """The rule by which a job masks conversations: that of its beginning. Earlier versions wrote none."""
    if (stored := read_inputs(work, MASKS)) is not None:
        return int(stored["rule"])
    return MASK_RULE if read_inputs(work, SOURCES) is None else OLD_RULE


def note_versions(work: Work) -> Iterator[Note]:
    """Writes the versions that a training begins with. A later attempt that has others yields which, as a note."""
    now = {**library_versions(), "expert-workbench": version("expert-workbench")}
    before = read_inputs(work, "versions")
    if before is None:
        write_inputs(work, "versions", now)
    elif changes := differences(before, now):
        what = "; ".join(changes)
        yield Note(f"The training goes on with other versions than it began with, so its bits may differ: {what}.")


def report_reproducible_from(work: Work) -> str:
    """A sentence on what the numbers of a report can be reproduced from."""
    return f"The spec of its job, the same experts and text, {describe_environment(work.environment)}."
