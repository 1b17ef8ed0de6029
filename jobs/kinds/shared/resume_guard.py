"""Resume guard: the inputs of a job's first attempt, written into its folder and checked by later attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from engine.environment import differences, library_versions
from engine.errors import TrainingError
from engine.events import Note
from engine.files import new_file
from engine.text.blocks import MASK_RULE
from engine.text.chat.answers import OLD_RULE
from jobs.attempt.work import Work
from workbench.registry.reproducible import ROW_ORDER

if TYPE_CHECKING:
    from jobs.kinds.shared.tokens import DomainFiles

MASKS, _SOURCES = "masks", "sources"


def read_inputs(work: Work, what: str) -> Any:
    """The JSON that an earlier attempt wrote; None if there is none."""
    path = work.folder / f"{what}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


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
        has_started = read_inputs(work, _SOURCES) is not None or any(work.folder.rglob("step-*"))
        order = "ids" if has_started else "spec"
        write_inputs(work, ROW_ORDER, order)
    return order


def require_same(work: Work, domains: Sequence[DomainFiles], others: Mapping[str, str] | None = None) -> None:
    """Raises TrainingError if the text, or another input by SHA-256, differs from that of the first attempt.

    A failed job does not protect its inputs: they may be deleted and made again under the same name, while its
    checkpoints belong to the old ones.
    """
    now = {f"domain “{domain.name}”": domain.data_sha256 for domain in domains} | dict(others or {})
    stored = read_inputs(work, _SOURCES)
    if stored is None:
        write_mask_rule(work, MASK_RULE)
        write_inputs(work, _SOURCES, now)
        return
    for what, sha256 in now.items():
        if stored.get(what) != sha256:
            raise TrainingError(f"The {what} has changed since this training started.", "Start a new job.")


def write_mask_rule(work: Work, rule: int) -> None:
    """Writes the rule by which the training masks conversations; later attempts and replays keep it."""
    write_inputs(work, MASKS, {"rule": rule})


def mask_rule(work: Work) -> int:
    """The rule by which a job masks conversations: that of its beginning. Earlier versions wrote none."""
    if (stored := read_inputs(work, MASKS)) is not None:
        return int(stored["rule"])
    return MASK_RULE if read_inputs(work, _SOURCES) is None else OLD_RULE


def note_versions(work: Work) -> Iterator[Note]:
    """Writes the versions that a training begins with. A later attempt that has others yields which, as a note."""
    now, before = _versions(), read_inputs(work, "versions")
    if before is None:
        write_inputs(work, "versions", now)
    elif changes := differences(before, now):
        what = "; ".join(changes)
        yield Note(f"The training goes on with other versions than it began with, so its bits may differ: {what}.")


def _versions() -> dict[str, str]:
    return {**library_versions(), "expert-workbench": version("expert-workbench")}
