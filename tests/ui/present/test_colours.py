"""One colour for one expert in every chart, in whatever order its experts come; and eight that all eyes tell apart."""

from __future__ import annotations

import ast
import html
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.ui.removals import removed
from tests.ui.studio.test_studio_retention import compared
from ui.present import charts
from ui.present.charts import (
    cluster_charts,
    cluster_map,
    curves_and_bars,
    heatmap,
    scatters,
)
from ui.present.charts import posteriors as posterior_charts
from ui.present.charts.colours import Looks, chip, in_order, looks_of
from ui.present.charts.curves_and_bars import oracle_gap
from ui.studio.job_views.training_charts import forgetting_picture
from ui.widgets.parents import parent_picture
from workbench.answers.cards import ClusterCard, ClusteringCard, EvaluationCard, ExpertLook, MetricPoint
from workbench.formatting.chart_template import CaptionedChart
from workbench.formatting.palette import COLOURS, GREY, LETTERS, look_of
from workbench.questions.affinity import Affinity, AffinityCell
from workbench.questions.inference_modes import InferenceModeDomain
from workbench.questions.posteriors import DomainPosterior, PosteriorMap
from workbench.registry.clusters.cluster_documents import POINT, MapPoints

ROOT = Path(__file__).parents[3]
EVIL = "<b>e</b>"
HOMES = {"m/law": "law", "m/code": "code", EVIL: "sea", "m/ninth": "ninth"}
NUMBERS = {"m/law": 5, "m/code": 2, EVIL: 0, "m/ninth": 11}
CARDS = [
    ExpertLook(name=name, domain=home, colour_number=NUMBERS[name], mark=name[-2:].title())
    for name, home in HOMES.items()
]
LOOKS = looks_of(CARDS)
DOMAINS = {home: name for name, home in HOMES.items()}

Names = Sequence[str]


def homes(experts: Names) -> list[str]:
    return [HOMES[name] for name in experts]


def specialization(experts: Names) -> CaptionedChart:
    count = range(len(experts))
    cells = [[1.0 if a == b else 2.0 + a for b in count] for a in count]
    return heatmap.specialization(heatmap.HeatmapScores(experts, homes(experts), cells, cells, HOMES), LOOKS)


def curves(experts: Names) -> CaptionedChart | None:
    points = [MetricPoint(name=name, step=step, value=2.0) for name in homes(experts) for step in (1, 2)]
    return curves_and_bars.curves(points, "Training loss", "x", LOOKS)


def expert_bars(experts: Names) -> CaptionedChart | None:
    scores = [
        EvaluationCard(
            expert=name, domain=home, split="test", block_size=8, num_tokens=9, perplexity=3.0, created_at=0.0
        )
        for name in experts
        for home in homes(experts)
    ]
    cards: Any = [SimpleNamespace(name=name, tokenizer_sha256="") for name in experts]
    return curves_and_bars.expert_bars(cards, scores, LOOKS)


def removal_bars(experts: Names) -> CaptionedChart | None:
    return curves_and_bars.removal_bars([removed(name, 10.0, 25.0, 20.0) for name in homes(experts)], LOOKS)


def gap(experts: Names) -> CaptionedChart:
    modes = dict.fromkeys(("naive", "label", "mixture", "average", "uniform", "updating", "cached"), 3.0)
    rows = [
        InferenceModeDomain(domain=name, role="train", is_trained=True, num_tokens=9, oracle=2.0, **modes)
        for name in homes(experts)
    ]
    return oracle_gap(rows, LOOKS)


def posteriors(experts: Names) -> tuple[PosteriorMap, list[DomainPosterior]]:
    share = 1 / len(experts)
    rows = [
        DomainPosterior(
            domain=name,
            role="train",
            is_trained=True,
            num_blocks=2,
            block_size=8,
            posterior=[share] * len(experts),
            trajectory=[[share, share]] * len(experts),
            stable_after=None,
        )
        for name in homes(experts)
    ]
    answer = PosteriorMap(
        experts=list(experts),
        homes=homes(experts),
        split="dev",
        evidence="prefix",
        estimate="mean",
        num_blocks=2,
        newest_weight=0.7,
        domains=rows,
        too_short=[],
    )
    return answer, rows


def affinity(experts: Names) -> CaptionedChart | None:
    cells = [
        AffinityCell(expert=expert, domain="new", home=HOMES[expert], ratio=2.0, overlap=0.5) for expert in experts
    ]
    nothing: dict[str, Any] = {"changed": [], "unmeasured": [], "unpaired": []}
    answer = Affinity(
        cells=cells, report="r", measured_at=0.0, without_homes=None, with_homes=None, why_not="", **nothing
    )
    return scatters.affinity_scatter(answer, LOOKS)


