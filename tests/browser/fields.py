"""Fields of the studio, filled in as a person does: again where the page moved under the hand."""

from __future__ import annotations

from playwright.sync_api import Locator, TimeoutError

TRIES = 6
MOMENT = 5_000  # milliseconds


def choose_option(field: Locator, name: str) -> None:
    """Opens the list of a field by the name of an option, and takes that option.

    A list closes when its page scrolls. A browser reports the scrolling that brings the field into view only after the
    first key in it, so that the list may close at once: it is opened again.
    """
    option = field.page.get_by_role("option", name=name, exact=True)
    for _ in range(TRIES - 1):
        field.fill(name)
        try:
            return option.click(timeout=MOMENT)
        except TimeoutError:
            field.press("Escape")
    field.fill(name)
    option.click()
