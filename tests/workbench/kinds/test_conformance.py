"""Every kind of job says what it is; what one forgets is missed here and not by its first user."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import get_args

import pytest

from tests.kind_samples import SPECS
from workbench.errors import BadSpecError
from workbench.job_records.jobs import title_of
from workbench.job_records.preconditions import TABLES
from workbench.kinds.kind import Kind, known_kinds, parse_spec
from workbench.specs.base import Spec, What

KINDS = {name: kind for name, kind in known_kinds().items() if kind.spec.__module__.startswith("workbench.kinds.")}


def test_every_kind_has_a_sample() -> None:
    assert set(SPECS) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_a_sentence_and_accepts_its_own_name_only(name: str) -> None:
    spec = KINDS[name].spec
    assert get_args(spec.model_fields["kind"].annotation) == (name,)
    assert (spec.__doc__ or "").split("\n")[0].endswith((".", "?"))


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_says_what_it_does_with_the_registry(name: str) -> None:
    kind, spec = KINDS[name], parse_spec({"kind": name, **SPECS[name]})
    assert type(spec) is kind.spec
    for what, thing in (*kind.creates(spec), *kind.requires(spec)):
        assert what in TABLES
        assert thing
    assert isinstance(kind.reads(spec), str)
    assert isinstance(kind.may_replace(spec), bool)
    assert isinstance(kind.creates_unnamed_domains(spec), bool)
    assert kind.title
    assert title_of(spec).startswith(kind.title)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "training" in kind.spec.model_fields])
def test_a_kind_that_trains_can_be_replayed(name: str) -> None:
    kind, spec = KINDS[name], parse_spec({"kind": name, **SPECS[name]})
    assert kind.replayed is not None
    again = kind.replayed(spec)
    assert (type(again), again.training) == (kind.spec, spec.training)


@pytest.mark.parametrize("name", KINDS)
def test_the_studio_and_the_api_know_every_path_that_a_job_reads_or_writes(name: str) -> None:
    spec = parse_spec({"kind": name, **SPECS[name]})
    assert set(Spec.local_paths(spec)) <= set(spec.local_paths())


def test_names_in_a_spec_are_required_or_created() -> None:
    """No field that holds the name of a thing is forgotten."""
    named = {"seed_model", "mixture", "expert", "clustering", "domains", "experts"}
    for name, sample in SPECS.items():
        spec = parse_spec({"kind": name, **sample})
        things = {thing for _, thing in (*KINDS[name].creates(spec), *KINDS[name].requires(spec))}
        for field in named & set(sample):
            values = sample[field] if isinstance(sample[field], list) else [sample[field]]
            assert any(value in things for value in values), (name, field)


def test_every_sort_of_thing_has_a_table() -> None:
    assert set(get_args(What)) == set(TABLES)


def test_what_a_kind_does_with_the_registry_has_no_default() -> None:
    optional = {field.name for field in fields(Kind) if field.default is not field.default_factory}
    assert not {"spec", "title", "creates", "requires", "reads"} & optional
    with pytest.raises(TypeError, match="reads"):
        Kind(spec=KINDS["evaluate"].spec, title="x", creates=lambda _: [], requires=lambda _: [])  # type: ignore[call-arg]


@pytest.mark.parametrize(("data", "message"), [({}, "kind: is missing"), ({"kind": ["x"]}, "is unknown")])
def test_an_unknown_kind_is_refused_with_the_names_of_all(data: dict[str, object], message: str) -> None:
    with pytest.raises(BadSpecError, match=message) as refused:
        parse_spec(data)
    assert ", ".join(sorted(known_kinds())) in str(refused.value)


def test_the_catalog_of_kinds_imports_no_library_that_computes_and_no_sql() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'scipy', 'sqlalchemy', 'celery', 'streamlit'}"
    code = f"import sys; from workbench.kinds.kind import known_kinds; known_kinds(); print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
