"""What a kind of job is to the workbench: its spec, and what such a job does with the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from workbench.spec_base import Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

SpecType = TypeVar("SpecType", bound=Spec)
What = Literal["corpus", "domain", "seed model", "expert", "mixture", "clustering", "prior"]
Thing = tuple[What, str]  # what, name


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[SpecType]):
    """A kind of job. Its name is the default of the field `kind` of its spec.

    `creates`, `requires` and `reads` have no default: a kind that touches nothing says so with `nothing` and `no_path`.
    The kinds of the workbench are run by `jobs.kinds` and shown by `ui.kinds`, in the module named as the spec's; other
    packages name both.
    """

    spec: type[SpecType]
    title: str  # what its jobs are called, before the name of their subject, such as “Train expert”
    creates: Callable[[SpecType], list[Thing]]  # what is in the registry afterwards, as far as names are known before
    requires: Callable[[SpecType], list[Thing]]  # what must be in the registry before
    reads: Callable[[SpecType], str]  # the local file or folder that it reads; empty for none
    complaints: Callable[[Session, SpecType], list[str]] | None = None  # what else makes it impossible
    may_replace: Callable[[SpecType], bool] = lambda _: False  # whether the names that it creates may be taken
    creates_unnamed_domains: Callable[[SpecType], bool] = lambda _: False  # domains whose names the work decides
    empty_means_all_domains: bool = False  # whether an empty field `domains` stands for every domain
    runner: str = ""  # `package.module:function`, imported when a job runs
    screen: str = ""  # `package.module:SCREEN`, imported when a page shows it

    @property
    def name(self) -> str:
        """What specs say in their field `kind`."""
        return str(self.spec.model_fields["kind"].default)


def nothing(_: Any) -> list[Thing]:
    """For a kind that creates, or requires, nothing in the registry."""
    return []


def no_path(_: Any) -> str:
    """For a kind that reads no file or folder of this machine."""
    return ""


def named(what: What, *names: str | None) -> list[Thing]:
    """Things of one sort; names that are None or empty are left out."""
    return [(what, name) for name in names if name]
