"""Errors of the registry that a user can act on.

WorkbenchError
├── NotFoundError                 nothing has that name; lists the known names
│   └── NoModelError              neither a mixture nor an expert of that name; lists both
├── NameTakenError                names are unique within a kind
├── BadSpecError                  an invalid spec; holds all complaints
├── BadSettingsError              invalid environment variables; names each
├── BadComparisonError            answers that cannot be stored or compared
├── InUseError                    something else depends on it
├── ChangedMeanwhileError         it is no longer what a change was meant for
├── ForbiddenError                the user's role does not allow it
├── NoRegistryError               there is no registry, or it is of another version
│   └── RegistryUnavailableError  the database does not answer; retrying may help
├── JobError                      a job in the wrong state for an operation
│   ├── LeaseLostError            another worker holds the job; nothing may be written
│   ├── DevicesBusyError          too few GPUs of the worker are free for the job
│   └── LostGpuError              a GPU that the job has leased is not there any more
└── StorageError                  artifacts that cannot be stored or read
    ├── RegistryMismatchError     the artifacts belong to another registry; nothing was removed
    ├── DiskFullError             the disk is full; nothing was destroyed
    └── StoreFailedError          the shared store is away or full, or refuses the credentials; nothing was destroyed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import Problem


class WorkbenchError(Problem):
    """Base class of the registry's errors."""


class NotFoundError(WorkbenchError, code="not_found"):
    """There is no `what` called `name`; `where`, such as *in “apps”*, says what was searched."""

    def __init__(self, what: str, name: str, known: Iterable[str] = (), *, where: str = "") -> None:
        names = sorted(known)
        searched = f"{what} {where}".strip()
        super().__init__(
            f"There is no {searched} called “{name}”.",
            f"Known: {_few(names)}." if names else f"There is no {searched} yet.",
        )
        self.what, self.name, self.known = what, name, names


class NoModelError(NotFoundError, code="no_model"):
    """Neither a mixture nor an expert is called `name`."""

    def __init__(self, name: str, mixtures: Sequence[str], experts: Sequence[str]) -> None:
        super().__init__("mixture or expert", name)
        self.problem = f"Neither a mixture nor an expert is called “{name}”."
        hints = [f"{what}: {_few(names)}." for what, names in (("Mixtures", mixtures), ("Experts", experts)) if names]
        self.next_step = " ".join(hints) or "There is none yet."


class NameTakenError(WorkbenchError, code="name_taken"):
    """A `what` called `name` exists already."""

    def __init__(self, what: str, name: str) -> None:
        article = "An" if what[:1] in "aeiou" else "A"
        super().__init__(f"{article} {what} called “{name}” exists already.", "Choose another name.")


@dataclass(frozen=True)
class Complaint:
    """One complaint of validating a spec, with the path of its field; the path is empty for the spec as a unit."""

    reason: str
    field: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.field:
            return self.reason[:1].upper() + self.reason[1:]
        return f"{'.'.join(self.field)}: {self.reason}"


class BadSpecError(WorkbenchError, code="bad_spec"):
    """An invalid spec; `complaints` holds every reason as a sentence, `given` the same with their fields where known.

    `field_complaints` leaves out those about the spec as a unit.
    """

    def __init__(self, complaints: Sequence[str | Complaint], next_step: str = "Correct it and try again.") -> None:
        self.given = list(complaints)
        self.complaints = [str(complaint) for complaint in complaints]
        self.field_complaints = [str(one) for one in complaints if not isinstance(one, Complaint) or one.field]
        super().__init__(" ".join(self.complaints), next_step)


class BadSettingsError(WorkbenchError, code="bad_settings"):
    """Invalid environment variables."""

    def __init__(self, faults: Sequence[Mapping[str, Any]]) -> None:
        messages = [(fault["loc"], validation_message(fault)) for fault in faults]
        sentences = [
            f"WORKBENCH_{str(loc[0]).upper()} {message.replace('Input should be', 'must be', 1)}."
            for loc, message in messages
        ]
        super().__init__(" ".join(sentences), "Change it or leave it unset.")


def validation_message(fault: Mapping[str, Any]) -> str:
    """The message of one pydantic error; for our own validators, the text they raised."""
    return str(fault["ctx"]["error"] if fault["type"] == "value_error" else fault["msg"])


class BadComparisonError(WorkbenchError, code="bad_comparison"):
    """Answers that cannot be stored, or a vote on none of them."""


class InUseError(WorkbenchError, code="in_use"):
    """Something else depends on the object."""


class ChangedMeanwhileError(WorkbenchError, code="changed_meanwhile"):
    """The `what` called `name` is no longer what a change was meant for."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"The {what} “{name}” was changed meanwhile; nothing was saved.",
            "Load what is saved, and make your change to that.",
        )


class ForbiddenError(WorkbenchError, code="forbidden"):
    """The role of a user does not allow what was requested."""

    def __init__(self, user: str, role: str, needed: str) -> None:
        if role:
            problem = f"This needs the role {needed}, but {user} has the role {role}."
            super().__init__(problem, "Ask an admin of this workbench.")
        else:
            super().__init__("The login has ended.", "Log in again: `workbench login-link` prints a link.")


class NoRegistryError(WorkbenchError, code="no_registry"):
    """There is no registry, or it is of another version."""


class RegistryUnavailableError(NoRegistryError, code="registry_unavailable"):
    """The database does not answer; retrying may help."""


class JobError(WorkbenchError):
    """A job in the wrong state for an operation."""


class LeaseLostError(JobError, code="lease_lost"):
    """Another worker holds the job; nothing may be written."""


class DevicesBusyError(JobError, code="devices_busy"):
    """Too few GPUs of the worker are free for the job."""

    def __init__(self, needed: int, free: int, share: float = 1.0) -> None:
        wanted = f"{needed} GPU{'s' if needed > 1 else ''}" if share == 1 else f"{share:g} of a GPU"
        super().__init__(
            f"The job needs {wanted} of this machine, but {free} are free.",
            "It starts when others have ended.",
        )


class LostGpuError(JobError, code="lost_gpu"):
    """A GPU that the job has leased is not there any more."""


class StorageError(WorkbenchError):
    """Artifacts that cannot be stored or read."""


class RegistryMismatchError(StorageError, code="registry_mismatch"):
    """The artifacts belong to another registry; nothing was removed."""


class DiskFullError(StorageError, code="disk_full"):
    """The disk is full; nothing was destroyed."""


class StoreFailedError(StorageError, code="store_failed"):
    """The shared store is away or full, or refuses the credentials; nothing was destroyed."""


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
