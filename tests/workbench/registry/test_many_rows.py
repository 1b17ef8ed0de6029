"""A list, a filter or a card takes as many statements for many rows as for few."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import registry as rows
from workbench.registry import mixtures
from workbench.registry.database import close_engines, reading
from workbench.settings import Settings


@pytest.fixture(scope="module")
def homes(
    tmp_path_factory: pytest.TempPathFactory, empty_registry: Path
) -> tuple[dict[str, tuple[list[float], int]], dict[str, tuple[list[float], int]]]:
    """The answers to every question in a registry of 100 experts and in one of 200."""
    answers = []
    for sizes in ((100, 40, 1, 20), (200, 80, 2, 20)):
        settings = Settings(home=tmp_path_factory.mktemp("home"))
        shutil.copy(empty_registry, settings.root / "registry.db")
        rows.fill(settings, *sizes)
        with reading(settings) as session:
            [first, *others] = mixtures.list_mixtures(session)
            assert (len(first.members), len(others)) == (rows.NUM_DOMAINS, sizes[0] // rows.NUM_DOMAINS - 1)
        answers.append({name: rows.ask(settings, question, times=2) for name, question in rows.QUESTIONS.items()})
    close_engines()
    return answers[0], answers[1]


@pytest.mark.parametrize("name", rows.QUESTIONS)
def test_more_rows_need_no_more_statements(homes: tuple[dict[str, tuple[list[float], int]], ...], name: str) -> None:
    few, many = (answers[name][1] for answers in homes)
    assert few == many
    assert few <= 12  # also where a mixture has fifty members
