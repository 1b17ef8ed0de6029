"""Merging clusters; its form is on the page Clusters."""

from __future__ import annotations

from functools import partial

from ui.kinds.clusters.clusters_link import clusters_link
from ui.kinds.screen import Screen, stored_sentence
from ui.present.forms.cli_command import command_line
from workbench.kinds.clusters.merge_clusters import MergeClusters

SCREEN = Screen(
    command=partial(command_line, "cluster merge", MergeClusters, ("clustering",)),
    sentence=stored_sentence,
    link=clusters_link("See the clusters", "Words & documents"),
    form=None,
)
