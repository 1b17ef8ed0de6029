"""Uploaded files: a folder of each upload in the home, until the job that reads it is over."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from workbench.settings import Settings

_ID = re.compile(r"[0-9a-f]{32}")
_UPLOADS = "uploads"


def uploads_folder(home: Path) -> Path:
    """The folder of uploaded files, one subfolder for each upload, until the job that reads it is over."""
    return home / _UPLOADS


def upload_id(path: Path) -> str | None:
    """The id of the upload that a path leads into, also under the name that the home had before it was moved."""
    pairs = zip(path.parts, path.parts[1:], strict=False)
    return next((id for parent, id in pairs if parent == _UPLOADS and _ID.fullmatch(id)), None)


def with_uploads_here(value: Any, settings: Settings) -> Any:
    """JSON in which paths into uploads lead to this home, which may have been moved since they were written."""
    if isinstance(value, dict):
        return {name: with_uploads_here(one, settings) for name, one in value.items()}
    if isinstance(value, list):
        return [with_uploads_here(one, settings) for one in value]
    id = upload_id(Path(value)) if isinstance(value, str) and os.path.isabs(value) else None
    if id is None or os.path.exists(value):
        return value
    folder = uploads_folder(settings.root)
    return str(folder.joinpath(id, *Path(value).parts[Path(value).parts.index(id) + 1 :]))


def is_elsewhere(path: str, settings: Settings) -> bool:
    """Whether a path leads into an upload that this home lacks: another machine received it."""
    id = upload_id(Path(path))
    return id is not None and not os.path.exists(path) and not (uploads_folder(settings.root) / id).exists()


def names_file(folder: Path) -> Path:
    """The file with the original names of an upload's files; it stays as long as something refers to the upload."""
    return folder.with_name(f"{folder.name}.json")
