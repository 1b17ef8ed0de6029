"""Transactions, versions and the answers of a registry that is not there."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, String, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from alembic import command
from workbench.analysis.perplexity_tables import list_evaluations
from workbench.answers.cards import Failure
from workbench.errors import DiskFullError, NoRegistryError, RegistryUnavailableError, StorageError
from workbench.job_records.jobs import create_job, events, get_job
from workbench.job_records.leases import add_event
from workbench.kinds.kind import parse_spec
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry import database
from workbench.registry.database import reading, transaction
from workbench.registry.experts import list_looks
from workbench.schema.base import Base
from workbench.schema.job_tables import Device, Job
from workbench.schema.tables import Artifact, Cluster, Clustering, Corpus, Domain, Evaluation, Expert, Mixture, Report
from workbench.settings import Settings, get_settings
from workbench.specs.gates import dump_gate, load_gate
from workbench.store.ownership import find_registry_id, registry_id

fork = get_context("fork")


def differences() -> list[object]:
    with database.get_engine().connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))


@pytest.mark.usefixtures("registry")
def test_the_migrations_make_exactly_the_tables() -> None:
    assert differences() == []


def test_the_version_is_the_newest_migration() -> None:
    with database.make_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(database.alembic_config(connection))
    assert scripts.get_heads() == [database.VERSION]


@pytest.mark.usefixtures("registry")
def test_down_and_up_again_makes_the_same_tables() -> None:
    engine = database.make_engine(get_settings().database)
    for step, revision in ((command.downgrade, "base"), (command.upgrade, "head")):
        with engine.execution_options(registry="migrate").connect() as connection, connection.begin():
            step(database.alembic_config(connection), revision)
    engine.dispose()
    assert differences() == []


JOBS = [
    {"kind": "make-mixture", "spec": {"kind": "make-mixture", "gate": {"kind": "fixed", "top_k": 1}}},
    {"kind": "train-joint", "spec": {"kind": "train-joint", "domains": ["law"]}},
    {"kind": "import-corpus", "spec": {"kind": "import-corpus", "local_source": "python"}, "error": "a, line 7: bad."},
    {"kind": "replicate-demix", "spec": {"kind": "replicate-demix", "imports": [{"local_source": "python"}]}},
]
SPECIAL: dict[str, list[dict[str, Any]]] = {  # values that a migration reads or a constraint demands
    "jobs": [{"id": f"{number:032}", **job} for number, job in enumerate(JOBS)],
    "mixtures": [{"gate": {"kind": "fixed", "top_k": 1}}],
    "reports": [{"findings": {"jobs": [{"kind": "train-joint"}]}}],
    "experts": [{"parent_id": None, "config": {"full_model": True}}],
    "job_events": [{"message": "Checkpoint at step 10.", "kind": "checkpoint", "data": None}],
    "job_dependencies": [{"job_id": f"{1:032}"}],
    "aliases": [{"mixture_id": None}],
}


def fill_every_table(connection: Connection) -> None:
    """At least one row in each table, with a value in every column that may have one."""
    for table in Base.metadata.sorted_tables:
        connection.execute(table.delete())
        for special in SPECIAL.get(table.name, [{}]):
            values = {column.name: some_value(column) for column in table.columns}
            connection.execute(table.insert().values(values | special))


def some_value(column: Column[Any]) -> Any:
    """A value for a column; for a reference the id of the other table's first row."""
    samples: dict[type, Any] = {bool: True, int: 3, float: 1.5, dict: {"a": ["é", 1]}}
    if column.foreign_keys or (column.name == "id" and column.type.python_type is str):
        return f"{0:032}"
    sample = samples.get(column.type.python_type, f"{column.name} é")
    return sample[: column.type.length] if isinstance(column.type, String) else sample


