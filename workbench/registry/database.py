"""Short transactions on the registry: an SQLite file in the home folder, or PostgreSQL by URL.

Writers begin with `BEGIN IMMEDIATE`, so that they wait up to half a minute instead of failing halfway; readers have a
snapshot and cannot write.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, inspect, make_url, text
from sqlalchemy.orm import Session

from engine.plugins import install_line
from workbench.access import audit
from workbench.access.actor import Role, require
from workbench.errors import DiskFullError, NoRegistryError, RegistryUnavailableError, StorageError
from workbench.settings import Settings, get_settings
from workbench.store.private_folder import make_private
from workbench.store.row_records import ChangedRows
from workbench.store.storage import get_storage

if TYPE_CHECKING:
    from alembic.config import Config


def plain(text: str) -> str:
    """The text with half characters (from file names) and NUL (from logs) replaced by a mark."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "�")


VERSION = "0021"  # the newest file of alembic/versions; a test holds the two together
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = _PACKAGE / "migrations"
MIGRATIONS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "alembic"  # in a checkout
BUSY_SECONDS = 30.0
_SET_URL = "Set WORKBENCH_DATABASE_URL to postgresql://…, or leave it empty."
_SECRETS = ("password", "sslpassword")  # parameters of PostgreSQL's URLs
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
_MIGRATION_LOCK = 0x776F726B  # an arbitrary number: "work"

_engines: dict[str, Engine] = {}
_ready: set[str] = set()
_inherited: list[Engine] = []


@contextmanager
def transaction(settings: Settings | None = None, needs: Role = Role.EDITOR) -> Iterator[Session]:
    """A session that writes: committed when the block ends without an exception, else rolled back.

    Raises ForbiddenError for users without the role that it needs.
    """
    require(needs)
    settings = settings or get_settings()
    changed = ChangedRows()
    try:
        with _writing(settings) as session:
            changed.watch(session)
            audit.watch(session)
            yield session
            changed.prepare(session, get_storage(settings))
    finally:  # also after a failed commit: the rows are unchanged then
        changed.save(partial(_writing, settings), get_storage(settings))


@contextmanager
def _writing(settings: Settings) -> Iterator[Session]:
    with _database_errors(settings):
        engine = _ready_engine(settings).execution_options(registry="write")
        with Session(engine) as session, session.begin():
            yield session


@contextmanager
def reading(settings: Settings | None = None) -> Iterator[Session]:
    """A read-only session on a snapshot of the registry. Raises ForbiddenError for nobody's request."""
    require(Role.VIEWER)
    settings = settings or get_settings()
    with _database_errors(settings):
        engine = _ready_engine(settings)
        options: dict[str, Any] = {"registry": "read"}
        if engine.dialect.name == "postgresql":
            options |= {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
        with Session(engine.execution_options(**options)) as session:
            yield session
            session.expire_all()  # a row that left could be outdated: it raises DetachedInstanceError


def _ready_engine(settings: Settings) -> Engine:
    if settings.database not in _ready:
        require_registry(settings)
        _ready.add(settings.database)
    return get_engine(settings)


def get_engine(settings: Settings | None = None) -> Engine:
    """This process's engine for the registry of `settings`."""
    url = (settings or get_settings()).database
    if url not in _engines:
        _engines.setdefault(url, make_engine(url))
    return _engines[url]


def make_engine(url: str) -> Engine:
    """An engine that begins transactions as their role (`read`, `write`, `migrate`) needs it."""
    try:
        address = make_url(url)
    except exc.ArgumentError:
        raise NoRegistryError("The database URL is not valid for SQLAlchemy.", _SET_URL) from None
    backend = address.get_backend_name()
    options: dict[str, Any] = (
        {"connect_args": {"timeout": BUSY_SECONDS}} if backend == "sqlite" else {"pool_pre_ping": True}
    )
    try:
        engine = create_engine(address, **options)
    except (ModuleNotFoundError, exc.NoSuchModuleError):
        step = f"{install_line('postgres')}. {_SET_URL}"
        raise NoRegistryError(f"The driver of “{address.drivername}” is not installed.", step) from None
    if backend == "postgresql":
        return engine
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # no implicit transactions: _begin starts them
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a submitted job outlives a power cut
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")  # what a file's tables compute may call no function with effects


def _begin(connection: Connection) -> None:
    role = connection.get_execution_options().get("registry", "write")
    connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if role == 'read' else 'OFF'}")
    if role == "migrate":
        # Migrations recreate tables, which drops them for a moment; has no effect inside a transaction.
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    connection.exec_driver_sql("BEGIN" if role == "read" else "BEGIN IMMEDIATE")


def close_engines() -> None:
    """Closes this process's connections; the next transaction opens new ones."""
    for engine in _engines.values():
        engine.dispose()
    _engines.clear()
    _ready.clear()


def close_engine(settings: Settings) -> None:
    """Closes this process's connections to one registry."""
    _ready.discard(settings.database)
    if (engine := _engines.pop(settings.database, None)) is not None:
        engine.dispose()


