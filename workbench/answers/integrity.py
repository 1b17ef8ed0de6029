"""Answers on whether what a workbench stores is as it was written, and what its trainings make."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.answers.base import Answer

Thing = Literal["domain", "seed model", "clustering", "expert", "mixture", "evaluation", "report"]


class Dependent(Answer):
    """Something of the registry that cannot be used without an artifact."""

    thing: Thing
    name: str


class FaultyArtifact(Answer):
    """An artifact whose files are not those that were written."""

    id: str
    kind: str
    state: Literal["damaged", "missing"]
    faults: list[str] = Field(description="A sentence for each file that is missing or changed.")
    needed_by: list[Dependent] = Field(description="Empty for what no row needs, such as packed tokens.")


class StoreCheck(Answer):
    """Every artifact hashed again, and every row looked up."""

    ok: bool
    num_artifacts: int
    num_bytes: int
    seconds: float
    faulty: list[FaultyArtifact]
    lost_rows: list[str] = Field(description="Ids of recorded artifacts whose row is missing: the registry lost it.")
    leftovers: list[str] = Field(
        description="Ids of artifacts that no row needs: of a running job, deleted, or left behind. Not a fault."
    )
    registry_faults: list[str] = Field(description="What the database's own check says of the registry.")


class WorkbenchBackup(Answer):
    """A copy of a workbench in a folder: registry, artifacts, checkpoints and logs of jobs, uploads."""

    folder: str
    version: str = Field(description="Of the registry's tables.")
    made_at: float = Field(description="Seconds since 1970.")
    num_artifacts: int
    num_bytes: int = Field(description="Of the artifacts.")
    faulty: list[FaultyArtifact] = Field(description="Artifacts that were damaged or missing already.")


class RestoredWorkbench(Answer):
    """A workbench that was restored from a backup."""

    home: str
    made_at: float = Field(description="When the backup was made, in seconds since 1970.")
    requeued: list[str] = Field(description="Titles of the jobs that ran during the backup; they wait in the queue.")
    paused: list[str] = Field([], description="Titles of the jobs that ran or waited; they go on once resumed.")
    num_users_left_out: int = Field(0, description="Users of the backup that have no access here.")
    left_out: list[str] = Field([], description="Files and folders of the backup that no backup has, or no row names.")
    check: StoreCheck


Verdict = Literal["equal", "differs", "unknown"]


class PlannedReplay(Answer):
    """Which steps of a training would be made again."""

    expert: str
    from_step: int = Field(
        description="Step of the kept checkpoint; 0: none is kept, so the whole training is repeated."
    )
    to_step: int
    seconds: float | None = Field(description="At the speed of the training; None if it was not measured.")
    environment_changes: list[str] = Field(description="What is not as it was, such as `torch 2.12.0, now 2.13.0`.")


class TensorDifference(Answer):
    """A stored tensor that is not the one that the training makes."""

    thing: str = Field(description="The expert, or the base that was trained with it.")
    tensor: str
    largest: float | None = Field(description="Largest absolute difference; None where the tensors cannot be compared.")
    problem: str = Field(description="Why they cannot be compared; else empty.")


class LossDifference(Answer):
    """A stored point of the training's curves that its replay does not give."""

    metric: str
    step: int
    stored: float
    replayed: float


class Replay(Answer):
    """The last steps of a training made again, compared with what is stored."""

    plan: PlannedReplay
    verdict: Verdict = Field(description="`unknown`: it could not be made again, or not where equal bits are promised.")
    reasons: list[str] = Field(description="Why the verdict is `unknown`.")
    num_tensors: int
    num_points: int = Field(description="Losses and gate weights that were compared.")
    tensors: list[TensorDifference]
    losses: list[LossDifference]
    seconds: float
