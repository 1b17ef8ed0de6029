"""Requests that change what the registry holds."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ui.api.schemas.base import MAX_NAMED, RequestBody


class MixtureCopy(RequestBody):
    """The request to copy a mixture under a new name."""

    name: str = Field("", max_length=200, description="Left out: the next free name, such as duo.2.")


class MixtureToMake(RequestBody):
    """A new mixture of experts that have the same tokenizer."""

    name: str = Field(max_length=200, description="Name of the mixture.")
    experts: list[str] = Field(min_length=1, max_length=MAX_NAMED, description="Experts; seed:NAME is a seed model.")
    weights: list[float] | None = Field(
        None, max_length=MAX_NAMED, description="Prior (or fixed) weight of each expert; left out: equal."
    )
    gate: dict[str, Any] | None = Field(
        None, description="Gate that weighs the experts, by kind and settings; evidence that is named here stays."
    )
    calibrate: bool | None = Field(
        None,
        description="Accept the evidence fitted on stored dev scores (true), or fit none (false); left out: it "
        "is proposed.",
    )


class ViewAddress(RequestBody):
    """The address that a view shall have."""

    address: str = Field(max_length=2000, description="In the studio, such as /experts?method=lora.")


class AliasTarget(RequestBody):
    """The model that an alias shall mean."""

    model: str = Field(max_length=200, description="Name of a mixture or an expert, or an alias of it.")
