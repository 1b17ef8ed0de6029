"""Tables 3 and 5: which way to train or to mix has less perplexity than which other, averaged over domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.replications.demix import paper
from workbench.replications.demix.evidence import DemixEvidence
from workbench.replications.demix.names import METHODS, Reading, Variant, system
from workbench.replications.verdicts import Claim, Verdict, is_below

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
_READ: tuple[Variant, ...] = ("uniform", "updating", "cached")  # modes that a reading of the posterior touches


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
        return self.lower in _READ or self.higher in _READ


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


def averages(evidence: DemixEvidence, table: int, reading: Reading) -> list[dict[str, object]]:
    """The rows of table 3 or 5: the paper's averages by model size, and ours with its interval."""
    domains = evidence.subject.domains if table == 3 else evidence.subject.novel
    numbers = paper.TABLE_3 if table == 3 else paper.TABLE_5
    rows = []
    for mode, printed in numbers.items():
        results = evidence.resampled.average(system(mode, reading), domains)
        ours = {"ours": results.value, "low": results.low, "high": results.high} if results else {}
        rows.append({"system": WORDS[mode], **dict(zip(paper.SIZES, printed, strict=True)), **ours})
    return rows
