"""Tables 3 and 5: which way to train or to mix has less perplexity than which other, averaged over domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.statistics.bootstrap import Change
from engine.statistics.estimates import share
from workbench_studies.core.findings import interval_columns
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below, untestable
from workbench_studies.demix import paper
from workbench_studies.demix.evidence import DemixEvidence
from workbench_studies.demix.names import (
    CALIBRATED,
    CODE,
    GRID,
    METHODS,
    PAPER,
    READ_MODES,
    Reading,
    System,
    Variant,
    system,
)

WORDS: Mapping[Variant, str] = {
    "dense": "Dense",
    "dense-balanced": "Dense (balanced)",
    "domain-token": "+Domain-token",
    "naive": "DEMix (naive)",
    "average": "DEMix (average)",
    "uniform": "DEMix (uniform)",
    "updating": "DEMix (updating)",
    "cached": "DEMix (cached)",
}
FULL_DATA = "full data"  # topic: a model whose feed-forward networks see all text


@dataclass(frozen=True)
class Order:
    """One system has less perplexity than another."""

    table: int
    lower: Variant
    higher: Variant

    @property
    def numbers(self) -> Mapping[Variant, paper.Row]:
        """The paper's perplexities of the table."""
        return paper.TABLE_3 if self.table == 3 else paper.TABLE_5

    @property
    def claim(self) -> Claim:
        lower, higher = (self.numbers[one][0] for one in (self.lower, self.higher))
        text = "the training domains" if self.table == 3 else "the novel domains"
        sentence = f"{WORDS[self.lower]} has less perplexity than {WORDS[self.higher]} on {text}"
        topics = (FULL_DATA,) if self.is_against_full_data else ()
        return Claim(f"Table {self.table}", sentence, f"{lower} < {higher}", topics=topics, model=self.higher)

    @property
    def is_against_full_data(self) -> bool:
        """Whether DEMix is compared on the training domains with a model whose feed-forward networks see all text."""
        return self.table == 3 and self.lower in ("naive", "cached") and self.higher in METHODS

    @property
    def is_read(self) -> bool:
        """Whether it depends on how the posterior is read."""
        return self.lower in READ_MODES or self.higher in READ_MODES


ORDERS = (
    Order(3, "naive", "dense"),
    Order(3, "cached", "dense"),
    Order(3, "dense-balanced", "dense"),
    Order(3, "domain-token", "dense-balanced"),
    Order(3, "naive", "domain-token"),
    Order(3, "cached", "naive"),
    Order(5, "average", "naive"),
    Order(5, "dense", "average"),
    Order(5, "uniform", "dense"),
    Order(5, "updating", "uniform"),
    Order(5, "cached", "updating"),
    Order(5, "cached", "dense"),
    Order(5, "dense-balanced", "dense"),
    Order(5, "domain-token", "dense-balanced"),
    Order(5, "dense", "naive"),
    Order(5, "updating", "dense"),
    Order(5, "cached", "dense-balanced"),
    Order(5, "uniform", "domain-token"),
    Order(5, "updating", "domain-token"),
    Order(5, "cached", "domain-token"),
    Order(5, "cached", "naive"),
    Order(5, "uniform", "average"),
    Order(5, "updating", "average"),
    Order(5, "cached", "average"),
)
CLOSE_MATCH = 1.0  # %: what is “closely” matched has at most so much more; the paper prints no border
EACH_TRAINING = Claim(
    "§5.4", "on each training domain DEMix (cached) has less perplexity than DEMix (naive)", "“across all domains”"
)
EACH_NOVEL = Claim(
    "§5.4",
    f"on each novel domain DEMix (cached) has less perplexity than Dense, or at most {CLOSE_MATCH:g} % more",
    "“either outperform Dense baselines or closely match them”",
)
MOST: tuple[tuple[Claim, Variant], ...] = (
    (Claim("§4.4", "DEMix (naive) has less perplexity than Dense on most training domains", "5 of 8"), "naive"),
    (
        Claim("§4.3", "Dense (balanced) has less perplexity than Dense on most training domains", "“most”"),
        "dense-balanced",
    ),
)
CHOSEN_LAMBDA = 0.3
LAMBDA = Claim(
    "§5.1",
    f"on most domains the updating prior with λ = {CHOSEN_LAMBDA:g} has at most {CLOSE_MATCH:g} % more perplexity than "
    "with any other value of the grid",
    "“0.3 worked well for most settings”",
)


