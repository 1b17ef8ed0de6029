"""The studio's rooms: the script of each page, as links name it, with its title and icon. Pure.

They do not lie in a folder called `pages`: next to a script with such a folder, Streamlit answers the first visit
of a room's address with that file alone, without the studio around it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple


class Room(NamedTuple):
    """One page of the studio."""

    script: str
    title: str
    icon: str
    section: str

    @property
    def address(self) -> str:
        """The room's place in the studio's address: `jobs`, though a script of that name would hide the package."""
        return PurePath(self.script).stem.removesuffix("_page")


OVERVIEW = Room("rooms/overview.py", "Overview", ":material/home:", "")
CORPORA = Room("rooms/corpora.py", "Corpora & domains", ":material/library_books:", "Make")
CLUSTERS = Room("rooms/clusters.py", "Clusters", ":material/bubble_chart:", "Make")
TRAIN = Room("rooms/train.py", "Train", ":material/model_training:", "Make")
JOBS = Room("rooms/jobs_page.py", "Jobs", ":material/list_alt:", "Make")
EXPERTS = Room("rooms/experts.py", "Experts", ":material/groups:", "Keep")
MIXTURES = Room("rooms/mixtures.py", "Mixtures", ":material/tune:", "Keep")
REPORTS = Room("rooms/reports.py", "Reports", ":material/description:", "Keep")
SPECIALIZATION = Room("rooms/specialization.py", "Specialization", ":material/grid_on:", "Explain")
POSTERIORS = Room("rooms/posteriors.py", "Posteriors", ":material/show_chart:", "Explain")
SELFCHECK = Room("rooms/selfcheck.py", "Self-check", ":material/rule:", "Explain")
REPLICATIONS = Room("rooms/replications.py", "Replication", ":material/experiment:", "Explain")
PLAYGROUND = Room("rooms/playground.py", "Playground", ":material/forum:", "Talk")
COMPOSITION, EVALUATION = "MoDE composition", "Evaluation"  # what the page Train makes
SHARED_TEXT, LEARNED_AND_KEPT = "Shared text", "Learned and kept"  # views of the specialization

ROOMS = (
    OVERVIEW,
    CORPORA,
    CLUSTERS,
    TRAIN,
    JOBS,
    EXPERTS,
    MIXTURES,
    REPORTS,
    SPECIALIZATION,
    POSTERIORS,
    REPLICATIONS,
    SELFCHECK,
    PLAYGROUND,
)
