"""Making domains of clusters; its form is on the page Clusters."""

from __future__ import annotations

from functools import partial

from ui.kinds.clusters.clusters_link import clusters_link
from ui.kinds.screen import Screen, stored_sentence
from ui.present.forms.cli_command import command_line
from workbench.kinds.clusters.make_cluster_domains import MakeClusterDomains

SCREEN = Screen(
    command=partial(command_line, "cluster domains", MakeClusterDomains, ("clustering",)),
    sentence=stored_sentence,
    link=clusters_link("Train on them", "Train on them"),
    form=None,
)
