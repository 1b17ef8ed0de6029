"""Write the report of a replication from the scores, curves and clusters of its jobs.

Nothing is trained or scored here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import document_ids, first_in_group, load_documents
from engine.device import device_name, versions
from engine.errors import Problem
from engine.events import Event, Progress
from engine.text.split_names import SPLITS
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.tokens import domain_files
from workbench.answers.cards import JobCard
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import corpora
from workbench.registry.reports import register_report
from workbench.specs.requests import PlanStep
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact
from workbench.store.storage import Storage
from workbench_studies.cbtm.measurements import CbtmMeasurements, Grouping
from workbench_studies.cbtm.names import MOE, ReplicateCbtm
from workbench_studies.core.measurements import Scores, Stored
from workbench_studies.core.spec import Replicate, tokens_of_update, tokens_per_step
from workbench_studies.core.verdicts import summary
from workbench_studies.demix.measurements import Curve, DemixMeasurements, TrainedModel
from workbench_studies.demix.names import METHODS
from workbench_studies.mode.claims import ModeMeasurements
from workbench_studies.papers.catalog import PAPERS, Circumstances, JobFacts, paper_of, plan
from workbench_studies.papers.cbtm_plan import TASKS
from workbench_studies.papers.report_pages import markdown, page
from workbench_studies.papers.todays_rule import with_todays_marks
from workbench_studies.running.submission import REPORT, StoredClusters, StoredResults, jobs_of

Texts = Mapping[str, Path]  # the folders of documents by domain


def run(work: Work, spec: Replicate) -> Generator[Event, None, Register]:
    """Reads the stored results, judges the claims and writes the report."""
    paper = PAPERS[spec.paper]
    measured = paper.measurements(spec)
    full_report = spec.model_copy(update={"partial": False})  # a partial report has the same plan
    with work.reading() as session:
        cards = jobs_of(session, full_report)
        planned = [(step, cards.get(step.key)) for step in plan(full_report)]
        submitted = [(step, card) for step, card in planned if card]
        results = StoredResults(session, work.storage, spec.budget, submitted)
        inputs = _INPUTS[spec.paper](results, measured)
        sources = {name for clusters in inputs.clusterings.values() for name in clusters.sources}
        names = sorted({domain for _, domain, _ in inputs.scores} | sources)
        files = {name: domain_files(session, work.storage, name) for name in names}
        samples = [_sample(session, work.storage, name) for name in (*spec.domains, *spec.novel)]
    texts = {name: file.documents() for name, file in files.items()}
    for stored in (*inputs.scores.values(), *inputs.distances):
        stored.kept.check()  # raises DamagedFileError if it has changed
    for key, clusters in inputs.clusterings.items():
        measured.groupings[key] = _grouping(clusters, texts)
    num_texts = spec.seeds * (len(spec.everywhere) + inputs.num_homes)
    for done, text in enumerate(measured.measure(with_wholes(inputs.scores, texts)), 1):
        yield Progress(done, num_texts, "texts", f"reading stored scores: {text}")
    yield Progress(1, 2, "parts", "judging the claims")
    values = {**asdict(spec.budget), "block_size": spec.budget.block_size}
    trainings = {name: (getattr(spec.budget, name), number) for name, number in inputs.trainings.items()}
    tokens = {f"{name}_tokens": one.max_steps * tokens_of_update(one, num) for name, (one, num) in trainings.items()}
    circumstances = Circumstances(
        spec.paper,
        device_name(work.settings.device),
        versions(),
        spec.size,
        {**{name: values[name] for name in (*_BUDGET, *inputs.budget)}, **tokens},
        [_facts(step, card) for step, card in planned],
        corpus=spec.corpus,
        date=datetime.now(UTC).date().isoformat(),
        command=spec.command,
        samples=[sample for sample in samples if sample],
    )
    return _keep_report(work, paper.findings(measured, circumstances, **inputs.more))


_BUDGET = (  # the fields of a size that all findings have
    "shape",
    "vocab_size",
    "training",
    "test_tokens",
    "block_size",
    "prior_blocks",
    "max_bytes",
    "piece_length",
)


def with_wholes(scores: Scores, texts: Texts) -> Scores:
    """Adds to the scores which documents are pieces of one longer document."""
    places = {(domain, split) for _, domain, split in scores}
    wholes = {}
    for domain, split in places:
        folders = [texts[domain]]
        wholes[domain, split] = first_in_group(folders, document_ids(folders, [split]))
    return {key: replace(score, wholes_D=wholes[key[1:]]) for key, score in scores.items()}


# what is stored of each paper's replication -------------------------------------------------------


@dataclass(frozen=True)
class _Inputs:
    """What a paper's measurements are made of."""

    scores: Scores
    budget: Sequence[str]  # the fields of its size that other papers do not have
    trainings: Mapping[str, int]  # the fields of its size that are trainings, and how many domains each reads
    distances: Sequence[Stored] = ()
    clusterings: Mapping[tuple[int, str], StoredClusters] = field(default_factory=dict)  # by seed and name in the run
    num_homes: int = 0  # texts of each seed that are clusters
    more: Mapping[str, Any] = field(default_factory=dict)  # what the findings have besides measurements


