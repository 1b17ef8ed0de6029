"""A page of another package: how many words the domains have. It stands under Data, after the clusters."""

from __future__ import annotations

from pathlib import Path

from ui.present.pages import CLUSTERS, Page

PAGE = Page(
    str(Path(__file__).with_name("word_counts.py")),
    "Word counts",
    ":material/123:",
    CLUSTERS.entry,
    command="word-counts",
    after=CLUSTERS.address,
)
