"""A replication is a plan of ordinary jobs that goes on where it was left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import CorpusError
from jobs.queue.submit import place
from workbench.errors import BadSpecError
from workbench.job_records import jobs, leases
from workbench.job_records.preconditions import kind_of
from workbench.kinds import kind as specs
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import reading, transaction
from workbench.specs.base import RegistryObject
from workbench.specs.requests import PlanStep
from workbench_studies.core.spec import Replicate
from workbench_studies.demix.names import SIZES
from workbench_studies.papers.catalog import PAPERS, plan
from workbench_studies.running.replicate import _facts
from workbench_studies.running.submission import (
    find_replication,
    jobs_of,
    new_spec,
    replications,
    submit_replication,
    with_fields,
)

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Domains with many sources, with some, and with none."""
    sources = {"train/books": 450, "train/news": 60, "novel/tweets": 0}
    for name, count in sources.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [{"text": f"Text {i}.", **({"source": f"s{i % count}"} if count else {})} for i in range(450)]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


@pytest.fixture
def job_spec(folder: Path) -> Replicate:
    return new_spec("demix", "rep", "smoke", 2, folder=folder)


@pytest.fixture(params=PAPERS)
def any_spec(folder: Path, request: pytest.FixtureRequest) -> Replicate:
    """Of any paper, with enough domains for each."""
    (folder / "train" / "law.jsonl").write_text((folder / "train" / "books.jsonl").read_text(), encoding="utf-8")
    return new_spec(request.param, "rep", "smoke", 2, folder=folder)


def end(job_id: str, state: str = "done") -> None:
    """Somebody worked on a job, and it ended so."""
    with transaction() as session:
        fence = leases.claim(session, job_id, "test", 60.0, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, state, error="" if state == "done" else "It broke.")


def states(job_spec: Replicate) -> dict[str, str]:
    with reading() as session:
        return {key: card.state for key, card in jobs_of(session, job_spec).items()}


def test_files_become_domains_and_only_small_groups_stay_together(job_spec: Replicate, folder: Path) -> None:
    assert (job_spec.domains, job_spec.novel, job_spec.removed) == (["books", "news"], ["tweets"], ["books"])
    assert [(text.role, text.group_field) for text in job_spec.imports] == [
        ("train", "source"),
        ("train", ""),
        ("novel", ""),
    ]
    assert job_spec.imports[0].path == str(folder / "train" / "books.jsonl")


