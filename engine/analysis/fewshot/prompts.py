"""Prompts of a task: demonstrations drawn with a seed, then the example in question (C-BTM §5.1 and A.7).

    beginning token, demonstration, blank line, …, demonstration, blank line, question

What is scored after a prompt are the options: the words of all labels, as tokens. A prompt that does not fit loses
whole demonstrations, the first ones first; a question that does not fit alone loses its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.analysis.fewshot.tasks import Example, Task
from engine.errors import CorpusError, ModelError, NextStep
from engine.text.tokenizer import Tokenizer

BETWEEN = "\n\n"
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Prompt:
    """What is read before an option, beginning token first; `label` is the right one's number."""

    ids: Ids
    label: int
    num_shots: int  # demonstrations that fit
    is_cut: bool


@dataclass(frozen=True)
class Episode:
    """All prompts of one task with one seed.

    permuted: demonstrations only, each time in another order, the last one in question (A.7). validation: the
    demonstrations before examples that are none of them.
    """

    test: tuple[Prompt, ...]
    permuted: tuple[Prompt, ...]
    validation: tuple[Prompt, ...]

    @property
    def parts(self) -> dict[str, tuple[Prompt, ...]]:
        """The prompts by what they are for."""
        return {"test": self.test, "permuted": self.permuted, "validation": self.validation}


@dataclass(frozen=True)
class Shots:
    """How many demonstrations (paper: 8), validation examples (paper: 8), and test examples at most."""

    num_shots: int = 8
    num_validation: int = 8
    max_examples: int = 1000


def encode_options(task: Task, tokenizer: Tokenizer) -> tuple[Ids, ...]:
    """The tokens of each label's word, as they come after a question.

    Raises CorpusError when one is the beginning of another: the shorter could never be the less probable.
    """
    before = task.question("")
    lead = tokenizer.encode(before)
    options = []
    for word in task.words:
        whole = tokenizer.encode(before + task.lead + word)
        is_apart = whole[: len(lead)] == lead
        options.append(tuple(whole[len(lead) :] if is_apart else tokenizer.encode(task.lead + word)))
    for place, one in enumerate(options):
        for other_place, other in enumerate(options):
            if place != other_place and one == other[: len(one)]:
                raise CorpusError(
                    f"The words of two labels must differ in their tokens, but “{task.words[place]}” is how "
                    f"“{task.words[other_place]}” begins.",
                    "Choose other words in task.json.",
                    path=task.name,
                )
    return tuple(options)


def room_for(task: Task, options: Sequence[Ids], max_positions: int) -> int:
    """The tokens that a prompt may have beside the longest option; raises ModelError when that is next to none."""
    room = max_positions - max(map(len, options)) + 1  # nobody reads the last token of an option
    if room < 2:
        raise ModelError(
            f"The words of the labels of “{task.name}” must fit a context of {max_positions} tokens, but do not.",
            "Choose shorter words in task.json, or models with a longer context.",
        )
    return room


def make_episode(task: Task, tokenizer: Tokenizer, shots: Shots, seed: int, room: int) -> Episode:
    """The prompts of one seed; test examples and their order are the same for all seeds.

    Raises CorpusError when there are too few examples to draw from.
    """
    chance = np.random.default_rng(seed)
    drawn, validation = _draw(task, shots, chance)
    build = _Builder(task, tokenizer, room)
    permuted = [[drawn[place] for place in chance.permutation(len(drawn))] for _ in drawn]
    return Episode(
        test=tuple(build.prompt(drawn, one) for one in _tested(task, shots.max_examples)),
        permuted=tuple(build.prompt(order[:-1], order[-1]) for order in permuted),
        validation=tuple(build.prompt(drawn, one) for one in validation),
    )


def _draw(task: Task, shots: Shots, chance: np.random.Generator) -> tuple[list[Example], list[Example]]:
    """Demonstrations of the training examples; and validation examples, from the same where there are no others."""
    order = [task.train[place] for place in chance.permutation(len(task.train))]
    drawn, rest = order[: shots.num_shots], order[shots.num_shots :]
    others = [task.validation[place] for place in chance.permutation(len(task.validation))] or rest
    if len(drawn) < shots.num_shots:
        problem = f"There must be {shots.num_shots} training examples to draw from, but there are {len(order)} instead."
        raise CorpusError(problem, NextStep.FEWER_SHOTS, path=task.name)
    if len(others) < shots.num_validation:
        problem = (
            f"There must be {shots.num_validation} validation examples beside the demonstrations, but there are "
            f"{len(others)} instead."
        )
        raise CorpusError(problem, NextStep.FEWER_VALIDATION_EXAMPLES, path=task.name)
    return drawn, others[: shots.num_validation]


def _tested(task: Task, most: int) -> list[Example]:
    """Test examples in an order of chance, since files are often sorted by label."""
    order = np.random.default_rng(0).permutation(len(task.test))
    return [task.test[place] for place in order[:most]]


@dataclass(frozen=True)
class _Builder:
    """Makes prompts of a task that leave room for its options."""

    task: Task
    tokenizer: Tokenizer
    room: int

    def prompt(self, shots: Sequence[Example], example: Example) -> Prompt:
        told = [self.task.answered(shot) for shot in shots]
        question = self.task.question(example.text)
        room = self.room - len(self.tokenizer.prefix)
        for left_out in range(len(told) + 1):
            ids = self.tokenizer.encode(BETWEEN.join([*told[left_out:], question]))
            if len(ids) <= room:
                return self._made(ids, example, len(told) - left_out, is_cut=left_out > 0)
        return self._made(ids[-room:], example, 0, is_cut=True)

    def _made(self, ids: Sequence[int], example: Example, num_shots: int, *, is_cut: bool) -> Prompt:
        return Prompt(tuple(self.tokenizer.as_prompt(ids)), example.label, num_shots, is_cut)
