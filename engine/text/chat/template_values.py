"""Values for the variables of a model's chat template, such as `enable_thinking`: data, and never its arguments.

Of a record of a data set, of a request to the API and of the playground.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The arguments of transformers' apply_chat_template, what it gives to a template, and the special tokens.
_TAKEN = (
    r"messages|conversations?|tools|documents|chat_template|tokenize|add_generation_prompt|continue_final_message|"
    r"padding|truncation|max_length|return_.*|tokenizer_kwargs|.*_token|self|raise_exception|strftime_now|tojson|_.*"
)
NAME = rf"^(?!(?:{_TAKEN})$)[A-Za-z][A-Za-z0-9_]{{0,63}}$"


def is_variable(name: str) -> bool:
    """Whether it may be the name of a value that somebody gives."""
    return re.fullmatch(NAME, name) is not None


def clean_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are given; null is what was left out. Raises ValueError for a name that is not a variable's."""
    for name in values:
        if not is_variable(name):
            raise ValueError(f"it must not set “{name[:40]}”, which is not a variable or is set by this server")
    return {name: value for name, value in values.items() if value is not None}
