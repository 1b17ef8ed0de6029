"""Write the report of a replication of C-BTM from the scores, distances and clusters of its jobs.

Nothing is trained or scored here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import load_documents
from engine.clusters.sources import first_in_group
from engine.events import Event, Progress
from engine.statistics.bootstrap import Resampled
from engine.text.split_names import SPLITS
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.tokens import domain_files
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.findings import findings_of
from workbench_studies.cbtm.names import MOE
from workbench_studies.cbtm.scored import CbtmMeasured, CbtmSubject, DistanceKey, Grouping, measure
from workbench_studies.core.scored import Scores, Stored
from workbench_studies.kinds.replicate_cbtm import ReplicateCbtm
from workbench_studies.papers.cbtm_plan import TASKS
from workbench_studies.papers.work import tokens_of_update, tokens_per_step
from workbench_studies.running.replication_report import (
    PlannedJobs,
    Texts,
    check_all,
    circumstances,
    job_ids,
    keep_report,
    planned_jobs,
    with_wholes,
)
from workbench_studies.running.stored_results import (
    StoredClusters,
    classifications,
    stored_clusters,
    stored_distances,
    stored_scores,
)


def run(work: Work, spec: ReplicateCbtm) -> Generator[Event, None, Register]:
    """Reads the stored results, judges the claims and writes the report."""
    subject = CbtmSubject(spec.name, spec.seeds, tuple(spec.domains), tuple(spec.novel), spec.budget, bool(spec.tasks))
    homes = [home for one in subject.runs for home in one.domains(subject.main, subject.domains)]
    with work.reading() as session:
        planned = planned_jobs(session, spec)
        ids = job_ids(planned)
        scores = stored_scores(session, work.storage, spec.budget, [*subject.everywhere, *homes], ids)
        clusterings = stored_clusters(session, work.storage, ids)
        distances = stored_distances(session, work.storage, list(clusterings), scores, spec.budget.block_size, ids)
        answers = _answers(session, subject, planned)
        names = {domain for _, domain, _ in scores} | {name for one in clusterings.values() for name in one.sources}
        files = {name: domain_files(session, work.storage, name) for name in names}
    texts = {name: one.documents() for name, one in files.items()}
    measured = yield from _measure(subject, scores, distances, clusterings, texts)
    measured.answers.update(answers)
    measured.updates.update(_updates(subject, planned))
    yield Progress(1, 2, "parts", "judging the claims")
    evidence = CbtmEvidence(subject, measured, Resampled(measured.losses))
    trainings = {
        "seeding": asdict(spec.budget.seeding),
        "less": spec.budget.less,
        "moe": asdict(spec.budget.moe) if spec.budget.moe else None,
        "moe_seeds": spec.budget.moe_seeds,
        "smaller": asdict(spec.budget.smaller) if spec.budget.smaller else None,
        "ablations_at_less": spec.budget.ablations_at_less,
        "training_tokens": spec.budget.training.num_steps * tokens_of_update(spec.budget.training, 1),
    }
    return keep_report(work, findings_of(evidence, circumstances(work, spec, planned, trainings)))


def _answers(session: Session, subject: CbtmSubject, planned: PlannedJobs) -> dict[int, dict[str, Any]]:
    """The findings of each seed's classification, if there is one."""
    reports = classifications(session, job_ids(planned))
    by_key = {step.key: reports[card.id].findings for step, card in planned if card and card.id in reports}
    return {run.seed: by_key[key] for run in subject.runs if (key := f"s{run.seed} {TASKS}") in by_key}


def _updates(subject: CbtmSubject, planned: PlannedJobs) -> dict[tuple[int, str], list[float]]:
    """Seconds of an update of each model of the arms at the full budget, and of a mixture of experts, by seed."""
    seconds = {
        step.key: tokens_per_step(step) / speed
        for step, card in planned
        if card and (speed := card.result.get("throughput", {}).get("tokens_per_second"))
    }
    updates: dict[tuple[int, str], list[float]] = {}
    for run in subject.runs:
        keys = {arm.key: [f"{arm.key} {number}" for number in range(arm.num_models)] for arm in subject.arms}
        for name, of_models in {**keys, MOE: [MOE]}.items():
            known = [seconds[key] for one in of_models if (key := f"s{run.seed} {one}") in seconds]
            if len(known) == len(of_models):
                updates[run.seed, name] = known
    return updates


def _measure(
    subject: CbtmSubject,
    scores: Scores,
    distances: Mapping[DistanceKey, Stored],
    clusterings: Mapping[str, StoredClusters],
    texts: Texts,
) -> Generator[Event, None, CbtmMeasured]:
    check_all([*scores.values(), *distances.values()])
    measured = CbtmMeasured()
    for run in subject.runs:
        for arm in subject.arms:
            if (clusters := clusterings.get(run.clustering(arm))) is not None:
                measured.groupings[run.seed, arm.clustering] = _grouping(clusters, texts)
    total = subject.seeds * (len(subject.everywhere) + subject.main.num_models)
    scores = with_wholes(scores, texts)
    for done, place in enumerate(measure(subject, scores, distances, measured), 1):
        yield Progress(done, total, "texts", f"mixing stored scores: {place}")
    return measured


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
