"""The registry of experts: cards, chips, pages, lineage, aliases, saved views, and what a thousand experts cost."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event
from streamlit.testing.v1 import AppTest

from tests.ui.studio.conftest import HOSTILE
from tests.ui.studio.visits import named, open_page, output, read
from ui.present.charts.lineage import edge_rows, registry_lineage
from ui.studio.experts.registry_view import (
    ORDERS,
    PER_PAGE,
    ExpertRegistry,
    counts,
    expert_row,
    filter_experts,
    measured_on,
    read_registry,
)
from workbench.analysis.perplexity_tables import in_domain_scores, scored_domains
from workbench.job_records import jobs
from workbench.registry import experts, mixtures, seeds
from workbench.registry.aliases import list_aliases, set_alias
from workbench.registry.database import get_engine, reading, transaction
from workbench.registry.views import list_views
from workbench.schema.tables import Evaluation, Expert, Mixture, MixtureMember
from workbench.settings import get_settings

pytestmark = pytest.mark.usefixtures("filled_home")


def cards_on(app: AppTest) -> list[dict[str, Any]]:
    """What the page gives to its drawing of cards."""
    drawn = [one for one in app.get("bidi_component") if one.proto.component_name == "expert_cards"]
    return [card for one in drawn for card in json.loads(one.proto.json)["cards"]]


def add_experts(count: int) -> None:
    """Copies of an expert's row, each scored as it is on every domain; no file is behind them."""
    with transaction() as session:
        row = experts.expert_row(session, "first/code")
        scores = session.query(Evaluation).filter_by(expert_id=row.id).all()
        fields = [column.name for column in Expert.__table__.columns if column.name not in ("id", "name", "mark")]
        for number in range(count):
            values = {name: getattr(row, name) for name in fields}
            session.add(Expert(id=f"copy{number}", name=f"copy {number:04}", mark=f"{number:x}", **values))
            for score in scores:
                columns = [c.name for c in Evaluation.__table__.columns if c.name not in ("id", "expert_id")]
                same = {name: getattr(score, name) for name in columns}
                session.add(Evaluation(expert_id=f"copy{number}", **same))


def test_a_card_says_method_origin_number_mixture_alias_and_tag() -> None:
    with transaction() as session:
        set_alias(session, "code@production", "first/code")
        experts.describe(session, "first/code", tags=["demo"])
    app = open_page("experts")
    assert not app.exception
    card = next(one for one in cards_on(app) if one["name"] == "first/code")
    assert card["value"] == "3.0"
    assert card["words"] == ["DEMix · from seed model tiny · 1.2 M parameters", "60 documents"]
    assert [words for words, _ in card["badges"]] == ["code@production", "in first", "#demo"]
    assert card["href"] == "/experts?experts.chosen=first%2Fcode"


def test_chips_have_counts_and_leave_the_experts_that_match() -> None:
    app = open_page("experts")
    states = next(one for one in app.get("button_group") if one.key == "experts.state")
    assert [option.content for option in states.proto.options] == ["enabled 4", "in a mixture 3", "not scored 1"]
    states.set_value(["enabled", "not scored"]).run()
    assert [one["name"] for one in cards_on(app)] == ["laws again"]
    assert app.query_params["experts.state"] == ["enabled", "not scored"]
    assert "1 expert. " in output(app)


def test_states_must_all_hold_and_of_another_filter_one_value_is_enough() -> None:
    registry = read_registry("test")
    names = lambda search="", **wanted: [expert.name for expert in filter_experts(registry, search, wanted)]  # noqa: E731
    assert names(domain=["code", "prose"]) == ["first/code", "first/prose"]
    assert names(state=["in a mixture", "not scored"]) == []
    assert names("law again") == ["laws again"]
    assert counts(registry)["mixture"] == {"first": 3}
    by_perplexity = partial(ORDERS["in-domain perplexity"], registry)
    assert min(registry.cards, key=by_perplexity).name == "first/code"


def test_cards_come_in_pages_and_the_address_names_the_page() -> None:
    add_experts(60)
    app = open_page("experts")
    assert len(cards_on(app)) == PER_PAGE["Cards"]
    app.session_state["experts.page"] = 3
    app.run()
    assert [one["name"] for one in cards_on(app)][-1] == "laws again"
    assert len(cards_on(app)) == 64 - 2 * PER_PAGE["Cards"]
    assert app.query_params["experts.page"] == "3"
    assert "49 to 64 of 64" in output(app)
    named(app.get("button_group"), "Method").set_value(["demix"]).run()
    assert "1 to 24 of 64" in output(app)


def test_an_expert_takes_the_place_of_the_cards_and_a_button_leads_back() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert any("Search and filter" in one.label for one in app.expander)
    named(app.button, "All experts").click().run()
    assert not app.header
    assert len(cards_on(app)) == 4


