"""What the calibrated reading gives beside Dense and the paper's two readings. It is ours: no claim is judged by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from workbench_studies.core.calibration import comparison, fit_row
from workbench_studies.core.findings import Findings, Row
from workbench_studies.demix.evidence import DemixEvidence
from workbench_studies.demix.names import CALIBRATED, CODE, PAPER, READ_MODES, System, system
from workbench_studies.demix.orders import WORDS

TRAINING, NOVEL = "training domains", "novel domains"
DENSE = WORDS["dense"]
_DENSE = System("dense")
FITTED_MODE = "uniform"  # the fit starts from equal priors
_RIVALS = (DENSE, str(PAPER), str(CODE))


def calibrated_findings(evidence: DemixEvidence) -> Row:
    """The fit of each seed, and how the reading compares on test text of both kinds and on each domain."""
    return {
        "fits": [fit_row(seed, fit) for seed, fit in sorted(evidence.measured.fits.items())],
        "against": list(_against(evidence)),
        "by domain": [_domain_row(evidence, domain) for domain in evidence.subject.everywhere],
    }


def _against(evidence: DemixEvidence) -> Iterator[Row]:
    """The difference of each mode from Dense and from the same mode under the paper's readings."""
    for text, domains in ((TRAINING, evidence.subject.domains), (NOVEL, evidence.subject.novel)):
        for mode in READ_MODES:
            own = system(mode, CALIBRATED)
            others = {DENSE: _DENSE} | {str(one): system(mode, one) for one in (PAPER, CODE)}
            for name, other in others.items():
                if compared := comparison(evidence.resampled, own, other, domains):
                    yield {"text": text, "mode": mode, "against": name, **compared}


def _domain_row(evidence: DemixEvidence, domain: str) -> Row:
    """Perplexities with a cached prior, under each reading, beside Dense."""
    readings = {str(one): system("cached", one) for one in (PAPER, CODE, CALIBRATED)}
    named = {DENSE: _DENSE} | readings
    return {
        "domain": domain,
        "role": "novel" if domain in evidence.subject.novel else "training",
        **{name: evidence.resampled.value(one, [domain]) for name, one in named.items()},
    }


# in words -----------------------------------------------------------------------------------------


def where_it_holds(findings: Findings) -> str:
    """On which text the reading has surely less perplexity than Dense and than the paper's and the code's reading.

    Empty of reports without it.
    """
    rows: list[Row] = findings.get("calibrated", {}).get("against", [])
    parts = []
    for text in (TRAINING, NOVEL):
        own = [row for row in rows if row["text"] == text]
        compared = [_compared(name, [row for row in own if row["against"] == name]) for name in _RIVALS]
        if own:
            parts.append(f"On the {text} it has {'; '.join(compared)}.")
    return " ".join([*parts, *_where_it_loses(rows)])


def _where_it_loses(rows: Sequence[Row]) -> Iterator[str]:
    """A caution with the numbers: where the reading surely has more perplexity."""
    losing = []
    for row in (one for one in rows if one["side"] == "more"):
        numbers = f"{row['calibrated']:.2f} against {row['other']:.2f}"
        losing.append(f"on the {row['text']}, {row['mode']} against {row['against']} ({numbers})")
    if losing:
        yield f"So it is not better everywhere; it loses {'; '.join(losing)}."


def fitted_words(findings: Findings) -> str:
    """The changes against Dense of the mode that the fit is made for: `-13.5 % on the novel domains`; empty without."""
    rows: list[Row] = findings.get("calibrated", {}).get("against", [])
    own = [row for row in rows if (row["mode"], row["against"]) == (FITTED_MODE, DENSE)]
    return ", ".join(f"{row['change']['value']:+.1f} % on the {row['text']}" for row in own)


def _compared(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """`less perplexity than Dense (uniform, cached), and no sure difference from it (updating)`."""
    sides = {side: [row["mode"] for row in rows if row["side"] == side] for side in ("less", "more", "undecided")}
    words = {
        "less": f"less perplexity than {name}",
        "more": f"more perplexity than {name}",
        "undecided": f"no sure difference from {name}",
    }
    return ", ".join(f"{words[side]} ({', '.join(modes)})" for side, modes in sides.items() if modes)
