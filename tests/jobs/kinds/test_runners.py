"""Every kind of job has a runner."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from engine.plugins import BadPluginError
from jobs.attempt.work import load_runner
from workbench.errors import BadSpecError
from workbench.kinds.kind import known_kinds


@pytest.mark.parametrize("name", known_kinds())
def test_a_kind_has_a_generator_that_runs_it(name: str) -> None:
    runner = load_runner(name)
    assert inspect.isgeneratorfunction(runner)
    assert list(inspect.signature(runner).parameters)[1:] in (["spec"], ["_"])


@pytest.mark.parametrize("path", ["no_such_package.runner:run", "jobs.kinds.analysis.evaluate:no_such_function"])
def test_a_runner_that_cannot_be_imported_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_kinds(), "evaluate", replace(known_kinds()["evaluate"], runner=path))
    with pytest.raises(BadPluginError, match=f"{path} cannot be imported"):
        load_runner("evaluate")


def test_an_unknown_kind_has_none() -> None:
    with pytest.raises(BadSpecError, match="is unknown: 'no-such-kind'"):
        load_runner("no-such-kind")
