"""Base of all specs: names and paths are validated, unknown fields are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator

from engine.config import absurdity
from workbench.errors import StorageError

What = Literal["corpus", "domain", "seed model", "expert", "mixture", "clustering", "prior"]
Output = Literal["file", "folder"]  # that jobs write where a user wants it, never over what is there
RegistryObject = tuple[What, str]  # what jobs create and require, by what it is and by name

MOST_LETTERS = 80  # of a name
LONGEST_STEM = 70


def _name(value: str) -> str:
    value = value.strip()
    if not value or len(value) > MOST_LETTERS:
        raise ValueError(f"a name must have 1 to {MOST_LETTERS} characters")
    if not value.isprintable():
        raise ValueError("a name must not hold control characters")
    if "," in value:
        raise ValueError("a name must not hold a comma: commas separate names on the command line")
    return value


Name = Annotated[str, AfterValidator(_name)]


def _short(value: str) -> str:
    if len(value) > LONGEST_STEM:
        raise ValueError(f"a name that other names begin with must have at most {LONGEST_STEM} characters")
    return value


Stem = Annotated[Name, AfterValidator(_short)]  # NAME of NAME/NUMBER, which must also be a name
# Of an existing expert; MIXTURE/DOMAIN may be longer than a name.
ExpertName = Annotated[str, AfterValidator(str.strip)]


def absolute(value: str) -> str:
    """A local path made absolute, since a worker has another working directory."""
    return str(Path(value).expanduser().absolute()) if value else value


_ABSOLUTE = AfterValidator(absolute)
LocalPath = Annotated[str, _ABSOLUTE]


class Sane(BaseModel):
    """Refuses infinite, tiny and huge numbers in every field; config dataclasses check their own."""

    @field_validator("*")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        marks = cls.model_fields[info.field_name or ""].metadata
        has_bound = any(getattr(mark, name, None) is not None for mark in marks for name in ("le", "lt"))
        if wanted := absurdity(value, has_bound):
            raise ValueError(f"must be {wanted}, not {value}")
        return value


SCHEDULING = {"gpu_share"}  # options that decide where a job runs, not what it does


class Spec(Sane):
    """The validated description of a job or of a plan of jobs. Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def identity(self) -> str:
        """The options that make two jobs the same, as JSON: all that change what is done."""
        return self.model_dump_json(exclude=SCHEDULING)

    def local_paths(self) -> list[str]:
        """All local paths that the job will read or write."""
        names = [name for name, field in type(self).model_fields.items() if _ABSOLUTE in field.metadata]
        return [path for path in (getattr(self, name) for name in names) if path]


RETAIN_TITLE = "Domains that must not be forgotten"
RETAIN = "Domains that must not be forgotten: their held-out loss is measured at each evaluation."

NUM_GPUS = "GPUs of one machine to train on, one process each; 0: as WORKBENCH_PROCESSES says, else one."

GPU_SHARE = "Share of one GPU: two jobs with 0.5 run on it at a time, each with half of its memory; 1: all of it."


def require_others(retained: Sequence[str], domains: Sequence[str]) -> None:
    """Raises ValueError if a domain to retain is repeated or is one of the training domains."""
    if len(set(retained)) < len(retained) or set(retained) & set(domains):
        raise ValueError("name each domain to retain once, and no training domain: those are measured anyway")


SEED = "seed:"  # begins the name of a seed model where it stands for an expert
HUB = "hub:"
PUBLIC = (HUB, "package:")  # sources that others can reach as well
_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")


def hub_name(text: str) -> tuple[str, str]:
    """The name and the revision (empty: the newest) of `hub:NAME@REVISION`, with or without `hub:`.

    Raises ValueError for anything else.
    """
    name, _, revision = text.removeprefix(HUB).partition("@")
    if not _NAME.fullmatch(name) or ".." in name or (revision and not _REVISION.fullmatch(revision)):
        raise ValueError(f"“{text[:200]}” is not a name on the hub: write NAME or OWNER/NAME, or either with @REVISION")
    if text.endswith("@"):
        raise ValueError("a revision must follow the @")
    return name, revision


def hub_source(name: str, commit: str) -> str:
    """The source of what was downloaded: its name on the hub and its commit."""
    return f"{HUB}{name}@{commit}"


def hub_origin(source: str) -> tuple[str, str]:
    """The name on the hub and the commit of a source that the registry keeps; empty where it is of elsewhere."""
    if not source.startswith(HUB):
        return "", ""
    name, _, commit = source.removeprefix(HUB).partition("@")
    return name, commit


def existing(path: Path, what: Output) -> StorageError:
    """The error for a path that is taken."""
    return StorageError(f"{path} exists already.", f"Choose another {what}: nothing is written over.")


def output_complaints(path: str, what: Output) -> list[str]:
    """Why nothing new can be written to a path; empty if it can. A link that leads nowhere exists as well."""
    return [str(existing(Path(path), what))] if os.path.lexists(path) else []
