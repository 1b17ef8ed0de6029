"""Claims that could not have come out otherwise, each with its reason: they do not count as reproduced.

Some are declared in the paper's study. Others are found: what repeats the numbers of an earlier claim is no further
evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from workbench_studies.core.study import Implied, Study
from workbench_studies.core.verdicts import IMPLIED, REPRODUCED, WEAKER

Row = Mapping[str, Any]
SAME = 0.02  # of half the interval: numbers that are nearer than this are the same


def name_of(row: Row) -> str:
    """`Table 6: and lowers it on the training domains`."""
    return f"{row['where']}: {row['sentence']}"


def mark_implied(study: Study, claims: Sequence[Row], readings: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The claims of a paper, and those under each reading of the posterior, with what is implied marked so."""
    read = {name_of(row) for row in readings}
    unread = [row for row in claims if name_of(row) not in read]
    names = dict.fromkeys(str(row["reading"]) for row in readings)
    by_reading = {name: [row for row in readings if row["reading"] == name] for name in names}
    first = next(iter(names), "prefix")
    marked = [row for name, own in by_reading.items() for row in _marked(study, own, evidence_of(name), unread)]
    return list(_marked(study, claims, evidence_of(first), ())), marked


def evidence_of(reading: str) -> str:
    """`prefix` of `prefix, newest block 0.7`."""
    return reading.partition(",")[0]


def _marked(study: Study, rows: Sequence[Row], evidence: str, others: Sequence[Row]) -> Iterator[Row]:
    holding = [row for row in (*others, *rows) if row["mark"] in (REPRODUCED, WEAKER)]
    held, before = {study.id_of(row) for row in holding}, [row for row in others if row in holding]
    for row in rows:
        if row not in holding:
            yield row
            continue
        own = study.declared(row)
        declared = _why(own.implied, evidence, held) if own and own.implied else ""
        repeated = next((f"Its numbers are those of “{name_of(one)}”." for one in before if _is_same(row, one)), "")
        before.append(row)
        why = declared or repeated
        yield {**row, "mark": IMPLIED, "why": f"{why} {row['why']}".strip()} if why else row


def _why(implied: Implied, evidence: str, held: Collection[str]) -> str:
    """Why a claim that was judged with this evidence is implied where these claims hold; empty where it is not."""
    is_so = implied.evidence in ("", evidence) and (not implied.follows or implied.follows in held)
    return implied.why if is_so else ""


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
