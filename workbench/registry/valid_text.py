"""Text that every database takes."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with half characters (from file names) and NUL (from logs) replaced by a mark."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "�")