def clustering(experts: Names) -> ClusteringCard:
    clusters = [
        ClusterCard(
            id=name,
            number=place,
            name=f"cluster of {name}",
            num_documents=1,
            terms=[],
            representatives=[],
            domain=HOMES[name],
            stale=False,
            experts=[name],
            notes="",
        )
        for place, name in enumerate(experts)
    ]
    counts = [[1] * len(experts)] * len(experts)
    overlap = {"labels": homes(experts), "counts": counts, "normalised_mutual_information": 0.5}
    return ClusteringCard(
        id="c",
        name="c",
        config={"clusters": {"method": "balanced"}},
        sources=homes(experts),
        num_documents=len(experts),
        num_fitted=1,
        metrics={"overlap": overlap, "map": {"num_points": len(experts)}},
        seed=None,
        clusters=clusters,
        stale_experts=[],
        size_bytes=0,
        job_id=None,
        created_at=0.0,
    )


def documents(experts: Names, by: cluster_map.By) -> cluster_map.ClusterMap:
    points = np.zeros(len(experts), dtype=POINT)
    points["cluster"] = points["source"] = range(len(experts))
    return cluster_map.cluster_map(clustering(experts), MapPoints(len(experts), 1, 0, points.tobytes()), LOOKS, by)


def weights(experts: Names) -> list[list[float]]:
    return [[float(a == b) for b in range(len(experts))] for a in range(len(experts))]


def forgetting(experts: Names) -> CaptionedChart | None:
    targets = [name for name in homes(experts) if name == "law"]
    points = [MetricPoint(name=f"dev_loss/{name}", step=s, value=2.0) for name in ("law", "sea") for s in (0, 1)]
    training = {"block_size": 8, "sequences_per_domain": 1, "accumulate": 1}
    return forgetting_picture(points, {"domain": targets[0], "watch": ["sea"], "training": training}, LOOKS)


CHARTS: dict[str, Callable[[Names], CaptionedChart | None]] = {
    "specialization": specialization,
    "curves": curves,
    "expert_bars": expert_bars,
    "removal_bars": removal_bars,
    "oracle_gap": gap,
    "posterior_heatmap": lambda experts: posterior_charts.posterior_heatmap(*posteriors(experts), "All", LOOKS),
    "posterior_paths": lambda experts: posterior_charts.posterior_paths(*posteriors(experts), "All", LOOKS),
    "affinity_scatter": affinity,
    "overlap_picture": lambda experts: cluster_charts.overlap_picture(clustering(experts), LOOKS),
    "sizes_picture": lambda experts: cluster_charts.sizes_picture(clustering(experts), LOOKS),
    "retention_scatter": lambda experts: scatters.retention_scatter(
        compared(*((name, 0.5, 0.5, True) for name in experts)), "accuracy", LOOKS
    ),
    "posterior_lines": lambda experts: posterior_charts.posterior_lines("abcd", weights(experts), experts, LOOKS),
    "average_weights": lambda experts: posterior_charts.average_weights(weights(experts), experts, LOOKS),
    "parent_picture": lambda experts: parent_picture(dict.fromkeys(experts, 0.25), "m/law", LOOKS),
    "forgetting_picture": forgetting,
}


def test_every_chart_that_takes_looks_is_tried_here() -> None:
    modules = [
        importlib.import_module(f"{charts.__name__}.{one.name}") for one in pkgutil.iter_modules(charts.__path__)
    ]
    taking = {
        name
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and "looks" in inspect.signature(function).parameters
        and "Chart" in str(inspect.signature(function).return_annotation)
    }
    assert taking <= set(CHARTS)


@pytest.mark.parametrize("name", CHARTS)
def test_an_expert_has_its_colour_in_every_chart_in_any_order(name: str) -> None:
    order = list(HOMES)
    for experts in (order, order[::-1], order[2:] + order[:2]):
        picture = CHARTS[name](experts)
        assert picture is not None
        pairs = set(coloured(picture.figure))
        assert pairs, name
        for shown, colour in pairs:
            expert = next((one for one in experts if shown.endswith((one, HOMES[one]))), None)
            if expert is not None:
                assert colour == LOOKS.expert(expert).colour, (name, shown)
        assert {colour for _, colour in pairs} & {look_of(number).colour for number in NUMBERS.values()}
        assert "<b>" not in picture.figure.to_json()


