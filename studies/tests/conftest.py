"""The fixtures of the workbench's own tests that those of the studies use."""

from pathlib import Path

import pytest

from tests.conftest import _no_login, _no_settings, _same_answers, empty_registry, home, session
from tests.journeys.conftest import novel_and_training
from tests.ui.conftest import _nobody_answers
from tests.ui.studio.conftest import _no_probes, _opened, folders_named
from tests.workbench.conftest import world

__all__ = [
    "_no_login",
    "_no_probes",
    "_no_settings",
    "_nobody_answers",
    "_opened",
    "_same_answers",
    "empty_registry",
    "folders_named",
    "home",
    "novel_and_training",
    "session",
    "world",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two training domains and a novel one, of two short texts each."""
    return write_texts(tmp_path / "text", "train/law", "train/sea", "novel/poems")


def write_texts(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("One text.\n\nAnother text.\n", encoding="utf-8")
    return folder
