"""Commands of the workbench as text to copy: names may hold blanks, so each word is quoted for a shell."""

import shlex

from engine.text.split_names import HeldOutSplit


def shell_command(*words: str) -> str:
    """`workbench` with these arguments."""
    return shlex.join(["workbench", *words])


def evaluate_command(mixture: str, split: HeldOutSplit = "test", *options: str) -> str:
    """The command that scores the experts of a mixture on a split."""
    return shell_command("evaluate", "run", mixture, *split_options(split), *options)


def split_options(split: HeldOutSplit) -> list[str]:
    """The option for a split; none for the default."""
    return [] if split == "test" else ["--split", split]
