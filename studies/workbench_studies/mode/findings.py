"""The findings of a replication of MoDE, as JSON for its report, its page and other programs."""

from __future__ import annotations

from workbench_studies.core.findings import Circumstances, Row, common_findings
from workbench_studies.mode.amounts import by_mixture, by_sequences
from workbench_studies.mode.claims import STUDY, judge
from workbench_studies.mode.evidence import ModeEvidence
from workbench_studies.mode.multi_domain import by_domain, by_knowledge, by_method, by_rate, by_steps
from workbench_studies.mode.paper import DISAGREEMENTS
from workbench_studies.mode.shapes import by_parameters, by_rank, by_shape


def findings_of(evidence: ModeEvidence, circumstances: Circumstances) -> Row:
    """The findings behind the report, computed from the measurements."""
    subject = evidence.subject
    return {
        **common_findings(evidence, judge(evidence), circumstances, STUDY),
        "targets": list(subject.targets),
        "retention": subject.retention,
        "disagreements": list(DISAGREEMENTS),
        "tables": _tables(evidence),
    }


def _tables(evidence: ModeEvidence) -> dict[str, list[Row]]:
    return {
        "1": by_method(evidence),
        "domains": by_domain(evidence),
        "knowledge": by_knowledge(evidence),
        "steps": by_steps(evidence),
        "rates": by_rate(evidence),
        "2": by_rank(evidence),
        "3": by_shape(evidence),
        "parameters": by_parameters(evidence),
        "sequences": by_sequences(evidence),
        "mixture": by_mixture(evidence),
    }
