"""Failures of the registry that a person can act on.

WorkbenchError
├── NotFound         no such thing; lists what there is
│   └── NoModel      neither a mixture nor an expert of that name; lists both
├── NameTaken        names are unique within a kind
├── BadSpec          a wish that cannot be granted; all complaints at once
├── BadSettings      variables of the environment that cannot be right; names each
├── InUse            something else depends on it
├── NoRegistry       there is no registry here, or it is of another version
│   └── RegistryAway the database does not answer now; trying again may help
├── JobError         a job that cannot do what is asked of it
│   └── LeaseLost    another worker holds this job now; nothing may be written
└── StorageError     artifacts that cannot be kept or found
    ├── SweepRefused this registry must not remove what lies there; nothing was removed
    └── DiskFull     the disk has no room; nothing was destroyed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import Problem


class WorkbenchError(Problem):
    """Raised on purpose by the registry."""


class NotFound(WorkbenchError):
    """There is no `what` called `name`; `where`, such as *in “apps”*, narrows down what was searched."""

    def __init__(self, what: str, name: str, known: Iterable[str] = (), *, where: str = "") -> None:
        names = sorted(known)
        searched = f"{what} {where}".strip()
        super().__init__(
            f"There is no {searched} called “{name}”.",
            f"Known: {_few(names)}." if names else f"There is no {searched} yet.",
        )
        self.what = what
        self.name = name


class NoModel(NotFound):
    """Neither a mixture nor an expert is called `name`."""

    def __init__(self, name: str, mixtures: Sequence[str], experts: Sequence[str]) -> None:
        super().__init__("mixture or expert", name)
        self.problem = f"Neither a mixture nor an expert is called “{name}”."
        told = [f"{what}: {_few(names)}." for what, names in (("Mixtures", mixtures), ("Experts", experts)) if names]
        self.next_step = " ".join(told) or "There is none yet."


class NameTaken(WorkbenchError):
    """A `what` called `name` exists already."""

    def __init__(self, what: str, name: str) -> None:
        article = "An" if what[:1] in "aeiou" else "A"
        super().__init__(f"{article} {what} called “{name}” exists already.", "Choose another name.")


@dataclass(frozen=True)
class Complaint:
    """A fault found by validating a spec, with the path of its field; the path is empty for the spec as a unit."""

    message: str
    field: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


class BadSpec(WorkbenchError):
    """A spec that cannot be accepted; `complaints` holds every reason.

    `field_complaints` leaves out those of the validation that are about the spec as a unit.
    """

    def __init__(
        self, complaints: Sequence[str | Complaint], next_step: str = "Change what is named and submit again."
    ) -> None:
        self.complaints = [str(complaint) for complaint in complaints]
        self.field_complaints = [str(one) for one in complaints if not isinstance(one, Complaint) or one.field]
        super().__init__(" ".join(self.complaints), next_step)


class BadSettings(WorkbenchError):
    """Variables of the environment that cannot be right."""

    def __init__(self, faults: Sequence[Mapping[str, Any]]) -> None:
        sentences = [f"WORKBENCH_{str(one['loc'][0]).upper()} {_wanted(one)}." for one in faults]
        super().__init__(" ".join(sentences), "Set it anew, or leave it out.")


def validation_message(fault: Mapping[str, Any]) -> str:
    """The message of one fault of a pydantic validation; of a validator of ours its own words."""
    return str(fault["ctx"]["error"] if fault["type"] == "value_error" else fault["msg"])


def _wanted(fault: Mapping[str, Any]) -> str:
    return validation_message(fault).replace("Input should be", "must be", 1)


class InUse(WorkbenchError):
    """Something else depends on it."""


class NoRegistry(WorkbenchError):
    """There is no registry here, or it is of another version."""


class RegistryAway(NoRegistry):
    """The database does not answer now; trying again may help."""


class JobError(WorkbenchError):
    """A job that cannot do what is asked of it."""


class LeaseLost(JobError):
    """Another worker holds this job now; nothing may be written."""


class StorageError(WorkbenchError):
    """Artifacts that cannot be kept or found."""


class SweepRefused(StorageError):
    """This registry must not remove what lies there; nothing was removed."""


class DiskFull(StorageError):
    """The disk has no room; nothing was destroyed."""


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
