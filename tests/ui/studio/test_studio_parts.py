"""Parts of MoDE experts in the studio: switched for a text, their gates read token by token and block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.events import GateWeights
from tests.ui.studio.conftest import HOSTILE, _artifact
from tests.ui.studio.visits import answer_as, drawn_tokens, named, open_page, output, settled
from ui.client import Client
from ui.present.charts.mode_gate_charts import gate_strip, gates_by_block
from ui.present.text.mode_gates import means, rows_inside
from workbench.answers.posteriors import Manifest, PosteriorAnswer
from workbench.questions.perplexities import MixedScores
from workbench.registry import experts, mixtures
from workbench.registry.database import transaction
from workbench.settings import get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

PARTS = ["code", HOSTILE]
TOKEN = GateWeights((0.5, 0.1), {"code": (0.3, 0.2), HOSTILE: (0.2, 0.7)})
SINGLE = GateWeights((0.4, 0.2), {HOSTILE: (0.6, 0.8)})


def read(expert: str, tokens: list[str], gates: list[dict[str, GateWeights]]) -> PosteriorAnswer:
    """A text that one expert read."""
    made_by = Manifest(model=expert, experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None)
    numbers = {"logprobs": [-1.0] * len(tokens), "best": [("x", -1.0)] * len(tokens)}
    weights = [[1.0]] * len(tokens)
    return PosteriorAnswer(
        experts=[expert], tokens=tokens, weights=weights, gate_weights=gates, manifest=made_by, **numbers
    )


@pytest.fixture
def composed(filled_home: Path) -> Path:
    """The same, and the mixture `apps` of an expert of MoDE with two parts."""
    storage = get_storage(get_settings())
    with transaction() as session:
        base, artifact = (_artifact(session, storage, kind) for kind in ("seed", "mode-expert"))
        experts.register_expert(
            session,
            id=artifact.id,
            name="apps/composed",
            method="mode",
            domain_id=None,
            seed_id=None,
            parent_id=None,
            base=base,
            artifact=artifact,
            tokenizer_sha256="ab" * 32,
            data_sha256="",
            num_parameters=1,
            metrics={},
            config={"domains": PARTS, "parts": [{"name": name, "domain": name, "of": None} for name in PARTS]},
        )
        mixtures.create_mixture(session, MixtureSpec(name="apps", experts=["apps/composed"]))
    return filled_home


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that the page sends; the second of three tokens comes without the expert."""
    specs: list[dict[str, Any]] = []

    def posterior(_self: Client, **job_spec: Any) -> PosteriorAnswer:
        specs.append(job_spec)
        gates = TOKEN if len(job_spec["parts"]["apps/composed"]) == 2 else SINGLE
        return read("apps/composed", ["<b>", "x", " y"], [{"apps/composed": gates}, {}, {"apps/composed": gates}])

    monkeypatch.setattr(Client, "posterior", posterior)
    return specs


@pytest.mark.usefixtures("composed")
def test_words_are_tinted_by_the_part_that_weighs_most_on_average_or_in_a_block(
    requested: list[dict[str, Any]],
) -> None:
    app = open_page("posteriors", posterior__mixture="apps")
    assert "Example: the lead changes" in output(app)
    app.text_area(key="posterior.text").set_value("<b>x y").run()
    settled(named(app.button, "Show the posterior").click().run())
    assert "Example: the lead changes" not in output(app)

    assert requested[0]["parts"] == {"apps/composed": PARTS}
    assert "Inside apps/composed" in output(app)
    assert "3 tokens, all of apps/composed: it is the only expert, so its weight is 1." in output(app)
    assert "the highest line leads" not in output(app)
    assert "For 1 token of the text this expert had weight 0" in output(app)
    assert "Gate weights by token" in output(app)
    assert "Mean gate weights by block" in output(app)
    [drawn] = drawn_tokens(app)
    assert (drawn["tokens"], [drawn["experts"][place]["name"] for place in drawn["leads"]]) == (
        ["<b>", " y"],
        [HOSTILE, HOSTILE],
    )
    settled(named(app.segmented_control, "Block").set_value("1").run())
    assert drawn_tokens(app)[0]["leads"] == [0, 0]  # the backbone
    assert len(requested) == 1  # another block is no other question


@pytest.mark.usefixtures("composed")
def test_a_part_that_is_switched_off_is_not_requested_and_weighs_nothing(requested: list[dict[str, Any]]) -> None:
    app = open_page("posteriors", posterior__mixture="apps")
    app.text_area(key="posterior.text").set_value("<b>x y").run()
    named(app.pills, "Active parts of apps/composed").set_value([HOSTILE]).run()
    settled(named(app.button, "Show the posterior").click().run())

    assert requested[0]["parts"] == {"apps/composed": [HOSTILE]}
    assert "Switched off, so their weight is 0: code." in output(app)


@pytest.mark.usefixtures("composed")
def test_the_mixtures_page_says_that_parts_need_a_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_as(monkeypatch, "mix", lambda _self, **_spec: MixedScores(experts=[], domains=[], seconds=0.0))
    app = open_page("mixtures", mixture="apps")
    assert "To see the effect of switching a part, try it on your own text" in output(app)
    assert "switching a part" not in output(open_page("mixtures", mixture="first"))


@pytest.mark.usefixtures("composed")
def test_a_mixture_without_parts_requests_none(monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[dict[str, Any]] = []

    def posterior(_self: Client, **job_spec: Any) -> PosteriorAnswer:
        specs.append(job_spec)
        return read("e", ["x"], [{}])

    monkeypatch.setattr(Client, "posterior", posterior)
    app = open_page("posteriors", posterior__mixture="first")
    app.text_area(key="posterior.text").set_value("x").run()
    settled(named(app.button, "Show the posterior").click().run())
    assert "parts" not in specs[0]
    assert "Inside" not in output(app)


def test_rows_add_up_to_one_and_a_part_that_is_off_has_none() -> None:
    gates = [{"e": TOKEN}, {}, {"e": SINGLE}]
    assert rows_inside(gates, "e", PARTS, 1) == [[0.1, 0.2, 0.7], [0.2, 0.0, 0.8]]
    for row in rows_inside(gates, "e", PARTS):
        assert sum(row) == pytest.approx(1)
    assert means([[0.0, 1.0], [0.5, 0.5]]) == [0.25, 0.75]


def test_pictures_of_gates_have_words_and_every_number() -> None:
    rows, blocks = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], [[[0.5, 0.3, 0.2]], [[0.1, 0.2, 0.7]]]
    strip, by_block = gate_strip(["a", "<b>"], rows, PARTS), gates_by_block(blocks, PARTS)
    assert strip.table[1] == {
        "position": 1,
        "token": "<b>",
        "backbone (weight)": 0.1,
        "code (weight)": 0.2,
        f"{HOSTILE} (weight)": 0.7,
    }
    assert "backbone 0.30, code 0.25" in strip.description
    assert by_block.table[2] == {"part": HOSTILE, "block 1": 0.2, "block 2": 0.7}
    for picture in (strip, by_block):
        assert "<b>" not in str(picture.figure.to_json()).replace("\\u003c", "<").replace('"<b>"', "")
