"""Finding clusters; its form is on the page Clusters."""

from __future__ import annotations

from functools import partial

from ui.kinds.clusters.clusters_link import clusters_link
from ui.kinds.screen import Screen
from ui.present.forms.cli_command import command_line
from workbench.kinds.clusters.find_clusters import FindClusters

SCREEN = Screen(
    command=partial(command_line, "cluster find", FindClusters, ("name",)),
    sentence=lambda result: f"{result['sentence']} {result.get('lengths', '')}".strip(),
    link=clusters_link("See the clusters", "Map"),
    form=None,
)
