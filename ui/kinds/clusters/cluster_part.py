"""A part of a clustering, which only other jobs submit."""

from __future__ import annotations

from ui.kinds.screen import Result, Screen


def _sentence(result: Result) -> str:
    part = "The fit" if result["shard"] is None else f"Shard {result['shard']}"
    return f"{part} of the clustering {result['clustering']} is computed."


SCREEN = Screen(
    command=None,
    sentence=_sentence,
    link=None,
    form=None,
)
