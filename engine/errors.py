"""Failures a person can act on.

Problem                                 what is wrong, and what to do next
├── MissingExtraError                   libraries of an extra are not installed (engine.plugins)
└── EngineError
    ├── CorpusError                     text that cannot be read as documents (path, line)
    │   └── CorpusChangedError          a file that was written while it was read
    ├── TokenizerError                  a tokenizer that is missing, broken or not the one expected
    │   └── ChatTemplateError           a chat template that cannot be read or does not write a conversation
    ├── ModelError                      a model that cannot be loaded, split or matched
    ├── DamagedFileError                a file that differs from its manifest
    ├── TrainingError                   a training that cannot start or must not go on
    │   ├── DoesNotFitError             it takes more memory or disk than there is
    │   ├── NonFiniteLossError          the loss is NaN or infinite; nothing was updated
    │   └── LostRankError               one of several training processes ended (rank)
    │       └── LostNodeError           one of several machines of a training cannot be reached
    ├── MixtureError                    experts, weights or priors that do not go together
    │   └── ContextLengthExceededError  more text than the models read at once
    └── ScoresError                     stored log-likelihoods that do not fit the request
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar


class NextStep(StrEnum):
    """Next steps that a front end words better: it knows the command, the setting or the page.

    A value is the sentence where there is no front end, and the code by which `ui.present` recognises the step.
    """

    CHOOSE_DEVICE = "Choose the device auto, cpu or another that this machine has."
    CHOOSE_DEVICE_OR_ONE_PROCESS = "Choose the device auto, cpu or cuda, or train in one process."
    LISTEN_ELSEWHERE = "Give it an address that it has itself."
    REACHABLE_ADDRESS = "Give the worker an address that the nodes reach, and open its ports."
    EVALUATE_AGAIN = "Evaluate the mixture again."
    NAME_TEXT_FIELD = "Say which field holds the text."
    NAME_DOMAIN_FIELD = "Say which field holds the domain."
    CHOOSE_SPLIT = "To read it, choose its split, or all."
    IMPORT_AS_CHAT = "Import it in the format chat."
    IMPORT_PROMPTS_AS_TEXT = "Remove the record; to train only on prompts, import them as text."
    LEAVE_FIELDS_OUT = "Fix or remove the record, or leave this field out."
    NAME_GROUP_FIELD = "Say which field holds the group."
    FEWER_SHOTS = "Add examples, or choose fewer demonstrations."
    FEWER_VALIDATION_EXAMPLES = "Add examples, or choose fewer validation examples."


class Problem(Exception):  # noqa: N818 -- it is shown as a problem and a next step
    """An error for users: what is wrong, and what to do next, in one or two short sentences."""

    error_code: ClassVar[str] = "problem"

    def __init_subclass__(cls, code: str = "") -> None:
        """Gives the class the code by which JSON names it: the one given, else `model_error` for a ModelError."""
        cls.error_code = code or re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__(problem, next_step)
        self.problem = problem
        self.next_step = next_step

    @property
    def cause(self) -> str:
        """The error's message with its place (such as file and line) where it has one; without the next step."""
        return self.problem

    def __str__(self) -> str:
        return f"{self.cause} {self.next_step}".strip()


class EngineError(Problem):
    """Raised on purpose by the engine."""


class CorpusError(EngineError):
    """Text that cannot be read as documents; says where."""

    def __init__(
        self, problem: str, next_step: str = "", *, path: Path | str | None = None, line: int | None = None
    ) -> None:
        super().__init__(problem, next_step)
        self.path = path
        self.line = line

    @property
    def cause(self) -> str:
        where = "" if self.path is None else f"{self.path}" + (f", line {self.line}" if self.line else "") + ": "
        return where + self.problem


class CorpusChangedError(CorpusError, code="corpus_changed"):
    """A file that was written while it was read: what was read of it is of no one moment."""


class TokenizerError(EngineError):
    """A tokenizer that is missing, broken or not the one expected."""


class ChatTemplateError(TokenizerError):
    """A chat template that cannot be read, or that does not write a conversation."""


class ModelError(EngineError):
    """A model that cannot be loaded, cut open or matched."""


class DamagedFileError(EngineError, code="damaged_file"):
    """Bytes that are not those of the manifest."""


class TrainingError(EngineError):
    """A training that cannot start or must not go on."""


class DoesNotFitError(TrainingError, code="does_not_fit"):
    """By its shapes, a training takes more memory or disk than there is; raised before its first update."""


class NonFiniteLossError(TrainingError, code="non_finite_loss"):
    """A loss is NaN or infinite; raised before anything is updated or kept."""


class LostRankError(TrainingError, code="lost_rank"):
    """One of several training processes ended; says which, where that is known."""

    def __init__(
        self, problem: str, next_step: str = "", *, rank: int | None = None, lacks_memory: bool = False
    ) -> None:
        super().__init__(problem, next_step)
        self.rank = rank
        self.lacks_memory = lacks_memory  # it said so, or was killed, which is what a system without memory does


class LostNodeError(LostRankError, code="lost_node"):
    """A machine of a training does not answer: the training can go on without it, or when it is back."""

    def __init__(self, problem: str, next_step: str = "", *, node: str = "") -> None:
        super().__init__(problem, next_step)
        self.node = node  # its name in the hostfile, where that is known


class MixtureError(EngineError):
    """Experts, weights or priors that do not go together."""


class ContextLengthExceededError(MixtureError, code="context_length_exceeded"):
    """More text than the models read at once."""


class ScoresError(EngineError):
    """Stored log-likelihoods that do not fit the request."""


def first_of(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are: `x`, `x (and 3 more)`."""
    return names[0] + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def is_out_of_memory(error: Exception) -> bool:
    """True when an error means that memory ran out, on this machine or on an accelerator."""
    # Compared by name: this must not import torch. On CPU torch raises a bare RuntimeError.
    names = {cls.__name__ for cls in type(error).__mro__}
    words = ("can't allocate memory", "not enough memory", "out of memory")
    has_message = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or has_message
