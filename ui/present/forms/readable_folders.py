"""The folders that paths typed into a page or sent to the API may point to: only those that the owner listed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jobs.uploads import uploads_folder
from ui.present.text.formatting import listed
from workbench.errors import BadSpecError
from workbench.settings import Settings, get_settings


def require_readable(paths: Iterable[str | Path], settings: Settings | None = None) -> None:
    """Raises BadSpecError with every path that leads elsewhere, be it through a link."""
    settings = settings or get_settings()
    unreadable = [path for path in paths if not is_readable(Path(path), settings)]
    if unreadable:
        raise BadSpecError([_complaint(path, settings) for path in unreadable], _NEXT_STEP)


def _complaint(path: str | Path, settings: Settings) -> str:
    place = _place(Path(path))
    if place and _is_inside(place, settings):
        return f"{path} holds the workbench's home folder ({settings.root}), which no page or request may read."
    named = listed([str(folder) for folder in settings.readable_folders])
    return f"{path} is outside the folders that the studio may read (and the API): {named}."


_NEXT_STEP = "Upload the files, use the command line, or name their own folder in WORKBENCH_DATA_FOLDERS."


def is_readable(path: Path, settings: Settings) -> bool:
    """Whether a page may read what lies there. Of the home folder it may read uploads, and folders named inside it."""
    place = _place(path)
    return place is not None and _is_inside(place, settings) and not _holds_home(place, settings)


def _is_inside(place: Path, settings: Settings) -> bool:
    folders = [*settings.readable_folders, uploads_folder(settings.root)]
    if place.is_relative_to(settings.root):
        folders = [folder for folder in folders if settings.root in folder.parents]
    return any(place.is_relative_to(folder) for folder in folders)


def _place(path: Path) -> Path | None:
    """Where a path leads, without links; None where it is no path, or its links go in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _holds_home(place: Path, settings: Settings) -> bool:
    """Whether reading a full folder would reach the home folder inside it; hidden folders are skipped."""
    if place not in settings.root.parents:
        return False
    return not any(name.startswith(".") for name in settings.root.relative_to(place).parts)