def _demix_inputs(results: StoredResults, measured: DemixMeasurements) -> _Inputs:
    spec = measured.subject
    compared = {run.mixture(method) for run in spec.runs for method in METHODS}
    if overlap := results.reports("overlap").get("overlap"):
        pairs = product(overlap["domains"], repeat=2)
        measured.overlap = dict(zip(pairs, map(float, chain(*overlap["overlap"])), strict=True))
    return _Inputs(
        results.scores(spec.everywhere),
        ("adapting",),
        {"adapting": 1, "training": len(spec.domains)},
        more={**_trainings(results, compared), "words": results.word_counts(spec.everywhere)},
    )


def _trainings(results: StoredResults, compared: set[str]) -> dict[str, list[Any]]:
    """The curves of trainings, and what the joint ones made for comparison; of jobs that are done."""
    curves, models, made = [], [], results.num_parameters()
    for step, card in results.submitted:
        match step.spec:
            case TrainJoint(name=name, method=method, training=training, seed_model=seed) if name in compared:
                curves.append(Curve(method, training.seed, results.loss_curves(card.id), tokens_per_step(step)))
                names = [seed, *step.spec.experts]
                if all(one in made for one in names):
                    own, *experts = (made[one] for one in names)
                    speed, devices = card.result.get("throughput", {}), card.result.get("devices")
                    models.append(TrainedModel(method, training.seed, own, tuple(experts), speed, devices))
            case TrainExpert(domain=target, full_model=full_model, training=training):
                system = "dense-DAPT" if full_model else "DEMix-DAPT"
                losses = results.loss_curves(card.id)
                curves.append(Curve(system, training.seed, losses, tokens_per_step(step), target))
    return {"curves": curves, "models": models}


def _cbtm_inputs(results: StoredResults, measured: CbtmMeasurements) -> _Inputs:
    spec, clusterings = measured.subject, results.clusterings()
    homes = [home for run in spec.runs for home in run.domains(spec.main, spec.domains)]
    scores, answers = results.scores([*spec.everywhere, *homes]), results.reports("classification")
    measured.distances |= results.distances(scores)
    measured.answers |= {run.seed: answers[key] for run in spec.runs if (key := run.step_key(TASKS)) in answers}
    measured.updates |= _updates(results, spec)
    return _Inputs(
        scores,
        ("seeding", "less", "moe", "moe_seeds", "smaller", "ablations_at_less"),
        {"training": 1},
        list(measured.distances.values()),
        {
            (run.seed, arm.clustering): clusters
            for run in spec.runs
            for arm in spec.arms
            if (clusters := clusterings.get(run.clustering(arm)))
        },
        spec.main.num_models,
    )


