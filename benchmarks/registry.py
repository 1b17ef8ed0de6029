"""Claim: with 1,000 experts, 10,000 jobs and a million points of curves, a list, a filter or a card of the registry
takes as many statements as with a tenth of them.

Goal: at most 100 ms of processor time (95 %) for each, asked as the servers do: what they have imported is not searched
for garbage.

A registry of its own (SQLite, in a temporary home) is filled with rows; no file is behind them. Every question is asked
30 times, each in a session of its own, as pages and API do.
Run: python benchmarks/registry.py
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event, insert
from sqlalchemy.orm import Session

from harness.benchmark import Figure, Options, p95, report
from workbench.analysis import search
from workbench.job_records import jobs
from workbench.registry import corpora, experts, mixtures
from workbench.registry.database import get_engine, migrate, reading, transaction
from workbench.schema.job_tables import Job, JobEvent, Metric
from workbench.schema.tables import Artifact, Corpus, Domain, Evaluation, Expert, Mixture, MixtureMember, SeedModel
from workbench.settings import Settings

SIZES = {
    "experts": (1_000, 1_000),
    "jobs": (10_000, 6_000, "at least 6,000, since one question skips 500 of a tenth of them"),
    "points": (10_000, 20, "of each curve; one job in a hundred has one"),
    "times": (30, 2),
}
NUM_DOMAINS = 50
LIMIT_SECONDS = 0.1
SHAPE = {"num_layers": 2, "width": 64, "num_heads": 4, "ffn_width": 256, "max_positions": 512}
Question = Callable[[Session], object]


def fill(settings: Settings, num_experts: int, num_jobs: int, num_curves: int, num_points: int) -> None:
    """Writes the rows: a mixture for each 50 experts, which are scored on every domain of it."""
    job_ids = [f"job{number:029}" for number in range(num_jobs)]
    with transaction(settings) as session:
        add_jobs(session, job_ids, num_curves, num_points)
        add_texts(session, num_experts)
        add_experts(session, num_experts, job_ids)
        add_mixtures(session, num_experts)


def add_jobs(session: Session, job_ids: list[str], num_curves: int, num_points: int) -> None:
    """Jobs with an event each; the first have a curve of their loss."""
    states = ("done",) * 17 + ("failed", "cancelled", "queued")
    rows = [
        {
            "id": one,
            "kind": "evaluate" if number % 3 else "train-expert",
            "title": f"Job {number}",
            "spec": {},
            "state": states[number % 20],
            "created_at": float(number),
        }
        for number, one in enumerate(job_ids)
    ]
    add(session, Job, rows)
    add(session, JobEvent, [{"job_id": one, "at": 0.0, "message": "Queued."} for one in job_ids])
    for one in job_ids[:num_curves]:
        points = range(num_points)
        add(session, Metric, [{"job_id": one, "name": "loss", "step": step, "value": 1.0} for step in points])


def add_texts(session: Session, num_experts: int) -> None:
    """The artifacts of everything, the corpus with its domains, and the seed model."""
    domain_ids = [f"d{number}" for number in range(NUM_DOMAINS)]
    names = ["base", *domain_ids, *(f"e{number}" for number in range(num_experts))]
    add(session, Artifact, [{"id": name, "kind": "any", "sha256": "0" * 64, "size_bytes": 1000} for name in names])
    session.add(Corpus(id="corpus", name="corpus", source="x"))
    session.flush()
    rows = [
        {
            "id": one,
            "corpus_id": "corpus",
            "name": f"domain {number}",
            "num_documents": 1,
            "num_words": 1,
            "num_bytes": 1,
            "data_sha256": "0" * 64,
            "artifact_id": one,
        }
        for number, one in enumerate(domain_ids)
    ]
    add(session, Domain, rows)
    seed_model = SeedModel(
        id="seed",
        name="seed",
        source="fresh",
        family="llama",
        artifact_id="base",
        tokenizer_sha256="0" * 64,
        num_parameters=1_000_000,
        config={**SHAPE, "vocab_size": 2048},
    )
    session.add(seed_model)
    session.flush()


def add_experts(session: Session, num_experts: int, job_ids: list[str]) -> None:
    """Every second expert has a parent."""
    rows = [
        {
            "id": f"e{number}",
            "name": f"mix{number // NUM_DOMAINS}/domain {number % NUM_DOMAINS}",
            "method": "demix",
            "domain_id": f"d{number % NUM_DOMAINS}",
            "seed_id": "seed",
            "base_id": "base",
            "artifact_id": f"e{number}",
            "parent_id": f"e{number - 1}" if number % 2 else None,
            "tokenizer_sha256": "0" * 64,
            "data_sha256": "0" * 64,
            "num_parameters": 500_000,
            "colour_number": number,
            "mark": f"{number:03x}",
            "job_id": job_ids[number % len(job_ids)],
        }
        for number in range(num_experts)
    ]
    add(session, Expert, rows)


def add_mixtures(session: Session, num_experts: int) -> None:
    """Mixtures of 50 experts, and each expert's score on every domain."""
    num_mixtures = num_experts // NUM_DOMAINS
    gate = {"kind": "fixed"}
    add(session, Mixture, [{"id": f"m{one}", "name": f"mix{one}", "gate": gate} for one in range(num_mixtures)])
    members = [
        {"mixture_id": f"m{number // NUM_DOMAINS}", "expert_id": f"e{number}", "position": number % NUM_DOMAINS}
        for number in range(num_mixtures * NUM_DOMAINS)
    ]
    add(session, MixtureMember, members)
    scores = [
        {
            "expert_id": f"e{number}",
            "domain_id": f"d{domain}",
            "split": "test",
            "block_size": 512,
            "num_tokens": 1000,
            "log_likelihood": -5000.0,
            "artifact_id": f"e{number}",
        }
        for number in range(num_experts)
        for domain in range(NUM_DOMAINS)
    ]
    add(session, Evaluation, scores)


