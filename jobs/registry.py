"""Which function does the work of each kind of job. Loaded when a job needs it: some wake torch."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from jobs.attempt.work import Kind
from workbench.errors import NotFound

KINDS: dict[str, str] = {
    "import-corpus": "jobs.kinds.import_corpus:run",
    "make-seed": "jobs.kinds.make_seed:run",
    "train-demix": "jobs.kinds.train_demix:run",
    "train-expert": "jobs.kinds.train_expert:run",
    "train-mode": "jobs.kinds.train_mode:run",
    "compose-mode": "jobs.kinds.compose_mode:run",
    "average-experts": "jobs.kinds.average_experts:run",
    "evaluate": "jobs.kinds.evaluate:run",
    "certify-addition": "jobs.kinds.certify_addition:run",
    "certify-removal": "jobs.kinds.certify_removal:run",
    "overlap": "jobs.kinds.overlap:run",
    "classify": "jobs.kinds.classify:run",
    "replicate": "jobs.kinds.replicate_demix:run",
    "replicate-cbtm": "jobs.kinds.replicate_cbtm:run",
    "replicate-mode": "jobs.kinds.replicate_mode:run",
    "find-clusters": "jobs.kinds.find_clusters:run",
    "cluster-part": "jobs.kinds.cluster_parts:run",
    "merge-clusters": "jobs.kinds.edit_clusters:merge",
    "split-cluster": "jobs.kinds.edit_clusters:split",
    "pin-documents": "jobs.kinds.edit_clusters:pin",
    "make-cluster-domains": "jobs.kinds.cluster_domains:run",
    "make-domain": "jobs.kinds.make_domain:run",
    "make-mixture": "jobs.kinds.make_mixture:run",
    "selfcheck": "jobs.kinds.selfcheck:run",
}


def load_kind(kind: str) -> Kind:
    """The generator function of a kind of job; raises NotFound that lists the kinds there are."""
    if kind not in KINDS:
        raise NotFound("kind of job", kind, KINDS)
    module, _, name = KINDS[kind].partition(":")
    return cast(Kind, getattr(import_module(module), name))