def coloured(figure: Any) -> Iterator[tuple[str, str]]:
    """The names in a figure with the colours that they have: traces, bars, points, axes and ends of lines."""
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        for text in axis.ticktext or ():
            yield from in_text(text)
    for note in figure.layout.annotations:
        yield from in_text(note.text)
    for trace in figure.data:
        shown = html.unescape(trace.name or "")
        for part in (trace.line if trace.type == "scatter" else None, getattr(trace, "marker", None)):
            colour = part.color if part is not None else None
            if isinstance(colour, str):
                yield shown, colour
            elif colour is not None and trace.hovertext is not None:
                yield from zip(map(html.unescape, trace.hovertext), colour, strict=True)
            elif colour is not None:
                axis = figure.layout.yaxis if trace.orientation == "h" else figure.layout.xaxis
                names = [html.unescape(re.sub("<[^>]*>", "", text)) for text in axis.ticktext]
                yield from zip(names, colour, strict=True)


def in_text(text: str) -> Iterator[tuple[str, str]]:
    """The colour before a name."""
    if pairs := re.match(r'<span style="color:(#\w+)">■</span> (.*)', text.replace("<br>", " ")):
        yield html.unescape(pairs[2]), pairs[1]


def test_the_map_and_the_words_have_the_same_colours() -> None:
    for experts in (list(HOMES), list(HOMES)[::-1]):
        for by in ("cluster", "domain"):
            layers = documents(experts, by).layers
            assert [layer.colour for layer in layers] == [LOOKS.expert(name).colour for name in experts]
        names = posterior_charts.legend(experts, range(4), LOOKS)
        assert re.findall(r"solid|dotted", names) == ["dotted" if name == "m/ninth" else "solid" for name in experts]
        assert re.findall(r"(?:solid|dotted) (#\w+)", names) == [LOOKS.expert(name).colour for name in experts]
        assert [html.unescape(one) for one in re.findall(r">([^<>]*) 25 %<", names)] == [
            f"{LOOKS.expert(name).mark} {name}" for name in experts
        ]


def test_what_has_no_expert_is_grey_until_it_has_one_and_gets_what_it_will_have() -> None:
    assert (LOOKS.domain("new").colour, LOOKS.domain("new").mark) == (GREY, "")
    grown = LOOKS.with_new(["new", "law", "newer"])
    assert [grown.expert_or_domain(name).number for name in ("new", "law", "newer")] == [1, 5, 3]
    assert LOOKS.domain("new").colour == GREY
    assert [in_order("abc").expert(name).number for name in "abc"] == [0, 1, 2]


def test_a_domain_has_the_look_of_its_oldest_expert() -> None:
    younger = ExpertLook(name="m/again", domain="law", colour_number=7, mark="Ag")
    assert looks_of([*CARDS, younger]).domain("law") == LOOKS.expert("m/law")


@pytest.mark.parametrize("name", ["specialization", "expert_bars", "posterior_heatmap"])
def test_a_domain_has_the_look_of_its_expert_in_a_chart_of_some_experts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = [ExpertLook(name=f"older/{home}", domain=home, colour_number=7, mark="Ol") for home in DOMAINS]
    monkeypatch.setitem(globals(), "LOOKS", looks_of([*older, *CARDS]))
    picture = CHARTS[name](list(HOMES))
    assert picture is not None
    for home, expert in DOMAINS.items():
        shown = [colour for one, colour in coloured(picture.figure) if one.endswith((home, expert))]
        assert set(shown) == {LOOKS.expert(expert).colour}, home


def test_a_column_of_the_heatmap_has_the_look_of_the_expert_whose_ratio_is_1() -> None:
    scores = heatmap.HeatmapScores(
        ["worse", "best"], ["law"], [[3.0], [2.0]], [[1.5], [1.0]], {"worse": "law", "best": "law"}
    )
    names = ("worse", "best")
    cards = [ExpertLook(name=one, domain="law", colour_number=place, mark=one[:2]) for place, one in enumerate(names)]
    colours = dict(coloured(heatmap.specialization(scores, looks_of(cards)).figure))
    assert colours["be law"] == colours["be best"] == look_of(1).colour


def test_a_mark_is_no_markup() -> None:
    evil = ExpertLook(name="x", domain="", colour_number=1, mark="<b")
    assert "<b" not in chip(looks_of([evil]).expert("x"))
    assert "<b" not in json.dumps(chip(Looks().expert("x")))


def test_the_eight_colours_are_distinct_to_all_eyes() -> None:
    pytest.importorskip("playwright", reason="docs/design/draw.py needs it")
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs" / "design" / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    assert list(draw.palette_faults()) == []
    for colour, letters in zip(COLOURS, LETTERS, strict=True):
        assert draw.contrast(draw.rgb(colour), draw.rgb(letters)) >= 4.5


def test_every_chart_is_of_one_template() -> None:
    """A figure that is made elsewhere has other axes, another hover and another grid."""
    own = ROOT / "workbench" / "formatting" / "chart_template.py"
    made = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("ui", "workbench", "jobs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != own
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("go.Figure", "Figure", "make_subplots")
    ]
    assert made == []
