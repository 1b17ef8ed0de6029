"""A short gauntlet holds all its invariants, and one that breaks a result or leaves debris is noticed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gauntlet.campaign import is_debris, recovery_of, shuffled_faults
from tests.gauntlet.counting_kind import chain_after, newest, save
from tests.gauntlet.faults import FAULTS

ROOT = Path(__file__).parents[2]
SEED = 7
# A campaign in a process of its own: it changes the environment and the kinds of job.
SCRIPT = """
import json, sys
from tests.gauntlet import campaign, faults
{change}
names = {names!r}
campaign.shuffled_faults = lambda chance: iter(names)
print(json.dumps(campaign.run({seed}, 120, [("sqlite", "folder")])))
"""
FORGER = """
from sqlalchemy import update
from workbench.registry.database import transaction
from workbench.schema.tables import Corpus
def forge(stage, chance):
    (stage.home / "artifacts").mkdir(exist_ok=True)
    (stage.home / "artifacts" / ".half.1.new").mkdir(exist_ok=True)
    with transaction() as session:
        session.execute(update(Corpus).where(Corpus.name.like("made by%")).values(source="forged"))
        return bool(session.query(Corpus).where(Corpus.source == "forged").count())
faults.FAULTS["forge"] = forge
"""


def campaign(names: list[str], change: str = "") -> dict[str, Any]:
    script = SCRIPT.format(change=change, names=names, seed=SEED)
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@pytest.mark.slow
def test_killed_and_damaged_jobs_end_as_undisturbed_ones() -> None:
    names = ["kill everything", "flip a bit of a checkpoint"]
    report = campaign(names, "campaign.WAITING = 2")
    (only,) = report["campaigns"]
    assert (only["violations"], only["faults"]) == ([], dict.fromkeys(names, 1))
    assert only["num_done"] == only["num_jobs"] >= 2
    assert only["num_attempts"] > only["num_jobs"]
    assert report["recovery_p95"] == max(only["recoveries"])


@pytest.mark.long
@pytest.mark.slow
def test_a_forged_result_and_debris_are_violations() -> None:
    (only,) = campaign(["forge"], f"campaign.WAITING = 2\n{FORGER}")["campaigns"]
    assert any("is another one" in one for one in only["violations"])
    assert any("left behind" in one and ".half.1.new" in one for one in only["violations"])


def test_one_seed_gives_the_same_faults() -> None:

    def first(seed: int) -> list[str]:
        names = shuffled_faults(random.Random(seed))
        return [next(names) for _ in range(2 * len(FAULTS))]

    assert first(SEED) == first(SEED) != first(SEED + 1)
    assert set(first(SEED)[: len(FAULTS)]) == set(FAULTS)


def test_a_damaged_checkpoint_is_not_continued(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step, chain_after(step))
    assert newest(tmp_path) == (30, chain_after(30))
    (tmp_path / "step-00000030" / "state.json").write_text("[40, 0]")
    assert newest(tmp_path) == (20, chain_after(20))


@pytest.mark.parametrize(
    ("path", "debris"),
    [
        ("artifacts/.a.1.new", True),
        ("queue/.a.taken", True),
        ("jobs/a/work", True),
        ("jobs/a/log.txt", False),
        ("artifacts/a/work", False),
    ],
)
def test_what_counts_as_left_behind(path: str, debris: bool) -> None:
    assert is_debris(Path("/home") / path) == debris


def test_recovery_is_summed_up_by_its_95th_percentile() -> None:
    assert recovery_of([float(n) for n in range(100)]) == {
        "recovery_p50": 50.0,
        "recovery_p95": 95.0,
        "recovery_max": 99.0,
    }
    assert recovery_of([])["recovery_p95"] is None
