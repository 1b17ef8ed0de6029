"""Requests that change what the registry holds."""

from __future__ import annotations

from pydantic import Field

from ui.api.schemas.base import RequestBody


class MixtureCopy(RequestBody):
    """The request to copy a mixture under a new name."""

    name: str = Field("", max_length=200, description="Left out: the next free name, such as duo.2.")


class ViewAddress(RequestBody):
    """The address that a view shall have."""

    address: str = Field(max_length=2000, description="In the studio, such as /experts?method=lora.")


class AliasTarget(RequestBody):
    """The model that an alias shall mean."""

    model: str = Field(max_length=200, description="Name of a mixture or an expert, or an alias of it.")
