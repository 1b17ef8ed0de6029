"""Models that a seed model can be made of: what is known of them, and what each method takes."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


class MethodNeed(Answer):
    """What training a model by one method takes, counted from its shape."""

    method: str
    title: str = Field(description="Of the method, as sentences name it.")
    num_trained: int | None = Field(None, description="Parameters that the training changes; null if it is impossible.")
    memory_bytes: int | None = Field(
        None, description="Weights in float32, gradients, optimizer and best weights; activations come on top."
    )
    fits: bool | None = Field(None, description="Whether as much main memory is free here; null if not known.")
    because: str = Field("", description="Why the method cannot take the model, as a sentence; empty if it can.")


class SeedOffer(Answer):
    """A model that a seed model can be made of, from the hub or from a Python package."""

    name: str = Field(description="The name that is proposed for the seed model.")
    title: str
    author: str
    licence: str
    gated: bool = Field(False, description="Whether the hub lets download only who has accepted the licence there.")
    parameters: int
    context: int = Field(description="Tokens.")
    chat_template: str = Field(description="Its format; empty: the model has none.")
    hub: str = Field(description="Name on the Hugging Face hub.")
    download_bytes: int = Field(description="Of the weights on the hub, to three digits.")
    package: str = Field("", description="A Python package that also holds the model; empty: none is known.")
    package_bytes: int = 0
    package_holds: str = Field("", description="What of the weights the package holds.")
    package_command: str = Field("", description="What installs what is missing of it here; empty: nothing is.")
    has_package: bool = Field(False, description="Whether the package, and what reads it, is installed here.")
    stored: list[str] = Field([], description="Names of the seed models here that were made of it.")
    needs: list[MethodNeed] = Field([], description="By method: an estimate from shapes; a forecast measures.")
