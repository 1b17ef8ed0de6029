"""What serves experts of a mixture outside the workbench."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


class ServedAdapter(Answer):
    """A LoRA adapter, and the folder that PEFT loads."""

    name: str
    folder: str


class Server(Answer):
    """A process of vLLM with one model, and adapters of it."""

    model: str
    folder: str
    port: int
    adapters: list[ServedAdapter]
    command: list[str]


class LeftOut(Answer):
    """An expert that cannot be served, with the cause."""

    expert: str
    because: str


class ServeConfig(Answer):
    """The processes that serve the experts of a mixture, each expert under its own name."""

    mixture: str
    servers: list[Server]
    left_out: list[LeftOut]
    lost: str = Field(description="What of the mixture is not served.")