def _updates(results: StoredResults, spec: ReplicateCbtm) -> dict[tuple[int, str], list[float]]:
    """Seconds of an update of each model of the arms at the full budget, and of a mixture of experts, by seed."""
    seconds = {
        step.key: tokens_per_step(step) / speed
        for step, card in results.submitted
        if (speed := card.result.get("throughput", {}).get("tokens_per_second"))
    }
    updates: dict[tuple[int, str], list[float]] = {}
    for run in spec.runs:
        models = {arm.key: [f"{arm.key} {number}" for number in range(arm.num_models)] for arm in spec.arms}
        for name, keys in {**models, MOE: [MOE]}.items():
            known = [seconds[key] for model in keys if (key := run.step_key(model)) in seconds]
            if len(known) == len(keys):
                updates[run.seed, name] = known
    return updates


def _grouping(clusters: StoredClusters, texts: Texts) -> Grouping:
    clusters.kept.check()
    documents = load_documents(clusters.kept.folder)
    labels, labels_N = np.unique(np.array(clusters.sources)[documents.sources_N], return_inverse=True)
    wholes_N = first_in_group([texts[name] for name in clusters.sources], documents.ids_N)
    is_held_out_N = documents.splits_N != SPLITS.index("train")
    return Grouping(
        tuple(labels.tolist()),
        labels_N,
        documents.labels_N,
        wholes_N,
        is_held_out_N,
        clusters.information,
        clusters.terms,
    )


def _mode_inputs(results: StoredResults, measured: ModeMeasurements) -> _Inputs:
    spec = measured.subject
    measured.num_parameters.update(results.num_parameters())
    return _Inputs(
        results.scores(spec.everywhere),
        ("seeding", "mode", "lora", "shared_backbone", "ablation_seeds"),
        {"seeding": len(spec.known), "training": len(spec.targets)},
    )


_INPUTS: Mapping[str, Callable[[StoredResults, Any], _Inputs]] = {
    "demix": _demix_inputs,
    "cbtm": _cbtm_inputs,
    "mode": _mode_inputs,
}


# the report ---------------------------------------------------------------------------------------


def _sample(session: Session, storage: Storage, name: str) -> dict[str, Any]:
    """The size of a domain and the starts of some of its training documents; empty if it is not imported yet."""
    try:
        card = corpora.get_domain(session, name)
        documents = corpora.preview_documents(session, storage, name, limit=_NUM_LINES)
    except Problem:
        return {}
    lines = [" ".join(document.text[: 4 * _LINE].split())[:_LINE] for document in documents]
    return {"domain": name, "documents": card.num_documents, "bytes": card.num_bytes, "lines": lines}


_NUM_LINES, _LINE = 3, 100  # documents, characters


def _facts(step: PlanStep, card: JobCard | None) -> JobFacts:
    kind, writes_report = step.spec.model_dump()["kind"], isinstance(step.spec, Replicate)
    if card is None:
        return JobFacts(step.title, kind, "not submitted", None, writes_report=writes_report)
    seconds = card.finished_at - card.started_at if card.finished_at and card.started_at else None
    training = step.spec.training if isinstance(step.spec, TrainJoint | TrainExpert | TrainMode | ComposeMode) else None
    tokens = training.max_steps * tokens_per_step(step) if training else None
    is_own = card.title == step.title
    return JobFacts(step.title, kind, card.state, seconds, tokens, is_own=is_own, writes_report=writes_report)


def _keep_report(work: Work, findings: dict[str, Any]) -> Register:
    """Stores Markdown, one HTML page and the findings as JSON in an artifact."""
    findings, artifact_id = with_todays_marks(findings), work.stable_id("report")
    with work.storage.new(artifact_id) as folder:
        (folder / "report.md").write_text(markdown(findings), encoding="utf-8")
        (folder / "report.html").write_text(page(findings), encoding="utf-8")
        (folder / "findings.json").write_text(json.dumps(findings, indent=1), encoding="utf-8")
    title = paper_of(findings).report_title(findings)

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.REPORT, job_id=work.job_id)
        report = register_report(session, REPORT, title, findings, artifact=artifact, job_id=work.job_id)
        return {"name": findings["name"], "report": report.id, "summary": summary(findings), "marks": findings["marks"]}

    return register
