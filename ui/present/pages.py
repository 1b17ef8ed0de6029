"""The studio's pages: the script of each page, as links name it, with its title and icon.

The scripts are not in a folder called `pages`: next to a script with such a folder, Streamlit answers the first visit
of a page's address with that file alone, without the studio around it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple


class Page(NamedTuple):
    """One page of the studio."""

    script: str
    title: str
    icon: str
    section: str

    @property
    def address(self) -> str:
        """The page's path in the studio's address: `jobs`, though a script of that name would hide the package."""
        return PurePath(self.script).stem.removesuffix("_page")


OVERVIEW = Page("app_pages/overview.py", "Overview", ":material/home:", "")
CORPORA = Page("app_pages/corpora.py", "Corpora & domains", ":material/library_books:", "Make")
CLUSTERS = Page("app_pages/clusters.py", "Clusters", ":material/bubble_chart:", "Make")
TRAIN = Page("app_pages/train.py", "Train", ":material/model_training:", "Make")
JOBS = Page("app_pages/jobs_page.py", "Jobs", ":material/list_alt:", "Make")
EXPERTS = Page("app_pages/experts.py", "Experts", ":material/groups:", "Keep")
MIXTURES = Page("app_pages/mixtures.py", "Mixtures", ":material/tune:", "Keep")
REPORTS = Page("app_pages/reports.py", "Reports", ":material/description:", "Keep")
SPECIALIZATION = Page("app_pages/specialization.py", "Specialization", ":material/grid_on:", "Explain")
POSTERIORS = Page("app_pages/posteriors.py", "Posteriors", ":material/show_chart:", "Explain")
SELFCHECK = Page("app_pages/selfcheck.py", "Self-check", ":material/rule:", "Explain")
REPLICATIONS = Page("app_pages/replications.py", "Replication", ":material/experiment:", "Explain")
PLAYGROUND = Page("app_pages/playground.py", "Playground", ":material/forum:", "Talk")
COMPOSITION, EVALUATION = "MoDE composition", "Evaluation"  # what the page Train makes
SHARED_TEXT, LEARNED_AND_KEPT = "Overlap", "Learning vs. forgetting"  # views of the specialization

PAGES = (
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
