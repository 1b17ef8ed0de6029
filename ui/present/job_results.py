"""What came of a job, in words, and where it is to be seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ui.present.pages import (
    CLUSTERS,
    CORPORA,
    EXPERTS,
    MIXTURES,
    REPLICATIONS,
    REPORTS,
    SELFCHECK,
    SHARED_TEXT,
    SPECIALIZATION,
    TRAIN,
    Page,
)
from ui.present.text.formatting import listed, pluralize
from ui.present.text.parents import blocks_words, known_words
from ui.present.text.verdicts import summary
from workbench.registry.cards import JobCard


class Sight(NamedTuple):
    """A room, the words of the way there, and what is to be chosen in it (widget -> value)."""

    room: Page
    label: str
    chosen: dict[str, Any]


def sight_of(job: JobCard) -> Sight | None:
    """Where the result of a job is to be seen; None while there is none."""
    if job.state != "done" or job.kind not in _SIGHTS:
        return None
    room, label, choose = _SIGHTS[job.kind]
    return Sight(room, label, choose(job.result))


def _in_clusters(result: Mapping[str, Any], view: str) -> dict[str, Any]:
    return {"clusters.part": "Look at clusters", "clusters.name": result["clustering"], "clusters.view": view}


_SIGHTS: dict[str, tuple[Page, str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "import-corpus": (CORPORA, "See the domains", lambda r: {"part": "Domains", "domain": r["domains"][0]}),
    "make-seed": (
        TRAIN,
        "Train on it",
        lambda r: {"train.what": "DEMix model", "train-demix.seed_model": r["seed_model"]},
    ),
    "train-demix": (EXPERTS, "See the experts", lambda r: {"experts.chosen": r["experts"]}),
    "train-expert": (EXPERTS, "See the expert", lambda r: {"experts.chosen": [r["expert"]]}),
    "train-mode": (EXPERTS, "See the expert", lambda r: {"experts.chosen": [r["expert"]]}),
    "compose-mode": (EXPERTS, "See the composition", lambda r: {"experts.chosen": [r["expert"]]}),
    "average-experts": (EXPERTS, "See the average", lambda r: {"experts.chosen": [r["expert"]]}),
    "evaluate": (SPECIALIZATION, "See the specialization", lambda r: {"specialization.mixture": r["mixture"]}),
    "certify-addition": (EXPERTS, "See the certificate", lambda r: {"experts.chosen": [r["expert"]]}),
    "certify-removal": (EXPERTS, "See the certificate", lambda r: {"experts.chosen": [r["expert"]]}),
    "classify": (REPORTS, "See the report", lambda r: {"reports.chosen": r["report"]}),
    "find-clusters": (CLUSTERS, "See the clusters", lambda r: _in_clusters(r, "Map")),
    "merge-clusters": (CLUSTERS, "See the clusters", lambda r: _in_clusters(r, "Words & documents")),
    "split-cluster": (CLUSTERS, "See the clusters", lambda r: _in_clusters(r, "Words & documents")),
    "make-cluster-domains": (CLUSTERS, "Train on them", lambda r: _in_clusters(r, "Train on them")),
    "make-domain": (
        TRAIN,
        "Train on it",
        lambda r: {
            "train.what": "DEMix model",
            "train-demix.method": "dense",
            "train-demix.domains": [r["domain"]],
        },
    ),
    "make-mixture": (MIXTURES, "See the mixture", lambda r: {"mixture": r["mixture"]}),
    "overlap": (SPECIALIZATION, "See what it explains", lambda _: {"specialization.view": SHARED_TEXT}),
    "replicate": (REPLICATIONS, "See the claims", lambda r: {"replication.name": r["name"]}),
    "replicate-cbtm": (REPLICATIONS, "See the claims", lambda r: {"replication.name": r["name"]}),
    "replicate-mode": (REPLICATIONS, "See the claims", lambda r: {"replication.name": r["name"]}),
    "selfcheck": (SELFCHECK, "See the laws", lambda _: {}),
}


def result_words(job: JobCard) -> str:
    """What came of it in one sentence; empty while nothing has."""
    if job.state != "done" or job.kind not in _WORDS:
        return ""
    return _WORDS[job.kind](job.result)


def _expert_words(result: Mapping[str, Any]) -> str:
    posterior = result.get("parent_posterior") or {}
    ranked = sorted(posterior.items(), key=lambda pair: -pair[1])
    blocks = blocks_words(result["parent_blocks"]) if result.get("parent_blocks") else "held-out text"
    why = f", the nearest by the posterior on {blocks} ({listed([f'{n} {w:.2f}' for n, w in ranked])})"
    mixture = result.get("mixture")
    where = f" It is in the mixture {mixture}." if mixture else ""
    told = f"It began as a copy of {result['parent']}{why if ranked else ''}. {known_words(result, result['parent'])}"
    return f"{told.rstrip()}{where}"


def _mode_words(result: Mapping[str, Any]) -> str:
    parts, size = listed(result["parts"]), f"{result['num_parameters']:,}"
    return f"{parts} beside the backbone, {size} parameters, in the mixture {result['mixture']}."


_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "import-corpus": lambda r: f"{pluralize(r['num_documents'], 'document')} in {listed(r['domains'])}.",
    "make-seed": lambda r: f"{r['num_parameters']:,} parameters; the tokenizer has {r['vocab_size']:,} entries.",
    "train-demix": lambda r: f"{pluralize(len(r['experts']), 'expert')} in the mixture {r['mixture']}.",
    "train-expert": _expert_words,
    "train-mode": _mode_words,
    "compose-mode": _mode_words,
    "average-experts": lambda r: f"{pluralize(len(r['weights']), 'expert')} averaged in the mixture {r['mixture']}.",
    "evaluate": lambda r: f"{pluralize(r['scored'], 'pair')} of expert and domain scored.",
    "certify-addition": lambda r: str(r["sentence"]),
    "certify-removal": lambda r: str(r["sentence"]),
    "classify": lambda r: str(r["sentence"]),
    "overlap": lambda r: f"The overlap of every two of {pluralize(len(r['domains']), 'domain')} is measured.",
    "replicate": lambda r: str(r["summary"]),
    "replicate-cbtm": lambda r: str(r["summary"]),
    "replicate-mode": lambda r: str(r["summary"]),
    "find-clusters": lambda r: str(r["sentence"]),
    "merge-clusters": lambda r: str(r["sentence"]),
    "split-cluster": lambda r: str(r["sentence"]),
    "pin-documents": lambda r: str(r["sentence"]),
    "make-domain": lambda r: str(r["sentence"]),
    "make-cluster-domains": lambda r: str(r["sentence"]),
    "make-mixture": lambda r: f"{pluralize(len(r['experts']), 'expert')} in the mixture {r['mixture']}.",
    "selfcheck": summary,
}
