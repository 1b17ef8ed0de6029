"""The baselines are chosen by their sentence, and an expert of several domains is shown as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from tests.ui.studio.visits import named, open_page, output, read
from ui.cli.app import main
from ui.present.charts.colours import Looks
from ui.present.charts.curves_and_bars import expert_bars
from ui.present.text.measures import describe_measures, describe_unknown_accuracy
from ui.studio.shared.contents import read_contents
from workbench.analysis import perplexity_tables
from workbench.analysis.perplexity_tables import DomainMeasure, PerplexityTable
from workbench.answers.cards import EvaluationCard, ExpertCard
from workbench.job_records import jobs as rows
from workbench.registry import mixtures
from workbench.registry.corpora import domain_row
from workbench.registry.database import reading, transaction
from workbench.registry.experts import expert_row as row_of
from workbench.registry.experts import list_experts
from workbench.schema.base import new_id
from workbench.schema.tables import Artifact, Evaluation, Expert
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
        "DEMix",
        "dense",
        "dense (balanced)",
        "domain token",
        "LoRA",
        "LoRA (mixed)",
        "MoE",
        "Anchored",
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
    assert "No expert here was trained on only one of these domains" in app.info[0].value
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


def scored(
    expert: str,
    domain: str,
    perplexity: float,
    block_size: int = 128,
    at: float = 0.0,
    accuracy: float | None = None,
    split: str = "test",
) -> EvaluationCard:
    return EvaluationCard(
        expert=expert,
        domain=domain,
        split=split,
        block_size=block_size,
        num_tokens=4096,
        perplexity=perplexity,
        accuracy=accuracy,
        created_at=at,
    )


@pytest.fixture
def cards(filled_home: Path) -> list[ExpertCard]:
    with reading() as session:
        return [card for card in list_experts(session) if card.domain in ("code", "prose")]


def test_a_caption_names_the_block_size_and_what_differs() -> None:
    rows = [DomainMeasure(domain=name, block_size=128, num_tokens=4096) for name in ("law", "sea")]
    assert describe_measures(rows) == "In blocks of 128 tokens, 4,096 tokens of each domain."
    odd = DomainMeasure(domain="code", block_size=256, num_tokens=512)
    assert describe_measures([*rows, odd]).endswith("; but code in blocks of 256, 512 tokens.")
    assert describe_measures([]) == ""


def test_bars_are_of_one_text_and_only_domains_with_all_experts_have_a_winner(cards: list[ExpertCard]) -> None:
    one, two = (card.name for card in cards)
    scores = [scored(name, f"d{n}", 10.0 + n) for n in range(8) for name in (one, two)]
    scores += [scored(one, "alone", 1.0), scored(two, "d0", 2.0, block_size=256, at=9.0)]
    picture = expert_bars(cards, scores, Looks())
    assert picture is not None
    assert picture.table[1] == {"domain": "d0", "measured on": "test, 4,096 in blocks of 128", one: 10.0, two: 10.0}
    assert "on alone" not in picture.description
    assert "1 domain not counted" in picture.description
    assert "2 more domains in the table" in picture.description


def test_accuracies_that_are_not_known_are_counted_with_what_to_do() -> None:
    table = PerplexityTable(
        experts=["a", "b"],
        domains=["law", "sea"],
        measures=[],
        perplexity=[[10.0, 9.0], [None, 8.0]],
        accuracy=[[0.25, None], [None, None]],
        specialization=[],
    )
    shown = describe_unknown_accuracy(table, "mix")
    assert shown.startswith("The accuracy of 2 scores is not known")
    assert shown.endswith("workbench evaluate run mix --again.")
    assert describe_unknown_accuracy(table.model_copy(update={"accuracy": [[0.25, 0.1], [None, 0.0]]}), "mix") == ""


@pytest.mark.usefixtures("filled_home")
def test_the_command_line_shows_accuracies_and_how_to_learn_those_that_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shown(forgotten: int) -> str:
        with transaction() as session:
            for row in session.scalars(select(Evaluation).limit(forgotten)):
                row.num_correct = None
        assert main(["evaluate", "show", "first"]) == 0
        return capsys.readouterr().out

    known, some, none = shown(0), shown(1), shown(1000)
    assert "Accuracy: % of tokens" in known
    assert "--again" not in known
    assert "The accuracy of 1 score is not known" in some
    assert "Accuracy: % of tokens" in some
    assert "workbench evaluate run first --again" in none
    assert "Accuracy: %" not in none


@pytest.mark.usefixtures("filled_home")
def test_the_registry_is_read_on_the_split_that_was_chosen() -> None:
    app = open_page("experts", experts__split="dev", experts__view="Table")
    assert not app.exception
    (rows,) = [one.value for one in app.dataframe if "in-domain perplexity (per token)" in one.value.columns]
    assert rows["in-domain perplexity (per token)"].isna().all()
    assert "on test only" in list(rows["measured on"])


@pytest.mark.usefixtures("filled_home")
def test_a_model_of_many_domains_is_scored_when_it_has_any_score() -> None:
    assert read_contents().holdings().unscored == []
    with transaction() as session:
        row_of(session, "first/code").domain = None
    assert read_contents().holdings().unscored == []
