"""A registry as after an afternoon of work, made through the services alone; its weights are not real."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.text.corpus import Document
from engine.text.split import store_documents
from workbench.analysis import perplexity_tables
from workbench.answers.cards import CorpusCard
from workbench.job_records import jobs, leases
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import corpora, experts, mixtures, seeds
from workbench.registry.corpora import domain_row
from workbench.registry.database import transaction
from workbench.schema.base import new_id
from workbench.schema.tables import Artifact
from workbench.settings import Settings, get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts
from workbench.store.storage import Storage, get_storage

# A name that would do harm on a page that forgot to escape it.
HOSTILE = "<b>law</b> *x* :red[y] $z$ [a](http://b)"
DOMAINS = ("code", "prose", HOSTILE)
TEXTS = {
    "code": "def add(a, b):\n    return a + b\n",
    "prose": "It was a bright cold day in April, and the clocks were striking.\n",
    HOSTILE: "The tenant shall pay the rent on the first day of each month.\n",
    "poems": "Shall I compare thee to a summer's day?\n",
}
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 512,
}
LOSSES = {  # nats per token of each expert on each domain; at home the least
    "code": (1.1, 2.6, 2.9, 2.8),
    "prose": (2.7, 1.6, 2.2, 1.9),
    HOSTILE: (2.8, 2.1, 1.4, 2.3),
}


@pytest.fixture(autouse=True)
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that is measured learns nothing: the weights are not real. A test that measures gives the forecast."""
    monkeypatch.setattr("ui.widgets.job_form._stages", lambda _: (one for one in ()))


@pytest.fixture(autouse=True)
def _reads_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview, which every visit begins with, reads no text until a click; its own tests let it."""
    monkeypatch.setattr("ui.studio.analysis.opening_text.MOST_PARAMETERS", 0)


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Popovers and expanders hold what they hold once they are opened, which these tests cannot click."""
    monkeypatch.setattr("ui.widgets.on_demand._was_opened", lambda _: True)


@pytest.fixture
def filled_home(home: Path) -> Path:
    """A home with domains, a seed, a DEMix model, one expert more, scores, and a job in every state."""
    fill(get_settings())
    return home


@pytest.fixture
def folders_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages may read the test's folder."""
    monkeypatch.setenv("WORKBENCH_DATA_FOLDERS", str(tmp_path))
    get_settings.cache_clear()


def fill(settings: Settings) -> None:
    """Puts everything into an empty registry."""
    storage = get_storage(settings)
    with transaction(settings) as session:
        for name in TEXTS:
            _corpus(session, storage, name)
        seed = _seed(session, storage)
        job_id = _ended_job(session, TrainJoint(name="first", seed_model="tiny", domains=list(DOMAINS)))
        _curve(session, job_id)
        base = _artifact(session, storage, "demix-base")
        for domain in DOMAINS:
            _expert(session, storage, f"first/{domain}", domain, base, seed_id=seed, job_id=job_id)
        _expert(session, storage, "laws again", HOSTILE, base, parent=f"first/{HOSTILE}", job_id=job_id)
        mixtures.create_mixture(
            session, MixtureSpec(name="first", experts=[f"first/{d}" for d in DOMAINS], gate=PosteriorGateConfig())
        )
        _scores(session, storage)
        _jobs(session)


def _artifact(session: Session, storage: Storage, kind: str) -> Artifact:
    id = new_id()
    with storage.new(id) as folder:
        (folder / "data.txt").write_text(kind, encoding="utf-8")
    return artifacts.register_artifact(session, storage, id, kind)


def _corpus(session: Session, storage: Storage, name: str) -> CorpusCard:
    id = new_id()
    with storage.new(id) as folder:
        documents = (Document(f"{i}. {TEXTS[name] * 20}", name, None, f"{name}.txt:{i}") for i in range(60))
        for _ in store_documents(documents, folder):
            pass
        summary = _summary(folder)
    artifact = artifacts.register_artifact(session, storage, id, "corpus")
    refused = [{"path": "x.txt", "line": 3, "reason": "The line must be UTF-8, but is not."}]
    dummies = {"email": 3, "ssn": 0, "phone_number": 1200}
    report = {
        "num_documents": 60,
        "num_duplicates": 2,
        "num_refused": 1,
        "refused": refused,
        "anonymized": dummies,
    }
    return corpora.register_corpus(
        session,
        name=f"import of {name}"[:80],
        role=_role(name),
        source=f"/data/{name}.txt",
        licence="CC0",
        artifact=artifact,
        summary=summary,
        report=report,
    )


