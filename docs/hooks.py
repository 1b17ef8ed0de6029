"""Hooks of mkdocs: links to files that are not part of the site, the icon, and the page for a missing address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ICON = DOCS.parent / "ui" / "studio" / ".streamlit" / "icon.svg"
_DIALOG = 'data-md-component="search" role="dialog"'
LINK = re.compile(r"(?<!!)\[(?P<text>[^]]+)\]\((?P<target>[^)#\s]+)[^)]*\)")


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Adds the icon of the studio."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, ICON.name, abs_src_path=str(ICON)))


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """A link to a file of the repository outside the site becomes its text and the file's path.

    What does not exist stays a link, so that `--strict` refuses it.
    """

    def without_link(link: re.Match[str]) -> str:
        path = (DOCS / page.file.src_uri).parent.joinpath(link["target"]).resolve()
        file = files.get_file_from_path(path.relative_to(DOCS).as_posix()) if path.is_relative_to(DOCS) else None
        if (
            not path.exists()
            or not path.is_relative_to(DOCS.parent)
            or (file is not None and not file.inclusion.is_excluded())
        ):
            return link[0]
        name = f"`{path.relative_to(DOCS.parent)}`"
        return name if link["text"].strip("`") in (path.name, name.strip("`")) else f"{link['text']} ({name})"

    return LINK.sub(without_link, markdown)


def on_template_context(context: dict[str, Any], *, template_name: str, **_: Any) -> None:
    """The page for a missing address is answered at any depth, so its links begin with the path of the studio."""
    if template_name == "404.html":
        context["base_url"] = "/help/"


def on_post_page(output: str, **_: Any) -> str:
    """Names the dialog of the search, which the theme leaves without a name for screen readers."""
    return output.replace(_DIALOG, f'{_DIALOG} aria-label="Search"')
