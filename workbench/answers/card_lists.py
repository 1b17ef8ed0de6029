"""Answers that list what the registry holds, each as an object with the list in `data`, as OpenAI's lists are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.answers.base import Answer
from workbench.answers.cards import AuditCard, DeviceCard, EventCard, JobCard, ReportCard, ViewCard
from workbench.answers.seed_offers import SeedOffer


class ListAnswer(Answer):
    """The fields that all lists have in common."""

    object: Literal["list"] = "list"


class JobList(ListAnswer):
    """Jobs, the newest first."""

    data: list[JobCard]


class JobHistory(Answer):
    """A job with its events, in order."""

    job: JobCard
    events: list[EventCard]


class JobLog(Answer):
    """The last lines of a job's log."""

    job: str = Field(description="The id of the job.")
    lines: list[str]


class JobDeletion(Answer):
    """The result of deleting a job's log and checkpoints."""

    deleted: str = Field(description="The id of the job.")
    in_list: bool = Field(
        description="Whether the job stays in the list, because a result or a later job refers to it."
    )


class DeviceList(ListAnswer):
    """The GPUs of all workers, by host and number."""

    data: list[DeviceCard]


class ViewList(ListAnswer):
    """Saved views."""

    data: list[ViewCard]


class AuditList(ListAnswer):
    """Entries of the audit log, the newest first."""

    data: list[AuditCard]


class SeedOfferList(ListAnswer):
    """The catalogue of models that a seed model can be made of."""

    data: list[SeedOffer]


class ReportList(ListAnswer):
    """Reports, the newest first."""

    data: list[ReportCard]
