"""The lineage of one expert or of many: a graph in Graphviz's language, with its description and its edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.present.charts.colours import NO_LOOK, Looks, with_mark
from workbench.answers.cards import ExpertCard

Lineage = Mapping[str, Sequence[Mapping[str, Any]]]  # nodes {id, kind, name} and edges {source, target}

# Fill colours that carry dark text, so that the graph is readable on a light and on a dark page.
_LOOKS = {
    "seed": ("box", "#d9d2c5"),
    "expert": ("ellipse", "#d9d2c5"),
    "mixture": ("hexagon", "#cdebc8"),
    "domain": ("note", "#f3e2b3"),
}
_GREY = "#8a867f"
_INK = "#202020"


def lineage_dot(lineage: Mapping[str, Sequence[Mapping[str, Any]]], chosen: str, looks: Looks) -> str:
    """The graph of `lineage` (nodes and edges of the service), with the chosen expert framed."""
    lines = [
        'digraph lineage { rankdir=LR; bgcolor="transparent";',
        f'node [style=filled, fontname="sans-serif", fontsize=11, fontcolor="{_INK}"];',
        f'edge [color="{_GREY}"];',
        *(_node(node, chosen, looks) for node in lineage["nodes"]),
        *(f"{_quote(edge['source'])} -> {_quote(edge['target'])};" for edge in lineage["edges"]),
        "}",
    ]
    return "\n".join(lines)


def _node(node: Mapping[str, Any], chosen: str, looks: Looks) -> str:
    shape, fill = _LOOKS.get(node["kind"], ("box", "#dddddd"))
    is_chosen = node["kind"] == "expert" and node["name"] == chosen
    frame = 'penwidth=3, color="#b0521c"' if is_chosen else f'color="{_GREY}"'
    look = looks.expert(node["name"]) if node["kind"] == "expert" else NO_LOOK
    if look is not NO_LOOK:
        fill, frame = look.colour, f'fontcolor="{look.letters}", {frame}'
    label = _quote(f"{node['kind']}: {with_mark(node['name'], look)}")
    return f'{_quote(node["id"])} [label={label}, shape={shape}, fillcolor="{fill}", {frame}];'


def _quote(text: object) -> str:
    # In a quoted string of Graphviz only the quote and the backslash (of \n, \l, \N …) mean something.
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def describe_lineage(lineage: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The same graph as text."""
    names = {node["id"]: f"{node['kind']} {node['name']}" for node in lineage["nodes"]}
    steps = [f"{names[edge['source']]} → {names[edge['target']]}" for edge in lineage["edges"]]
    return "; ".join(steps) + "." if steps else f"{', '.join(names.values())}: it has no ancestors and no descendants."


def registry_lineage(cards: Sequence[ExpertCard], copied: Mapping[str, str]) -> Lineage:
    """The lineage of these experts: their origins and mixtures. `copied` has the expert of each seed that is a copy."""
    nodes, edges = dict[str, dict[str, str]](), list[dict[str, str]]()

    def link(source: tuple[str, str], target: tuple[str, str], relation: str) -> None:
        for kind, name in (source, target):
            nodes.setdefault(f"{kind}:{name}", {"id": f"{kind}:{name}", "kind": kind, "name": name})
        edges.append({"source": ":".join(source), "target": ":".join(target), "relation": relation})

    for card in cards:
        nodes[f"expert:{card.name}"] = {"id": f"expert:{card.name}", "kind": "expert", "name": card.name}
        for parent in card.parents:
            link(("expert", parent), ("expert", card.name), "copied from" if parent == card.parent else "made of")
        if card.seed and not card.parents:
            link(("seed", card.seed), ("expert", card.name), "trained from")
        for mixture in card.mixtures:
            link(("expert", card.name), ("mixture", mixture), "member of")
    for seed, expert in copied.items():
        if f"seed:{seed}" in nodes:
            link(("expert", expert), ("seed", seed), "copy as a seed model")
    return {"nodes": list(nodes.values()), "edges": edges}


def edge_rows(lineage: Lineage) -> list[dict[str, str]]:
    """The edges as rows of a table."""
    of = {node["id"]: node for node in lineage["nodes"]}
    return [
        {
            "from": of[edge["source"]]["name"],
            "kind": of[edge["source"]]["kind"],
            "to": of[edge["target"]]["name"],
            "kind of the target": of[edge["target"]]["kind"],
            "relation": edge["relation"],
        }
        for edge in lineage["edges"]
    ]
