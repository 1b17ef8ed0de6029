"""The answer to whether a stored answer can be made again."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


class ChoiceReplay(Answer):
    """One text of a stored answer, beside the same made again."""

    index: int
    num_tokens: int
    first_difference: int | None = Field(description="Place of the first token that differs; None if none does.")


class Verification(Answer):
    """Whether the stored tokens are those that the models give today."""

    agrees: bool
    changed: list[str] = Field(description="What of the manifest is not as it was.")
    choices: list[ChoiceReplay]


class AnswerVerification(Verification):
    """The same for one answer of a comparison."""

    letter: str


class ComparisonVerification(Answer):
    """Whether all answers of a comparison can be made again."""

    agrees: bool
    answers: list[AnswerVerification]
