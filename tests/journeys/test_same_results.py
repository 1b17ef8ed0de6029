"""One spec, one result: no weight and no number depends on ids, which are drawn at random.

The same jobs run in two homes. In one every new id comes after all earlier ones in the alphabet, in the other before
them: whatever is ordered by ids is ordered the other way round.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from engine.methods.registry import joint_methods
from tests.journeys.conftest import SHAPE, WORDS, branch_train_merge, done, work, write_domain
from tests.journeys.test_classify import example, write_lines
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.perplexities import mix_scores
from workbench.questions.posteriors import PriorRequest
from workbench.registry.database import close_engines, reading
from workbench.schema.job_tables import Job, Metric
from workbench.schema.tables import Clustering, Evaluation, Expert, Mixture, Report
from workbench.settings import Settings
from workbench.store.storage import get_storage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ALL, TEXT = [*WORDS], {"block_size": 32, "max_tokens": 200}
SHORT = {"num_steps": 3, "block_size": 32, "sequences_per_domain": 1, "learning_rate": 5e-3, "clip": 0.1}
SHORT |= {"evaluate_every": 2, "evaluation_blocks": 2, "checkpoint_every": 2}
ADAPT = {"training": {**SHORT, "learning_rate": None}}
STEPS = {"seed_model": "seed", "training": SHORT}
TWO_BLOCKS = {"shape": {"num_blocks": 2, "expert_layers": 1}, **STEPS}
TRAININGS: list[dict[str, Any]] = [
    *({"kind": "train-joint", "name": one, "method": one, "domains": ALL, **STEPS} for one in joint_methods()),
    {"kind": "train-joint", "name": "one", "method": "dense", "domains": ["court"], "retain": ["sea"], **STEPS},
    {"kind": "train-joint", "name": "two", "method": "dense", "domains": ["kitchen"], **STEPS},
    {"kind": "average-experts", "name": "mean", "experts": ["one/dense", "two/dense"]},
    {"kind": "train-expert", "name": "sailor", "mixture": "demix", "domain": "sea", "watch": ["court"], **ADAPT},
    {"kind": "train-expert", "name": "adapted", "mixture": "one", "domain": "sea", "full_model": True, **ADAPT},
    {"kind": "train-mode", "name": "law", "domains": ["court"], **TWO_BLOCKS},
    {"kind": "train-mode", "name": "food", "domains": ["kitchen", "sea"], **TWO_BLOCKS},
    {"kind": "compose-mode", "name": "both", "experts": ["law/court", "food/mixed"], "domains": ALL, "training": SHORT},
]
CLUSTERINGS = [
    {"kind": "find-clusters", "name": method, "method": method, "num_clusters": 3, "dimension": 5, "domains": ALL}
    for method in ("balanced", "unbalanced", "random")
]
ANALYSES: list[dict[str, Any]] = [
    {"kind": "evaluate", "mixture": "demix", "experts": ["dense/dense"], **TEXT},
    {"kind": "evaluate", "mixture": "demix", "split": "dev", "calibrate": True, **TEXT},
    {"kind": "evaluate", "mixture": "ensemble", **TEXT},
    {"kind": "measure-overlap", "domains": ALL},
    {"kind": "certify-addition", "expert": "sailor", "mixture": "demix", **TEXT},
    {
        **{"kind": "certify-removal", "expert": "demix/court", "mixture": "demix", "num_blocks": 3, **TEXT},
        **{"num_prefixes": 10, "prefix_length": 8, "continuation_length": 4, "temperature": 1.0},
    },
    {"kind": "split-cluster", "clustering": "unbalanced", "cluster": "0"},
    {"kind": "merge-clusters", "clustering": "random", "clusters": ["2", "0"]},
]
Results = dict[str, Any]


def forced_ids(patch: pytest.MonkeyPatch, step: int) -> None:
    """Ids of rows and of jobs' results that go up, or with a step below 0 down."""
    numbers, known = itertools.count(1 << 127, step << 64), dict[tuple[uuid.UUID, str], uuid.UUID]()

    def of_name(namespace: uuid.UUID, name: str) -> uuid.UUID:
        if (namespace, name) not in known:
            known[namespace, name] = uuid.UUID(int=next(numbers))
        return known[namespace, name]

    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
    patch.setattr(uuid, "uuid5", of_name)