def _role(name: str) -> str:
    return "train" if name in DOMAINS else "novel"


def _summary(folder: Path) -> dict[str, object]:
    import json

    result: dict[str, object] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return result


def _seed(session: Session, storage: Storage) -> str:
    card = seeds.register_seed(
        session,
        name="tiny",
        source="fresh",
        family="llama",
        config=CONFIG,
        num_parameters=61_000,
        tokenizer_sha256="ab" * 32,
        artifact=_artifact(session, storage, "seed"),
    )
    return card.id


def _expert(
    session: Session,
    storage: Storage,
    name: str,
    domain: str,
    base: Artifact,
    *,
    seed_id: str | None = None,
    parent: str | None = None,
    job_id: str | None = None,
) -> None:
    artifact = _artifact(session, storage, "expert")
    row = domain_row(session, domain)
    experts.register_expert(
        session,
        id=artifact.id,
        name=name,
        method="demix",
        domain_id=row.id,
        seed_id=seed_id,
        parent_id=experts.get_expert(session, parent).id if parent else None,
        base=base,
        artifact=artifact,
        tokenizer_sha256="ab" * 32,
        data_sha256=row.data_sha256,
        num_parameters=1_240_000,
        config={"training": {"num_steps": 100, "learning_rate": 1e-3 if seed_id else 1e-4}},
        metrics={},
        code_version="0.1.0",
        job_id=job_id,
    )


def _scores(session: Session, storage: Storage) -> None:
    for expert, losses in LOSSES.items():
        for domain, loss in zip(TEXTS, losses, strict=True):
            perplexity_tables.register_evaluation(
                session,
                expert_id=experts.get_expert(session, f"first/{expert}").id,
                domain_id=domain_row(session, domain).id,
                split="test",
                block_size=128,
                num_tokens=2048,
                log_likelihood=-loss * 2048,
                num_correct=round(math.exp(-loss) * 2048),
                artifact=_artifact(session, storage, "scores"),
            )


def _ended_job(session: Session, spec: object, state: str = "done", **shown: object) -> str:
    job_id = jobs.create_job(session, spec)
    fence = leases.claim(session, job_id, "test", 60.0, 3)
    assert fence is not None
    leases.finish(session, job_id, fence, state, **shown)
    return job_id


def _curve(session: Session, job_id: str) -> None:
    from workbench.schema.job_tables import Metric

    for step in range(1, 101, 3):
        for place, domain in enumerate(DOMAINS):
            loss = 1.2 + place * 0.3 + 5 * math.exp(-step / 30)
            session.add(Metric(job_id=job_id, name=f"loss/{domain}", step=step, value=loss))
            if step % 20 == 1:
                session.add(Metric(job_id=job_id, name=f"dev_loss/{domain}", step=step, value=loss + 0.2))


def _jobs(session: Session) -> None:
    job_spec = TrainExpert(name="laws again", domain=HOSTILE, mixture="first")
    cause = {"error": "The loss is NaN at step 12.", "next_step": "Choose a smaller learning_rate and retry."}
    _ended_job(session, job_spec, "failed", **cause)
    _ended_job(session, Evaluate(mixture="first"), "cancelled")
    running = jobs.create_job(session, TrainJoint(name="second", seed_model="tiny", domains=["code"]))
    fence = leases.claim(session, running, "test", 600.0, 3)
    assert fence is not None
    note = "step 40 of 100 · loss 2.31 nats/token"
    leases.record(session, running, fence, progress=0.4, note=note, eta_seconds=75.0, metrics=[("loss", 40, 2.31)])
    paused = jobs.create_job(session, MakeSeed(name="other", domains=["code"]))
    jobs.request_stop(session, paused, "pause")
    jobs.create_job(session, Evaluate(mixture="first", split="dev"), after=[running])
