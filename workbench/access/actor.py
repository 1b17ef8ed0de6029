"""Who acts, with which role: checked where the registry is changed, and named in the audit log.

A server sets the actor of each request. A process without one, such as a command or a worker, acts for the user of this
machine who runs it and can open the home folder: an admin.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum

from workbench.errors import ForbiddenError

OWNER = "owner"  # whoever has the token of the workbench itself, or uses servers that require none


class Role(IntEnum):
    """What a user may do. A higher role may do everything that a lower one may."""

    VIEWER = 1  # read, generate, compare answers and vote
    EDITOR = 2  # import, train, change, export and delete
    ADMIN = 3  # add and revoke users, read the audit log, delete the full history of comparisons

    @property
    def title(self) -> str:
        """The role's name, as commands and rows have it."""
        return self.name.lower()


@dataclass(frozen=True)
class Actor:
    """A user, a job or a person at the command line. `user_id` is that of a row of users."""

    name: str
    role: Role | None  # None: may do nothing
    user_id: str = ""


THE_OWNER = Actor(OWNER, Role.ADMIN)
NOBODY = Actor("nobody", None)
_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)
_source: Callable[[], Actor] | None = None


def current_actor() -> Actor:
    """Who acts now."""
    return _actor.get() or (_source or _process_actor)()


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Sets the actor of a block, and of what it calls."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def set_source(source: Callable[[], Actor] | None) -> None:
    """Sets who acts in this process outside of `acting_as`; None: the user of this machine."""
    global _source
    _source = source


def may(role: Role) -> bool:
    """Whether the actor has this role or a higher one."""
    own = current_actor().role
    return own is not None and own >= role


def require(role: Role) -> None:
    """Raises ForbiddenError unless the actor has this role or a higher one."""
    actor = current_actor()
    if not may(role):
        raise ForbiddenError(actor.name, actor.role.title if actor.role else "", role.title)


def _process_actor() -> Actor:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in some containers
        name = "unknown"
    return Actor(f"command line ({name})", Role.ADMIN)
