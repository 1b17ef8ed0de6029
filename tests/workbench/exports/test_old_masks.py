"""The card of an expert of the first rule warns where that rule masks its chat template otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.files import EXPERT_CARD
from tests.engine.chat_shapes import CHATML, chat_folder
from tests.engine.text.template_shapes import OLMO_3
from workbench.exports.facts import old_masks
from workbench.registry.experts import expert_row

if TYPE_CHECKING:
    from tests.workbench.conftest import World

OTHER = OLMO_3.replace("{{ eos_token }}", "<|endoftext|>")


@pytest.mark.parametrize(("of_base", "own"), [(CHATML, OTHER), (OTHER, CHATML)], ids=["its own", "its base's"])
def test_an_expert_is_judged_by_its_own_template(world: World, of_base: str, own: str) -> None:
    world.corpus("talk")
    world.expert("own", "talk", config={"num_steps": 1, "mask_rule": 1})
    row = expert_row(world.session, "own")
    base, expert = world.storage.path(row.base_id), world.storage.path(row.artifact_id)
    (chat_folder(base) / "chat_template.jinja").write_text(of_base)
    assert bool(old_masks(world.session, world.storage, "own")) == (of_base == OTHER)
    (expert / EXPERT_CARD).write_text("{}")
    (expert / "chat_template.jinja").write_text(own)
    assert bool(old_masks(world.session, world.storage, "own")) == (own == OTHER)