def test_an_open_expert_shows_its_perplexity_on_the_chosen_split_and_leads_to_the_playground() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert named(app.metric, "Perplexity (test)").value.replace("\\", "") == "3.0"
    link = named([one.proto for one in app.get("page_link")], "Open in playground")
    assert link.query_string == "left=first%2Fcode"
    app = open_page("experts", experts__chosen=["first/code"], experts__split="dev")
    assert named(app.metric, "Perplexity (dev)").value == "—"


def test_beside_an_open_expert_the_registry_is_read_only_when_it_is_opened() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert "Sorted by" not in [one.label for one in app.selectbox]
    app = open_page("experts", experts__chosen=["first/code"], experts__others=True)
    assert "Sorted by" in [one.label for one in app.selectbox]


def test_the_lineage_has_its_edges_as_a_table() -> None:
    app = open_page("experts", experts__view="Lineage")
    assert not app.exception
    [edges] = [one.value for one in app.dataframe if "relation" in one.value.columns]
    rows = {tuple(row) for row in edges[["from", "to", "relation"]].itertuples(index=False)}
    assert ("tiny", "first/code", "trained from") in rows
    assert ("first/code", "first", "member of") in rows
    assert (f"first/{HOSTILE}", "laws again", "copied from") in rows
    [graph] = app.get("graphviz_chart")
    assert '"expert:first/code" -> "mixture:first";' in graph.proto.spec


def test_a_seed_that_is_a_copy_is_linked_with_its_expert() -> None:
    cards = read(experts.list_experts)
    assert read(seeds.copied_experts) == []
    rows = edge_rows(registry_lineage(cards, {"tiny": "elsewhere", "other": "nobody"}))
    assert [row["relation"] for row in rows if row["from"] == "elsewhere"] == ["copy as a seed model"]
    assert not any(row["from"] == "nobody" for row in rows)


def test_an_alias_is_set_listed_and_removed_on_the_card() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    named(app.text_input, "New alias").set_value("code@production")
    named(app.button, "Set the alias").click().run()
    assert [(one.name, one.model) for one in read(list_aliases)] == [("code@production", "first/code")]
    assert "code@production means first/code now." in output(app).replace("\u2060", "")
    app.button(key="alias.remove.code@production").click().run()
    assert read(list_aliases) == []


def test_what_cannot_be_an_alias_is_explained() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    named(app.text_input, "New alias").set_value("code@latest")
    named(app.button, "Set the alias").click().run()
    assert "cannot be an alias" in output(app)


def test_use_it_shows_code_of_this_expert_and_by_its_alias() -> None:
    with transaction() as session:
        set_alias(session, "code@production", "first/code")
    app = open_page("experts", experts__chosen=["first/code"])
    shown = [one.value for one in app.code]
    assert any('client.completions.create(model="first/code"' in one for one in shown)
    assert any('Workbench().expert("first/code")' in one for one in shown)
    assert any(one.startswith("curl ") and '"model": "first/code"' in one for one in shown)
    app.selectbox(key="use.expert.first/code").select("code@production").run()
    assert any('model="code@production"' in one.value for one in app.code)


def test_a_mixture_has_use_it_aliases_and_copies() -> None:
    app = open_page("mixtures")
    assert any('Workbench().mixture("first")' in one.value for one in app.code)
    named(app.text_input, "New alias").set_value("all@production")
    named(app.button, "Set the alias").click().run()
    assert [(one.name, one.model, one.kind) for one in read(list_aliases)] == [("all@production", "first", "mixture")]
    app.button(key="mixture.copy").click().run()
    assert {one.name for one in read(mixtures.list_mixtures)} == {"first", "first.2"}


def test_a_view_is_saved_opened_and_deleted() -> None:
    app = open_page("experts")
    named(app.text_input, "Search").set_value("prose").run()
    named(app.text_input, "Name of the view").set_value("novels")
    named(app.button, "Save this view").click().run()
    assert [(one.name, one.address) for one in read(list_views)] == [("novels", "/experts?experts.search=prose")]
    named(app.text_input, "Search").set_value("code").run()
    named(app.get("button_group"), "State").set_value(["enabled"]).run()
    assert [one["name"] for one in cards_on(app)] == ["first/code"]
    app.button(key="view.open.novels").click().run()
    assert [one["name"] for one in cards_on(app)] == ["first/prose"]
    assert app.query_params == {"experts.search": "prose"}
    app.button(key="view.delete.novels").click().run()
    assert read(list_views) == []


