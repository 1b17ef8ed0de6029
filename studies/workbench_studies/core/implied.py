"""Claims that could not have come out otherwise, each with its reason: they do not count as reproduced.

Some are declared, by patterns of where they stand and what they say. Others are found: what repeats the numbers of
an earlier claim is no further evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from workbench_studies.core.verdicts import IMPLIED, REPRODUCED, WEAKER

Row = Mapping[str, Any]
SAME = 0.02  # of half the interval: numbers that are nearer than this are the same


@dataclass(frozen=True)
class Implied:
    """A claim by its pattern (`*`), as `Table 6: and does not *`, and why it could not have come out otherwise."""

    claim: str
    why: str
    evidence: str = ""  # the only evidence of a posterior with which it is implied; empty: with any
    follows: str = ""  # the claim it follows from where that holds; empty: it follows from how the models are made

    def fits(self, row: Row, evidence: str, held: Sequence[str]) -> bool:
        """Whether a claim that was judged with this evidence is implied where these claims hold."""
        is_read_so = self.evidence in ("", evidence)
        return is_read_so and fnmatchcase(name_of(row), self.claim) and (not self.follows or self.follows in held)


_FROZEN = (
    "Nothing that reads the training domains was trained: the shared parameters and the other experts are frozen. With "
    "the full prefix as evidence a new expert of share s costs at most -log(1 - s) nats a block."
)
_TARGET = (
    "It is tested on the domain that it was trained on, against the model that this training began with: only a "
    "training that fails could show anything else."
)
_DIAGONAL = "Figure 2: on each training domain its own expert has the least perplexity"
DEMIX = (
    Implied("Table 6: and does not raise it on the training domains *", _FROZEN, evidence="prefix"),
    Implied("Figure 6: DEMix-DAPT does not raise it on the training domains *", _FROZEN, evidence="prefix"),
    Implied("Table 6: an expert for each novel domain lowers the perplexity on novel text", _TARGET),
    Implied("§6.2: DEMix-DAPT lowers the perplexity on its target", _TARGET),
    Implied("Table 13, Figure 6: dense-DAPT lowers the perplexity on its target", _TARGET),
    Implied(
        "Figure 4: on each training domain its own expert has the highest posterior",
        "It follows from figure 2: the full prefix is most probable under the expert with the least perplexity.",
        follows=_DIAGONAL,
    ),
    Implied(
        "Table 7: without its expert a domain has more perplexity *",
        "It follows from figure 2: with the full prefix as evidence a mixture is as good as its best expert.",
        evidence="prefix",
        follows=_DIAGONAL,
    ),
)
BY_PAPER: Mapping[str, Sequence[Implied]] = {"demix": DEMIX, "cbtm": (), "mode": ()}


def name_of(row: Row) -> str:
    """`Table 6: and lowers it on the training domains`."""
    return f"{row['where']}: {row['sentence']}"


def mark_implied(paper: str, claims: Sequence[Row], readings: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The claims of a paper, and those under each reading of the posterior, with what is implied marked so."""
    read = {name_of(row) for row in readings}
    unread = [row for row in claims if name_of(row) not in read]
    names = dict.fromkeys(str(row["reading"]) for row in readings)
    by_reading = {name: [row for row in readings if row["reading"] == name] for name in names}
    first = next(iter(names), "prefix")
    marked = [row for name, own in by_reading.items() for row in _marked(paper, own, evidence_of(name), unread)]
    return list(_marked(paper, claims, evidence_of(first), ())), marked


def evidence_of(reading: str) -> str:
    """`prefix` of `prefix, newest block 0.7`."""
    return reading.partition(",")[0]


def _marked(paper: str, rows: Sequence[Row], evidence: str, others: Sequence[Row]) -> Iterator[Row]:
    holding = [row for row in (*others, *rows) if row["mark"] in (REPRODUCED, WEAKER)]
    held, before = [name_of(row) for row in holding], [row for row in others if row in holding]
    for row in rows:
        if row not in holding:
            yield row
            continue
        declared = next((one.why for one in BY_PAPER.get(paper, ()) if one.fits(row, evidence, held)), "")
        repeated = next((f"Its numbers are those of “{name_of(one)}”." for one in before if _is_same(row, one)), "")
        before.append(row)
        why = declared or repeated
        yield {**row, "mark": IMPLIED, "why": f"{why} {row['why']}".strip()} if why else row


def _is_same(row: Row, other: Row) -> bool:
    """Whether two claims have the same numbers, as far as their borders are concerned and up to a small difference."""
    one, two = _numbers(row), _numbers(other)
    if row.get("unit") != other.get("unit") or len(one) != len(two) or not one:
        return False
    farthest = max(abs(a - b) for a, b in zip(one, two, strict=True))
    return farthest <= SAME * float(row["high"] - row["low"]) / 2


def _numbers(row: Row) -> list[float]:
    """The value, the interval and each seed's value, counted from the border to the claim's side; none if unmeasured.

    The first stored reports have neither a side nor a border.
    """
    side = row.get("side")
    if row.get("value") is None or side is None:
        return []
    sign = 1 if side == "below" else -1
    ends = sorted(sign * (row[end] - row["border"]) for end in ("low", "high"))
    own = [row["border"]] if side == "within" else []
    return [*ends, *own, *(sign * (one - row["border"]) for one in (row["value"], *row["by_seed"]))]