@pytest.mark.parametrize("missing", ["train/news.jsonl", "novel/tweets.jsonl"])
def test_a_folder_with_too_few_domains_is_refused_with_its_place(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(CorpusError, match=missing.split("/")[0]):
        new_spec("demix", "rep", "smoke", 2, folder=folder)


def test_domains_of_the_registry_are_refused_when_named_twice_or_too_few() -> None:
    with pytest.raises(BadSpecError, match="Name each domain once"):
        new_spec("demix", "rep", "smoke", 1, domains=["a", "b"], novel=["a"])
    with pytest.raises(BadSpecError, match="at least 2"):
        new_spec("demix", "rep", "smoke", 1, domains=["a"], novel=["b"])


def test_every_step_comes_after_what_it_needs(any_spec: Replicate) -> None:
    steps = plan(any_spec)
    makers: dict[RegistryObject, str] = {}
    for step in steps[:-1]:
        kind = kind_of(step.spec)
        assert {makers[thing] for thing in kind.requires(step.spec)} == set(step.after)
        makers |= dict.fromkeys(kind.creates(step.spec), step.key)
    keys = [step.key for step in steps]
    assert len(set(keys)) == len(keys)
    assert steps[-1].after == tuple(keys[:-1])


def test_the_most_telling_results_come_first(job_spec: Replicate) -> None:
    trained = [step.spec for step in plan(job_spec) if isinstance(step.spec, TrainJoint | TrainExpert)]
    assert [(one.name, one.training.seed) for one in trained[:4]] == [
        ("rep-s0", 0),
        ("rep-s0-dense", 0),
        ("rep-s1", 1),
        ("rep-s1-dense", 1),
    ]
    assert {one.method for one in trained[4:8]} == {"dense-balanced", "domain-token"}
    assert [one.name for one in trained[-1:]] == ["rep-s0-no-books"]
    assert {one.full_model for one in trained[8:-1]} == {False, True}


def test_trainings_of_two_seeds_do_not_wait_for_each_other(job_spec: Replicate) -> None:
    steps = {step.key: step for step in plan(job_spec)}

    def behind(step: PlanStep) -> set[str]:
        return set(step.after).union(*(behind(steps[key]) for key in step.after))

    assert not any(key.startswith("s0") for step in steps.values() if step.key.startswith("s1") for key in behind(step))


def test_only_the_last_job_writes_a_report(any_spec: Replicate) -> None:
    steps = plan(any_spec)
    assert [_facts(step, None).writes_report for step in steps] == [*(False for _ in steps[1:]), True]
    submit_replication(any_spec)
    with reading() as session:
        cards = jobs_of(session, any_spec)
    assert _facts(steps[-1], cards[steps[-1].key]).writes_report


def test_after_a_failure_it_goes_on_with_what_is_not_done(job_spec: Replicate) -> None:
    ids = dict(zip([step.key for step in plan(job_spec)], submit_replication(job_spec), strict=True))
    end(ids["import books"], "failed")
    failed = states(job_spec)
    assert failed["s0 seed"] == failed["s1 demix"] == failed["report"] == "failed"
    assert failed["import news"] == "queued"
    assert submit_replication(job_spec) == list(ids.values())
    assert set(states(job_spec).values()) == {"queued"}


def test_what_a_done_job_made_and_somebody_deleted_is_made_again(job_spec: Replicate) -> None:
    first = submit_replication(job_spec)
    end(first[0])  # done, yet there is no such corpus
    again = submit_replication(job_spec)
    assert again[0] != first[0]
    assert set(states(job_spec).values()) == {"queued"}
    assert again[1:] == first[1:]
    with reading() as session:
        assert again[0] in jobs_of(session, job_spec)["s0 seed"].after  # or it would find no such domain


def test_asking_again_adds_no_job_and_more_seeds_keep_those_there_are(any_spec: Replicate) -> None:
    first = submit_replication(any_spec)
    assert submit_replication(any_spec) == first
    with reading() as session:
        assert len(jobs.list_jobs(session, limit=500)) == len(plan(any_spec)) == len(first)
    more = submit_replication(with_fields(any_spec, seeds=3))
    assert set(first[:-1]) < set(more)
    assert first[-1] not in more  # a report on three seeds is another report
    with reading() as session:
        assert [(replication.paper, replication.seeds) for replication in replications(session)] == [
            (any_spec.paper, 3)
        ]
        assert len(jobs_of(session, any_spec)) == len(first)


def test_a_report_of_fewer_seeds_in_between_does_not_make_it_one_of_fewer(job_spec: Replicate) -> None:
    for seeds in (3, 1):
        submit_replication(job_spec.model_copy(update={"seeds": seeds}))
    with reading() as session:
        assert find_replication(session, "rep").seeds == 3


def test_a_name_that_something_else_has_is_refused_and_leaves_nothing(job_spec: Replicate, folder: Path) -> None:
    submit_replication(job_spec)
    other = with_fields(new_spec("demix", "rep", "smoke", 2, folder=folder), size="tiny", budget=SIZES["tiny"])
    with pytest.raises(BadSpecError, match="exists already"):
        submit_replication(other)
    with reading() as session:
        assert len(jobs.list_jobs(session)) == len(plan(job_spec))


def test_a_size_that_has_changed_since_changes_no_started_replication(
    job_spec: Replicate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit_replication(job_spec)
    other = replace(SIZES["smoke"], test_tokens=2048, max_bytes=5000)
    monkeypatch.setitem(SIZES, "smoke", other)
    with reading() as session:
        started = find_replication(session, "rep")
    assert started.budget.test_tokens == 1024
    assert new_spec("demix", "rep", "smoke", 2, folder=folder) == started  # asked for again, it goes on as it was
    assert submit_replication(started) == first
    assert new_spec("demix", "new", "smoke", 2, folder=folder).budget == other


@pytest.mark.parametrize(
    ("paper", "name", "domain"),
    [*((paper, "r" * 75, "books") for paper in PAPERS), ("demix", "my-replication", "b" * 70)],
)
def test_a_name_too_long_for_what_it_makes_is_refused_with_the_name(paper: str, name: str, domain: str) -> None:
    with pytest.raises(BadSpecError, match=r"at most [78]0 characters, but “.*” would have"):
        new_spec(paper, name, "smoke", 1, domains=[domain, "news", "law"], novel=["tweets"])


@pytest.mark.parametrize("file", ["a,b.jsonl", "n" * 90 + ".jsonl"])
def test_a_file_whose_name_cannot_be_a_domains_is_refused_by_its_name(folder: Path, file: str) -> None:
    (folder / "train" / "news.jsonl").rename(folder / "train" / file)
    with pytest.raises(BadSpecError, match=f"{file} is not a valid name for a domain: name: a name must"):
        new_spec("demix", "rep", "smoke", 2, folder=folder)


def test_no_step_of_a_plan_parses_all_jobs_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers wait while a plan is placed: when each did, the 500 jobs of twenty seeds took more than ten seconds."""
    names = [f"d{i}" for i in range(12)]
    with transaction() as session:
        for name in names:
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    job_spec = new_spec("demix", "rep", "smoke", 20, domains=names[:8], novel=names[8:])
    parsed, parse_as = [], specs.parse_as
    monkeypatch.setattr(specs, "parse_as", lambda *given: parsed.append(given) or parse_as(*given))
    num_steps = len(submit_replication(job_spec))
    assert num_steps > 400
    assert len(parsed) < num_steps
    monkeypatch.undo()
    assert num_steps == len(plan(job_spec))


def test_the_same_text_is_imported_once_and_other_text_gets_another_name(job_spec: Replicate, folder: Path) -> None:
    submit_replication(job_spec)
    again = new_spec("demix", "again", "smoke", 1, folder=folder)
    assert again.imports == job_spec.imports
    bounded = new_spec("demix", "bounded", "tiny", 1, folder=folder)  # tiny reads less of it
    assert bounded.domains == ["bounded-books", "bounded-news"]


def test_a_failed_job_of_a_replication_leaves_no_other_replication_behind(job_spec: Replicate) -> None:
    with transaction() as session:
        place(session, plan(job_spec)[:3])
        assert replications(session) == []
    with reading() as session, pytest.raises(BadSpecError, match="no replication “rep”"):
        find_replication(session, "rep")


def test_the_spec_of_an_import_is_recognized_whatever_else_was_imported(job_spec: Replicate) -> None:
    submit_replication(job_spec)
    with reading() as session:
        other = ImportCorpus(name="books", path="/elsewhere")
        result = jobs.find_by_specs(session, [other, job_spec.imports[0]])
    assert result[0] is None
    assert result[1] is not None
    assert result[1].title == "rep: import books"
