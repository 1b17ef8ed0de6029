"""What all specs have in common: names and paths are validated, unknown fields are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator

from engine.config import absurdity

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


Stem = Annotated[Name, AfterValidator(_short)]  # NAME of NAME/NUMBER, which must be a name, too
ExpertName = Annotated[str, AfterValidator(str.strip)]  # of one that is there; MIXTURE/DOMAIN may be longer than a name


def absolute(value: str) -> str:
    """A local path as every process understands it: a worker has another working directory."""
    return str(Path(value).expanduser().absolute()) if value else value


_ABSOLUTE = AfterValidator(absolute)
LocalPath = Annotated[str, _ABSOLUTE]


class Sane(BaseModel):
    """Refuses numbers that are infinite, next to nothing or huge, in every field; those of configs do it themselves."""

    @field_validator("*")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        marks = cls.model_fields[info.field_name or ""].metadata
        has_bound = any(getattr(mark, name, None) is not None for mark in marks for name in ("le", "lt"))
        if wanted := absurdity(value, has_bound):
            raise ValueError(f"must be {wanted}, but is {value} instead")
        return value


class Spec(Sane):
    """What a job, or a plan of jobs, is to do. Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def local_paths(self) -> list[str]:
        """Every path of this machine that the work itself will read."""
        names = [name for name, field in type(self).model_fields.items() if _ABSOLUTE in field.metadata]
        return [path for path in (getattr(self, name) for name in names) if path]


RETAIN = "Domains that must not be forgotten: their held-out loss is measured at each evaluation."


def require_others(retained: Sequence[str], domains: Sequence[str]) -> None:
    """Raises ValueError unless the domains to retain are others than those that are trained on."""
    if len(set(retained)) < len(retained) or set(retained) & set(domains):
        raise ValueError("name each domain to retain once, and none that is trained on: those are measured anyway")
