"""A spec means the same in every process, and all complaints come together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from engine.text.local_sources import SOURCES
from workbench.errors import BadSettingsError, BadSpecError
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.kinds.training.make_seed import MakeSeed
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec


def test_a_local_path_is_kept_absolute_since_a_worker_stands_elsewhere(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ImportCorpus(name="a", path="texts.jsonl").path == str(tmp_path / "texts.jsonl")
    assert MakeSeed(name="a", source="folder", location="model").location == str(tmp_path / "model")
    assert MakeSeed(name="a", source="file", location="m.gguf").local_paths() == [str(tmp_path / "m.gguf")]
    assert MakeSeed(name="a", source="hub", location="org/model").location == "org/model"


@pytest.mark.parametrize(
    ("source", "location", "complaint"),
    [
        ("file", "model.bin", "neither a .gguf nor a .safetensors file"),
        ("package", "../llm", "not the name of a Python package"),
        ("package", "", "give the location"),
    ],
)
def test_a_seed_says_where_its_model_is(source: str, location: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        MakeSeed.model_validate({"name": "a", "source": source, "location": location})


def test_a_stored_spec_reads_back_unchanged(tmp_path: Path, monkeypatch) -> None:
    job_spec = ImportCorpus(name="a", path="texts.jsonl")
    monkeypatch.chdir(tmp_path)
    assert parse_spec(job_spec.model_dump(mode="json")) == job_spec


def test_a_joint_training_is_known_again_whatever_the_settings_of_other_methods_are() -> None:
    stored = {"kind": "train-joint", "name": "a", "seed_model": "s", "domains": ["x"], "lora": {"targets": "all"}}
    dense, now = (parse_spec({**stored, "method": "dense", **other}) for other in ({}, {"lora": {}}))
    assert (dense.lora.targets, now.lora.targets) == ("all", "attention")
    assert dense.identity() == now.identity()
    adapters, default = (parse_spec({**stored, "method": "lora", **other}) for other in ({}, {"lora": {}}))
    assert adapters.identity() != default.identity()


@pytest.mark.parametrize("kind", ["train-joint", "evaluate"])
def test_a_job_is_known_again_whatever_share_of_a_gpu_it_had(kind: str) -> None:
    wanted = {"evaluate": {"mixture": "m"}, "train-joint": {"name": "a", "seed_model": "s", "domains": ["x"]}}[kind]
    full, half = (parse_spec({"kind": kind, **wanted, "gpu_share": share}) for share in (1.0, 0.5))
    assert full != half
    assert full.identity() == half.identity()


@pytest.mark.parametrize(
    "training",
    [{"compile": True}, {"optimizer": "adamw_8bit"}, {"load_in_4bit": True}, {"precision": "bf16_weights"}],
)
def test_options_of_one_process_are_refused_before_a_joint_training_of_several_starts(training: dict) -> None:
    spec = {"kind": "train-joint", "name": "a", "seed_model": "s", "domains": ["x", "y"], "training": training}
    assert parse_spec({**spec, "num_gpus": 1})
    with pytest.raises(BadSpecError, match="one process only: choose at most one GPU"):
        parse_spec({**spec, "num_gpus": 2})


@pytest.mark.parametrize("kind", ["evaluate", "certify-addition", "certify-removal"])
def test_a_split_that_is_none_is_refused(kind: str) -> None:
    with pytest.raises(BadSpecError, match=r"split: .*'test' or 'dev'"):
        parse_spec({"kind": kind, "mixture": "m", "expert": "e", "split": "train"})


def test_all_complaints_come_together() -> None:
    job_spec = {
        "kind": "train-joint",
        "name": "",
        "seed_model": "s",
        "domains": [],
        "training": {"num_steps": 0, "clip": -1},
    }
    with pytest.raises(BadSpecError) as caught:
        parse_spec(job_spec)
    text = " ".join(caught.value.complaints)
    for word in ("name", "domains", "num_steps", "clip"):
        assert word in text


@pytest.mark.parametrize("kind", known_kinds())
def test_every_field_has_a_sentence(kind: str) -> None:
    for name, field in known_kinds()[kind].spec.model_fields.items():
        assert name == "kind" or (field.description or "").endswith("."), name


@pytest.mark.parametrize("name", ["", " ", "x" * 81, "a\nb", "a\x00b", "\u202eabc"])
def test_names_that_no_screen_could_show_are_refused(name: str) -> None:
    with pytest.raises(BadSpecError):
        parse_spec({"kind": "import-corpus", "name": name, "path": "x"})


@pytest.mark.parametrize(
    "job_spec",
    [
        {"kind": "import-corpus", "name": "a"},
        {"kind": "import-corpus", "name": "a", "path": "x", "dataset": "y"},
        {"kind": "make-seed", "name": "a"},
        {"kind": "make-seed", "name": "a", "source": "hub"},
        {"kind": "make-seed", "name": "a", "source": "expert"},
        {"kind": "make-seed", "name": "a", "source": "hub", "location": "b", "expert": "c"},
        {"kind": "make-seed", "name": "a", "source": "hub", "location": "b/c", "bf16": True},
        {"kind": "train-joint", "name": "a", "seed_model": "s", "domains": ["x", "x"]},
        {"kind": "no-such-kind", "name": "a"},
        {"kind": "evaluate", "mixture": "m", "colour": "red"},
        {"kind": "measure-overlap", "domains": ["law"]},
        {"kind": "find-clusters", "name": "a", "num_clusters": 0},
        {"kind": "find-clusters", "name": "a" * 71},
        {"kind": "find-clusters", "name": "a", "seed": 2**32},
        {"kind": "find-clusters", "name": "a", "domains": ["law", "law"]},
        {"kind": "find-clusters", "name": "a", "embedder": "hidden_states"},
        {"kind": "find-clusters", "name": "a", "seed_model": "s"},
        {"kind": "train-mode", "name": "a", "seed_model": "s", "domains": ["x"], "shape": {"expert_layers": 2**32}},
        {"kind": "merge-clusters", "clustering": "a", "clusters": ["0"]},
        {"kind": "split-cluster", "clustering": "a", "cluster": "0", "num_clusters": 1},
        {"kind": "pin-documents", "clustering": "a", "cluster": "0", "documents": []},
        {"kind": "measure-overlap", "domains": ["law", "law", "sea"]},
    ],
)
def test_specs_that_contradict_themselves_are_refused(job_spec: dict[str, object]) -> None:
    with pytest.raises(BadSpecError):
        parse_spec(job_spec)


def test_a_name_with_a_comma_is_refused_since_no_command_could_say_it() -> None:
    with pytest.raises(BadSpecError, match="comma"):
        parse_spec({"kind": "import-corpus", "name": "law, old", "path": "/texts"})


def test_what_the_demo_finds_can_be_named() -> None:
    assert [ImportCorpus(name=name, local_source=name).name for name in SOURCES] == list(SOURCES)


def test_complaints_speak_of_the_spec_and_not_of_the_program() -> None:
    job_spec = {"kind": "train-joint", "name": "d", "domains": [], "training": {"num_steps": "many"}}
    with pytest.raises(BadSpecError) as refused:
        parse_spec(job_spec)
    assert sorted(refused.value.complaints)[:2] == [
        "domains: must have at least 1 entry, not 0.",
        "seed_model: is missing.",
    ]
    assert "must be a whole number, not 'many'" in " ".join(refused.value.complaints)


NO_NUMBERS = [float("inf"), float("-inf"), float("nan"), json.loads("1e400")]
ABSURD = {int: [*NO_NUMBERS, 1.5, 2**64], float: [*NO_NUMBERS, 5e-324, 1e31]}
WIDE = {"seed", "max_bytes", "cache_bytes", "replay_bytes"}  # above 31 bits on purpose


def kinds(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from kinds(subclass)


def numbers_of(annotation: object) -> Iterator[type]:
    """int, float, or both, where a field is one, or a list of them."""
    if annotation in ABSURD:
        yield annotation  # type: ignore[misc]
    for part in get_args(annotation):
        yield from numbers_of(part)


FIELDS = {
    f"{spec.__name__}.{name}": (spec, name, number, get_origin(field.annotation) is list or "list[" in str(field))
    for spec in (*kinds(Spec), Settings)
    if spec.__module__.startswith("workbench.")
    for name, field in spec.model_fields.items()
    for number in numbers_of(field.annotation)
}


@pytest.mark.parametrize(("spec", "name", "kind", "is_list"), FIELDS.values(), ids=FIELDS)
def test_a_number_that_nobody_can_mean_is_refused(spec: type[BaseModel], name: str, kind: type, is_list: bool) -> None:
    for number in [*ABSURD[kind], *([2**31, 2**32, 2**63] if kind is int and name not in WIDE else [])]:
        with pytest.raises(ValidationError) as caught:
            spec.model_validate({name: [number] if is_list else number})
        assert name in {str(fault["loc"][0]) for fault in caught.value.errors()}, number


def test_a_config_within_a_spec_refuses_them_too() -> None:
    job_spec = {"kind": "train-joint", "name": "a", "seed_model": "s", "domains": ["law"]}
    for training in ({"clip": float("inf")}, {"sequences_per_domain": 2**32}, {"decay_power": json.loads("1e400")}):
        with pytest.raises(BadSpecError, match=next(iter(training))):
            parse_spec(job_spec | {"training": training})


def test_settings_that_cannot_be_right_are_named_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_LEASE_SECONDS", "inf")
    monkeypatch.setenv("WORKBENCH_API_PORT", "http")
    with pytest.raises(BadSettingsError, match=r"WORKBENCH_API_PORT must be .* WORKBENCH_LEASE_SECONDS must be"):
        get_settings()


@pytest.mark.parametrize(
    ("name", "url", "reason"),
    [
        ("DATABASE_URL", "mysql://me:secret@host/name", "must begin with postgresql:// or sqlite://"),
        ("DATABASE_URL", "secret", "must be a URL such as postgresql://"),
        ("DATABASE_URL", "postgresql://me:secret@host:port/name", "must be a URL such as postgresql://"),
        ("BROKER_URL", "mysql://me:secret@host", "must be the URL of a Celery broker"),
        ("BROKER_URL", "secret", "must be a URL such as redis://"),
        ("BROKER_URL", "redis://me:secret@host:port", "must have a number from 0 to 65535 as its port"),
    ],
)
def test_a_url_of_a_database_or_broker_that_cannot_be_used_is_refused_without_its_password(
    name: str, url: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WORKBENCH_{name}", url)
    with pytest.raises(BadSettingsError, match=f"WORKBENCH_{name} {reason}") as caught:
        get_settings()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://a:1/0;redis://b:1/0", "amqp://me:secret@host//", "sqla+sqlite:///queue.db"])
def test_urls_of_brokers_that_celery_knows_are_kept(url: str) -> None:
    assert Settings(broker_url=url).broker_url == url
