"""Reports as text and rows: certificates of additions and removals, extraction tests, few-shot classifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import perplexity, share, weight
from workbench.questions.removal import DomainRemoval, ExpertRemoval

LABELS = {"with_expert": "+Expert", "without_expert": "–Expert", "without_domain": "–Domain"}  # as in DEMix table 7
MEASURES = {
    "match": "true tokens in their place (share)",
    "longest_run": "longest run in common (tokens)",
    "rouge_l": "ROUGE-L over tokens (share)",
}


def perplexity_rows(rows: Iterable[DomainRemoval]) -> list[dict[str, Any]]:
    """One row for each domain, or for each expert on its own; None where a column is not known."""
    return [
        {
            **({"expert": row.expert} if isinstance(row, ExpertRemoval) else {}),
            "domain": row.domain,
            "tokens": row.num_tokens,
            **{label: getattr(row, name) for name, label in LABELS.items()},
            "change (%)": change(row),
        }
        for row in rows
    ]


def change(row: DomainRemoval) -> float | None:
    """The rise of perplexity without the expert, in percent."""
    before, after = row.with_expert, row.without_expert
    return None if before is None or after is None else (after / before - 1) * 100


def extraction_rows(findings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each measure and mixture: its mean with the bounds, and the change to +Expert with its own."""
    return [
        {
            "measure": title,
            "mixture": LABELS[name],
            **_bounds("", means[measure]),
            **_bounds("change", findings["changes"].get(name, {}).get(measure, {})),
        }
        for measure, title in MEASURES.items()
        for name, means in findings["means"].items()
    ]


def _bounds(what: str, interval: Mapping[str, float]) -> dict[str, Any]:
    return {
        what or "mean": interval.get("mean"),
        f"{what} from".strip(): interval.get("low"),
        f"{what} to".strip(): interval.get("high"),
    }


def describe_extraction(findings: Mapping[str, Any]) -> str:
    """The settings of the extraction test."""
    how = (
        "the most probable token each time"
        if findings["temperature"] == 0
        else f"temperature {findings['temperature']:g}"
    )
    return (
        f"{findings['num_prefixes']} pieces of training text from {findings['num_documents']} documents (seed "
        f"{findings['seed']}): {findings['prefix_length']} tokens were read and "
        f"{findings['continuation_length']} guessed, {how}. Bounds are {share(findings['confidence'])} bootstrap "
        "intervals over the pieces; changes are paired with +Expert. The test covers these prefixes, not others."
    )


def not_removed(rows: Iterable[ExpertRemoval]) -> list[str]:
    """What of its domain stays in the mixture without each expert."""
    return [f"{row.expert}: {row.not_removed}" for row in rows if row.not_removed]


def describe_priors(findings: Mapping[str, Any]) -> str:
    """Where the priors behind the perplexities come from."""
    return (
        f"Every mixture weighs its experts by a cached prior of exactly {findings['num_blocks']} dev blocks of the "
        f"domain (evidence: {findings['evidence']}); that of –Expert is estimated without the expert."
    )


Findings = Mapping[str, Any]


def change_rows(findings: Findings) -> list[dict[str, Any]]:
    """Perplexity of each domain before and after, the new one first."""
    return [
        {
            "domain": one["domain"],
            "which": "the new one" if one["is_new"] else "old",
            "tokens": one["num_tokens"],
            "before": one["before"],
            "after": one["after"],
            "change (%)": one["change_percent"],
        }
        for one in sorted(findings["domains"], key=lambda one: not one["is_new"])
    ]


def folder_rows(findings: Findings) -> list[dict[str, Any]]:
    """The hashed folders, and the result of each check."""
    return [
        {
            "what": one["what"],
            "files": one["num_files"],
            "SHA-256 of its manifest": one["sha256"],
            "recorded before the addition": one["recorded_before"],
            "result": " ".join(one["faults"]) or "unchanged",
        }
        for one in findings["folders"]
    ]


def describe_new_expert(findings: Findings) -> str:
    """The single new expert compared with its parent; empty without scores."""
    sentences = []
    for row in findings["alone"]:
        beside = (
            f", its parent {perplexity(row['parent'])}" if row["parent"] is not None else ", its parent was not scored"
        )
        sentences.append(f"Alone on {row['domain']}: perplexity {perplexity(row['expert'])} per token{beside}.")
    return " ".join(sentences)


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
