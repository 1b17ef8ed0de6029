"""Every way into the registry gives an expert a colour and a mark of its own, which stay as they are."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from tests.workbench.conftest import World
from workbench.formatting.palette import COLOURS, DASHES, PATTERNS, free_number, look_of
from workbench.registry import experts
from workbench.registry.database import transaction
from workbench.registry.experts import list_looks
from workbench.schema import names
from workbench.schema.names import by_name, choose_look, free_mark
from workbench.schema.tables import Expert
from workbench.store.storage import get_storage


def looks(session: Session) -> dict[str, tuple[int, str]]:
    return {look.name: (look.colour_number, look.mark) for look in list_looks(session)}


def test_experts_get_the_smallest_free_colour_and_keep_it(session: Session, world: World) -> None:
    first, second, third = world.experts("law", "lab", "code")
    assert looks(session) == {"law": (0, "La"), "lab": (1, "Lb"), "code": (2, "Co")}
    assert (first.colour_number, first.mark) == (0, "La")
    experts.rename(session, "lab", "zoo")
    experts.set_enabled(session, ["code"], False)
    world.expert("m/new", "law")
    experts.set_enabled(session, ["code"], True)
    experts.delete_expert(session, "law")
    world.expert("m/last", "law")
    assert looks(session) == {
        "zoo": (1, "Lb"),
        "code": (2, "Co"),
        "m/new": (2, "Ne"),  # the colour of the one that was disabled then
        "m/last": (0, "La"),  # both of the one that was deleted
    }
    assert [(second.mark, third.mark), experts.get_expert(session, "zoo").mark] == [("Lb", "Co"), "Lb"]


def test_a_ninth_enabled_expert_gets_a_dash_and_a_pattern() -> None:
    assert [free_number(range(n), range(n)) for n in (0, 7, 8, 12)] == [0, 7, 8, 12]
    assert free_number([0, 2], [0, 1, 2]) == 1  # of a disabled one
    assert free_number(range(8), [*range(8), 9]) == 8
    seen = {(look.colour, look.dash, look.pattern) for look in map(look_of, range(len(COLOURS) * len(DASHES)))}
    assert len(seen) == 32
    assert (look_of(8).dash, look_of(8).pattern) == (DASHES[1], PATTERNS[1])


@pytest.mark.parametrize(
    ("name", "taken", "mark"),
    [
        ("demo/python", [], "Py"),
        ("demo/python", ["Py", "Pt"], "Ph"),
        ("demo/ab", ["Ab"], "A0"),
        ("seed:tiny", [], "Ti"),
        ("m/法律", [], "法律"),
        ("m/<b>", [], "B0"),
        ("—", [], "Aa"),
        ("x", [f"X{digit}" for digit in range(10)], "Aa"),
    ],
)
def test_a_mark_is_made_of_the_last_part_of_a_name(name: str, taken: list[str], mark: str) -> None:
    assert free_mark(name, taken) == mark


def test_marks_never_run_out() -> None:
    taken = set[str]()
    for number in range(3000):
        taken.add(free_mark(f"m/shard-{number}", taken))
    assert len(taken) == 3000


@pytest.mark.parametrize("registry", ["postgresql"], indirect=True)  # SQLite has one writer at a time
def test_two_first_writes_of_a_seed_as_an_expert_are_one_expert(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction() as session:
        World(session, get_storage()).seed("base")
    first: list[str] = []

    def choose_after_another(session: Session, name: str) -> tuple[int, str]:
        monkeypatch.setattr(names, "choose_look", choose_look)
        with transaction() as other:
            first.append(by_name(other, Expert, name).id)
        return choose_look(session, name)

    monkeypatch.setattr(names, "choose_look", choose_after_another)
    with transaction() as session:
        assert by_name(session, Expert, "seed:base").id == first[0], registry
