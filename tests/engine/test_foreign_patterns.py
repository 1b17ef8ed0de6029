"""The regular expressions of known tokenizers are taken; one that some text makes slow is not."""

from __future__ import annotations

import pytest

from engine.foreign_files import is_linear, patterns_in

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
FIRST, ENDING = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": rf"{ENDING}|{FIRST}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
    r"\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": rf"{FIRST}{UPPER}*{LOWER}+{ENDING}?|{FIRST}{UPPER}+{LOWER}*{ENDING}?|\p{{N}}{{1,3}}|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "deepseek": rf"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{{|}}~][A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+|"
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}",
    "han": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "kimi": rf"[\p{{Han}}]+|{FIRST}[\p{{Lu}}&&[^\p{{Han}}]]*[\p{{Ll}}&&[^\p{{Han}}]]+|{FIRST}[\p{{Lu}}&&[^\p{{Han}}]]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "digits": "[0-9][0-9][0-9]",
    "blanks": " {2,}",
}
SLOW = [
    "(z+)+$",
    "(?:a|aa){16}(?:a|aa){5}b",
    "(?:z|z)+",
    "(?i:z+)+",
    "(a|ab)*c",
    "z+$",
    "z+!",
    "z++!",
    "z{2,}!",
    r"\s*[\r\n]+",
    r"\s*\n|\s",
    r"\s*\s*x|\s+",
    r"\s+x{1,3}",
    r"\s+(?!\S)x",
    "z*z*z*!",
    "a{1,16}b{1,16}c",
    "z{1000}",
    ".*?x",
    r"(\w+)\1",
    r"(?=(\d{3})+(?!\d))",
    "(?<=a)b+",
    "[z",
    "",
]


@pytest.mark.parametrize("name", KNOWN)
def test_the_expressions_of_known_tokenizers_are_taken(name: str) -> None:
    assert is_linear(KNOWN[name])


@pytest.mark.parametrize("pattern", SLOW)
def test_an_expression_that_some_text_makes_slow_is_not_taken(pattern: str) -> None:
    assert not is_linear(pattern)


def test_the_expressions_of_every_part_of_a_tokenizer_are_listed() -> None:
    split = {"type": "Split", "pattern": {"Regex": "a"}}
    state = {"type": "Sequence", "pretokenizers": [split, {"type": "Split", "pattern": {"String": "b"}}]}
    assert list(patterns_in([state, {"type": "Replace", "pattern": {"Regex": "c"}}, None])) == ["a", "c"]
