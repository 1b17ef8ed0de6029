"""The command that a form shows submits the same as its button: the command line's own parser reads it."""

from __future__ import annotations

import shlex
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.plans import clusterings
from ui.cli import app, verbs
from ui.cli.commands import evaluate, seed, train
from ui.kinds.catalog import command_of
from ui.present.forms.options import command_line
from ui.present.forms.questions import assemble, changed_answers, questions_of
from workbench.errors import BadSpecError
from workbench.kinds.clusters import FindClusters
from workbench.kinds.kind import known_kinds, parse_as, parse_spec
from workbench.specs.base import Spec
from workbench.specs.requests import TrainClusters

NAME = 'it\'s *my* "name"'
ANSWERS: dict[str, dict[tuple[str, ...], Any]] = {
    "import-corpus": {
        ("name",): NAME,
        ("path",): "/data/a b.jsonl",
        ("skip_bad",): True,
        ("max_bytes",): 10,
        ("anonymize",): True,
    },
    "make-seed": {("name",): NAME, ("domains",): ["a", "b"], ("shape", "width"): 64, ("vocab_size",): 600},
    "train-joint": {
        ("name",): NAME,
        ("seed_model",): "s",
        ("domains",): ["a"],
        ("training", "num_steps"): 9,
        ("method",): "lora",
        ("lora", "rank"): 3,
        ("lora", "targets"): "ffn",
        ("moe", "num_experts"): 5,
    },
    "train-mode": {
        ("name",): NAME,
        ("seed_model",): "s",
        ("domains",): ["a", "b"],
        ("num_parts",): 2,
        ("shape", "init"): "random",
        ("shape", "seed"): 3,
        ("training", "seed"): 4,
        ("retain",): ["c"],
    },
    "compose-mode": {
        ("name",): NAME,
        ("experts",): ["a/b", "c/d"],
        ("without",): ["b"],
        ("frozen",): True,
        ("domains",): ["b", "d"],
        ("training", "num_steps"): 9,
    },
    "average-experts": {("name",): NAME, ("experts",): ["a", "b"], ("prior",): "p"},
    "join-experts": {("name",): NAME, ("experts",): ["a", "b"], ("top_k",): 2, ("shrinkage",): 0.5},
    "train-expert": {
        ("name",): NAME,
        ("domain",): "d",
        ("mixture",): "m",
        ("parent",): "p",
        ("join",): False,
        ("training", "learning_rate"): 3e-6,
    },
    "certify-removal": {
        ("expert",): NAME,
        ("mixture",): "m",
        ("retrained",): "other",
        ("num_blocks",): 12,
        ("temperature",): 0.5,
        ("evidence",): "last_token",
    },
    "export-mixture": {("mixture",): NAME, ("folder",): "/data/a folder", ("format",): "moe"},
    "push-expert": {("expert",): NAME, ("repository",): "you/law", ("public",): True},
    "export-expert": {("expert",): NAME, ("folder",): "/data/a folder", ("format",): "peft"},
    "pack-expert": {("expert",): NAME, ("file",): "/data/an expert", ("with_seed",): True},
    "unpack-expert": {("file",): "/data/an expert", ("name",): NAME},
    "import-expert": {("source",): "hub:one/two@v1", ("seed_model",): "s", ("name",): NAME, ("method",): "demix"},
    "certify-addition": {("expert",): NAME, ("mixture",): "m", ("split",): "dev", ("max_tokens",): 500},
    "make-domain": {("clustering",): NAME, ("name",): "a b", ("clusters",): ["1", "2"]},
    "pin-documents": {("clustering",): NAME, ("cluster",): "a b", ("documents",): ["abcdef12", "12345678"]},
    "measure-overlap": {("domains",): ["a", "b"]},
    "merge-clusters": {("clustering",): NAME, ("clusters",): ["a", "2"]},
    "split-cluster": {("clustering",): NAME, ("cluster",): "a b", ("num_clusters",): 3, ("method",): "unbalanced"},
    "make-cluster-domains": {("clustering",): NAME},
    "classify": {
        ("mixture",): NAME,
        ("path",): "/data/some tasks",
        ("routings",): ["fixed", "updating"],
        ("top_k",): [2, 8],
        ("num_shots",): 3,
    },
    "evaluate": {("mixture",): NAME, ("domains",): ["a", "b"], ("split",): "dev", ("max_tokens",): 500},
}


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """What the command line would have submitted."""
    specs: list[Spec] = []

    def submit(spec: Spec, _how: Any) -> Any:
        specs.append(spec)
        return SimpleNamespace(state="queued")

    for module in (verbs, seed, train, evaluate):
        monkeypatch.setattr(module, "submit", submit)
    monkeypatch.setattr(verbs, "queue_follow_up", lambda *_: None)
    return specs


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_command_submits_the_same_spec_as_the_form(kind: str, submitted: list[Spec]) -> None:
    questions = questions_of(known_kinds()[kind].spec, {})
    answers = {q.path: q.default for q in questions} | ANSWERS[kind]
    command = command_of(kind)(changed_answers(questions, answers))
    assert app.main(shlex.split(command)[1:]) in (0, None)
    assert submitted == [parse_spec({"kind": kind, **assemble(answers)})]


def test_every_command_is_tried() -> None:
    with_command = {kind for kind in known_kinds() if command_of(kind)}
    assert with_command - {"find-clusters", "selfcheck"} == set(ANSWERS)


def test_the_self_check_has_a_command_too() -> None:
    assert app.main([*shlex.split(command_of("selfcheck")({}))[1:], "--help"]) in (0, None)


def test_an_average_by_weights_of_ones_own_has_a_command_too(submitted: list[Spec]) -> None:
    shown = {("name",): "s", ("experts",): ["a", "b"], ("weights",): [1.0, 2.5]}
    assert app.main(shlex.split(command_of("average-experts")(shown))[1:]) in (0, None)
    assert submitted == [parse_spec({"kind": "average-experts", **assemble(shown)})]


@pytest.mark.parametrize(("source", "field"), [("folder", "location"), ("hub", "location"), ("expert", "expert")])
def test_a_seed_from_elsewhere_has_a_command_too(source: str, field: str, submitted: list[Spec]) -> None:
    shown = {("name",): "s", ("source",): source, (field,): "some/where"}
    assert app.main(shlex.split(command_of("make-seed")(shown))[1:]) in (0, None)
    assert submitted == [parse_spec({"kind": "make-seed", **assemble(shown)})]


def test_the_plans_of_clusters_have_commands_too(monkeypatch: pytest.MonkeyPatch) -> None:
    result: list[Spec] = []

    def stop(spec: Spec) -> list[str]:
        result.append(spec)
        raise BadSpecError(["seen enough"])

    for name in ("submit_find", "plan_training"):
        monkeypatch.setattr(clusterings, name, stop)
    find = {("name",): NAME, ("num_clusters",): 16, ("domains",): ["a", "b"], ("scaling",): "unit_rows"}
    train = {("name",): NAME, ("clustering",): "c d", ("seed_model",): "s", ("training", "num_steps"): 9}
    commands = {
        "find": command_of("find-clusters"),
        "train": partial(command_line, "train clusters", TrainClusters, ("clustering", "name")),
    }
    for which, spec, job_spec in (("find", FindClusters, find), ("train", TrainClusters, train)):
        questions = questions_of(spec, {})
        answers = {q.path: q.default for q in questions} | job_spec
        app.main(shlex.split(commands[which](changed_answers(questions, answers)))[1:])
        assert result.pop() == parse_as(spec, assemble(answers))
