"""The baselines are chosen by their sentence, and an expert of several domains is shown as what it is."""

from __future__ import annotations

import pytest

from tests.ui.studio.visits import named, open_page, output, read
from workbench.analysis import perplexity_tables
from workbench.job_records import jobs as rows
from workbench.registry import mixtures
from workbench.registry.corpora import domain_row
from workbench.registry.database import transaction
from workbench.schema.tables import Artifact, Expert, new_id
from workbench.specs.requests import MixtureSpec

pytestmark = pytest.mark.usefixtures("filled_home")
SEVERAL = ["code", "poems"]


@pytest.fixture
def dense(filled_home: object) -> None:
    """The mixture “whole” of one expert that code and poems trained together, scored on code."""
    with transaction() as session:
        base, own, scores = (Artifact(id=new_id(), kind="demix-base", sha256="0" * 64) for _ in range(3))
        session.add_all([base, own, scores])
        full = Expert(
            id=own.id,
            name="whole/dense",
            method="dense",
            domain_id=None,
            base=base,
            artifact=own,
            tokenizer_sha256="cd" * 32,
            data_sha256="e" * 64,
            num_parameters=9,
            config={"domains": SEVERAL},
            colour_number=9,
            mark="De",
        )
        session.add(full)
        session.flush()
        mixtures.create_mixture(session, MixtureSpec(name="whole", experts=["whole/dense"]))
        perplexity_tables.register_evaluation(
            session,
            expert_id=own.id,
            domain_id=domain_row(session, "code").id,
            split="test",
            block_size=128,
            num_tokens=2048,
            log_likelihood=-4096.0,
            artifact=scores,
        )


def test_a_baseline_is_chosen_by_its_sentence_and_submitted() -> None:
    app = open_page("train", train__what="DEMix, LoRA, MoE or dense")
    method = named(app.selectbox, "Method")
    assert [option.split(":")[0] for option in method.options] == [
        "demix",
        "dense",
        "dense-balanced",
        "domain-token",
        "lora",
        "lora-mixed",
        "moe",
    ]
    assert "a learned vector of its own" in method.options[3]
    method.set_value("domain-token").run()
    named(app.text_input, "Name").set_value("tokens").run()
    named(app.multiselect, "Domains").set_value(["code"]).run()
    assert "--method domain-token" in "\n".join(block.value for block in app.code)
    named(app.button, "Train the expert").click().run()
    assert not app.exception
    (job,) = [card for card in read(rows.list_jobs) if card.spec.get("name") == "tokens"]
    assert job.spec["method"] == "domain-token"


@pytest.mark.usefixtures("dense")
def test_an_expert_of_several_domains_is_listed_under_each_and_shows_all() -> None:
    app = open_page("experts", experts__domain=["poems"], experts__chosen=["whole/dense"])
    assert not app.exception
    assert named(app.metric, "Domain").value == "2 domains"
    shown = [frame.value for frame in app.dataframe]
    assert any("code, poems" in str(frame.to_numpy().tolist()) for frame in shown)


@pytest.mark.usefixtures("dense")
def test_domains_that_an_expert_of_several_was_trained_on_are_offered_last() -> None:
    app = open_page("train", train__what="New expert", **{"train-expert__mixture": "whole"})
    assert app.selectbox(key="train-expert.domain").options[-2:] == ["code", "poems"]


@pytest.mark.usefixtures("dense")
def test_nobody_is_at_home_in_a_dense_model_and_the_page_says_so() -> None:
    app = open_page("specialization", specialization__mixture="whole")
    assert not app.exception
    assert "No expert here was trained on one of these domains alone" in app.info[0].value
    for of_a_heatmap in ("Only in the table", "ratios of perplexities", "on a cell"):
        assert of_a_heatmap not in output(app)
    assert [list(one.value.columns) for one in app.dataframe] == [
        ["expert", "domain", "perplexity (per token)", "accuracy (%)"]
    ]


@pytest.mark.usefixtures("dense")
def test_an_example_for_a_dense_model_is_of_its_domains() -> None:
    app = open_page("posteriors", posterior__mixture="whole")
    named(app.button, "Take an example").click().run()
    assert not app.exception
    assert app.session_state["posterior.text"].count("\n\n") == 1


@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize("page", ["overview", "mixtures", "playground", "train"])
def test_every_other_page_bears_it(page: str) -> None:
    assert not open_page(page).exception
