"""A full disk is seen wherever the workbench writes, by the doctor and the studio alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from ui.serving.disks import ENOUGH_BYTES
from ui.serving.doctor import examine
from ui.studio.shared.health import disk_sign
from workbench.settings import Settings
from workbench.store import storage


@pytest.mark.parametrize("full", ["home", "artifacts"])
def test_either_disk_may_be_the_full_one(full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path / "home", artifacts=tmp_path / "artifacts")
    free = {"home": ENOUGH_BYTES, "artifacts": ENOUGH_BYTES, full: 1_000_000}
    monkeypatch.setattr(storage, "free_bytes", lambda folder: free[folder.name])

    sign = disk_sign(settings)
    result = next(one for one in examine(settings) if one.name == "Disk")

    assert (sign.is_well, result.ok) == (False, False)
    assert str(tmp_path / full) in sign.sentence
    assert str(tmp_path / full) in result.finding
    assert f"WORKBENCH_{full.upper()}" in result.next_step
