"""The base of all answers: typed results of the services, which the API, its client and the CLI pass on as they are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A frozen result; its field names are those of its JSON. Fields that it does not know are ignored when read."""

    model_config = ConfigDict(frozen=True)
