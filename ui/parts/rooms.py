"""The studio's rooms: the script of each page, as links name it, with its title and icon. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Room(NamedTuple):
    """One page of the studio."""

    script: str
    title: str
    icon: str
    section: str


OVERVIEW = Room("pages/overview.py", "Overview", ":material/home:", "")
CORPORA = Room("pages/corpora.py", "Corpora & domains", ":material/library_books:", "Make")
TRAIN = Room("pages/train.py", "Train", ":material/model_training:", "Make")
JOBS = Room("pages/jobs_page.py", "Jobs", ":material/list_alt:", "Make")
EXPERTS = Room("pages/experts.py", "Experts", ":material/groups:", "Keep")
MIXTURES = Room("pages/mixtures.py", "Mixtures", ":material/tune:", "Keep")
SPECIALIZATION = Room("pages/specialization.py", "Specialization", ":material/grid_on:", "Explain")
POSTERIORS = Room("pages/posteriors.py", "Posteriors", ":material/show_chart:", "Explain")
PLAYGROUND = Room("pages/playground.py", "Playground", ":material/forum:", "Talk")

ROOMS = (OVERVIEW, CORPORA, TRAIN, JOBS, EXPERTS, MIXTURES, SPECIALIZATION, POSTERIORS, PLAYGROUND)
