"""All pages of the studio: those of the workbench, and those of other installed packages, as entry points.

[project.entry-points."expert_workbench.pages"]
word-counts = "word_count.page:PAGE"
"""

from __future__ import annotations

from functools import cache

from engine.plugins import find_plugins
from ui.present import pages
from ui.present.pages import OVERVIEW, Page

GROUP = "expert_workbench.pages"  # of entry points
PAGE = tuple(page for page in vars(pages).values() if isinstance(page, Page))  # as they are defined there


@cache
def all_pages() -> tuple[Page, ...]:
    """Every page in the order of the navigation. Raises BadPluginError."""
    plugins = find_plugins("ui.pages", GROUP, "PAGE", Page, lambda page: page.address).values()
    ordered = [page for page in plugins if not page.after]
    for page in (page for page in plugins if page.after):
        before = [index for index, other in enumerate(ordered) if other.address == page.after]
        ordered.insert(before[0] + 1 if before else len(ordered), page)
    return tuple(ordered)


def page_at(address: str) -> Page:
    """The page with an address; the overview where no installed package has it."""
    return next((page for page in all_pages() if page.address == address), OVERVIEW)


def pages_of(entry: str) -> list[Page]:
    """The pages of an entry of the navigation; it opens the first."""
    return [page for page in all_pages() if page.entry == entry]