def test_an_expert_is_packed_and_a_file_unpacked_from_the_page(folders_named: None, tmp_path: Any) -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    app.text_input(key="pack-expert.file").set_value(str(tmp_path / "code.zip")).run()
    app.button(key="pack-expert.submit").click().run()
    job = read(jobs.get_job, app.session_state["pack-expert.job"])
    assert (job.kind, job.spec["expert"]) == ("pack-expert", "first/code")
    assert {"export-expert.submit", "push-expert.submit", "import-expert.submit"} <= {one.key for one in app.button}
    named(app.get("button_group"), "What do you have?").set_value("Packed file").run()
    assert app.button(key="unpack-expert.submit")


def test_chosen_experts_are_compared_by_bars_and_by_curves() -> None:
    names = ["first/code", "first/prose", f"first/{HOSTILE}", "laws again"]
    app = open_page("experts", experts__chosen=names)
    assert not app.exception
    [table] = [one.value for one in app.dataframe if "property" in one.value.columns]
    assert list(table.columns) == ["property", *names]
    assert "Held-out loss of each on its own domain" in output(app)


# a thousand experts ----------------------------------------------------------------------------------


def test_a_quick_evaluation_does_not_take_the_place_of_a_longer_one() -> None:
    with transaction() as session:
        for row in session.query(Evaluation).filter_by(split="test").all():
            quick = {"num_tokens": 128, "log_likelihood": -1.0, "created_at": time.time() + 9}
            kept = {
                name: getattr(row, name) for name in ("expert_id", "domain_id", "split", "artifact_id", "block_size")
            }
            session.add(Evaluation(**kept, **quick))
    assert {score.num_tokens for score in read(in_domain_scores, "test").values()} == {2048}


def test_a_score_is_of_the_text_that_most_share_and_of_one_split() -> None:
    add_experts(2)
    with transaction() as session:
        old = session.query(Evaluation).filter_by(expert_id="copy0").first()
        assert old is not None
        domain_id = experts.expert_row(session, "first/code").domain_id
        newer = {"num_tokens": 9, "block_size": 9, "log_likelihood": -9.0, "created_at": time.time() + 9}
        fields = {"split": "test", "domain_id": domain_id, "artifact_id": old.artifact_id}
        session.add(Evaluation(expert_id="copy0", **fields, **newer))
        session.add(Evaluation(expert_id="copy1", **{**fields, "split": "dev"}, **newer))
    scores = read(in_domain_scores, "test")
    assert (scores["copy 0000"].num_tokens, scores["first/code"].num_tokens) == (2048, 2048)
    assert list(read(in_domain_scores, "dev")) == ["copy 0001"]
    assert read(scored_domains)["copy 0001"] == {"dev": 1, "test": 4}
    card = read(experts.get_expert, "laws again")
    tables: list[dict[str, dict[str, int]]] = [{}, {card.name: {"dev": 1}}, {card.name: {"test": 2}}]
    registries = [ExpertRegistry([card], scored=scored) for scored in tables]
    words = [expert_row(card, registry)["measured on"] for registry in registries]
    assert words == ["not scored", "on dev only", "test, on 2 domains"]
    badges = [measured_on(registry, card) for registry in registries]
    assert badges == ["not scored", "scored on dev only", "scored on 2 domains"]


def test_more_experts_take_no_more_statements_and_no_row_of_others_scores() -> None:
    few = statements_of_the_registry()
    add_experts(200)
    loaded: list[object] = []

    def load(row: object, _: object) -> None:
        loaded.append(row)

    event.listen(Evaluation, "load", load)
    try:
        assert statements_of_the_registry() == few
    finally:
        event.remove(Evaluation, "load", load)
    assert len(loaded) == 203  # the score of each on its own domain, of 812


def statements_of_the_registry() -> int:
    """The number of statements behind all cards."""
    statements: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    engine = get_engine(get_settings())
    event.listen(engine, "before_cursor_execute", note)
    read_registry("test")
    event.remove(engine, "before_cursor_execute", note)
    return len(statements)


def test_of_a_large_mixture_few_members_are_drawn_and_the_others_keep_their_choice() -> None:
    add_experts(30)
    with transaction() as session:
        row = session.query(Mixture).filter_by(name="first").one()
        for number in range(30):
            session.add(MixtureMember(mixture=row, expert_id=f"copy{number}", position=3 + number, active=False))
    app = open_page("mixtures")
    assert len([one for one in app.toggle if one.key.endswith(".on")]) == 24
    search = named(app.text_input, "Search its experts")
    search.set_value("copy 0029").run()
    [toggle] = [one for one in app.toggle if one.key.endswith(".on")]
    toggle.set_value(True).run()
    named(app.text_input, "Search its experts").set_value("first/").run()
    assert len([one for one in app.toggle if one.key.endswith(".on")]) == 3
    assert "copy 0029" in app.session_state["mixture.choice"].active
    with reading() as session:
        assert not next(m for m in mixtures.get_mixture(session, "first").members if m.expert == "copy 0029").active
