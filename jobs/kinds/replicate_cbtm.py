"""Write the report of a replication of C-BTM from the scores, distances and clusters that its jobs left.

Nothing is trained or scored here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import load_documents
from engine.events import Event, Progress
from engine.replication.bootstrap import Resampled
from engine.text.split import SPLITS
from jobs.kinds.replication_report import (
    Asked,
    asked_for,
    check_all,
    circumstances,
    job_ids,
    keep_report,
    tokens_of_update,
)
from jobs.work import Register, Work
from workbench.replications.cbtm.evidence import CbtmEvidence
from workbench.replications.cbtm.findings import findings_of
from workbench.replications.cbtm.plan import TASKS
from workbench.replications.cbtm.scored import CbtmMeasured, CbtmSubject, DistanceKey, Grouping, measure
from workbench.replications.scored import Scores, Stored
from workbench.services.replications import (
    FoundClusters,
    classifications,
    found_clusters,
    stored_distances,
    stored_scores,
)
from workbench.specs import ReplicateCbtm


def run(work: Work, spec: ReplicateCbtm) -> Generator[Event, None, Register]:
    """Reads, judges, writes."""
    subject = CbtmSubject(spec.name, spec.seeds, tuple(spec.domains), tuple(spec.novel), spec.budget)
    homes = [home for one in subject.runs for home in one.domains(subject.main, subject.domains)]
    with work.reading() as session:
        asked = asked_for(session, spec)
        ids = job_ids(asked)
        scores = stored_scores(session, work.storage, spec.budget, [*subject.everywhere, *homes], ids)
        clusterings = found_clusters(session, work.storage, ids)
        distances = stored_distances(session, work.storage, list(clusterings), scores, spec.budget.block_size, ids)
        answers = _answers(session, subject, asked)
    measured = yield from _measure(subject, scores, distances, clusterings)
    measured.answers.update(answers)
    yield Progress(1, 2, "parts", "judging the claims")
    evidence = CbtmEvidence(subject, measured, Resampled(measured.losses))
    trainings = {
        "seeding": asdict(spec.budget.seeding), "less": spec.budget.less,
        "training_tokens": spec.budget.training.num_steps * tokens_of_update(spec.budget.training, 1),
    }  # fmt: skip
    return keep_report(work, findings_of(evidence, circumstances(work, spec, asked, trainings)))


def _answers(session: Session, subject: CbtmSubject, asked: Asked) -> dict[int, dict[str, Any]]:
    """What the classification of each seed found, as far as there is one."""
    found = classifications(session, job_ids(asked))
    by_key = {step.key: found[card.id] for step, card in asked if card and card.id in found}
    return {run.seed: by_key[key] for run in subject.runs if (key := f"s{run.seed} {TASKS}") in by_key}


def _measure(
    subject: CbtmSubject, scores: Scores, distances: Mapping[DistanceKey, Stored],
    clusterings: Mapping[str, FoundClusters],
) -> Generator[Event, None, CbtmMeasured]:  # fmt: skip
    check_all([*scores.values(), *distances.values()])
    measured = CbtmMeasured()
    for run in subject.runs:
        for arm in subject.arms:
            if (found := clusterings.get(run.clustering(arm))) is not None:
                measured.groupings[run.seed, arm.clustering] = _grouping(found)
    total = subject.seeds * (len(subject.everywhere) + subject.main.num_models)
    for done, place in enumerate(measure(subject, scores, distances, measured), 1):
        yield Progress(done, total, "texts", f"mixing stored scores: {place}")
    return measured


def _grouping(found: FoundClusters) -> Grouping:
    found.kept.check()
    documents = load_documents(found.kept.folder)
    is_held_out_N = documents.splits_N != SPLITS.index("train")
    counts_LK = np.array(found.counts, dtype=np.int64)
    return Grouping(found.labels, counts_LK, found.information, documents.labels_N[is_held_out_N], found.terms)
