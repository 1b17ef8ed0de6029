"""Few-shot classification of a folder of tasks: asked by name, scored once, kept as a report, refused in words."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from engine.analysis.fewshot.prompts import Episode, make_episode
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from jobs.kinds.analysis import classify
from tests.journeys.conftest import SHAPE, Do, work, write_domain
from ui.cli.app import main
from workbench.answers.cards import JobCard, ReportCard
from workbench.registry import experts, mixtures, reports
from workbench.registry.clusters.clusterings import get_clustering
from workbench.registry.database import close_engines, reading, transaction
from workbench.schema.tables import Artifact
from workbench.settings import Settings
from workbench.specs.requests import MixtureSpec

MOODS = {"good": "sunny warm golden bright gentle", "bad": "rainy bitter frozen stormy bleak"}
TRAINING = {
    "num_steps": 100,
    "block_size": 64,
    "learning_rate": 1e-2,
    "clip": 1.0,
    "evaluate_every": 100,
    "sequences_per_domain": 8,
}
CLASSIFY = {"kind": "classify", "mixture": "pair", "num_shots": 2, "num_validation": 4, "num_seeds": 2, "top_k": [1]}


def example(draw: random.Random) -> dict[str, str]:
    label = draw.choice(list(MOODS))
    return {"text": draw.choice(MOODS[label].split()), "label": label}


def write_lines(path: Path, records: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")


def write_reviews(folder: Path) -> Path:
    """A corpus that is written like a prompt: who was trained on it knows the answers."""
    draw = random.Random(1)
    output = [[f"{one['text']} is {one['label']}" for one in map(example, [draw] * 9)] for _ in range(60)]
    write_lines(folder / "reviews.jsonl", [{"text": "\n\n".join(document)} for document in output])
    return folder / "reviews.jsonl"


@pytest.fixture(scope="session")
def paired_home(tmp_path_factory: pytest.TempPathFactory, empty_registry: Path) -> Path:
    """Two clusters, reviews and the sea, a whole model on each, and their mixture “pair” by nearness. Made once."""
    home = tmp_path_factory.mktemp("paired")
    shutil.copy(empty_registry, home / "registry.db")
    settings = Settings(home=home)
    sources = {"reviews": write_reviews(home), "sea": write_domain(home, "sea")}
    clusters = {"num_clusters": 2, "dimension": 5, "map_size": 0, "scaling": "unit_rows"}
    elms = [
        {
            "kind": "train-joint",
            "method": "dense",
            "name": f"elm-{number}",
            "seed_model": "seed",
            "domains": [f"topics/{number}"],
            "training": TRAINING,
        }
        for number in range(2)
    ]
    for job_spec in [
        *({"kind": "import-corpus", "name": name, "path": str(path)} for name, path in sources.items()),
        {"kind": "make-seed", "name": "seed", "domains": ["reviews", "sea"], "vocab_size": 320, "shape": SHAPE},
        {"kind": "find-clusters", "name": "topics", **clusters},
        {"kind": "make-cluster-domains", "clustering": "topics"},
        *elms,
    ]:
        card = work(job_spec, settings)
        assert card.state == "done", (job_spec, card.error)
    with transaction(settings) as session:
        gate = ClusterGateConfig(clustering=get_clustering(session, "topics").id)
        mixtures.create_mixture(session, MixtureSpec(name="pair", experts=["elm-0/dense", "elm-1/dense"], gate=gate))
    close_engines()
    return home


@pytest.fixture
def paired(home: Path, paired_home: Path) -> Do:
    """A copy of that home; gives the function that runs more jobs in it."""
    shutil.copytree(paired_home, home, dirs_exist_ok=True)
    return work


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    draw = random.Random(2)
    for part, number in (("train", 12), ("test", 24)):
        write_lines(tmp_path / "tasks" / "mood" / f"{part}.jsonl", [example(draw) for _ in range(number)])
    (tmp_path / "tasks" / "mood" / "task.json").write_text('{"template": "{text} is {label}"}', encoding="utf-8")
    return tmp_path / "tasks"


def knows() -> int:
    """The number of the cluster of reviews, and so of the model that knows."""
    with reading() as session:
        (number,) = [one.number for one in get_clustering(session, "topics").clusters if "good" in one.terms[:10]]
    return number


def view() -> None:
    """A page with nothing but the newest report."""
    from ui.studio.experts.certificates import show_classification
    from workbench.registry import reports
    from workbench.registry.database import reading

    with reading() as session:
        card = reports.list_reports(session)[0]
    show_classification(card)


def report_of(card: JobCard) -> ReportCard:
    assert card.state == "done", (card.error, card.next_step)
    with reading() as session:
        return reports.get_report(session, card.result["report"])


def id_of(session: Session, expert: str) -> str:
    return experts.get_expert(session, expert).id


def answer_keys(session: Session) -> list[str]:
    return [str(key) for key in session.scalars(select(Artifact.key).where(Artifact.kind == "answers"))]


def accuracy(report: ReportCard, variant: str, top_k: int | None = None, expert: str = "") -> float:
    (row,) = [
        row for row in report.findings["rows"] if (row["way"], row["top_k"], row["expert"]) == (variant, top_k, expert)
    ]
    return float(row["average"]["mean"])


@pytest.mark.timeout(600)
def test_the_expert_who_knows_is_identified_and_the_report_says_so(paired: Do, tasks: Path) -> None:
    report = report_of(paired({**CLASSIFY, "path": str(tasks)}))
    expert, other = (f"elm-{number}/dense" for number in (knows(), 1 - knows()))
    best = accuracy(report, "alone", expert=expert)
    assert best > 0.9
    assert accuracy(report, "alone", expert=other) < best - 0.2
    for variant in ("cluster", "fixed-validation"):
        assert accuracy(report, variant, 1) == pytest.approx(best)
    assert accuracy(report, "chance") == 0.5
    (task,) = report.findings["tasks"]
    assert (task["clusters"][0]["number"], task["clusters"][0]["expert"]) == (knows(), expert)
    assert "good" in task["clusters"][0]["terms"]
    assert (task["name"], task["num_test"], task["num_cut"]) == ("mood", 24, 0)
    assert report.findings["rows"][-1]["tasks"]["mood"]["seeds"]
    assert "the best of all routings" in report.findings["sentence"]


@pytest.mark.timeout(600)
def test_it_is_used_and_read_on_the_command_line_and_in_the_studio(
    paired: Do, tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requested = [
        "evaluate",
        "classify",
        "pair",
        str(tasks),
        "--shots",
        "2",
        "--validation",
        "4",
        "--seeds",
        "2",
        "--top-k",
        "1",
    ]
    assert main([*requested, "--here"]) == 0
    output = capsys.readouterr().out
    assert "the best of all routings" in output
    with reading() as session:
        (report,) = reports.list_reports(session, kind="classification")
    assert f"workbench report show {report.id[:8]}" in output
    assert main(["report", "show", report.id[:8]]) == 0
    output = capsys.readouterr().out
    assert "by performance on validation examples, top-1" in output
    assert f"single expert: elm-{knows()}/dense" in output
    assert "training examples not used as demonstrations: mood" in output
    assert "sees the correct answers of earlier test examples" in output
    app = AppTest.from_function(view, default_timeout=120).run()
    assert not app.exception
    shown = " ".join(element.value for element in [*app.markdown, *app.caption])
    assert "routing variants on 1 task" in shown
    assert "The clusters whose experts weigh most" in shown


@pytest.mark.timeout(600)
def test_other_routings_of_the_same_prompts_need_no_model(paired: Do, tasks: Path, monkeypatch: Any) -> None:
    first = report_of(paired({**CLASSIFY, "path": str(tasks)}))

    def no_model(*_: Any) -> None:
        raise AssertionError("a model was read")

    monkeypatch.setattr(classify, "load_experts", no_model)
    again = report_of(paired({**CLASSIFY, "path": str(tasks), "routings": ["updating"], "newest_weight": 0.2}))
    assert {row["way"] for row in again.findings["rows"]} == {"chance", "alone", "equal", "updating"}
    assert accuracy(again, "equal") == accuracy(first, "equal")
    write_lines(tasks / "mood" / "test.jsonl", [example(random.Random(9))])
    changed = paired({**CLASSIFY, "path": str(tasks)})
    assert (changed.state, "a model was read" in changed.error) == ("failed", True)


@pytest.mark.timeout(600)
def test_only_the_prompts_of_one_task_and_seed_are_in_memory(paired: Do, tasks: Path, monkeypatch: Any) -> None:
    made: list[ref[Episode]] = []

    def watched(*output: Any) -> Episode:
        episode = make_episode(*output)
        made.append(ref(episode))
        assert sum(one() is not None for one in made) == 1
        return episode

    monkeypatch.setattr(classify, "make_episode", watched)
    report_of(paired({**CLASSIFY, "path": str(tasks), "num_seeds": 3}))
    assert len(made) > 3


@pytest.mark.timeout(600)
def test_one_expert_is_the_dense_model_whatever_the_routing(paired: Do, tasks: Path) -> None:  # L2
    with transaction() as session:
        mixtures.remove_member(session, "pair", "elm-1/dense")
    report = report_of(paired({**CLASSIFY, "path": str(tasks), "experts": ["elm-0/dense", "elm-1/dense"]}))
    by_itself = accuracy(report, "alone", expert="elm-0/dense")
    for variant in ("equal", "cluster", "updating", "fixed", "fixed-validation"):
        assert accuracy(report, variant) == by_itself
    assert accuracy(report, "beside", expert="elm-1/dense") != by_itself
    with transaction() as session:
        left = {id_of(session, f"elm-{number}/dense"): number for number in range(2)}
        assert {number for key in answer_keys(session) for id, number in left.items() if id in key} == {0, 1}
        mixtures.delete_mixture(session, "elm-1")
        experts.delete_expert(session, "elm-1/dense")
    with reading() as session:
        assert {number for key in answer_keys(session) for id, number in left.items() if id in key} == {0}


@pytest.mark.timeout(600)
def test_prompts_that_do_not_fit_are_cut_and_counted(paired: Do, tasks: Path) -> None:
    long = {"text": " ".join(["sunny"] * 20), "label": "good"}
    write_lines(tasks / "mood" / "test.jsonl", [long, {"text": "bleak", "label": "bad"}])
    report = report_of(paired({**CLASSIFY, "path": str(tasks), "num_shots": 8}))
    (task,) = report.findings["tasks"]
    assert task["num_cut"] == CLASSIFY["num_seeds"]  # one each
    assert task["mean_shots"] < 8
    assert f"{task['num_cut']} of {task['num_prompts']} prompts exceeded the context" in report.findings["notes"][0]


@pytest.mark.timeout(600)
def test_what_cannot_be_done_is_refused_in_words(paired: Do, tasks: Path) -> None:
    job_spec = {**CLASSIFY, "path": str(tasks)}
    assert (
        "13 training examples are needed as demonstrations, but there are 12"
        in paired({**job_spec, "num_shots": 13}).error
    )
    assert "but there are 8" in paired({**job_spec, "num_shots": 4, "num_validation": 9}).error
    with transaction() as session:
        mixtures.set_gate(session, "pair", PosteriorGateConfig())
    assert "cluster gate" in paired({**job_spec, "routings": ["cluster"]}).error
    plain = report_of(paired(job_spec))
    assert {row["way"] for row in plain.findings["rows"]} == {
        "chance",
        "alone",
        "equal",
        "updating",
        "fixed",
        "fixed-validation",
    }
    shutil.rmtree(tasks / "mood")
    assert "no tasks" in paired(job_spec).error
