"""The knobs of clustering. Defaults follow C-BTM §2.1 and §3.1; where its released code differs, a switch says so.

One default is the code's: with the text's `scaling` the paper's temperature of 0.1 cannot give the paper's table 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.clusters.clusterer_type import clusterer_types
from engine.config import MOST_SEED, Checked, knob
from engine.text.anonymize import TOKENS

Numbers = Literal["token", "drop"]
Scaling = Literal["standardise", "unit_rows"]
if TYPE_CHECKING:
    ClusterMethod = str
else:
    ClusterMethod = Literal[tuple(clusterer_types())]

NUMBER = "#NUMBER"  # stands for any number among the words of a document; no word of a text contains #
_PLACEHOLDERS = {NUMBER, *(token[1:-1].lower() for token in TOKENS.values() if "_" in token)}


def is_term(word: str) -> bool:
    """Whether a word is of the text, and not a placeholder that stands for what was there."""
    return word not in _PLACEHOLDERS


@dataclass(frozen=True)
class TfidfConfig(Checked):
    """Settings of the embedder that turns a document into a tf-idf vector of its words."""

    numbers: Numbers = knob("token", "Words that begin with a digit: one dummy token (paper) or left out (code).")
    scaling: Scaling = knob(
        "unit_rows",
        "unit_rows: length 1 (code), where a gate's temperature of 0.1 is a soft choice, as in the paper's tables; "
        "standardise: no mean, unit variance in each dimension (paper's text), where 0.1 takes only one expert.",
    )
    dimension: int = knob(100, "Dimensions after the truncated SVD; fewer where the sample has fewer.", ge=1, le=2**16)
    max_words: int = knob(200_000, "Maximum vocabulary size; the most frequent words are kept (the paper: all).", ge=1)
    seed: int = knob(0, "Seed of the truncated SVD.", ge=0, le=MOST_SEED)


@dataclass(frozen=True)
class ClusterConfig(Checked):
    """Settings of a clustering: the number of clusters, the embedder and the clusterer."""

    method: ClusterMethod = knob(
        "balanced", f"{'; '.join(f'{name}: {type_.sentence}' for name, type_ in clusterer_types().items())}."
    )
    num_clusters: int = knob(8, "Clusters to find (the paper: 2 to 128).", title="Number of clusters", ge=1, le=2**16)
    max_iterations: int = knob(20, "Rounds of k-means at most; it ends sooner when no document moves.", ge=1)
    seed: int = knob(0, "Seed of the first centres, or of the random assignment.", ge=0, le=MOST_SEED)
