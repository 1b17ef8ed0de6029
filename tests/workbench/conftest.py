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
from sqlalchemy import text
from sqlalchemy.orm import Session

from tests.workbench.postgres import find_initdb
from workbench.answers.cards import CorpusCard, ExpertCard, SeedCard
from workbench.registry import corpora, database, experts, seeds
from workbench.schema.base import Base
from workbench.schema.tables import Artifact
from workbench.settings import Settings, get_settings
from workbench.store import artifacts
from workbench.store.storage import Storage, get_storage


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

    def corpus(self, name: str, *domains: str, **job_spec: Any) -> CorpusCard:
        sizes = {"num_documents": 3, "num_words": 30, "num_bytes": 150, "splits": {"train": {"documents": 3}}}
        summary = {
            "domains": [
                {"name": domain, "folder": str(n), "data_sha256": f"{n:064}", **sizes}
                for n, domain in enumerate(domains or [None])
            ]
        }
        return corpora.register_corpus(
            self.session,
            name=name,
            **{"role": "train", **job_spec},
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
        facts: dict[str, Any] = {
            "method": "demix",
            "domain_id": corpora.get_domain(self.session, domain).id,
            "seed_id": None,
            "parent_id": None,
            "tokenizer_sha256": "t" * 64,
            "config": {"num_steps": 1},
            **other,
        }
        return experts.register_expert(
            self.session,
            id=uuid.uuid4().hex,
            name=name,
            base=base or self.artifact("base"),
            artifact=self.artifact("expert"),
            data_sha256="d" * 64,
            num_parameters=10,
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
def postgres_url() -> Iterator[str]:
    """A registry in a PostgreSQL server of this test run's own."""
    initdb = find_initdb()
    if initdb is None:
        pytest.skip("PostgreSQL is missing: the registry was not tried on it. Install it: apt-get install postgresql")
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path must be short
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to be root
    if user:
        shutil.chown(folder, user)

    def run(*command: object) -> None:
        words = [str(word) for word in command]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder)

    control = [initdb.with_name("pg_ctl"), "-D", folder / "data", "-w"]
    run(initdb, "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N", "--locale=C.UTF-8")
    run(*control, "-l", folder / "log", "-o", f"-k {folder} -h '' -c fsync=off", "start")
    url = f"postgresql://postgres@/postgres?host={folder}"
    database.migrate(Settings(home=folder / "home", database_url=url))
    yield url
    database.close_engines()
    run(*control, "-m", "immediate", "stop")
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty registry, once in SQLite and once in PostgreSQL; gives its kind."""
    request.getfixturevalue("home")
    if request.param == "postgresql":
        monkeypatch.setenv("WORKBENCH_DATABASE_URL", request.getfixturevalue("postgres_url"))
        get_settings.cache_clear()
        with database.transaction() as session:
            session.execute(text(f"TRUNCATE {', '.join(Base.metadata.tables)}"))
    return str(request.param)
