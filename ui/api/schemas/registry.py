"""Requests that change what the registry holds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workbench.requests.body import MAX_NAMED, AnyGateChange, Names, Nullable, RequestBody

LONGEST_NOTES = 100_000  # characters
NewName = Annotated[str, Field(max_length=200)]
Weights = Annotated[dict[str, float], Field(max_length=MAX_NAMED)]


class ExpertChange(Nullable):
    """Changes to an expert; what is left out stays as it is."""

    name: NewName | None = Field(None, description="Its new name; its id and files stay the same.")
    enabled: bool | None = Field(None, description="False: disabled in every mixture, without being deleted.")
    notes: str | None = Field(None, max_length=LONGEST_NOTES, description="They replace the old ones.")
    tags: Names | None = Field(None, description="They replace the old ones.")


class MixtureChange(Nullable):
    """Changes to a mixture; what is left out stays as it is."""

    active: Names | None = Field(None, description="Its experts that are active; the others are switched off.")
    weights: Weights | None = Field(None, description="New weights by expert; the other weights stay the same.")
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")


class NewMember(Nullable):
    """The expert that a mixture shall get."""

    expert: str = Field(max_length=200, description="Name of an expert with the same tokenizer.")
    weight: float | None = Field(None, description="Its weight; left out: the mean weight of the others.")


class FormerMember(RequestBody):
    """The expert that a mixture shall lose."""

    expert: str = Field(max_length=200, description="Name of an expert of the mixture.")


class PriorWeights(RequestBody):
    """The weights of a prior, which need not sum to one."""

    weights: Weights = Field(description="By expert, numbers of 0 or more.")


class ClusterChange(Nullable):
    """Changes to a cluster; no document moves."""

    name: NewName | None = Field(None, description="Its new name.")
    notes: str | None = Field(None, max_length=LONGEST_NOTES, description="They replace the old ones.")


class MixtureCopy(RequestBody):
    """The request to copy a mixture under a new name."""

    name: str = Field("", max_length=200, description="Left out: the next free name, such as duo.2.")


class MixtureToMake(Nullable):
    """A new mixture of experts that have the same tokenizer."""

    name: NewName = Field(description="Name of the mixture.")
    experts: Names = Field(min_length=1, description="Names of experts; seed:NAME is a seed model as it is.")
    weights: Annotated[list[float], Field(max_length=MAX_NAMED)] | None = Field(
        None, description="Prior (or fixed) weight of each expert; left out: equal."
    )
    gate: AnyGateChange | None = Field(
        None, description="Gate that weighs the experts; left out: the default one. Evidence that is named here stays."
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
