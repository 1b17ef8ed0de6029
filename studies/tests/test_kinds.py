"""Each kind of job of the studies says what it is, and has a runner, a screen and a command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.errors import EngineError
from jobs.attempt.work import load_runner
from ui.pages.catalog import all_pages
from workbench.job_records.jobs import title_of
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.specs.base import Spec
from workbench_studies.demix.names import SIZES
from workbench_studies.papers.catalog import PAPERS

_SPEC = {"name": "rerun", "domains": ["a", "b", "c"], "novel": ["d"]}
SPECS = {"demix": _SPEC, "cbtm": _SPEC, "mode": {**_SPEC, "targets": ["a", "b"], "retention": "c"}}


@pytest.mark.parametrize("paper", PAPERS)
def test_the_kind_of_a_paper_is_read_run_and_shown(paper: str) -> None:
    kind = known_kinds()[PAPERS[paper].kind]
    spec = parse_spec({"kind": kind.name, **SPECS[paper]})
    assert (type(spec), kind.name) == (kind.spec, f"replicate-{paper}")
    assert (kind.creates(spec), kind.requires(spec), kind.reads(spec)) == ([], [], "")
    assert set(Spec.local_paths(spec)) <= set(spec.local_paths())
    assert title_of(spec).startswith("Report on")
    assert load_runner(kind.name).__module__ == "workbench_studies.running.replicate"


@pytest.mark.parametrize("paper", PAPERS)
def test_its_result_is_a_sentence_with_a_link_to_its_claims(paper: str) -> None:
    kind = known_kinds()[PAPERS[paper].kind]
    assert kind.sentence({"name": "rerun", "summary": "1 of 2 claims reproduced."}).endswith(".")
    assert kind.link is not None
    assert kind.link.address in {page.address for page in all_pages()}
    assert kind.link.state({"name": "rerun"}) == {"replication.name": "rerun"}


def test_a_size_that_cannot_be_is_refused_by_its_field() -> None:
    with pytest.raises(EngineError, match="test_tokens must be"):
        replace(SIZES["smoke"], test_tokens=2**40)
