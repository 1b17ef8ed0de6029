"""Where a path that somebody types into a page may lead: into the folders that the owner named, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jobs.sweep import uploads_folder
from ui.parts.words import listed
from workbench.errors import BadSpec
from workbench.settings import Settings, get_settings


def require_readable(paths: Iterable[str | Path]) -> None:
    """Raises BadSpec with every path that leads elsewhere, be it through a link."""
    settings = get_settings()
    outside = [path for path in paths if not is_readable(Path(path), settings)]
    if outside:
        named = listed([str(folder) for folder in settings.readable_folders])
        complaints = [f"{path} is outside the folders that the studio may read: {named}." for path in outside]
        raise BadSpec(complaints, _NEXT_STEP)


_NEXT_STEP = "Upload the files, use the command line, or name their folder in WORKBENCH_DATA_FOLDERS."


def is_readable(path: Path, settings: Settings) -> bool:
    """Whether a page may read what lies there. Of the home folder it may read uploads, and folders named inside it."""
    try:
        place = path.resolve()
    except (OSError, RuntimeError, ValueError):  # no path, or links in a circle
        return False
    folders = [*settings.readable_folders, uploads_folder(settings.root)]
    if place.is_relative_to(settings.root):
        folders = [folder for folder in folders if settings.root in folder.parents]
    return any(place.is_relative_to(folder) for folder in folders)
