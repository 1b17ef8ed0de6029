"""Text that a terminal only shows: without the characters that move its cursor, change its title or reorder a line."""

from __future__ import annotations

import re
from unicodedata import category

_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # CVE-2021-42574
_NOT_PLAIN = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # JSON escapes the C0 controls on its own


def harmless(text: str) -> str:
    """Text without control characters (C0, C1) but newline and tab, and without bidirectional overrides.

    What is left of an escape sequence is plain characters: names, documents and what a model wrote may hold some.
    """
    return "".join(one for one in text if one in "\n\t" or (category(one) != "Cc" and one not in _REORDERING))


def harmless_json(text: str) -> str:
    """The same JSON value, with these characters escaped."""
    return _NOT_PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
