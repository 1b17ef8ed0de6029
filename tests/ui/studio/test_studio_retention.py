"""Learning vs. forgetting: experts of any method side by side, on the page and the command line, by stored scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import update

from tests.ui.studio.visits import named, open_page, output
from ui.cli.app import main
from ui.present.charts.colours import Looks
from ui.present.charts.scatters import retention_scatter
from ui.present.pages import LEARNED_AND_KEPT
from ui.present.text.retention import (
    describe_retention,
    domain_rows,
    number_of,
    retention_rows,
    verdict_rows,
    verdict_title,
)
from workbench.analysis import perplexity_tables
from workbench.job_records import jobs
from workbench.kinds.training.mode import TrainMode
from workbench.questions.retention import Retention
from workbench.registry.corpora import domain_row
from workbench.registry.database import transaction
from workbench.registry.experts import expert_row
from workbench.schema.base import new_id
from workbench.schema.tables import Artifact, Evaluation

pytestmark = pytest.mark.usefixtures("filled_home")


@pytest.fixture
def counted_tokens(filled_home: object) -> None:
    """The experts of code and prose, with the number of right tokens on code and poems."""
    shares = {"first/code": (0.5, 0.2), "first/prose": (0.3, 0.4)}
    with transaction() as session:
        for expert, pair in shares.items():
            for domain, share in zip(("code", "poems"), pair, strict=True):
                scores = Artifact(id=new_id(), kind="scores", sha256="0" * 64)
                session.add(scores)
                perplexity_tables.register_evaluation(
                    session,
                    expert_id=expert_row(session, expert).id,
                    domain_id=domain_row(session, domain).id,
                    split="test",
                    block_size=128,
                    num_tokens=2048,
                    log_likelihood=-2048.0 / share,
                    num_correct=round(2048 * share),
                    artifact=scores,
                )


def look(**chosen: Any) -> Any:
    return open_page("specialization", specialization__view=LEARNED_AND_KEPT, **chosen)


@pytest.mark.usefixtures("counted_tokens")
def test_a_person_chooses_what_was_not_to_be_forgotten() -> None:
    app = look(specialization__compared=["first/code", "first/prose"])
    assert not app.exception
    retain = named(app.selectbox, "must not be forgotten")
    assert retain.options[-2:] == ["code", "prose"]  # what they were trained on comes last
    retain.set_value("poems").run()
    named(app.multiselect, "Target domains").set_value(["code"]).run()
    assert not app.exception
    words = output(app)
    assert "Learning (up) vs. retention (right): 2 of 2 experts are not beaten in both" in words
    assert "Learned most: first/code (50.0 % on code). Kept most: first/prose (40.0 % on poems)." in words
    assert not app.warning


def test_the_comparison_opens_on_what_most_trainings_were_to_retain() -> None:
    with transaction() as session:
        for expert, retained in (("first/code", ["prose", "poems"]), ("first/prose", ["poems"])):
            job_spec = TrainMode(name="c", seed_model="tiny", domains=["code"], retain=retained)
            expert_row(session, expert).job_id = jobs.create_job(session, job_spec)
    retain = named(look(specialization__compared=["first/code", "first/prose"]).selectbox, "must not be forgotten")
    assert (retain.value, retain.options[:2]) == ("poems", ["poems", "prose"])


@pytest.mark.usefixtures("counted_tokens")
def test_what_is_missing_stands_with_its_command() -> None:
    app = look(specialization__compared=["first/code", "laws again"], retention__retain="poems")
    named(app.multiselect, "Target domains").set_value(["code"]).run()
    assert "Some scores are missing" in app.warning[0].value
    assert "laws again on code, poems: not scored on the same text." in output(app)
    (command,) = [block.value for block in app.code]
    assert command == (
        "workbench evaluate run first --experts 'laws again' --domains code,poems --block-size 128 --max-tokens 2048"
    )


def test_without_counted_tokens_perplexities_are_compared() -> None:
    with transaction() as session:
        session.execute(update(Evaluation).values(num_correct=None))
    app = look()
    assert not app.exception
    assert app.get("button_group")[-1].value == "perplexity"
    assert "Kept most:" in output(app)


def test_the_comparison_of_experts_leads_there() -> None:
    app = open_page("experts", experts__chosen=["first/code", "first/prose"])
    named(app.button, "learning and forgetting").click().run()
    assert not app.exception
    assert app.session_state["specialization.compared"] == ["first/code", "first/prose"]
    assert app.session_state["specialization.view"] == LEARNED_AND_KEPT


@pytest.mark.usefixtures("counted_tokens")
def test_the_command_line_shows_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    job_spec = ["evaluate", "retention", "poems", "--targets", "code", "--experts", "first/code,first/prose"]
    assert main(job_spec) in (0, None)
    printed = capsys.readouterr().out
    assert "Kept most: first/prose (40.0 % on poems)." in " ".join(printed.split())
    _, *tables = printed.split("In blocks of")[0].splitlines()
    assert tables[0].split() == ["Expert", "Method", "Parameters", "Learned", "(%)", "Kept", "(%)", "Ahead"]
    assert max(map(len, tables)) <= 80
    assert main([*job_spec, "--json"]) in (0, None)
    result = json.loads(capsys.readouterr().out)
    assert [row["kept"]["accuracy"] for row in result["rows"]] == [
        pytest.approx(0.2, abs=1e-3),
        pytest.approx(0.4, abs=1e-3),
    ]
    assert number_of(Retention.model_validate(result)) == "accuracy"


def compared(
    *rows: tuple[str, float, float, bool],
    by_perplexity: Mapping[str, tuple[float | None, float | None, bool | None]] | None = None,
) -> Retention:
    """Experts with what they learned, kept and whether they are ahead by accuracy, and by expert by perplexity."""
    others = {name: (by_perplexity or {}).get(name, (None, None, None)) for name, *_ in rows}
    answer = {
        "retain": "general",
        "targets": ["code", "law"],
        "split": "test",
        "left_out": [],
        "measures": [],
        "missing": [],
        "evaluations": [],
        "rows": [
            {
                "expert": name,
                "method": "mode",
                "num_parts": 2,
                "num_parameters": 9,
                "total_parameters": 9,
                "is_seed": name == "<b>",
                "accuracy": {"code": learned, "law": learned, "general": kept},
                "perplexity": {"code": None, "law": None, "general": None},
                "learned": {"accuracy": learned, "perplexity": others[name][0]},
                "kept": {"accuracy": kept, "perplexity": others[name][1]},
                "is_ahead": {"accuracy": ahead, "perplexity": others[name][2]},
            }
            for name, learned, kept, ahead in rows
        ],
    }
    return Retention.model_validate(answer)


def test_the_verdict_names_its_number_and_says_where_the_other_disagrees() -> None:
    rows = ("a", 0.5, 0.5, True), ("b", 0.4, 0.6, True)
    words = describe_retention(
        compared(*rows, by_perplexity={"a": (9.0, 5.0, False), "b": (8.0, 4.0, True)}), "accuracy"
    )
    assert words.startswith("By accuracy. Learned most: a (50.0 % on average over code, law). Kept most: b")
    assert words.endswith("By perplexity the result differs: learned most b, kept most b, ahead b.")
    assert "otherwise" not in describe_retention(compared(*rows), "accuracy")


def test_the_tables_of_the_command_line_have_as_many_columns_for_any_number_of_targets() -> None:
    known = {"a": (None, None, True), "b": (None, None, True)}
    result = compared(("a", 0.5, 0.5, True), ("b", 0.4, 0.6, True), by_perplexity=known)
    assert verdict_title(result) == "Accuracy on the target domains (code, law) and on the retained domain (general)"
    assert verdict_rows(result)[0] == {
        "expert": "b",
        "method": "MoDE, 2 parts",
        "parameters": "9",
        "learned (%)": 40.0,
        "kept (%)": 60.0,
        "ahead": "yes",
    }
    assert [tuple(row.values()) for row in domain_rows(result)] == [
        ("code", "b", 40.0, None),
        ("code", "a", 50.0, None),
        ("law", "b", 40.0, None),
        ("law", "a", 50.0, None),
        ("mean of targets", "b", 40.0, None),
        ("mean of targets", "a", 50.0, None),
        ("general (kept)", "b", 60.0, None),
        ("general (kept)", "a", 50.0, None),
    ]
    assert (
        len(domain_rows(result.model_copy(update={"targets": ["code"]}))) == 4
    )  # the mean of one target is that target


def test_the_picture_fills_who_is_ahead_and_says_so() -> None:
    result = compared(("a", 0.5, 0.5, True), ("<b>", 0.4, 0.3, False))
    picture = retention_scatter(result, "accuracy", Looks())
    assert picture is not None
    assert picture.title == "Learning (up) vs. retention (right): a is best at both (filled points)"
    ahead, seed = picture.figure.data
    assert [(*one.x, *one.y, *one.marker.symbol, *one.text) for one in (ahead, seed)] == [
        (50.0, 50.0, "circle", "a"),
        (30.0, 40.0, "square-open", "&lt;b&gt;"),
    ]
    assert (ahead.name, seed.name) == ("MoDE, 2 parts", "the seed (MoDE)")
    assert picture.figure.layout.shapes[0].x0 == 30.0  # the line of the seed model
    assert retention_scatter(result, "perplexity", Looks()) is None
    assert [row["mean accuracy on targets (%)"] for row in retention_rows(result)] == [50.0, 40.0]


def test_names_that_would_overlap_are_left_to_the_pointer_those_ahead_stay() -> None:
    result = compared(
        ("try-1/close", 0.500, 0.499, False),
        ("try-1/first", 0.501, 0.500, True),
        ("try-1/far", 0.1, 0.2, False),
    )
    picture = retention_scatter(result, "accuracy", Looks())
    assert picture is not None
    (points,) = picture.figure.data
    assert list(points.text) == ["", "first", "far"]
    assert list(points.hovertext) == ["try-1/close", "try-1/first", "try-1/far"]
