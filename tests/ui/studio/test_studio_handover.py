"""From one room to the next: what was chosen goes along, and each room opens on what there is to see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.studio.modes import add_composition, add_mode_expert
from tests.ui.studio.visits import named, open_room, told
from ui.client import Client
from workbench.database import transaction

pytestmark = pytest.mark.usefixtures("filled_home")


@pytest.fixture
def beside(filled_home: object) -> None:
    """Experts of MoDE beside “tiny” that nobody scored: “c/code”, “p/prose”, both in “both/composed”."""
    with transaction() as session:
        pair = [add_mode_expert(session, name, domain) for name, domain in (("c", "code"), ("p", "prose"))]
        add_composition(session, "both", *pair)


def next_room(app: Any, button: str, room: str) -> Any:
    """The room that a button leads to."""
    named(app.button, button).click().run()
    assert not app.exception
    app.switch_page(f"rooms/{room}.py").run()
    assert not app.exception
    return app


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("room", ["mixtures", "specialization"])
def test_missing_scores_lead_to_the_form_that_makes_them(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "mix", lambda _self, **_wish: {"domains": [], "seconds": 0.0})
    monkeypatch.setattr("ui.parts.on_the_way.coming", lambda *_: None)
    key = {"mixtures": "mixture", "specialization": "specialization.mixture"}[room]
    app = open_room(room, **{key: "p", f"{room.removesuffix('s')}.split": "dev"})
    app = next_room(app, "Evaluate", "train")
    assert app.selectbox(key="evaluate.mixture").value == "p"
    assert app.selectbox(key="evaluate.split").value == "dev"
