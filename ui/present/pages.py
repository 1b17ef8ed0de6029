"""The studio's pages: the script of each page, as links name it, with its title, its icon and its command.

The scripts are not in a folder called `pages`: next to a script with such a folder, Streamlit answers the first visit
of a page's address with only that file, without the studio around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class Page:
    """One page of the studio. The pages of one `entry` of the navigation share it; it opens the first of them."""

    script: str  # relative to the studio's folder; absolute in another package
    title: str
    icon: str
    entry: str
    command: str  # what shows or does the same in a terminal, after `workbench`
    after: str = ""  # the address of the page that it follows, for a page of another package
    help: str = (
        ""  # the document of docs/ that explains it, perhaps with an anchor; else what pages.md says of its entry
    )

    @property
    def address(self) -> str:
        """The page's path in the studio's address: `jobs`, though a script of that name would hide the package."""
        return PurePath(self.script).stem.removesuffix("_page")

    @property
    def document(self) -> str:
        """The document of docs/ that its link to the help opens."""
        return self.help or f"pages.md#{self.entry.lower()}"


OVERVIEW = Page("app_pages/overview.py", "Overview", ":material/home:", "Overview", "doctor")
CORPORA = Page("app_pages/corpora.py", "Domains", ":material/library_books:", "Data", "corpus list")
CLUSTERS = Page(
    "app_pages/clusters.py",
    "Clusters",
    ":material/bubble_chart:",
    "Data",
    "cluster list",
    help="how_to/find_clusters.md",
)
TRAIN = Page("app_pages/train.py", "New training", ":material/model_training:", "Train", "train")
SEEDS = Page("app_pages/seeds.py", "Seed models", ":material/deployed_code:", "Train", "seed list")
JOBS = Page(
    "app_pages/jobs_page.py", "Jobs", ":material/list_alt:", "Train", "job list", help="troubleshooting.md#jobs"
)
EXPERTS = Page("app_pages/experts.py", "Experts", ":material/groups:", "Experts", "expert list")
MIXTURES = Page(
    "app_pages/mixtures.py",
    "Mixtures",
    ":material/tune:",
    "Mixtures",
    "mixture list",
    help="concepts.md#how-a-mixture-weighs-its-experts",
)
SPECIALIZATION = Page(
    "app_pages/specialization.py",
    "Specialization",
    ":material/grid_on:",
    "Explain",
    "evaluate show",
    help="how_to/explain_experts.md",
)
POSTERIORS = Page(
    "app_pages/posteriors.py",
    "Posteriors",
    ":material/show_chart:",
    "Explain",
    "evaluate posteriors",
    help="how_to/explain_experts.md",
)
PLAYGROUND = Page("app_pages/playground.py", "Playground", ":material/forum:", "Playground", "generate")
REPORTS = Page("app_pages/reports.py", "Reports", ":material/description:", "Reports", "report list")
SELFCHECK = Page(
    "app_pages/selfcheck.py", "Self-check", ":material/rule:", "Reports", "selfcheck", help="methods/README.md#laws"
)
SEARCH = Page("app_pages/search.py", "Search", ":material/search:", "Search", "search")
COMPOSITION, EVALUATION = "MoDE composition", "Evaluation"  # what the page Train makes
SHARED_TEXT, LEARNED_AND_KEPT = "Overlap", "Learning vs. forgetting"  # views of the specialization
CLUSTER_WORDS = "Words & documents"  # a view of a clustering
# The page that shows a thing, and which of its choices names it: a job and a report by their ids.
PAGE_OF: Mapping[str, tuple[Page, str]] = {
    "domain": (CORPORA, "domain"),
    "seed": (SEEDS, "seeds.chosen"),
    "expert": (EXPERTS, "experts.chosen"),
    "mixture": (MIXTURES, "mixture"),
    "clustering": (CLUSTERS, "clusters.name"),
    "job": (JOBS, "job"),
    "report": (REPORTS, "reports.chosen"),
}