def write_tasks(folder: Path) -> Path:
    draw = random.Random(2)
    for part in ("train", "test"):
        write_lines(folder / "tasks" / "mood" / f"{part}.jsonl", [example(draw) for _ in range(8)])
    (folder / "tasks" / "mood" / "task.json").write_text('{"template": "{text} is {label}"}', encoding="utf-8")
    return folder / "tasks"


def run_all(files: Path, settings: Settings) -> None:
    for name in WORDS:
        done(work({"kind": "import-corpus", "name": name, "path": str(write_domain(files, name))}, settings))
    seed = {"kind": "make-seed", "name": "seed", "domains": ALL, "vocab_size": 320, "shape": SHAPE}
    for spec in (seed, *CLUSTERINGS, *TRAININGS):
        done(work(spec, settings))
    branch_train_merge("balanced", "ensemble", settings, **SHORT)
    classify = {"kind": "classify", "num_shots": 2, "num_validation": 2, "num_seeds": 1, "top_k": [1]}
    classify |= {"path": str(write_tasks(files)), "mixture": "demix", "experts": ["one/dense"]}
    for spec in (*ANALYSES, classify):
        done(work(spec, settings))


def made_in(home: Path, files: Path, step: int) -> Results:
    """What all jobs give in a home with such ids."""
    settings = Settings(home=home)
    with pytest.MonkeyPatch.context() as patch:
        forced_ids(patch, step)
        run_all(files, settings)
        results = read_results(settings)
    close_engines()
    return results


def read_results(settings: Settings) -> Results:
    with reading(settings) as session:
        storage = get_storage(settings)
        curves = session.execute(select(Job.title, Metric.name, Metric.step, Metric.value).join(Job)).tuples()
        scores = {
            (row.expert.name, row.domain.name, row.split): (row.log_likelihood, row.num_correct, row.artifact.sha256)
            for row in session.scalars(select(Evaluation))
        }
        tables = [mix_scores(session, storage, name) for name in ("demix", "ensemble")]
        tables.append(InferenceModesRequest(mixture="demix", evidence="last_token").answer(session, storage))
        tables.append(PriorRequest(name="", mixture="demix", domain="court", num_blocks=3).answer(session, storage))
        return {
            "weights": {row.name: (row.artifact.sha256, row.base.sha256) for row in session.scalars(select(Expert))},
            "curves": {curve[:3]: curve[3] for curve in curves if not curve[1].endswith("per_second")},
            "scores": scores,
            "clusterings": {one.name: clustering(one) for one in session.scalars(select(Clustering))},
            "gates": {row.name: without_ids(row.gate) for row in session.scalars(select(Mixture))},
            "tables": [without_ids(table.model_dump()) for table in tables],
            "reports": {row.title: without_ids(row.findings) for row in session.scalars(select(Report))},
        }


def clustering(row: Clustering) -> Any:
    clusters = [
        (cluster.number, cluster.num_documents, cluster.terms, cluster.representatives) for cluster in row.clusters
    ]
    return row.artifact.sha256, row.metrics, clusters


def without_ids(value: Any) -> Any:
    """JSON without ids and what the clock gives."""
    if isinstance(value, dict):
        return {without_ids(name): without_ids(one) for name, one in value.items() if name not in ("seconds", "path")}
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    return re.sub(r"\b[0-9a-f]{32}\b", "ID", value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, empty_registry: Path) -> tuple[Results, Results]:
    """Of the same jobs with ids that go up, and with ids that go down."""
    made = []
    for step in (1, -1):
        home, files = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("files")
        shutil.copy(empty_registry, home / "registry.db")
        made.append(made_in(home, files, step))
    return made[0], made[1]


@pytest.mark.parametrize("what", ["weights", "curves", "scores", "clusterings", "gates", "tables", "reports"])
def test_jobs_give_the_same_bits_whatever_their_ids_are(results: tuple[Results, Results], what: str) -> None:
    one, other = (some[what] for some in results)
    assert len(one) > 2
    assert one == other
