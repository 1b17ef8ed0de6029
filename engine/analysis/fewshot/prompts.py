"""Builds few-shot prompts: demonstrations sampled with a seed, then the question (C-BTM §5.1 and A.7).

    BOS token, demonstration, blank line, …, demonstration, blank line, question

The options scored after a prompt are the words of all labels, as tokens. A prompt that does not fit loses
demonstrations, the first ones first; a question that is too long on its own loses its first tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from engine.analysis.fewshot.tasks import LabelledExample, Task
from engine.errors import CorpusError, ModelError, NextStep
from engine.text.tokenizer import Tokenizer

BETWEEN = "\n\n"
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Prompt:
    """The tokens before an option, BOS token first; `label` is the index of the right option."""

    ids: Ids
    label: int
    num_shots: int  # demonstrations that fit
    is_cut: bool


@dataclass(frozen=True)
class Episode:
    """All prompts of one task with one seed.

    permuted: demonstrations in random orders, with the last one as the question (A.7). validation: the
    demonstrations before other examples.
    """

    test: tuple[Prompt, ...]
    permuted: tuple[Prompt, ...]
    validation: tuple[Prompt, ...]

    @property
    def parts(self) -> dict[str, tuple[Prompt, ...]]:
        """The prompts by purpose."""
        return {"test": self.test, "permuted": self.permuted, "validation": self.validation}


@dataclass(frozen=True)
class Shots:
    """The number of demonstrations (paper: 8) and validation examples (paper: 8), and the maximum of test examples."""

    num_shots: int = 8
    num_validation: int = 8
    max_examples: int = 1000


def encode_options(task: Task, tokenizer: Tokenizer) -> tuple[Ids, ...]:
    """The tokens of each label's word after a question.

    Raises CorpusError when one option is a prefix of another: the shorter would always be the more probable.
    """
    before = task.question("")
    lead = tokenizer.encode(before)
    options = []
    for word in task.label_words:
        ids = tokenizer.encode(before + task.lead + word)
        is_separate = ids[: len(lead)] == lead
        options.append(tuple(ids[len(lead) :] if is_separate else tokenizer.encode(task.lead + word)))
    for (word, option), (other_word, other) in permutations(zip(task.label_words, options, strict=True), 2):
        if option == other[: len(option)]:
            raise CorpusError(
                f"The label words “{word}” and “{other_word}” begin with the same tokens.",
                "Choose other words in task.json.",
                path=task.name,
            )
    return tuple(options)


def max_prompt_tokens(task: Task, options: Sequence[Ids], max_positions: int) -> int:
    """The longest prompt that fits with the longest option; raises ModelError when it is below 2 tokens."""
    max_tokens = max_positions - max(map(len, options)) + 1  # the last token of an option is only predicted
    if max_tokens < 2:
        raise ModelError(
            f"The label words of “{task.name}” do not fit a context of {max_positions} tokens.",
            "Choose shorter words in task.json, or models with a longer context.",
        )
    return max_tokens


def make_episode(task: Task, tokenizer: Tokenizer, shots: Shots, seed: int, max_tokens: int) -> Episode:
    """The prompts of one seed; test examples and their order are the same for all seeds.

    Raises CorpusError when there are too few examples.
    """
    rng = np.random.default_rng(seed)
    drawn, validation = _draw(task, shots, rng)
    build = _Builder(task, tokenizer, max_tokens)
    permuted = [[drawn[place] for place in rng.permutation(len(drawn))] for _ in drawn]
    tested = np.random.default_rng(0).permutation(len(task.test))[: shots.max_examples]  # files are sorted by label
    return Episode(
        test=tuple(build.prompt(drawn, task.test[place]) for place in tested),
        permuted=tuple(build.prompt(order[:-1], order[-1]) for order in permuted),
        validation=tuple(build.prompt(drawn, example) for example in validation),
    )


def _draw(task: Task, shots: Shots, rng: np.random.Generator) -> tuple[list[LabelledExample], list[LabelledExample]]:
    """Demonstrations and validation examples; both from the training examples if there is no validation file."""
    order = [task.train[place] for place in rng.permutation(len(task.train))]
    drawn, rest = order[: shots.num_shots], order[shots.num_shots :]
    others = [task.validation[place] for place in rng.permutation(len(task.validation))] or rest
    if len(drawn) < shots.num_shots:
        problem = f"{shots.num_shots} training examples are needed as demonstrations, but there are {len(order)}."
        raise CorpusError(problem, NextStep.FEWER_SHOTS, path=task.name)
    if len(others) < shots.num_validation:
        problem = (
            f"{shots.num_validation} validation examples are needed besides the demonstrations, but there are "
            f"{len(others)}."
        )
        raise CorpusError(problem, NextStep.FEWER_VALIDATION_EXAMPLES, path=task.name)
    return drawn, others[: shots.num_validation]


@dataclass(frozen=True)
class _Builder:
    """Builds prompts of at most `max_tokens` tokens."""

    task: Task
    tokenizer: Tokenizer
    max_tokens: int

    def prompt(self, shots: Sequence[LabelledExample], example: LabelledExample) -> Prompt:
        demonstrations = [self.task.demonstration(shot) for shot in shots]
        question = self.task.question(example.text)
        max_tokens = self.max_tokens - len(self.tokenizer.prefix)
        for left_out in range(len(demonstrations) + 1):
            ids = self.tokenizer.encode(BETWEEN.join([*demonstrations[left_out:], question]))
            if len(ids) <= max_tokens:
                return self._prompt(ids, example, len(demonstrations) - left_out, is_cut=left_out > 0)
        return self._prompt(ids[-max_tokens:], example, 0, is_cut=True)

    def _prompt(self, ids: Sequence[int], example: LabelledExample, num_shots: int, *, is_cut: bool) -> Prompt:
        return Prompt(tuple(self.tokenizer.as_prompt(ids)), example.label, num_shots, is_cut)