def rows_of_all(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, JSON as values."""
    tables = [name for name in inspect(connection).get_table_names() if name != "alembic_version"]
    return {
        name: [
            {column: plain_value(value) for column, value in row.items()}
            for row in connection.execute(text(f'SELECT * FROM "{name}" ORDER BY 1, 2')).mappings()
        ]
        for name in tables
    }


def plain_value(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


@pytest.mark.usefixtures("registry")
def test_every_migration_down_and_up_again_keeps_all_rows_that_the_older_version_can_hold() -> None:
    """One after another, and with the older values when it goes further down."""
    engine = database.make_engine(get_settings().database)
    with engine.execution_options(registry="migrate").connect() as connection:
        outer = connection.begin()
        config = database.alembic_config(connection)
        fill_every_table(connection)
        newer, versions = rows_of_all(connection), []
        assert all(newer.values())
        while (version := connection.scalar(text("SELECT version_num FROM alembic_version"))) != "0001":
            versions.append(version)
            command.downgrade(config, "-1")
            older = rows_of_all(connection)
            assert {name: len(rows) for name, rows in older.items()} == {name: len(newer[name]) for name in older}
            command.upgrade(config, "+1")
            again = rows_of_all(connection)
            for name, rows in older.items():
                columns = rows[0].keys() & newer[name][0].keys()
                kept, before = (
                    [{column: row[column] for column in columns} for row in all_[name]] for all_ in (again, newer)
                )
                assert kept == before, f"{name}, version {version}"
            command.downgrade(config, "-1")
            newer = rows_of_all(connection)
            assert newer == older
        assert len(versions) == int(database.VERSION) - 1
        outer.rollback()
    engine.dispose()
    assert differences() == []


def downgrade_to(version: str) -> None:
    """The registry at an older version, closed."""
    engine = database.make_engine(get_settings().database)
    with engine.execution_options(registry="migrate").connect() as connection, connection.begin():
        command.downgrade(database.alembic_config(connection), version)
    engine.dispose()
    database.close_engines()


def test_an_older_registry_is_copied_aside_and_brought_up_with_all_its_rows(home: Path) -> None:
    with database.transaction() as session:
        session.add(Corpus(name="kept", source="here"))
    downgrade_to("0001")
    database.migrate()
    with database.reading() as session:
        assert [corpus.name for corpus in session.scalars(select(Corpus))] == ["kept"]
    assert database.registry_version(get_settings()) == database.VERSION
    with closing(sqlite3.connect(home / "registry.db.0001")) as copy:
        assert copy.execute("SELECT name FROM corpora").fetchall() == [("kept",)]
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]


def test_a_registry_from_before_clusters_keeps_its_corpora_domains_and_experts(home: Path) -> None:
    assert home
    with database.transaction() as session:
        artifact = Artifact(kind="documents", sha256="0" * 64)
        corpus = Corpus(name="kept", source="here")
        session.add(
            Domain(
                name="law",
                corpus=corpus,
                num_documents=1,
                num_words=1,
                num_bytes=1,
                data_sha256="0" * 64,
                artifact=artifact,
            )
        )
    downgrade_to("0003")
    database.migrate()
    with database.transaction() as session:
        (domain,) = session.scalars(select(Domain))
        assert (domain.name, domain.corpus.name, domain.corpus.clustering_id) == ("law", "kept", None)
        clustering = Clustering(name="c", num_documents=1, num_fitted=1, artifact=domain.artifact)
        clustering.clusters = [Cluster(number=0, name="all", num_documents=1, domain=domain)]
        session.add(clustering)
        session.flush()
        domain.corpus.clustering_id = clustering.id
    with pytest.raises(IntegrityError), database.transaction() as session:
        session.execute(text("UPDATE corpora SET clustering_id = 'nothing'"))


def test_evaluations_of_before_hits_were_counted_are_kept_and_their_accuracy_is_unknown(home: Path) -> None:
    with database.transaction() as session:
        artifact = Artifact(kind="scores", sha256="0" * 64)
        domain = Domain(
            name="law",
            corpus=Corpus(name="kept", source="here"),
            num_documents=1,
            num_words=1,
            num_bytes=1,
            data_sha256="0" * 64,
            artifact=artifact,
        )
        expert = Expert(
            name="law",
            method="demix",
            domain=domain,
            base=artifact,
            artifact=artifact,
            num_parameters=1,
            tokenizer_sha256="0" * 64,
            data_sha256="0" * 64,
            colour_number=0,
            mark="La",
            code_version="0",
        )
        session.add(
            Evaluation(
                expert=expert,
                domain=domain,
                artifact=artifact,
                split="test",
                block_size=8,
                num_tokens=10,
                log_likelihood=-20.0,
                num_correct=5,
            )
        )
    downgrade_to("0004")
    with closing(sqlite3.connect(home / "registry.db")) as connection:
        assert "num_correct" not in {row[1] for row in connection.execute("PRAGMA table_info(evaluations)")}
    database.migrate()
    with database.reading() as session:
        (card,) = list_evaluations(session)
    assert (card.perplexity, card.accuracy) == (pytest.approx(math.exp(2)), None)


@pytest.mark.usefixtures("home")
def test_a_registry_from_before_identities_gets_one_and_keeps_it() -> None:
    downgrade_to("0005")
    database.migrate()
    with database.reading() as session:
        made = find_registry_id(session)
    assert made is not None  # committed before any artifacts could name it
    with database.transaction() as session:
        assert registry_id(session) == made


@pytest.mark.usefixtures("home")
def test_jobs_of_before_kinds_were_renamed_can_be_read() -> None:
    names = {"train-demix": "train-joint", "replicate": "replicate-demix", "overlap": "measure-overlap"}
    facts = [{"title": "a job", "kind": kind, "state": "done"} for kind in ("evaluate", *names)]
    with database.transaction() as session:
        session.add_all(Job(id=kind, kind=kind, title=kind, spec={"kind": kind, "domains": []}) for kind in names)
        session.add(Job(id="evaluate", kind="evaluate", title="", spec={"kind": "evaluate", "mixture": "overlap"}))
        session.add(Report(id="overlap", kind="overlap", title="", findings={"domains": ["law"]}))
        session.add(Report(id="report", kind="replication", title="", findings={"jobs": facts, "name": "replicate"}))
    downgrade_to("0006")
    database.migrate()
    with database.reading() as session:
        jobs = {job.id: (job.kind, job.spec["kind"]) for job in session.scalars(select(Job))}
        report, other = session.get_one(Report, "report"), session.get_one(Report, "overlap")
        kept = session.get_one(Job, "evaluate").spec
        findings, overlap = report.findings, (other.kind, other.findings)
    assert jobs == {old: (new, new) for old, new in names.items()} | {"evaluate": ("evaluate", "evaluate")}
    assert kept == {"kind": "evaluate", "mixture": "overlap"}
    assert [job["kind"] for job in findings["jobs"]] == ["evaluate", *names.values()]
    assert findings["name"] == "replicate"
    assert overlap == ("overlap", {"domains": ["law"]})


@pytest.mark.usefixtures("home")
def test_an_older_workbench_finds_every_gpu_by_an_address() -> None:
    with database.transaction() as session:
        for number, address in (("2", "GPU-5a60-11"), ("3", "")):
            device = {"host": "ada", "uuid": number, "number": number, "address": address}
            session.add(Device(**device, worker="w", seen_until=1.0))
    downgrade_to("0020")
    with sqlite3.connect(get_settings().root / "registry.db") as connection:
        assert connection.execute("SELECT address FROM devices ORDER BY uuid").fetchall() == [("GPU-5a60-11",), ("3",)]


@pytest.mark.usefixtures("home")
def test_fields_of_before_they_were_renamed_can_be_read() -> None:
    text = {"kind": "import-corpus", "name": "law", "local_source": "python"}
    specs = {
        "text": text,
        "expert": {"kind": "train-expert", "name": "a", "full_model": True},
        "replication": {"kind": "replicate-demix", "name": "r", "imports": [text]},
        "other": {"kind": "evaluate", "mixture": "found", "whole": "stays"},
    }
    with database.transaction() as session:
        session.add_all(Job(id=id, kind=spec["kind"], title=id, spec=spec) for id, spec in specs.items())
    downgrade_to("0009")
    with sqlite3.connect(get_settings().root / "registry.db") as connection:
        older = dict(connection.execute("SELECT id, spec FROM jobs").fetchall())
    assert json.loads(older["text"]) == {"kind": "import-corpus", "name": "law", "found": "python"}
    assert json.loads(older["expert"]) == {"kind": "train-expert", "name": "a", "whole": True}
    database.migrate()
    with database.reading() as session:
        assert {job.id: job.spec for job in session.scalars(select(Job))} == specs


@pytest.mark.usefixtures("home")
def test_experts_of_before_they_had_colours_get_them_in_the_order_in_which_they_were_made() -> None:
    """Colours of disabled experts are free again; marks come from the last part of a name, and are all different."""
    names = ["m/python", "m/pylint", "m/py", "m/py-two", "m/√", *(f"m/p{place}" for place in range(6))]
    with database.transaction() as session:
        artifact = Artifact(kind="x", sha256="0" * 64)
        session.add(artifact)
        for place, name in enumerate(names):
            session.add(
                Expert(
                    name=name,
                    method="demix",
                    base=artifact,
                    artifact=artifact,
                    num_parameters=1,
                    tokenizer_sha256="0" * 64,
                    data_sha256="0" * 64,
                    colour_number=40 + place,
                    mark=f"#{place}",
                    enabled=name != "m/pylint",
                    created_at=float(-place if name == "m/√" else place),
                )
            )
    downgrade_to("0011")
    with sqlite3.connect(get_settings().root / "registry.db") as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(experts)")}
        assert connection.execute("SELECT count(*) FROM experts").fetchone() == (len(names),)
    assert not columns & {"colour_number", "mark"}
    database.migrate()
    with database.reading() as session:
        looks = {look.name: (look.colour_number, look.mark) for look in list_looks(session)}
    assert looks == {
        "m/√": (0, "Aa"),
        "m/python": (1, "Py"),
        "m/pylint": (2, "Pl"),
        "m/py": (2, "P0"),
        "m/py-two": (3, "Pt"),
        "m/p0": (4, "P1"),
        "m/p1": (5, "P2"),
        "m/p2": (6, "P3"),
        "m/p3": (7, "P4"),
        "m/p4": (8, "P5"),
        "m/p5": (9, "P6"),
    }
    with pytest.raises(IntegrityError), database.transaction() as session:
        session.execute(text("UPDATE experts SET mark = 'Py'"))


@pytest.mark.usefixtures("home")
def test_the_gain_of_a_calibration_is_read_from_the_notes_of_an_older_registry_once() -> None:
    changed = "Evidence calibrated on dev text of law: decay 1, which changed last token by"
    notes = {
        "today": f"{changed} −4.9 % [−6.0, −3.8] of perplexity.",
        "older": f"{changed} +0.5 % perplexity [-0.2, +1.2].",
        "kept": "Evidence calibrated on dev text of law: kept x; y would change −1.0 % [−2.0, +0.1] of perplexity.",
        "mine": "Which changed nothing.",
    }
    job: dict[str, Any] = {"kind": "evaluate", "title": "", "spec": {"kind": "evaluate"}}
    with database.transaction() as session:
        session.add_all(Mixture(name=name, notes=note) for name, note in notes.items())
        session.add(Job(**job, state="done", result={"scored": 3, "calibration": notes["today"]}, finished_at=9.0))
        session.add(Job(**job, state="done", result={"scored": 3}, finished_at=12.0))
        session.add(Job(**job, state="queued"))
    downgrade_to("0015")
    with sqlite3.connect(get_settings().root / "registry.db") as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(mixtures)")}
        assert dict(connection.execute("SELECT name, notes FROM mixtures").fetchall()) == notes
    assert "calibration" not in columns
    database.migrate()
    with database.reading() as session:
        stored = {row.name: row.calibration for row in session.scalars(select(Mixture))}
        assert {row.name: row.notes for row in session.scalars(select(Mixture))} == notes
    assert stored == {
        "today": {"value": -4.9, "low": -6.0, "high": -3.8, "at": 9.0},
        "older": {"value": 0.5, "low": -0.2, "high": 1.2, "at": None},
        "kept": None,
        "mine": None,
    }


FLAT = {
    "kind": "posterior",
    "evidence": "last_token",
    "newest_weight": 0.5,
    "update_every": 64,
    "top_k": 2,
    "clustering": "c" * 32,
    "temperature": 0.3,
    "distance_power": 4.0,
    "freeze_after": 9,
}
DISTANCES = {"clustering": "c" * 32, "temperature": 0.3, "distance_power": 4.0, "freeze_after": 9}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"kind": "posterior", "top_k": None, "evidence": "prefix"}),
        (FLAT, {"kind": "posterior", "top_k": 2, "evidence": "last_token"}),
        (FLAT | {"kind": "fixed"}, {"kind": "fixed", "top_k": 2}),
        (
            FLAT | {"kind": "updating"},
            {"kind": "updating", "top_k": 2, "evidence": "last_token", "newest_weight": 0.5, "update_every": 64},
        ),
        (FLAT | {"kind": "cluster"}, {"kind": "cluster", "top_k": 2, **DISTANCES}),
        (
            FLAT | {"kind": "cluster-posterior"},
            {"kind": "cluster-posterior", "top_k": 2, **DISTANCES, "evidence": "last_token"},
        ),
    ],
)
def test_gates_of_before_keep_only_their_own_settings(
    home: Path, old: dict[str, object], new: dict[str, object]
) -> None:
    assert home
    spec = {"kind": "make-mixture", "name": "m", "experts": ["e"], "clustering": None}
    with database.transaction() as session:
        session.add(Mixture(name="m", gate=new))
        session.add(Job(kind="make-mixture", title="m", spec=spec | {"gate": new}))
        session.add(Job(kind="overlap", title="o", spec={"kind": "overlap"}))
    downgrade_to("0006")
    with database.make_engine(get_settings().database).begin() as connection:
        connection.execute(text("UPDATE mixtures SET gate = :gate"), {"gate": json.dumps(old)})
        jobs = text("UPDATE jobs SET spec = :spec WHERE kind = 'make-mixture'")
        connection.execute(jobs, {"spec": json.dumps(spec | {"gate": old})})
    database.migrate()
    with database.reading() as session:
        gate = session.scalars(select(Mixture)).one().gate
        specs = {job.kind: job.spec for job in session.scalars(select(Job))}
    assert gate == new
    assert dump_gate(load_gate(gate)) == new
    assert parse_spec(specs["make-mixture"]).gate == load_gate(new)
    assert specs["measure-overlap"] == {"kind": "measure-overlap"}


def test_a_job_of_before_that_names_a_clustering_keeps_its_cluster_settings(home: Path) -> None:
    assert home
    spec = {"kind": "make-mixture", "name": "m", "experts": ["e"], "clustering": "topics", "gate": {}}
    with database.transaction() as session:
        session.add(Job(kind="make-mixture", title="m", spec=spec))
    downgrade_to("0006")
    with database.make_engine(get_settings().database).begin() as connection:
        connection.execute(text("UPDATE jobs SET spec = :spec"), {"spec": json.dumps(spec | {"gate": FLAT})})
    database.migrate()
    with database.reading() as session:
        stored = session.scalars(select(Job)).one().spec
    assert stored["gate"] == {"kind": "cluster", "top_k": 2, **DISTANCES}


def test_gates_go_back_to_the_settings_of_all(home: Path) -> None:
    assert home
    with database.transaction() as session:
        session.add(Mixture(name="m", gate={"kind": "fixed", "top_k": 3}))
    downgrade_to("0006")
    with database.make_engine(get_settings().database).begin() as connection:
        [gate] = connection.execute(text("SELECT gate FROM mixtures")).scalars()
    assert json.loads(gate) == {**FLAT, "kind": "fixed", "top_k": 3} | {
        "evidence": "prefix",
        "newest_weight": 0.7,
        "update_every": 256,
        "clustering": None,
        "temperature": 0.1,
        "distance_power": 2.0,
        "freeze_after": None,
    }


def test_what_older_jobs_had_only_in_sentences_becomes_data(home: Path) -> None:
    assert home
    with database.transaction() as session:
        mode = create_job(session, MakeSeed(name="composed", domains=["law"]))
        broken = Job(kind="import-corpus", title="t", spec={}, state="failed", error="a.jsonl, line 7: not JSON.")
        lost = Job(kind="import-corpus", title="t", spec={}, state="failed", error="There is no such file.")
        session.add_all([broken, lost])
        session.flush()
        ids = [broken.id, lost.id]
        add_event(session, mode, "Checkpoint at step 1,000.")
        add_event(session, mode, "Its gates weigh the backbone and the parts court, v1.5, kitchen.")
    downgrade_to("0006")
    database.migrate()
    with database.reading() as session:
        seen = [(event.kind, event.data) for event in events(session, mode)]
        failures = [get_job(session, id).failure for id in ids]
    assert seen == [(None, None), ("checkpoint", None), ("parts", {"parts": ["court", "v1.5", "kitchen"]})]
    assert failures == [Failure(code="corpus_error", line=7), None]


def test_migrating_twice_changes_nothing(home: Path) -> None:
    database.close_engines()
    before = (home / "registry.db").read_bytes()
    database.migrate()
    database.close_engines()
    assert (home / "registry.db").read_bytes() == before


@pytest.mark.parametrize(("home", "words"), [("file", "is a file, not a folder"), ("file/below", "is not writable")])
def test_a_home_that_cannot_be_written_is_reported_in_a_sentence(tmp_path: Path, home: str, words: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=words):
        database.migrate(Settings(home=tmp_path / home))


def test_processes_may_migrate_concurrently(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "new" / "home")
    others = [fork.Process(target=database.migrate, args=(settings,)) for _ in range(4)]
    for one in others:
        one.start()
    for one in others:
        one.join()
    assert [one.exitcode for one in others] == [0, 0, 0, 0]
    database.require_registry(settings)


def test_a_home_without_a_registry_says_what_to_run(tmp_path: Path) -> None:
    with (
        pytest.raises(NoRegistryError, match=r"There is no registry in .*no-home\. Run `workbench migrate`"),
        reading(),
    ):
        pass
    assert not (tmp_path / "no-home").exists()


@pytest.mark.usefixtures("home")
def test_an_older_registry_is_migrated_and_a_newer_one_is_left_unchanged() -> None:
    for version, advice in (("0000", "Run `workbench migrate`"), ("9999", "Install the newer workbench")):
        with transaction() as session:
            session.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
        with pytest.raises(NoRegistryError, match=f"has version {version}.* {advice}"):
            database.require_registry()
    with pytest.raises(NoRegistryError, match="newer workbench"):
        database.migrate()


def test_a_file_that_is_no_registry_is_refused(home: Path) -> None:
    (home / "registry.db").write_bytes(b"this is not a database, though long enough to look like one" * 20)
    with pytest.raises(NoRegistryError, match="is damaged"):
        database.require_registry()


def test_a_url_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(NoRegistryError, match="not valid for SQLAlchemy") as caught:
        database.make_engine("secret password")
    assert "secret" not in str(caught.value)


def test_a_driver_that_is_not_installed_is_named() -> None:
    with pytest.raises(NoRegistryError, match=r"The driver of “postgresql\+asyncpg99” is not installed\.") as caught:
        database.make_engine("postgresql+asyncpg99://me:secret@host/name")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://me:secret@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x?password=secret"])
def test_a_server_that_does_not_answer_is_named_without_its_password(tmp_path: Path, url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(RegistryUnavailableError, match="Start the database server") as caught:
        database.require_registry(Settings(home=tmp_path, database_url=url))
    assert "secret" not in str(caught.value)


def test_a_server_that_refuses_what_the_url_names_says_so(tmp_path: Path, postgres_url: str) -> None:
    absent = postgres_url.replace("@/postgres?", "@/absent?")
    with pytest.raises(RegistryUnavailableError, match=r"does not exist.* Correct WORKBENCH_DATABASE_URL"):
        database.require_registry(Settings(home=tmp_path, database_url=absent))


@pytest.mark.usefixtures("registry")
def test_what_fails_halfway_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError), transaction() as session:
        session.add(Mixture(name="half"))
        session.flush()
        raise ZeroDivisionError
    with reading() as session:
        assert session.scalars(select(Mixture)).all() == []


@pytest.mark.usefixtures("registry")
def test_who_reads_cannot_write() -> None:
    with pytest.raises(DBAPIError, match=r"read-?only"), reading() as session:
        session.add(Mixture(name="sly"))
        session.flush()
    with transaction() as session:
        session.add(Mixture(name="honest"))


@pytest.mark.usefixtures("registry")
def test_who_reads_sees_one_moment() -> None:
    with reading() as early:
        assert early.scalars(select(Mixture)).all() == []
        with transaction() as session:
            session.add(Mixture(name="late"))
        assert early.scalars(select(Mixture)).all() == []


@pytest.mark.usefixtures("registry")
def test_references_are_kept() -> None:
    with pytest.raises(IntegrityError), transaction() as session:
        session.execute(text("INSERT INTO job_dependencies VALUES ('nobody', 'nothing')"))


@pytest.mark.usefixtures("registry")
def test_large_numbers_fit() -> None:
    with transaction() as session:
        session.execute(text("INSERT INTO artifacts VALUES ('a', 'k', NULL, 's', 5000000000, NULL, 0)"))
    with reading() as session:
        assert session.scalar(text("SELECT size_bytes FROM artifacts")) == 5_000_000_000


@pytest.mark.usefixtures("home")
def test_a_forked_process_opens_connections_of_its_own() -> None:
    with transaction() as session:
        session.add(Mixture(name="parent"))
        child = fork.Process(target=_read_as_a_child)
        child.start()
        child.join(60)
        assert child.exitcode == 0
    with reading() as session:
        assert session.scalars(select(Mixture.name)).all() == ["parent"]


def _read_as_a_child() -> None:
    with reading() as session:  # the parent's row is not committed yet
        assert session.scalars(select(Mixture)).all() == []


@pytest.mark.usefixtures("registry")
def test_a_writer_that_is_killed_leaves_nothing_and_holds_nobody_up() -> None:
    child = fork.Process(target=_die_writing)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with transaction() as session:
        session.add(Mixture(name="next"))
    with reading() as session:
        assert session.scalars(select(Mixture.name)).all() == ["next"]


def _die_writing() -> None:
    with transaction() as session:
        session.add(Mixture(name="dead"))
        session.flush()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("home")
def test_a_writer_that_waits_too_long_is_refused_with_advice_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with transaction() as session:
        session.add(Mixture(name="slow"))
        session.flush()
        with pytest.raises(RegistryUnavailableError, match="Try again in a moment"), transaction() as other:
            other.execute(text("SELECT 1"))


def test_a_full_disk_is_called_by_its_name(home: Path) -> None:
    with pytest.raises(DiskFullError, match=f"The disk of {home} is full"), transaction() as session:
        session.execute(text("PRAGMA max_page_count = 1"))  # as small as the file is
        for number in range(1000):
            values = f"({number}, {number}, '{{}}', hex(zeroblob(9000)), 0)"
            session.execute(text(f"INSERT INTO mixtures (id, name, gate, notes, created_at) VALUES {values}"))
    database.close_engines()
    with reading() as session:
        assert session.scalars(select(Mixture)).all() == []


@pytest.mark.parametrize(
    "module", ["workbench.registry.database", "workbench.job_records.jobs", "workbench.requests.planning"]
)
def test_the_registry_wakes_no_torch(module: str) -> None:
    heavy = "{'torch', 'transformers', 'alembic', 'pyarrow', 'celery'}"
    code = f"import sys, {module}; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("registry", ["postgresql"], indirect=True)
def test_a_connection_that_the_server_cut_is_replaced(registry: str) -> None:
    assert registry == "postgresql"
    cut = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() AND datname = 'postgres'"
    )
    with pytest.raises(RegistryUnavailableError, match="does not respond"), transaction() as session:
        session.add(Mixture(name="lost"))
        session.flush()
        with database.make_engine(get_settings().database).connect() as other:
            other.execute(cut)
        session.execute(text("SELECT 1"))
    with transaction() as session:
        assert session.scalars(select(Mixture)).all() == []


def test_a_new_home_is_private(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    database.migrate(settings)
    assert settings.root.stat().st_mode & 0o777 == 0o700
