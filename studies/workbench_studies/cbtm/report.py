"""The sections of C-BTM's report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from workbench_studies.cbtm.calibrated import against_rows
from workbench_studies.cbtm.names import HEADLINE, OTHER
from workbench_studies.cbtm.paper import T
from workbench_studies.core.findings import Findings
from workbench_studies.core.report import (
    Section,
    amount,
    circumstances,
    failed,
    headline,
    in_short,
    intervals,
    the_claims,
    training_words,
)
from workbench_studies.core.study import read_texts

TEXTS = read_texts(__file__)


def sections(findings: Findings) -> list[Section]:
    """All sections of the report, in order."""
    return [
        in_short(findings, headline(findings), best_words(findings)),
        the_claims(findings, _MARKS),
        *_budgets(findings),
        *_weighing(findings),
        *_upcycled(findings),
        *_clusters(findings),
        *_shapes(findings),
        *_tasks(findings),
        failed(findings, reasons),
        intervals(findings, TEXTS["how"]),
        circumstances(findings, _trainings(findings)),
    ]


_MARKS = (
    "Perplexities are averages over the training domains; the paper's are those of one corpus (C4), from table 9 where "
    f"it prints any. Nearness at T = {T:g} over all models, unless stated otherwise. “Comparable” is a rise "
    "of less than 1 %."
)


def best_words(findings: Findings) -> str:
    """The best number of clusters at the full budget, beside the dense model."""
    rows = [row for row in findings["tables"]["clusters"] if row["budget"] == "whole" and row["ours"] is not None]
    dense = next((row["ours"] for row in rows if row["clusters"] == 1), None)
    if dense is None or len(rows) < 2:
        return "Which number of clusters is best is not known yet: their scores are missing."
    best = min(rows, key=lambda row: row["ours"])
    if best["clusters"] == 1:
        return f"Dense is best at equal tokens: perplexity {dense:.2f}."
    return f"{best['clusters']} clusters are best at equal tokens: perplexity {best['ours']:.2f}, Dense {dense:.2f}."


# tables, pictures ---------------------------------------------------------------------------------


def _budgets(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    yield Section(
        "Figures 5 and 6: more clusters at equal tokens",
        (best_words(findings), TEXTS["equal"]),
        tables["clusters"],
        "clusters",
    )
    if rows := tables.get("updates"):
        yield Section("Figure 8: seconds of an update", (TEXTS["updates"],), rows, "updates")
    yield Section("Each domain", ("Perplexity at the full budget.",), tables.get("domains", []))
    yield Section("What it costs (§A.2, §A.3)", (TEXTS["costs"],), tables["efficiency"])


def _weighing(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    yield Section("Figures 9 and 10: few models at each token", (_ACTIVE,), tables["active"], "active")
    yield Section("Table 9: temperature and top-k", (), tables["9"], "temperature")
    if tables["scaling"]:
        yield Section("Two readings of the embedding", (_READINGS,), tables["scaling"])
    yield Section("Other ways to weigh the same models (§2.4)", (TEXTS["rules"],), tables["rules"])
    yield from _calibrated(findings)


def _calibrated(findings: Findings) -> Iterator[Section]:
    """The reading that is ours; nothing in reports from before there was one, and where dev text was not scored."""
    if not findings.get("calibrated", {}).get("against"):
        return
    yield Section(
        "A reading of ours: a posterior calibrated on dev text", (TEXTS["ours"], TEXTS["limit"]), against_rows(findings)
    )
    yield Section("Calibrated (ours): the fit of each seed", (TEXTS["fits"],), findings["calibrated"]["fits"])


_ACTIVE = "Read down a number of models used: as many parameters at each token, of more models on disk."
_READINGS = (
    f"Vectors of documents are scaled to length 1 (“{HEADLINE}”, the released code), or to no mean and unit variance "
    f"in each dimension (“{OTHER}”, the paper's text). There squared distances are some hundred times larger, so T = "
    f"{T:g} is hardly a choice; the paper's own table 9 can only be of the first. Each has its own clusters and models."
)


def _upcycled(findings: Findings) -> Iterator[Section]:
    """Nothing where there is no mixture of experts, as in reports from before there was one."""
    if rows := findings["tables"].get("upcycled"):
        moe = findings["budget"]["moe"]
        sentence = (
            f"Every feed-forward network of the seed model becomes {moe['num_experts']} copies and a fresh router, "
            f"which sends each token through {moe['active_experts']} of them. It reads what Dense reads, in the same "
            "batches: tokens are equal, operations are not. The paper has 32 networks in every other layer, and keeps "
            "the optimizer of the seed's training; here it starts from zero, at Dense's rate, as for all models."
        )
        if seeds := findings["budget"].get("moe_seeds"):
            sentence += f" It is trained in {seeds} of the seeds, since it takes several times as long as Dense."
        yield Section("Figure 12: a sparsely upcycled mixture of experts (§6)", (sentence,), rows, "upcycled")


def _clusters(findings: Findings) -> Iterator[Section]:
    tables, pictures = findings["tables"], findings["pictures"]
    divided = (TEXTS["divided"], *_divided_words(findings))
    yield Section("Figures 13 and 14, table 8: other ways to divide the text", divided, tables["divisions"])
    if rows := tables.get("numbers"):
        yield Section("Figures 13 and 14: by the number of clusters", (TEXTS["numbers"],), rows, "numbers")
    yield Section("What the clusters are about (tables 2 to 7)", ("Of the first seed.",), tables["terms"])
    yield Section("Figure 15: specialization", (TEXTS["ratios"],), _ratio_rows(pictures["ratios"]), "ratios")
    yield Section(
        "Figure 16: clusters and labels",
        (_labels_words(pictures["labels"]),),
        _label_rows(pictures["labels"]),
        "labels",
    )
    yield Section("Figure 18: cluster sizes on held-out documents", (), _size_rows(pictures["sizes"]), "sizes")


def _divided_words(findings: Findings) -> Iterator[str]:
    """How many tokens these arms saw, where that is not the full budget; findings were once without that."""
    if findings["budget"].get("ablations_at_less"):
        tokens = amount(findings["budget"]["less"] * findings["budget"]["training_tokens"])
        yield f"All of these saw {tokens} tokens after branching, and are compared with each other only."


def _shapes(findings: Findings) -> Iterator[Section]:
    """Nothing where all experts are of one shape, as in reports from before there were two."""
    if rows := findings["tables"].get("shapes"):
        yield Section("Figures 7 and 11: experts of two shapes", (TEXTS["shapes"],), rows, "shapes")


def _tasks(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    if tables["tasks"]:
        yield Section("Tables 1 and 11: few-shot classification", (TEXTS["answers"],), tables["tasks"])
        yield Section("Table 10: the clusters behind each task", ("Of the first seed.",), tables["routes"])


def _ratio_rows(table: list[list[float]] | None) -> list[dict[str, Any]]:
    return [
        {"expert": str(expert), **{str(cluster): cell for cluster, cell in enumerate(row)}}
        for expert, row in enumerate(table or [])
    ]


def _labels_words(labels: Mapping[str, Any] | None) -> str:
    if labels is None:
        return "The clusters do not exist yet."
    sentence = ", ".join(f"{one:.2f}" for one in labels["information"])
    return (
        "The share of each label's documents in each cluster, first seed. Normalised mutual information, by seed: "
        f"{sentence}."
    )


def _label_rows(labels: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if labels is None:
        return []
    return [
        {"label": label, **{str(cluster): share for cluster, share in enumerate(row)}}
        for label, row in zip(labels["labels"], labels["shares"], strict=True)
    ]


def _size_rows(sizes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "clusters": name,
            "seed": seed,
            "smallest": min(one),
            "median": float(median(one)),
            "largest": max(one),
            "sizes": ", ".join(map(str, sorted(one))),
        }
        for name, seeds in sizes.items()
        for seed, one in enumerate(seeds)
    ]


# what did not come out, and where it ran ------------------------------------------------------------


def reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """Possible reasons why a claim was not reproduced: what arms varied, and guesses, which say that they are."""
    if claim["where"] == "Figure 5" and (leads := _leads(findings)):
        yield f"Tokens were varied: {leads}."
    if claim["where"] in ("Figure 9", "Table 9", "§2.2"):
        size = findings["budget"]["block_size"]
        yield f"Guess: short texts. A model reads blocks of {size} tokens of cut documents; the paper's read 2,048."


def _leads(findings: Findings) -> str:
    """The lead of the main number of clusters over Dense at each budget; empty where one is missing."""
    rows = {(row["clusters"], row["budget"]): row for row in findings["tables"]["clusters"]}
    budgets = [row["budget"] for row in findings["tables"]["clusters"] if row["clusters"] == 1]
    parts = []
    for budget in budgets:
        dense, main = (rows.get((number, budget)) for number in (1, findings["clusters"]))
        if dense and main and dense["ours"] is not None and main["ours"] is not None:
            lead = dense["ours"] - main["ours"]
            parts.append(f"{lead:+.2f} after {amount(main['tokens after branching'])} tokens")
    if len(parts) < 2:
        return ""
    return f"the lead of {findings['clusters']} clusters over one is {' and '.join(parts)}"


def _trainings(findings: Findings) -> str:
    budget = findings["budget"]
    seeding, training = (training_words(budget[name]) for name in ("seeding", "training"))
    cut = f" Documents of at most {budget['piece_length']:,} characters." if budget["piece_length"] else ""
    return (
        f"Seed model: {seeding}; {findings['seeding_tokens']:,} tokens. After branching, Dense: {training}; "
        f"{budget['training_tokens']:,} tokens; the models of an arm share its batches.{cut}"
    )
