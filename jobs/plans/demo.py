"""The demo: real jobs on local text of this machine, from import to a mixture for generation."""

from __future__ import annotations

from engine.config import ModelConfig, TrainingConfig
from engine.text.local_sources import SOURCES
from jobs.queue.submit import call_workers
from workbench.job_records import jobs as rows
from workbench.kinds.analysis import Evaluate
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.corpora import list_corpora
from workbench.registry.database import reading, transaction
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec
from workbench.store.storage import get_storage

NAME = "demo"
DESCRIPTION = (
    "The demo begins: it imports text that this machine has, trains five experts on it and scores them.\n"
    "That takes some ten minutes on two processor cores; the page Overview shows how far it is.\n"
    "Ctrl-C stops it, and the next start continues it."
)
_DOMAIN_BYTES = 3_000_000  # of each domain: enough for some minutes of training
SHAPE = ModelConfig(family="llama", num_layers=4, width=128, num_heads=4, ffn_width=384, max_positions=512)
TRAINING = TrainingConfig(
    num_steps=600,
    block_size=256,
    sequences_per_domain=2,
    learning_rate=4e-3,
    clip=1.0,
    checkpoint_every=25,
    evaluate_every=100,
)


def is_fresh(settings: Settings | None = None) -> bool:
    """True for a workbench without jobs, corpora and artifacts (those without rows belong to a lost registry)."""
    if get_storage(settings).ids():
        return False
    with reading(settings) as session:
        return not rows.list_jobs(session) and not list_corpora(session)


def submit_demo(settings: Settings | None = None) -> list[str]:
    """Submits the demo's jobs in one transaction, each after those it needs; returns their ids."""
    settings = settings or get_settings()
    train = [name for name, source in SOURCES.items() if source.role == "train"]
    with transaction(settings) as session:
        jobs: list[str] = []

        def queue(spec: Spec, title: str) -> None:
            jobs.append(rows.create_job(session, spec, title=title, after=jobs[-1:]))

        for name, source in SOURCES.items():
            role = "train" if source.role == "train" else "novel"
            queue(
                ImportCorpus(name=name, local_source=name, role=role, max_bytes=_DOMAIN_BYTES), f"Import {source.title}"
            )
        queue(MakeSeed(name=NAME, domains=train, shape=SHAPE), "Make a small seed model and its tokenizer")
        queue(
            TrainJoint(name=NAME, seed_model=NAME, domains=train, training=TRAINING),
            f"Train {len(train)} experts together",
        )
        queue(Evaluate(mixture=NAME, block_size=256, max_tokens=12_000), "Score every expert on every domain")
        dev = Evaluate(mixture=NAME, domains=train, split="dev", block_size=256, max_tokens=12_000, calibrate=True)
        queue(dev, "Score dev text and calibrate the mixture")
    call_workers(settings, jobs[:1])
    return jobs