def add(session: Session, table: type, rows: list[dict[str, object]]) -> None:
    session.execute(insert(table), rows)


QUESTIONS: dict[str, Question] = {
    "all experts": experts.list_experts,
    "one expert": lambda session: experts.get_expert(session, "mix1/domain 7"),
    "lineage of one expert": lambda session: experts.lineage(session, "mix1/domain 7"),
    "all mixtures": mixtures.list_mixtures,
    "one mixture": lambda session: mixtures.get_mixture(session, "mix1"),
    "all domains": corpora.list_domains,
    "newest jobs": jobs.list_jobs,
    "failed jobs": lambda session: jobs.list_jobs(session, state="failed"),
    "jobs of a kind": lambda session: jobs.list_jobs(session, kind="train-expert"),
    "jobs from the 500th": lambda session: jobs.list_jobs(session, offset=500),
    "jobs by state, counted": jobs.count_by_state,
    "a search": lambda session: search.search(session, "1"),
    "a curve of 10,000 points": lambda session: jobs.metrics(session, f"job{0:029}"),
}


def ask(settings: Settings, question: Question, times: int) -> tuple[list[float], int]:
    """Seconds of processor time of each time, and statements of the last."""
    statements: list[str] = []
    engine = get_engine(settings)

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    seconds = []
    for _ in range(times):
        statements.clear()
        start = time.process_time()
        with reading(settings) as session:
            question(session)
        seconds.append(time.process_time() - start)
    event.remove(engine, "before_cursor_execute", note)
    return seconds, len(statements)


def measure(num_experts: int, num_jobs: int, options: Any) -> dict[str, tuple[list[float], int]]:
    """What `ask` gives for each question, in a registry of this size."""
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home) / "home")
        migrate(settings)
        fill(settings, num_experts, num_jobs, max(1, num_jobs // 100), options.points)
        gc.collect()
        gc.freeze()
        return {name: ask(settings, question, options.times) for name, question in QUESTIONS.items()}


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    tenth = measure(options.experts // 10, options.jobs // 10, options)
    full = measure(options.experts, options.jobs, options)
    slowest = {name: p95(seconds) for name, (seconds, _) in full.items()}
    statements = {name: (tenth[name][1], num_statements) for name, (_, num_statements) in full.items()}
    growing = [name for name, (of_a_tenth, of_all) in statements.items() if of_all > of_a_tenth]
    name = "processor time of the slowest question (95 %)"
    figures = [
        Figure(name, [*slowest.values()], "s", at_most=LIMIT_SECONDS, statistic=max),
        Figure("questions with more statements than with a tenth of the rows", [len(growing)], "questions", at_most=0),
    ]
    report(options, figures, p95_seconds=slowest, statements=statements, more_statements=growing)


if __name__ == "__main__":
    main()
