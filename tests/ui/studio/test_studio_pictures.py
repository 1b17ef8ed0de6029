"""Pictures say what to read, in a title, in words and in numbers, and take no name for markup."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ui.present.charts.colours import Looks, in_order
from ui.present.charts.curves_and_bars import curves, expert_bars, oracle_gap
from ui.present.charts.heatmap import HeatmapScores, in_order_of_homes, specialization
from ui.present.charts.lineage import describe_lineage, lineage_dot
from ui.present.charts.posteriors import (
    average_weights,
    legend,
    posterior_heatmap,
    posterior_lines,
    posterior_paths,
)
from ui.present.charts.scatters import affinity_scatter
from ui.present.jobs.throughput import operations
from ui.present.mixture_effect import bars_of, describe_effect, effect_rows, effect_title
from ui.present.text.posteriors import leaders
from ui.present.text.specialization import describe_affinity, verdict
from ui.studio.job_views import training_charts as forgetting
from ui.studio.job_views.training_charts import _what_stays, forgetting_picture
from ui.widgets.parents import parent_picture
from workbench.answers.cards import MetricPoint
from workbench.formatting.palette import look_of
from workbench.kinds.kind import known_kinds
from workbench.questions.affinity import Affinity, AffinityCell, Correlation
from workbench.questions.inference_modes import InferenceModeDomain
from workbench.questions.perplexities import MixedDomain
from workbench.questions.posteriors import DomainPosterior, PosteriorMap

EVIL = "<img src=x onerror=alert(1)>"
LOOKS = Looks()


def scores(at_home: float = 1.0) -> HeatmapScores:
    return HeatmapScores(
        experts=["m/a", "m/b"],
        domains=["a", "b", "novel"],
        perplexity=[[10.0, 30.0, 50.0], [20.0, 15.0 * at_home, None]],
        ratios=[[1.0, 2.0 / at_home, None], [2.0, 1.0, None]],
        home_of={"m/a": "a", "m/b": "b"},
    )


def test_the_heatmap_frames_each_expert_at_home() -> None:
    figure = specialization(scores(), LOOKS).figure
    assert [(shape.x0 + 0.47, shape.y0 + 0.47) for shape in figure.layout.shapes] == [(0, 0), (1, 1)]


def test_the_title_praises_the_experts_only_when_it_is_true() -> None:
    assert specialization(scores(), LOOKS).title.startswith("Each expert is best on its own domain")
    assert specialization(scores(at_home=4.0), LOOKS).title.startswith("1 of 2 domains")


def test_a_cell_that_the_title_counts_as_below_one_reads_below_one() -> None:
    near = replace(scores(), ratios=[[1.0, 0.997, None], [2.0, 1.0, None]])
    chart = specialization(near, LOOKS)
    assert "below 1.0 an out-of-domain expert is better" in chart.title
    assert chart.figure.data[0].text[0][1] == "0.997"
    assert "(0.997 × the own expert's perplexity)" in chart.description


def test_the_hover_shows_the_absolute_perplexity() -> None:
    hover = specialization(scores(), LOOKS).figure.data[1].customdata
    assert hover[1] == "m/a on b<br>perplexity 30.0 per token<br>ratio 2.00 ×"


def test_hover_and_table_show_the_accuracy_where_it_was_counted() -> None:
    known = replace(scores(), accuracy=[[0.3, 0.125, 0.1], [None, 0.2, None]])
    assert known.accuracy_is_known()
    assert not scores().accuracy_is_known()
    hover = specialization(known, LOOKS).figure.data[1].customdata
    assert "accuracy 12.5 %" in hover[1]
    assert "accuracy" not in hover[2]
    assert [row["accuracy (%)"] for row in specialization(known, LOOKS).table] == [30.0, 12.5, 10.0, None, 20.0, None]


def test_a_domain_without_an_own_expert_stands_in_the_table_only() -> None:
    picture = specialization(scores(), LOOKS)
    assert scores().without_own_expert() == ["novel"]
    assert list(picture.figure.layout.xaxis.ticktext) == ["a", "b"]
    assert {"expert": "m/a", "domain": "novel", "in-domain": False} in [
        {key: row[key] for key in ("expert", "domain", "in-domain")} for row in picture.table
    ]


def test_an_expert_without_any_number_is_named() -> None:
    missing = HeatmapScores(["m/a", "new"], ["a"], [[3.0], [None]], [[1.0], [None]], {"m/a": "a", "new": "b"})
    assert missing.unscored_experts() == ["new"]
    assert missing.expert_label("new") == "new (not scored)"
    assert replace(missing, disabled=["m/a"]).expert_label("m/a") == "m/a (disabled)"
    assert "so there is nothing to compare" in specialization(missing, LOOKS).title


def test_the_title_praises_no_expert_that_was_not_scored_at_home() -> None:
    homes = {"m/a": "a", "m/b": "b"}
    half = HeatmapScores(["m/a", "m/b"], ["a", "b"], [[3.0, None], [6.0, None]], [[1.0, None], [2.0, None]], homes)
    assert specialization(half, LOOKS).title.startswith(
        "On the 1 of 2 domains that can be compared, the own expert is best"
    )


def test_names_are_no_markup_in_a_figure() -> None:
    hostile = HeatmapScores([EVIL], [EVIL], [[3.0]], [[1.0]], {EVIL: EVIL})
    assert "<img" not in specialization(hostile, LOOKS).figure.to_json()


def test_a_curve_without_points_is_no_picture() -> None:
    assert curves([], "Training loss", "x", LOOKS) is None


def test_a_curve_of_one_point_neither_fell_nor_learns() -> None:
    picture = curves([MetricPoint(name=name, step=1, value=2.0) for name in "ab"], "Held-out loss", "x", LOOKS)
    assert picture is not None
    assert "fell" not in picture.title


def test_a_name_has_one_colour_in_all_charts_of_a_page() -> None:
    points = [MetricPoint(name=name, step=1, value=2.0) for name in "abc"]
    both = (
        curves(points, "Training loss", "x", in_order("abc")),
        curves(points[1:], "Held-out loss", "x", in_order("abc")),
    )
    first, second = ({line.name: line.line.color for line in one.figure.data} for one in both if one)
    assert second.items() <= first.items()


def test_a_curve_says_where_it_started_and_ended() -> None:
    picture = curves([MetricPoint(name="a", step=s, value=5 - s) for s in (1, 2, 3)], "Training loss", "x", LOOKS)
    assert picture is not None
    assert "from 4.00 nats/token at step 1 to 2.00 nats/token at step 3" in picture.description


def test_the_bars_of_a_mixture_show_the_largest_change() -> None:
    def row(domain: str, perplexity: float) -> MixedDomain:
        return MixedDomain(
            domain=domain,
            num_tokens=9,
            block_size=8,
            perplexity=perplexity,
            best_expert="e",
            perplexity_by_expert={"e": 9.0},
        )

    rows = effect_rows([row("a", 10.0), row("b", 8.0)], [row("a", 15.0), row("b", 8.1)])
    assert "on a, from 10.0 to 15.0 per token (+50.0 %)" in describe_effect(rows)
    assert rows[0].change_percent == pytest.approx(50.0)
    assert effect_title(rows) == "Of 2 domains, 2 got worse"
    assert bars_of(rows, LOOKS, "Saved")["rows"][0]["verdict"] == ["↑ worse", "bad"]


def test_experts_that_were_never_scored_have_no_bars() -> None:
    assert expert_bars([], [], LOOKS) is None


TWO = in_order("xy")
WEIGHTS = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]


def test_names_are_no_markup_in_the_legend_of_leaders() -> None:
    assert "<img" not in legend([EVIL], [0], LOOKS)


def test_equal_weights_leave_the_lead_where_it_is() -> None:
    assert leaders(WEIGHTS) == [0, 0, 1]
    assert leaders([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5], [0.8, 0.2]]) == [1, 1, 1, 0]
    assert leaders([[0.4, 0.4, 0.2], [0.3, 0.3, 0.4], [0.35, 0.35, 0.3]]) == [2, 2, 0]
    assert leaders([[0.5, 0.5 + 1e-9]]) == [0]
    assert leaders([]) == []


def test_the_trajectory_names_who_led_and_how_often_it_changed() -> None:
    picture = posterior_lines(["a", "b", "c"], WEIGHTS, ["x", "y"], TWO)
    assert "x 67 %, y 33 %" in picture.description
    assert "changes 1 time." in picture.description
    assert [row["y"] for row in picture.table] == [0.1, 0.4, 0.8]


def test_the_mean_weights_stand_in_order() -> None:
    assert [row["expert"] for row in average_weights(WEIGHTS[2:], ["x", "y"], TWO).table] == ["y", "x"]


def test_a_lineage_quotes_names_and_describes_the_path_in_words() -> None:
    nodes = [{"id": "1", "kind": "seed", "name": 's"];x['}, {"id": "2", "kind": "expert", "name": "e\\"}]
    lineage = {"nodes": nodes, "edges": [{"source": "1", "target": "2"}]}
    dot = lineage_dot(lineage, "e\\", LOOKS)
    assert 'label="seed: s\\"];x["' in dot
    assert 'label="expert: e\\\\"' in dot
    own = lineage_dot(lineage, "e\\", in_order(["e\\"]))
    assert f'fillcolor="{look_of(0).colour}", fontcolor="{look_of(0).letters}"' in own
    assert describe_lineage(lineage) == 'seed s"];x[ → expert e\\.'


# what the stored scores explain ----------------------------------------------------------------------


def test_every_cell_can_be_clicked() -> None:
    rows = [ROW, ROW.model_copy(update={"domain": "a"})]
    for picture in (specialization(scores(), LOOKS), posterior_heatmap(POSTERIOR, rows, "Training domains", LOOKS)):
        cells, targets = picture.figure.data
        assert list(zip(targets.x, targets.y, strict=True)) == [(0, 0), (1, 0), (0, 1), (1, 1)]
        assert cells.hoverinfo == "skip"  # else Plotly takes the click for the heatmap, which has nothing to select
    assert targets.customdata[2] == "m/a on a<br>0.25"


def test_domains_come_in_the_order_of_their_experts_and_others_as_they_are() -> None:
    assert in_order_of_homes(["a", "b", "c", "d"], ["c", "", "gone", "a", "c"]) == ["c", "a", "b", "d"]


def test_one_far_column_leaves_colours_to_the_others() -> None:
    ratios = [[1.0, 4.0, 2.0], [60.0, 1.0, 2.0], [50.0, 2.0, 1.0]]
    names = ["a", "b", "c"]
    cells = specialization(
        HeatmapScores(names, names, ratios, ratios, dict(zip(names, names, strict=True))), LOOKS
    ).figure.data[0]
    assert cells.z[0][1] / cells.z[0][2] == pytest.approx(2)  # 4 is as far from 2 as 2 from 1
    assert cells.z[0][2] / cells.zmax > 0.15
    assert [cells.text[1][0], cells.texttemplate] == ["60.00", "%{text}"]
    assert dict(zip(cells.colorbar.ticktext, cells.colorbar.tickvals, strict=True))["10"] == pytest.approx(math.log(10))


def test_the_home_expert_of_a_domain_is_the_best_of_its_own() -> None:
    two = HeatmapScores(
        ["m/a", "again", "m/b"], ["a", "b"], [[4.0, 9.0], [3.0, None], [2.0, None]], [], {"m/a": "a", "again": "a"}
    )
    assert two.own_expert("a") == "again"
    assert two.own_expert("b") is None


CELLS = [
    AffinityCell(expert=EVIL, domain="a", home="a", ratio=1.0, overlap=1.0),
    AffinityCell(expert=EVIL, domain=EVIL, home="a", ratio=2.0, overlap=0.1),
    AffinityCell(expert=EVIL, domain="new", home="a", ratio=3.0, overlap=None),
]
AFFINITY = Affinity(
    cells=CELLS,
    report="r",
    measured_at=0.0,
    without_homes=None,
    with_homes=None,
    why_not="Too few.",
    changed=["new"],
    unmeasured=[],
    unpaired=[],
)


def test_the_scatter_holds_the_cells_away_from_home_and_its_table_all() -> None:
    picture = affinity_scatter(AFFINITY, LOOKS)
    assert picture is not None
    assert [(list(trace.x), list(trace.y)) for trace in picture.figure.data] == [([0.1], [2.0])]
    assert picture.figure.layout.yaxis.type == "log"
    assert len(picture.table) == 3
    assert "<img" not in picture.figure.to_json()
    assert affinity_scatter(AFFINITY.model_copy(update={"cells": CELLS[:1]}), LOOKS) is None


def test_a_correlation_by_chance_is_not_sold_as_one() -> None:
    chance = Correlation(r=0.5, t=1.2, p=0.3, num_cells=6)
    sure = chance.model_copy(update={"p": 0.0001})
    assert verdict(chance).startswith("the correlation is not significant: r = 0.50")
    assert "carry over better" in verdict(sure)
    assert "p < 0.001" in verdict(sure)
    assert "carry over worse" in verdict(Correlation(r=-0.5, t=1.2, p=0.01, num_cells=6))
    words = describe_affinity(
        AFFINITY.model_copy(update={"without_homes": chance, "with_homes": chance.model_copy(update={"num_cells": 7})})
    )
    assert "over 7 cells" in words[1]
    assert "changed since the overlap was measured, so it does not count: new." in words[-1]


POSTERIOR = PosteriorMap(
    experts=["m/a", EVIL],
    homes=["a", ""],
    split="dev",
    evidence="prefix",
    estimate="mean",
    num_blocks=2,
    newest_weight=0.7,
    domains=[],
    too_short=[],
)
ROW = DomainPosterior(
    domain=EVIL,
    role="train",
    is_trained=True,
    num_blocks=2,
    block_size=8,
    posterior=[0.25, 0.75],
    trajectory=[[0.5, 0.3, 0.25], [0.5, 0.7, 0.75]],
    stable_after=1,
)


def test_a_posterior_map_frames_homes_and_names_the_leader() -> None:
    at_home = posterior_heatmap(POSTERIOR, [ROW, ROW.model_copy(update={"domain": "a"})], "Training domains", LOOKS)
    assert [(shape.x0 + 0.47, shape.y0 + 0.47) for shape in at_home.figure.layout.shapes] == [(0, 1)]
    assert f"{EVIL} 0.75" in at_home.description
    assert "A frame marks" not in posterior_heatmap(POSTERIOR, [ROW], "Novel domains", LOOKS).description
    assert "<img" not in at_home.figure.to_json()


def test_trajectories_mark_where_nothing_moves_on_and_only_there() -> None:
    rows = [ROW, ROW.model_copy(update={"domain": "b", "stable_after": None})]
    picture = posterior_paths(POSTERIOR, rows, "Novel domains", LOOKS)
    assert [line.x0 for line in picture.figure.layout.shapes] == [1]
    assert "b not within 2 blocks" in picture.description
    assert "<img" not in picture.figure.to_json()
    assert len(picture.table) == 6


def test_the_oracle_gap_is_in_nats_and_may_be_below_zero() -> None:
    others = {"average": 4.0, "uniform": 4.0, "updating": 4.0, "cached": None}
    row = InferenceModeDomain(
        domain="a",
        role="train",
        is_trained=True,
        num_tokens=9,
        naive=3.0,
        label=None,
        mixture=2.0,
        oracle=2.5,
        **others,
    )
    picture = oracle_gap([row], LOOKS)
    assert picture.table[0]["the mixture as saved: gap (nats per token)"] == pytest.approx(math.log(2 / 2.5))
    assert "beats the oracle on 1 of 1 domains" in picture.description


@pytest.mark.parametrize(
    ("count", "words"), [(812, "812 FLOPs"), (852_000, "852 kFLOPs"), (3.4e12, "3.4 TFLOPs"), (2e18, "2,000 PFLOPs")]
)
def test_operations_are_shown_in_a_unit_that_fits(count: float, words: str) -> None:
    assert operations(count) == words


# what an adaptation did -----------------------------------------------------------------------------


TRAINING = {"block_size": 32, "sequences_per_domain": 2, "accumulate": 3}


def watched(end: float) -> list[MetricPoint]:
    """A target that falls from 8 to 4, and two others that begin at 2 and 4; one of them ends at `end`."""
    values = {"sea": (8.0, 4.0), "law": (2.0, 2.0), "code": (4.0, end)}
    return [
        MetricPoint(name=f"dev_loss/{name}", step=step, value=math.log(pair[place]))
        for name, pair in values.items()
        for place, step in enumerate((0, 10))
    ]


def test_forgetting_is_drawn_over_tokens_as_target_and_average_of_the_others() -> None:
    spec = {"domain": "sea", "watch": ["law", "code"], "training": TRAINING}
    picture = forgetting_picture(watched(end=6.0), spec, LOOKS)
    assert picture is not None
    assert [list(line.x) for line in picture.figure.data] == [[0, 1920], [0, 1920]]
    assert [pytest.approx(list(line.y)) for line in picture.figure.data] == [[8, 4], [3, 4]]
    assert "the others are forgotten" in picture.title
    assert "target: sea goes from 8.0 per token to 4.0 after 1,920 tokens (−50.0 %)" in picture.description
    assert (
        "average of 2 watched domains goes from 3.0 per token to 4.0 after 1,920 tokens (+33.3 %)"
        in picture.description
    )
    assert [row["on code"] for row in picture.table] == pytest.approx([4, 6])


@pytest.mark.parametrize(("end", "words"), [(4.0, "the others stay as they were"), (2.0, "also read better")])
def test_what_was_not_forgotten_is_not_reported_as_forgotten(end: float, words: str) -> None:
    picture = forgetting_picture(watched(end), {"domain": "sea", "watch": ["law", "code"], "training": TRAINING}, LOOKS)
    assert picture is not None
    assert words in picture.title


def test_before_every_domain_was_evaluated_there_is_no_picture_of_forgetting() -> None:
    spec = {"domain": "sea", "watch": ["law", "verse"], "training": TRAINING}
    assert forgetting_picture(watched(4.0), spec, LOOKS) is None


def test_the_kind_of_a_training_says_whether_it_leaves_the_backbone_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"domains": ["sea"], "retain": ["law"]}
    shown = [_what_stays(SimpleNamespace(kind=kind, spec=spec)) for kind in ("train-mode", "train-joint", "my-own")]
    assert ["stays as it is" in one for one in shown] == [True, False, False]
    kinds = {"my-own": replace(known_kinds()["train-joint"], leaves_backbone=True)}
    monkeypatch.setattr(forgetting, "known_kinds", lambda: kinds)
    assert "stays as it is" in _what_stays(SimpleNamespace(kind="my-own", spec=spec))


def test_a_training_of_mode_is_drawn_against_what_it_retains() -> None:
    spec = {"domains": ["sea", "law"], "retain": ["code"], "training": TRAINING}
    picture = forgetting_picture(watched(end=6.0), spec, LOOKS)
    assert picture is not None
    assert [line.meta for line in picture.figure.data] == ["average of 2 targets", "average of 1 watched domain"]
    first = picture.table[0]
    assert first["target"] == pytest.approx((first["on sea"] + first["on law"]) / 2)
    assert first["average of the others"] == first["on code"]
    one = forgetting_picture(watched(end=6.0), {"domain": "sea", "watch": ["law", "code"], "training": TRAINING}, LOOKS)
    assert one is not None
    assert [row["tokens"] for row in picture.table] == [2 * row["tokens"] for row in one.table]


def test_the_parent_stands_out_among_the_requested_experts() -> None:
    picture = parent_picture({"m/a": 0.2, "m/b": 0.8}, "m/b", in_order(["m/a", "m/b"]))
    (bars,) = picture.figure.data
    assert list(bars.y) == [0.8, 0.2]
    assert list(bars.marker.color) == [look_of(1).colour, look_of(0).colour]
    assert bars.marker.opacity[0] > bars.marker.opacity[1]
    assert "m/b 0.80; m/a 0.20. The parent is m/b." in picture.description


def test_pandas_is_fully_imported_before_any_page_draws() -> None:
    """Plotly takes what it finds of it, half-read too, while another page is importing it."""
    requested = "import sys, ui.studio.app; print(hasattr(sys.modules.get('pandas'), 'Series'))"
    assert subprocess.run([sys.executable, "-c", requested], capture_output=True, text=True).stdout.strip() == "True"


def test_a_curve_of_one_point_stands_on_an_axis_from_zero() -> None:
    one, two = (MetricPoint(name="loss", step=step, value=2.0) for step in (99, 100))
    first, both = curves([one], "Held-out loss", "x", LOOKS), curves([one, two], "Held-out loss", "x", LOOKS)
    assert first is not None
    assert both is not None
    assert (first.figure.layout.xaxis.rangemode, both.figure.layout.xaxis.rangemode) == ("tozero", None)


def test_a_legend_says_that_its_shares_are_of_tokens_led() -> None:
    assert "Share of the tokens led: <span" in legend(["a", "b"], [0, 0, 1], LOOKS)


def test_of_a_thousand_experts_fifty_are_shown_with_their_domains_and_what_is_searched_for_first() -> None:
    names = [f"e{number}" for number in range(200)]
    domains = [f"d{number}" for number in range(200)]
    ratios = [[1.0 if i == j else 1.0 + (j == i - 1) * j for j in range(200)] for i in range(200)]
    many = HeatmapScores(names, domains, ratios, ratios, dict(zip(names, domains, strict=True)))

    shown = many.at_most(50)
    assert (len(shown.experts), len(shown.domains)) == (50, 50)
    assert shown.domains == [f"d{number}" for number in range(149, 199)]  # in their order
    assert all(shown.own_expert(domain) == f"e{domain[1:]}" for domain in shown.domains)
    assert shown.cell("e198", "d197").ratio == 198.0

    kept = many.at_most(50, " E7")
    assert {"e7", "e70", "e79"} <= set(kept.experts)
    assert "d79" in kept.domains
    assert scores().at_most(50) == scores()
