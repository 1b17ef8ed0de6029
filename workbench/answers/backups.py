"""The answers to a backup of a workbench, and to its restoration."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer
from workbench.answers.integrity import FaultyArtifact, StoreCheck


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
