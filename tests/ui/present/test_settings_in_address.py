"""Settings of a mixture in an address: what is written is read again, and what cannot be used is named."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import Problem
from ui.present.forms.settings_in_address import (
    MemberSetting,
    gate_fault,
    gate_values,
    member_values,
    part_values,
    read_gate,
    read_members,
    read_parts,
)

POSTERIOR = {"kind": "posterior", "top_k": None, "evidence": "prefix"}
SAVED = {"law": MemberSetting(True, 1.0, 5.0), "a:b": MemberSetting(False, 0.25, 5.0)}


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["top_k:2"],
        ["evidence:last_token"],
        ["kind:cluster", "top_k:1", "temperature:0.25", "freeze_after:8"],
        ["kind:updating", "newest_weight:0.5"],
        ["evidence.decay:0.9", "evidence.power:0.3", "evidence.slow_decay:1.0", "evidence.slow_power:0.0"],
    ],
)
def test_a_gate_is_read_as_it_was_written(values: list[str]) -> None:
    assert gate_values(POSTERIOR, read_gate(values, POSTERIOR)) == values


def test_a_part_of_the_evidence_leaves_the_others_as_saved() -> None:
    saved = {**POSTERIOR, "evidence": {"decay": 0.9, "power": 0.3, "slow_decay": 1.0, "slow_power": 0.0}}
    assert read_gate(["evidence.power:0.5"], saved)["evidence"] == {**saved["evidence"], "power": 0.5}


def test_an_empty_number_is_none() -> None:
    assert read_gate(["top_k:"], {**POSTERIOR, "top_k": 3})["top_k"] is None
    assert gate_values({**POSTERIOR, "top_k": 3}, POSTERIOR) == ["top_k:"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["kind:magic"], "There is no gate “magic”."),
        (["kind:"], "There is no gate “”."),
        (["temperature:1"], "The gate “posterior” has no setting “temperature”."),
        (["kind:fixed", "evidence.power:1"], "The gate “fixed” has no setting “evidence”."),
        (["top_k:0"], "top_k: must be at least 1"),
        (["top_k:two"], "top_k: must be a whole number, not 'two'."),
        (["kind:cluster", "temperature:nan"], "temperature: must be"),
        (["kind:cluster", "clustering:gone"], "There is no clustering “gone”."),
        (["evidence:dreams"], "There is no evidence “dreams”."),
        (["evidence:"], "There is no evidence “”."),
        (["evidence.decay:7"], "decay must be at most 1"),
        (["evidence.decay:x"], "“evidence.decay:x” is not a number."),
        (["evidence.mood:1"], "Evidence has no setting “mood”."),
        (["top_k:1", "top_k:2"], "“top_k:2” is a second value"),
        (["evidence:prefix", "evidence.decay:1"], "is a second value"),
        (["nonsense"], "has no setting “nonsense”"),
        ([":"], "has no setting “”"),
    ],
)
def test_a_gate_that_cannot_be_is_refused_in_a_sentence(values: list[str], words: str) -> None:
    with pytest.raises(Problem) as caught:
        read_gate(values, POSTERIOR)
    assert words in gate_fault(caught.value)


def test_where_only_evidence_can_be_set_another_setting_is_refused() -> None:
    with pytest.raises(Problem, match="cannot be set here"):
        read_gate(["kind:cluster"], POSTERIOR, only=["evidence"])


def test_members_are_read_as_they_were_written() -> None:
    now = {"law": MemberSetting(True, 1 / 3, 5.0), "a:b": MemberSetting(True, 0.25, 5.0)}
    values = member_values(SAVED, now)
    assert values == ["law:0.333333333333", "a:b:on"]
    read, faults = read_members(values, SAVED)
    assert (read["a:b"], faults) == (now["a:b"], [])
    assert read["law"].weight == pytest.approx(1 / 3, abs=1e-11)
    assert member_values(SAVED, SAVED) == []


@pytest.mark.parametrize("value", ["law:6", "law:-1", "law:nan", "law:inf", "law:maybe", "law", "nobody:off", ":"])
def test_a_member_that_cannot_be_set_so_is_named_and_stays_as_saved(value: str) -> None:
    read, (fault,) = read_members([value], SAVED)
    assert read == SAVED
    assert f"“{value}”" in fault


def test_of_two_values_of_one_expert_the_second_is_named() -> None:
    read, (fault,) = read_members(["law:off", "law:on"], SAVED)
    assert not read["law"].is_on
    assert "“law:on”" in fault


def test_parts_are_read_as_they_were_written() -> None:
    parts: dict[str, Any] = {"apps: x": ["code", "law"], "one": ["law"]}
    on = {"apps: x": ["code"], "one": []}
    values = part_values(parts, on)
    assert values == ["apps: x: law", "one: law"]
    assert read_parts(values, parts) == (on, [])
    assert read_parts(["one: poem"], parts) == (parts, ["“one: poem” names no part of an expert here."])
