"""A small world of corpora, seeds and experts to ask services about; and the registry on both databases."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from workbench import database
from workbench.cards import CorpusCard, ExpertCard, SeedCard
from workbench.services import artifacts, corpora, experts, seeds
from workbench.settings import get_settings
from workbench.specs import ImportCorpus
from workbench.storage import Storage, get_storage
from workbench.tables import Artifact


class World:
    """Makes things as jobs would, with folders that hold next to nothing."""

    def __init__(self, session: Session, storage: Storage) -> None:
        self.session = session
        self.storage = storage

    def artifact(self, kind: str = "thing", key: str | None = None) -> Artifact:
        id = uuid.uuid4().hex
        with self.storage.new(id) as folder:
            (folder / "bytes").write_text(id)
        return artifacts.register_artifact(self.session, self.storage, id, kind, key)

    def corpus(self, name: str, *domains: str, **wish: Any) -> CorpusCard:
        sizes = {"num_documents": 3, "num_words": 30, "num_bytes": 150, "splits": {"train": {"documents": 3}}}
        summary = {
            "domains": [
                {"name": domain, "folder": str(n), "data_sha256": f"{n:064}", **sizes}
                for n, domain in enumerate(domains or [None])
            ]
        }
        return corpora.register_corpus(
            self.session,
            spec=ImportCorpus(name=name, path="/texts", **wish),
            source="/texts",
            artifact=self.artifact("documents"),
            summary=summary,
            report={"num_refused": 0},
        )

    def seed(self, name: str = "seed") -> SeedCard:
        return seeds.register_seed(
            self.session,
            name=name,
            source="fresh",
            family="llama",
            config={"hidden_size": 8},
            num_parameters=3_000_000_000,  # more than 32 bits hold
            tokenizer_sha256="t" * 64,
            artifact=self.artifact("seed"),
        )

    def expert(self, name: str, domain: str, *, base: Artifact | None = None, **other: Any) -> ExpertCard:
        facts: dict[str, Any] = {"seed_id": None, "parent_id": None, "tokenizer_sha256": "t" * 64, **other}
        return experts.register_expert(
            self.session,
            id=uuid.uuid4().hex,
            name=name,
            method="demix",
            domain_id=corpora.get_domain(self.session, domain).id,
            base=base or self.artifact("base"),
            artifact=self.artifact("expert"),
            data_sha256="d" * 64,
            num_parameters=10,
            config={"num_steps": 1},
            metrics={},
            **facts,
        )

    def experts(self, *domains: str) -> list[ExpertCard]:
        """A corpus with these domains, and an expert of each, called after it, all on one base."""
        self.corpus("corpus", *domains)
        base = self.artifact("base")
        return [self.expert(domain, domain, base=base) for domain in domains]


@pytest.fixture
def world(session: Session) -> World:
    return World(session, get_storage())


# the laws of the registry hold on both databases ------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The socket folder of a PostgreSQL server of this test run's own."""
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path must be short
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to be root
    if user:
        shutil.chown(folder, user)
    command = ["initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N", "--locale=C.UTF-8"]
    subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)
    options = f"-k {folder} -h '' -c fsync=off"
    control = ["pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log"]
    pg_ctl = shutil.which("pg_ctl") or str(Path(shutil.which("postgres") or "").resolve().parent / "pg_ctl")
    subprocess.run(
        [pg_ctl, *control[1:], "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder
    )
    yield str(folder)
    subprocess.run([pg_ctl, *control[1:], "-m", "immediate", "stop"], capture_output=True, user=user, cwd=folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty registry, once in SQLite and once in PostgreSQL; gives its kind."""
    request.getfixturevalue("home")
    if request.param == "postgresql":
        folder = request.getfixturevalue("postgres_server")
        name = f"test_{uuid.uuid4().hex}"
        server = create_engine(f"postgresql://postgres@/postgres?host={folder}", isolation_level="AUTOCOMMIT")
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        server.dispose()
        monkeypatch.setenv("WORKBENCH_DATABASE_URL", f"postgresql://postgres@/{name}?host={folder}")
        get_settings.cache_clear()
        database.migrate()
    yield request.param
    database.close_engines()
