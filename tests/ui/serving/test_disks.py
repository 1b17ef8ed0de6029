"""What the doctor and the studio say of disks, and the doctor of a shared store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ui.serving.doctor import ENOUGH_BYTES, Finding, examine
from ui.studio.shared.health import disk_sign
from workbench.settings import Settings
from workbench.store import object_store, storage


def store_finding(settings: Settings) -> Finding:
    return next(one for one in examine(settings) if one.name == "Store")


def test_the_doctor_says_whether_the_shared_store_can_be_written(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", store=f"file://{tmp_path}/mount")
    missing = store_finding(settings)
    assert (missing.ok, missing.finding) == (False, f"There is no folder “{tmp_path}/mount”.")
    (tmp_path / "mount").mkdir()
    assert store_finding(settings).ok
    assert list((tmp_path / "mount").iterdir()) == []
    assert store_finding(Settings(home=tmp_path / "home")).ok


def test_the_doctor_names_why_a_store_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(object_store, "new_file", refuse)  # root may write to a folder of any mode
    finding = store_finding(Settings(home=tmp_path / "home", store=f"file://{tmp_path}"))
    assert (finding.ok, finding.finding) == (
        False,
        f"The store file://{tmp_path} cannot be read or written (EROFS).",
    )


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
