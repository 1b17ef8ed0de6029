"""Users of a team: each has a role and a token; only the token's SHA-256 is stored."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.access.actor import OWNER, Actor, Role, require
from workbench.answers.cards import UserCard
from workbench.errors import BadSpecError, NameTakenError, NotFoundError
from workbench.schema.names import by_name, clean_name
from workbench.schema.tables import User

TOKEN_START = "wb_"  # by which a token of a user is known
TOKEN_BYTES = 32


@dataclass(frozen=True)
class NewUser:
    """A user with the token, which is shown this one time."""

    card: UserCard
    token: str


def list_users(session: Session) -> list[UserCard]:
    """All users by name, revoked ones included."""
    require(Role.ADMIN)
    return [UserCard.from_fields(row) for row in session.scalars(select(User).order_by(User.name))]


def add_user(session: Session, name: str, role: str) -> NewUser:
    """Adds a user; one who was revoked is another user now. Raises BadSpecError or NameTakenError."""
    require(Role.ADMIN)
    name, wanted, token = _clean(name), role_named(role), TOKEN_START + secrets.token_urlsafe(TOKEN_BYTES)
    if (old := _by_name(session, name)) is not None:
        if old.revoked_at is None:
            raise NameTakenError("user", name)
        session.delete(old)  # with its id, which old logins name
        session.flush()
    row = User(name=name, role=wanted.title, token_sha256=token_hash(token))
    session.add(row)
    session.flush()
    return NewUser(UserCard.from_fields(row), token)


def revoke_user(session: Session, name: str) -> UserCard:
    """Ends a user's token and logins at once. Raises NotFoundError."""
    require(Role.ADMIN)
    row = by_name(session, User, name)
    row.revoked_at = row.revoked_at or time.time()
    session.flush()
    return UserCard.from_fields(row)


def actor_of_token(session: Session, token: str) -> Actor | None:
    """The user with this token; None for an unknown or revoked one."""
    return _actor(session.scalar(select(User).where(User.token_sha256 == token_hash(token))))


def token_hashes(session: Session) -> list[str]:
    """The stored hashes of the tokens that are valid."""
    return list(session.scalars(select(User.token_sha256).where(User.revoked_at.is_(None))))


def actor_of_id(session: Session, id: str) -> Actor | None:
    """The user with this id; None for an unknown or revoked one."""
    return _actor(session.get(User, id))


def user_id_of(session: Session, name: str) -> str:
    """The id of a user who is not revoked. Raises NotFoundError."""
    row = _by_name(session, name)
    if row is None or row.revoked_at is not None:
        known = session.scalars(select(User.name).where(User.revoked_at.is_(None)).order_by(User.name).limit(20))
        raise NotFoundError("user", name, known)
    return row.id


def role_named(name: str) -> Role:
    """The role of this name. Raises BadSpecError."""
    for role in Role:
        if role.title == name:
            return role
    raise BadSpecError([f"“{name}” is not a role."], f"Choose one of: {', '.join(role.title for role in Role)}.")


def _clean(name: str) -> str:
    name = clean_name("user", name)
    if name == OWNER or "(" in name or name.startswith("job "):
        raise BadSpecError([f"“{name}” stands for others in the audit log."], "Choose another name.")
    return name


def _by_name(session: Session, name: str) -> User | None:
    row: User | None = session.scalar(select(User).where(User.name == name))
    return row


def _actor(row: User | None) -> Actor | None:
    return None if row is None or row.revoked_at is not None else Actor(row.name, role_named(row.role), row.id)


def token_hash(token: str) -> str:
    """SHA-256 is enough: a token has 256 random bits, unlike a password."""
    return hashlib.sha256(token.encode()).hexdigest()
