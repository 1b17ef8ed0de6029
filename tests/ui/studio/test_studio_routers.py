"""A joined model in the studio: its form, and where its routers send each expert's text."""

from __future__ import annotations

import pytest

from tests.ui.studio.test_studio_forms import requested
from tests.ui.studio.visits import named, open_page, output
from workbench.analysis.routers import ROUTERS, RouterFacts, describe_routers
from workbench.registry.database import transaction
from workbench.registry.experts import expert_row

pytestmark = pytest.mark.usefixtures("filled_home")
FACTS = RouterFacts(
    experts=["first/code", "first/prose", "laws again"],
    top_k=2,
    width=64,
    num_read=[64_000, 1000, 64_000],
    num_held_out=[4096, 4096, 0],
    accuracy=[[0.9, 0.8], [0.6, 0.5], None],
    chosen=[[0.85, 0.05, 0.1], [0.15, 0.55, 0.3], None],
    condition=[1200.0, 25_000.0],
    cosine=[[1.0, 0.1, 0.97], [0.1, 1.0, 0.2], [0.97, 0.2, 1.0]],
)


def test_experts_are_joined_from_the_page_train() -> None:
    app = open_page("train", train__what="Joined model")
    app.multiselect(key="join-experts.experts").set_value(["first/code", "first/prose"]).run()
    app.text_input(key="join-experts.name").set_value("both").run()
    spec = requested(named(app.button, "Join them").click().run(), "join-experts")
    assert (spec["experts"], spec["top_k"], spec["tokens"]) == (["first/code", "first/prose"], None, 65_536)


def test_the_page_of_a_joined_model_says_where_its_routers_send_each_text() -> None:
    with transaction() as session:
        row = expert_row(session, "first/code")
        row.metrics = {**row.metrics, ROUTERS: FACTS.model_dump()}
    app = open_page("experts", experts__chosen=["first/code"])
    assert [tab.label for tab in app.tabs][:2] == ["Routers", "Use it"]
    (table,) = [one.value for one in app.dataframe if "dev text of" in one.value]
    assert table["dev text of"].tolist() == ["first/code", "first/prose"]
    assert table["to first/prose (%)"].tolist() == pytest.approx([5.0, 55.0])
    assert table["lowest layer (%)"].tolist() == pytest.approx([80.0, 50.0])
    for sentence in describe_routers(FACTS):
        assert sentence in output(app)


def test_what_speaks_against_the_routers_is_named() -> None:
    assert describe_routers(FACTS) == [
        "Each token goes through 2 networks of 3 in each layer.",
        "The first choice is the text's own expert for 70 % of held-out tokens (dev text, mean over 2 layers, "
        "n = 8,192 tokens; by chance 33 %); least for first/prose: 55 %.",
        "Not measured, without dev text: laws again.",
        "A router hardly tells first/code and laws again apart: the cosine of their columns is 0.97. Compare their "
        "perplexities on each other's text.",
        "Little text: fewer than 20 tokens for each of 64 dimensions: first/prose (1,000). More (--tokens) may make "
        "the routers better.",
        "The condition number of the equations is at most 25 K.",
    ]


def test_the_share_of_the_anchor_is_named() -> None:
    anchored = FACTS.model_copy(
        update={
            "experts": ["seed:start", "law", "sea"],
            "num_read": [],
            "num_held_out": [0, 100, 100],
            "accuracy": [None, [0.3, 0.3], [0.2, 0.2]],
            "chosen": [None, [0.6, 0.3, 0.1], [0.7, 0.1, 0.2]],
            "cosine": [[0.0, 0.0, 0.0], [0.0, 1.0, 0.2], [0.0, 0.2, 1.0]],
        }
    )
    assert describe_routers(anchored)[2:] == [
        "For 65 % it is seed:start, beside which the experts were trained.",
        "The condition number of the rows is at most 25 K.",
    ]
