"""The request that submits a job: its spec is that of its page and its command, of any kind that is installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field, field_validator

from workbench.kinds.kind import known_kinds
from workbench.requests.body import MAX_NAMED, RequestBody
from workbench.specs.base import Spec

if TYPE_CHECKING:
    AnySpec = Spec
else:
    AnySpec = Annotated[Union[tuple(kind.spec for kind in known_kinds().values())], Field(discriminator="kind")]  # noqa: UP007


class ForecastRequest(RequestBody):
    """POST /v1/workbench/jobs/forecast."""

    spec: AnySpec = Field(description="What to do: the kind of job, with its options.")

    @field_validator("spec", mode="before")
    @classmethod
    def _is_unicode(cls, value: Any) -> Any:
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise ValueError("the text is not valid Unicode: it contains an unpaired surrogate") from None
        return value


class JobRequest(ForecastRequest):
    """POST /v1/workbench/jobs."""

    after: list[str] = Field(default_factory=list, max_length=MAX_NAMED, description="Ids of jobs to wait for.")
    priority: int = Field(0, ge=-1000, le=1000, description="Waiting jobs with the highest number start first.")
    title: str | None = Field(None, min_length=1, max_length=300, description="Its title; left out: from its spec.")


class JobPriority(RequestBody):
    """PUT /v1/workbench/jobs/ID/priority."""

    priority: int = Field(ge=-1000, le=1000, description="The default is 0. The highest number starts first.")