def judge_orders(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """All orders of both tables under one reading."""
    return [judge_order(evidence, order, reading) for order in ORDERS]


def judge_order(evidence: DemixEvidence, order: Order, reading: Reading) -> Verdict:
    """One order: the difference of the two averages."""
    domains = evidence.subject.domains if order.table == 3 else evidence.subject.novel
    lower, higher = system(order.lower, reading), system(order.higher, reading)
    difference = evidence.resampled.difference(lower, higher, domains)
    return is_below(order.claim, difference, ours=evidence.against(lower, higher, domains), unit="perplexity")


def judge_each(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Judges a sentence on every domain by the least certain one."""
    subject = evidence.subject
    cached, naive, dense = (system(one, reading) for one in ("cached", "naive", "dense"))
    return [
        _on_each(evidence, EACH_TRAINING, (cached, naive), subject.domains, 0.0),
        _on_each(evidence, EACH_NOVEL, (cached, dense), subject.novel, CLOSE_MATCH),
    ]


def _on_each(
    evidence: DemixEvidence, claim: Claim, systems: tuple[System, System], domains: Sequence[str], border: float
) -> Verdict:
    changes = {domain: evidence.resampled.changes([Change(*systems, domain)]) for domain in domains}
    known = {domain: one for domain, one in changes.items() if one is not None}
    if len(known) < len(domains) or not known:
        return untestable(claim)
    least = max(known, key=lambda domain: known[domain].high)
    ahead = sum(one.high < border for one in known.values())
    ours = f"{ahead} of {len(known)} domains; the least certain is shown: {least}"
    return is_below(claim, known[least], border, ours=ours, unit="%")


def judge_most(evidence: DemixEvidence) -> list[Verdict]:
    """Judges a sentence on most training domains: domains are the sample."""
    return [_on_most(evidence, claim, variant) for claim, variant in MOST]


def _on_most(evidence: DemixEvidence, claim: Claim, variant: Variant) -> Verdict:
    domains = evidence.subject.domains
    changes = [evidence.resampled.changes([Change(System(variant), System("dense"), domain)]) for domain in domains]
    known = [one for one in changes if one is not None]
    if len(known) < len(domains):
        return untestable(claim)
    seeds = range(min(len(one.by_seed) for one in known))
    holds = [[one.by_seed[seed] < 0 for one in known] for seed in seeds]
    less = sum(one.value < 0 for one in known)
    ours = f"{less} of {len(known)} domains"
    return is_above(claim, share(holds), 0.5, ours=ours, unit="of the domains", num_domains=len(known))


def judge_lambda(evidence: DemixEvidence) -> Verdict:
    """What the paper says of λ in most settings: domains, training and novel, are the settings and the sample."""
    domains = evidence.subject.everywhere
    chosen = system("updating", GRID[CHOSEN_LAMBDA])
    others = [system("updating", reading) for value, reading in GRID.items() if value != CHOSEN_LAMBDA]
    most = [[evidence.resampled.changes([Change(chosen, other, domain)]) for other in others] for domain in domains]
    known = [[one for one in row if one is not None] for row in most]
    if not known or any(len(row) < len(others) for row in known):
        return untestable(LAMBDA)
    seeds = range(min(len(one.by_seed) for row in known for one in row))
    holds = [[all(one.by_seed[seed] < CLOSE_MATCH for one in row) for row in known] for seed in seeds]
    good = sum(all(one.value < CLOSE_MATCH for one in row) for row in known)
    ours = f"{good} of {len(known)} domains"
    return is_above(LAMBDA, share(holds), 0.5, ours=ours, unit="of the domains", num_domains=len(known))


def by_lambda(evidence: DemixEvidence) -> list[dict[str, object]]:
    """DEMix (updating) under every λ of the paper's grid, by the paper's reading: averages over domains."""
    rows: list[dict[str, object]] = []
    for value, reading in GRID.items():
        row: dict[str, object] = {"λ": value, "share of the newest block": reading.newest_weight}
        for text, domains in (("training", evidence.subject.domains), ("novel", evidence.subject.novel)):
            average = evidence.resampled.average(system("updating", reading), domains)
            row |= interval_columns(average, text, f"{text}, ")
        rows.append(row)
    return rows


def averages(evidence: DemixEvidence, table: int) -> list[dict[str, object]]:
    """The rows of table 3 or 5: the paper's averages by model size, and ours with its interval.

    The paper's rows have its reading of the posterior. What a reading touches follows under that of the released code,
    and calibrated, which is ours: the paper has no numbers for these.
    """
    numbers = paper.TABLE_3 if table == 3 else paper.TABLE_5
    rows = [_average(evidence, table, mode, PAPER, printed) for mode, printed in numbers.items()]
    read = [mode for mode in numbers if mode in READ_MODES]
    return [*rows, *(_average(evidence, table, mode, reading) for reading in (CODE, CALIBRATED) for mode in read)]


def _average(
    evidence: DemixEvidence, table: int, mode: Variant, reading: Reading, printed: paper.Row | None = None
) -> dict[str, object]:
    domains = evidence.subject.domains if table == 3 else evidence.subject.novel
    results = evidence.resampled.average(system(mode, reading), domains)
    return {
        "system": WORDS[mode],
        "reading": str(reading) if mode in READ_MODES else "",
        **dict(zip(paper.SIZES, printed or [None] * len(paper.SIZES), strict=True)),
        **({"ours": results.value, "low": results.low, "high": results.high} if results else {}),
    }
