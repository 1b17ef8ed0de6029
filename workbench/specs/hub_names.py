"""Names of models on the Hugging Face hub, with the revision or the commit that pins them: hub:NAME@REVISION."""

from __future__ import annotations

import re

HUB = "hub:"
_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")


def hub_name(text: str) -> tuple[str, str]:
    """The name and the revision (empty: the newest) of `hub:NAME@REVISION`, with or without `hub:`.

    Raises ValueError for what is no such name.
    """
    name, _, revision = text.removeprefix(HUB).partition("@")
    if not _NAME.fullmatch(name) or ".." in name or (revision and not _REVISION.fullmatch(revision)):
        raise ValueError(f"“{text[:200]}” is no name on the hub: write NAME or OWNER/NAME, and @REVISION for another")
    if text.endswith("@"):
        raise ValueError("a revision must follow the @")
    return name, revision


def hub_source(name: str, commit: str) -> str:
    """The source of what was downloaded: its name on the hub and its commit."""
    return f"{HUB}{name}@{commit}"


def hub_origin(source: str) -> tuple[str, str]:
    """The name on the hub and the commit of a source that the registry keeps; empty where it is of elsewhere."""
    if not source.startswith(HUB):
        return "", ""
    name, _, commit = source.removeprefix(HUB).partition("@")
    return name, commit
