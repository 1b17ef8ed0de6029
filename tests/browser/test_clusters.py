"""Domains nobody named, with the mouse: find clusters, read a document on the map, lasso some into a domain."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_accessibility import popover_faults
from workbench.registry.clusters.cluster_documents import map_points
from workbench.registry.corpora import list_domains
from workbench.registry.database import close_engines, reading
from workbench.store.storage import get_storage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
DONE = 300_000  # milliseconds in which a job ends; the first map of a machine is compiled
CHOSEN = "what *lies* together"

# Where a point of the map is on the screen, and the middle and half the size of the map.
PLACE = """() => {
  const chart = document.querySelector(".js-plotly-plot"), layout = chart._fullLayout, first = chart._fullData[0];
  const box = chart.querySelector(".nsewdrag").getBoundingClientRect();
  return {
    x: box.left + layout.xaxis.l2p(first.x[0]), y: box.top + layout.yaxis.l2p(first.y[0]),
    left: box.left + 5, top: box.top + 5, right: box.right - 5, bottom: box.bottom - 5,
  };
}"""


@pytest.mark.slow
def test_what_lies_together_on_the_map_is_read_and_becomes_a_domain(own_servers: Any, page: Page) -> None:
    find(page, own_servers)
    stands_in_the_first_screen(page)
    read_one(page)
    choose_all(page)
    assert is_a_domain_of_all(own_servers)


def find(page: Page, servers: Any) -> None:
    page.goto(f"{servers.studio}/clusters")
    expect(page.get_by_text("There is no clustering yet.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("topics")
    page.get_by_label("Number of clusters", exact=True).fill("3")
    page.get_by_label("Number of clusters", exact=True).press("Tab")
    page.get_by_role("button", name="Find clusters").click()
    expect(page.get_by_text("Click a point to read its document")).to_be_visible(
        timeout=DONE
    )  # the room shows it itself


def stands_in_the_first_screen(page: Page) -> None:
    """The map on a laptop, with names that can be read in both themes."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    expect(page.locator(".js-plotly-plot")).to_be_in_viewport(ratio=0.9)
    name = page.locator(".st-key-cluster_map_chart .annotation text").first
    expect(name).to_have_css("fill", "rgb(31, 29, 26)")
    page.emulate_media(color_scheme="dark")
    expect(name).to_have_css("fill", "rgb(237, 235, 232)")
    page.emulate_media(color_scheme="light")


def read_one(page: Page) -> None:
    expect(page.locator(".js-plotly-plot .gl-canvas").first).to_be_visible()
    # The mouse reaches only what the window shows.
    page.locator(".js-plotly-plot").evaluate("chart => chart.scrollIntoView({ block: 'center' })")
    place = page.evaluate(PLACE)
    page.mouse.move(place["x"] - 2, place["y"])
    page.mouse.move(place["x"], place["y"])
    expect(page.locator(".js-plotly-plot .hovertext")).to_be_visible()  # Plotly clicks what it hovers over
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_text("Strongest words:")).to_be_visible()
    assert popover_faults(page, "Move to another cluster …") == []


def choose_all(page: Page) -> None:
    page.locator(".js-plotly-plot [data-title='Lasso Select']").click()
    place = page.evaluate(PLACE)
    corners = [("left", "top"), ("right", "top"), ("right", "bottom"), ("left", "bottom"), ("left", "top")]
    page.mouse.move(place["left"], place["top"])
    page.mouse.down()
    for x, y in corners:
        page.mouse.move(place[x], place[y], steps=4)
    page.mouse.up()
    expect(page.get_by_text("documents in the area")).to_be_visible()
    page.get_by_label("Name of the new domain").fill(CHOSEN)
    page.get_by_label("Name of the new domain").press("Tab")
    page.get_by_role("button", name="Make a domain of these").click()
    expect(page.get_by_text("Train on it")).to_be_visible(timeout=DONE)


def is_a_domain_of_all(servers: Any) -> bool:
    try:
        with reading(servers.settings) as session:
            chosen = next(domain for domain in list_domains(session) if domain.name == CHOSEN)
            return chosen.num_documents == map_points(session, get_storage(servers.settings), "topics").num_points
    finally:
        close_engines()
