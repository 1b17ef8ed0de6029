"""The findings of a replication of C-BTM, as JSON for its report, its page and other programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench_studies.cbtm.budgets import by_clusters, by_domain, efficiency, seeding_tokens
from workbench_studies.cbtm.calibrated import calibrated_findings
from workbench_studies.cbtm.claims import STUDY, judge
from workbench_studies.cbtm.clusters import by_number, divisions, held_out, ratios, terms
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.shapes import by_shape
from workbench_studies.cbtm.tasks import by_variant, routes
from workbench_studies.cbtm.upcycling import by_budget
from workbench_studies.cbtm.updates import by_update
from workbench_studies.cbtm.weighing import by_active, by_rule, by_scaling, by_temperature
from workbench_studies.core.findings import Circumstances, Row, common_findings


def findings_of(evidence: CbtmEvidence, circumstances: Circumstances) -> Row:
    """The findings behind the report, computed from the measurements."""
    return {
        **common_findings(evidence, judge(evidence), circumstances, STUDY),
        "seeding_tokens": seeding_tokens(evidence),
        "clusters": evidence.subject.main.num_models,
        "calibrated": calibrated_findings(evidence),
        "tables": _tables(evidence),
        "pictures": _pictures(evidence),
    }


def _tables(evidence: CbtmEvidence) -> dict[str, list[Row]]:
    return {
        "clusters": by_clusters(evidence),
        "domains": by_domain(evidence),
        "efficiency": efficiency(evidence),
        "active": by_active(evidence),
        "9": by_temperature(evidence),
        "scaling": by_scaling(evidence),
        "rules": by_rule(evidence),
        "upcycled": by_budget(evidence),
        "divisions": divisions(evidence),
        "numbers": by_number(evidence),
        "shapes": by_shape(evidence),
        "updates": by_update(evidence),
        "terms": terms(evidence),
        "tasks": by_variant(evidence),
        "routes": routes(evidence),
    }


def _pictures(evidence: CbtmEvidence) -> dict[str, Any]:
    """The matrices behind figures 15, 16 and 18: of the first seed, since each seed has clusters of its own."""
    seeds = evidence.resampled.seeds
    tables = [one.table for one in held_out(evidence)]
    return {
        "ratios": next((table for seed in seeds if (table := ratios(evidence, seed))), None),
        "labels": _labels(evidence),
        "sizes": {
            "balanced": [table.sum(1).astype(int).tolist() for table in tables],
            "unbalanced": [table.sum(0).astype(int).tolist() for table in tables],
        },
    }


def _labels(evidence: CbtmEvidence) -> Row | None:
    """The share of each label's documents in each cluster, and the normalised mutual information of every seed."""
    groupings = list(evidence.groupings(evidence.subject.main.clustering).values())
    if not groupings:
        return None
    counts_LK = groupings[0].counted.table
    shares_LK = counts_LK / np.maximum(counts_LK.sum(1, keepdims=True), 1)
    return {
        "labels": list(groupings[0].labels),
        "shares": shares_LK.round(4).tolist(),
        "information": [one.information for one in groupings],
    }
