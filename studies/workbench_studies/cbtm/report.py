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
        intervals(findings, _HOW),
        circumstances(findings, _trainings(findings)),
    ]


_MARKS = (
    "Perplexities are averages over the training domains; the paper's are those of one corpus (C4), from table 9 where "
    f"it prints any. Nearness at T = {T:g} over all models, unless stated otherwise. “Comparable” is a rise "
    "of less than 1 %."
)
_HOW = (
    "Clusters of a seed are its own, so claims on each cluster count all seeds' clusters. Shares of labels and sizes "
    "of clusters: documents drawn from all that were counted, within each seed. All pieces of a document that was cut "
    "when it was imported are drawn together, and count as one test document."
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
        "Figures 5 and 6: more clusters at equal tokens", (best_words(findings), _EQUAL), tables["clusters"], "clusters"
    )
    if rows := tables.get("updates"):
        yield Section("Figure 8: seconds of an update", (_UPDATES,), rows, "updates")
    yield Section("Each domain", ("Perplexity at the full budget.",), tables.get("domains", []))
    yield Section("What it costs (§A.2, §A.3)", (_COSTS,), tables["efficiency"])


_EQUAL = (
    "All branch from one seed model and see the same number of tokens together, in as many updates where the batch can "
    "be divided among the models; the column of the paper is table 9, at 84B tokens. Here the smaller budget has fewer "
    "updates; the paper's has smaller batches."
)
_UPDATES = (
    "Of the slowest model of each arm, without the start of its training, with Student's interval over seeds. Read "
    "down the clusters: a model of many has a smaller share of each batch. The paper's has as large a batch on fewer "
    "GPUs, which wait for each other less; here every model has one process, and other processes of the machine are in "
    "the times, too. A mixture of experts reads the batches of one model."
)
_COSTS = (
    "Operations by the formula of §A.2, which counts each layer's forward pass twice, as the paper does. The speed-up "
    "is Dense's cost of its last perplexity over that of the clusters, the seed model's training in both, interpolated "
    "between the seed model and the two budgets (§A.3). Empty: that perplexity was not reached. The paper's 3.5 times "
    "is against a larger dense model."
)


def _weighing(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    yield Section("Figures 9 and 10: few models at each token", (_ACTIVE,), tables["active"], "active")
    yield Section("Table 9: temperature and top-k", (), tables["9"], "temperature")
    if tables["scaling"]:
        yield Section("Two readings of the embedding", (_READINGS,), tables["scaling"])
    yield Section("Other ways to weigh the same models (§2.4)", (_RULES,), tables["rules"])
    yield from _calibrated(findings)


def _calibrated(findings: Findings) -> Iterator[Section]:
    """The reading that is ours; nothing in reports from before there was one, and where dev text was not scored."""
    if not findings.get("calibrated", {}).get("against"):
        return
    yield Section("A reading of ours: a posterior calibrated on dev text", (_OURS, _LIMIT), against_rows(findings))
    yield Section("Calibrated (ours): the fit of each seed", (_FITS,), findings["calibrated"]["fits"])


_OURS = (
    "The same models of clusters, weighed by DEMix's posterior from equal priors instead of nearness. A decay and a "
    "power of its evidence are fitted for each seed on dev text of the training domains alone. As if a domain were "
    "novel, each is also mixed without the model that fits its dev text best, since no model was trained on one "
    "domain. Every model is used at every token. No claim of the paper is judged by this reading."
)
_LIMIT = (
    "Less and more are sure where both intervals, of the difference and of the change, and every seed say so. The fit "
    "is not made again in each draw. These domains are one corpus."
)
_FITS = (
    "Gains are changes of perplexity on dev text against the full prefix, each domain by the setting chosen on the "
    "others. Where nothing surely gains, the full prefix is kept."
)
_ACTIVE = "Read down a number of models used: as many parameters at each token, of more models on disk."
_READINGS = (
    f"Vectors of documents are scaled to length 1 (“{HEADLINE}”, the released code), or to no mean and unit variance "
    f"in each dimension (“{OTHER}”, the paper's text). There squared distances are some hundred times larger, so T = "
    f"{T:g} is hardly a choice; the paper's own table 9 can only be of the first. Each has its own clusters and models."
)
_RULES = (
    "By Bayes' rule every model is used at every token; the cached prior has seen development text of the very "
    "domain. Metadata experts have no cluster, so nearness cannot weigh them. The average of all parameters, with "
    "equal weights, is one model at the cost of one."
)


_NUMBERS = (
    "Read a line: random clusters should lie above one model and rise with their number (figure 13); unbalanced ones "
    "should lie on the balanced ones where clusters are few, and above them where they are many (figure 14 has 32). "
    "The paper draws both by tokens. A row may rest on fewer seeds than the next: the claims compare the same seeds."
)
_SHAPES = (
    "The smaller experts have a seed model of their own, which saw as many tokens, and the same clusters; all arms "
    "here saw the smaller budget. Figure 7: both shapes should gain by clusters, the larger one less. Figure 11: a few "
    "of the smaller experts should be below one larger model, which uses more parameters at each token. Operations are "
    "those of training, the seed model's included (§A.2). The paper has 1.3B beside 6.7B parameters."
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
    divided = (_DIVIDED, *_divided_words(findings))
    yield Section("Figures 13 and 14, table 8: other ways to divide the text", divided, tables["divisions"])
    if rows := tables.get("numbers"):
        yield Section("Figures 13 and 14: by the number of clusters", (_NUMBERS,), rows, "numbers")
    yield Section("What the clusters are about (tables 2 to 7)", ("Of the first seed.",), tables["terms"])
    yield Section("Figure 15: specialization", (_RATIOS,), _ratio_rows(pictures["ratios"]), "ratios")
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
        yield Section("Figures 7 and 11: experts of two shapes", (_SHAPES,), rows, "shapes")


def _tasks(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    if tables["tasks"]:
        yield Section("Tables 1 and 11: few-shot classification", (_ANSWERS,), tables["tasks"])
        yield Section("Table 10: the clusters behind each task", ("Of the first seed.",), tables["routes"])


_ANSWERS = (
    "Accuracy in %, averaged over tasks; intervals are Student's over the draws of demonstrations, all on the same "
    "test examples: a difference that other examples might reverse is undecided. Updating performance routing is "
    "given the correct answers of the previous examples."
)
_DIVIDED = (
    "At equal tokens; each model makes so many updates: as many as Dense where the batch can be divided among the "
    "models. Labels are the training domains, weighed as BTM weighs them (cached prior)."
)
_RATIOS = (
    "Perplexity of each expert (row) on held-out documents of each cluster (column) over that of the cluster's own "
    "expert; first seed."
)


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
