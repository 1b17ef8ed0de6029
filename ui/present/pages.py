"""The studio's pages: the script of each page, as links name it, with its title and icon.

The scripts are not in a folder called `pages`: next to a script with such a folder, Streamlit answers the first visit
of a page's address with that file alone, without the studio around it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple


class Page(NamedTuple):
    """One page of the studio. `entry` is its entry in the navigation; an entry opens the first page that has it."""

    script: str
    title: str
    icon: str
    entry: str

    @property
    def address(self) -> str:
        """The page's path in the studio's address: `jobs`, though a script of that name would hide the package."""
        return PurePath(self.script).stem.removesuffix("_page")


OVERVIEW = Page("app_pages/overview.py", "Overview", ":material/home:", "Overview")
CORPORA = Page("app_pages/corpora.py", "Domains", ":material/library_books:", "Data")
CLUSTERS = Page("app_pages/clusters.py", "Clusters", ":material/bubble_chart:", "Data")
TRAIN = Page("app_pages/train.py", "New training", ":material/model_training:", "Train")
JOBS = Page("app_pages/jobs_page.py", "Jobs", ":material/list_alt:", "Train")
EXPERTS = Page("app_pages/experts.py", "Experts", ":material/groups:", "Experts")
MIXTURES = Page("app_pages/mixtures.py", "Mixtures", ":material/tune:", "Mixtures")
SPECIALIZATION = Page("app_pages/specialization.py", "Specialization", ":material/grid_on:", "Explain")
POSTERIORS = Page("app_pages/posteriors.py", "Posteriors", ":material/show_chart:", "Explain")
PLAYGROUND = Page("app_pages/playground.py", "Playground", ":material/forum:", "Playground")
REPORTS = Page("app_pages/reports.py", "Reports", ":material/description:", "Reports")
REPLICATIONS = Page("app_pages/replications.py", "Replication", ":material/experiment:", "Reports")
SELFCHECK = Page("app_pages/selfcheck.py", "Self-check", ":material/rule:", "Reports")
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
    SPECIALIZATION,
    POSTERIORS,
    PLAYGROUND,
    REPORTS,
    REPLICATIONS,
    SELFCHECK,
)


def pages_of(entry: str) -> list[Page]:
    """The pages of an entry of the navigation; it opens the first."""
    return [page for page in PAGES if page.entry == entry]
