"""A few-shot classification as text and rows (C-BTM tables 1, 10, 11): accuracies, and the clusters used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import share, weight

VARIANT_TITLES = {
    "chance": "random choice",
    "alone": "single expert: {expert}",
    "beside": "compared expert: {expert}",
    "equal": "equal weights",
    "cluster": "by cluster",
    "updating": "by performance, updating",
    "fixed": "by performance on demonstrations",
    "fixed-validation": "by performance on validation examples",
}
_PLACES = ("first", "second", "third")
Findings = Mapping[str, Any]


def variant_label(row: Findings) -> str:
    """The label of a row: a routing with its top-k, or an expert."""
    routing = VARIANT_TITLES[row["way"]].format(expert=row["expert"])
    if row["way"] in ("chance", "alone", "beside"):
        return routing
    return f"{routing}, {'all' if row['top_k'] is None else 'top-' + str(row['top_k'])}"


def accuracy_rows(findings: Findings) -> list[dict[str, Any]]:
    """One row for each variant: its accuracy (%) on every task and on average, with the bounds of the average."""
    return [
        {
            "answered": variant_label(row),
            **{f"{task} (%)": 100 * share["mean"] for task, share in row["tasks"].items()},
            "average (%)": 100 * row["average"]["mean"],
            "from": 100 * row["average"]["low"],
            "to": 100 * row["average"]["high"],
        }
        for row in findings["rows"]
    ]


def task_rows(findings: Findings) -> list[dict[str, Any]]:
    """One row for each task: what it is made of, and how many prompts did not fit."""
    return [
        {
            "task": task["name"],
            "labels": len(task["labels"]),
            "training examples": task["num_train"],
            "test examples": task["num_test"],
            "prompts": task["num_prompts"],
            "cut": task["num_cut"],
            "demonstrations left": task["mean_shots"],
        }
        for task in findings["tasks"]
    ]


def cluster_rows(findings: Findings) -> list[dict[str, Any]]:
    """One row for each task: the terms of the clusters whose experts weigh most; none without clusters (table 10)."""
    return [
        {
            "task": task["name"],
            **{
                place: f"{', '.join(one['terms'][:3])} ({weight(one['share'])})"
                for place, one in zip(_PLACES, task["clusters"], strict=False)
            },
        }
        for task in findings["tasks"]
        if task["clusters"]
    ]


def describe_settings(findings: Findings) -> str:
    """The settings of the measurement."""
    compared = "per token" if findings["normalise"] == "tokens" else "as they are"
    bounds = (
        f"; bounds are Student's {share(findings['confidence'])} intervals over the seeds"
        if findings["num_seeds"] > 1
        else ""
    )
    return (
        f"{pluralize(findings['num_shots'], 'demonstration')} before each example, drawn again with each of "
        f"{pluralize(findings['num_seeds'], 'seed')}; log-likelihoods of the labels' words are compared "
        f"{compared}{bounds}."
    )
