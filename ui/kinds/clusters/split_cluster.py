"""Splitting a cluster; its form is on the page Clusters."""

from __future__ import annotations

from functools import partial

from ui.kinds.clusters.clusters_link import clusters_link
from ui.kinds.screen import Screen, stored_sentence
from ui.present.forms.cli_command import command_line
from workbench.kinds.clusters.split_cluster import SplitCluster

SCREEN = Screen(
    command=partial(command_line, "cluster split", SplitCluster, ("clustering", "cluster")),
    sentence=stored_sentence,
    link=clusters_link("See the clusters", "Words & documents"),
    form=None,
)