def _forget_engines() -> None:
    """Drops the parent's connections in a forked child, which may neither use nor close them."""
    _inherited.extend(_engines.values())
    _engines.clear()


os.register_at_fork(after_in_child=_forget_engines)


def require_registry(settings: Settings | None = None) -> None:
    """Raises NoRegistryError, with the command to run, unless there is a registry of this version."""
    settings = settings or get_settings()
    with _database_errors(settings):
        version = registry_version(settings)
    if version is None:
        raise NoRegistryError(
            f"There is no registry in {place_of(settings)}.", "Run `workbench migrate`, or set WORKBENCH_HOME."
        )
    if version != VERSION:
        raise _other_version(settings, version)


def has_registry(settings: Settings) -> bool:
    """True if there is a registry of any version; raises RegistryUnavailableError when it does not respond."""
    with _database_errors(settings):
        return registry_version(settings) is not None


def registry_version(settings: Settings) -> str | None:
    """The version of the registry's tables; None without a registry."""
    engine = get_engine(settings)
    file = engine.url.database
    if engine.dialect.name == "sqlite" and not (file and Path(file).is_file()):
        return None  # connecting would create the file
    with engine.execution_options(registry="read").connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return version


def _other_version(settings: Settings, version: str) -> NoRegistryError:
    return NoRegistryError(
        f"The registry in {place_of(settings)} has version {version}; this workbench needs {VERSION}.",
        "Run `workbench migrate`." if version < VERSION else "Install the newer workbench that created it.",
    )


def place_of(settings: Settings) -> str:
    """Where the registry is: the folder of its file, or the URL of its server without passwords."""
    address = make_url(settings.database)
    if address.get_backend_name() == "sqlite" and address.database:
        return str(Path(address.database).parent)
    return str(address.difference_update_query(_SECRETS))  # also hides the password of the user


def migrate(settings: Settings | None = None) -> None:
    """Creates or upgrades the registry; any number of processes may call it at once."""
    settings = settings or get_settings()
    lock = _make_home(settings)
    with lock.open("w") as file, _database_errors(settings):
        fcntl.flock(file, fcntl.LOCK_EX)
        version = registry_version(settings)
        if version is not None and version > VERSION:
            raise _other_version(settings, version)
        if version != VERSION:
            path = make_url(settings.database).database
            if version is not None and path and make_url(settings.database).get_backend_name() == "sqlite":
                with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(f"{path}.{version}")) as copy:
                    source.backup(copy)  # the registry's file before an upgrade, for example as registry.db.0001
            _upgrade(settings)


def _make_home(settings: Settings) -> Path:
    """Makes the home folder private, creating it if there is none, and returns the lock file of migrations."""
    make_private(settings)
    lock = settings.root / "migrate.lock"
    try:
        lock.touch()
    except OSError as error:
        raise StorageError(
            f"The home folder {settings.root} is not writable ({error.strerror}).",
            "Set WORKBENCH_HOME, or change its permissions.",
        ) from None
    return lock


def _upgrade(settings: Settings) -> None:
    from alembic import command  # imported late: few processes migrate

    engine = make_engine(settings.database)
    try:
        with engine.execution_options(registry="migrate").connect() as connection, connection.begin():
            if engine.dialect.name == "postgresql":  # processes on other machines
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
            command.upgrade(alembic_config(connection), "head")
            if engine.dialect.name == "sqlite":
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
                assert not broken, f"the migration broke references: {broken[:5]}"
    finally:
        engine.dispose()


def create(settings: Settings) -> None:
    """Creates the tables of a registry that no other process knows yet."""
    with _database_errors(settings):
        _upgrade(settings)


@contextmanager
def filling(settings: Settings) -> Iterator[Connection]:
    """A transaction that fills a registry which has tables and no rows, with all rows or none."""
    engine = make_engine(settings.database)
    try:
        with _database_errors(settings), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration; there is no alembic.ini."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _database_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except exc.DatabaseError as error:
        problem = _problem(settings, error)
        if problem is None:
            raise
        raise problem from error


def _problem(settings: Settings, error: exc.DatabaseError) -> NoRegistryError | DiskFullError | None:
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    reason = str(error.orig).strip().splitlines()[0] if error.orig else ""
    address = place_of(settings)
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(f"The disk of {address} is full; nothing was written.", "Free some space and continue.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return NoRegistryError(f"The registry in {address} is damaged ({reason}).", "Restore it from a copy.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        return RegistryUnavailableError(
            f"The registry in {address} does not respond ({reason}).", "Try again in a moment."
        )
    if isinstance(error, exc.OperationalError) and any(words in reason for words in _REFUSALS):
        return RegistryUnavailableError(
            f"The registry at {address} refuses the connection ({reason}).",
            "Correct WORKBENCH_DATABASE_URL, or create what it names, and try again.",
        )
    if error.connection_invalidated or (isinstance(error, exc.OperationalError) and not code):
        return RegistryUnavailableError(
            f"The registry at {address} does not respond ({reason}).", "Start the database server and try again."
        )
    return None
