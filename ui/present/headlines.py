"""The three numbers of the page Overview: each with what it is compared with, and what is said where it is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from engine.methods.registry import method_of
from ui.present.pages import EXPERTS, MIXTURES, TRAIN, Page
from ui.present.text.formatting import ago, listed, pluralize
from workbench.answers.cards import DomainCard, EvaluationCard, ExpertCard, MixtureCard, ReportCard
from workbench.formatting.number_format import DASH, LITTLE
from workbench.questions.perplexities import MixedDomain

_LAST = "Last measured change"


@dataclass(frozen=True)
class Headline:
    """A number with its label, what stands next to it, a sentence, and where to go from there."""

    label: str
    value: str
    beside: str = ""
    is_good: bool | None = None  # None: neither good nor bad
    sentence: str = ""
    link: str = ""
    page: Page | None = None
    state: Mapping[str, str] = field(default_factory=dict)  # of that page


@dataclass(frozen=True)
class MixtureMean:
    """A mixture's perplexity on each scored domain that trained it, with the saved gate."""

    mixture: str
    rows: tuple[MixedDomain, ...]
    tokenizer: str = ""  # of its experts
    seeds: frozenset[str] = frozenset()  # that its experts were trained from

    @property
    def domains(self) -> frozenset[str]:
        return frozenset(row.domain for row in self.rows)

    @property
    def text(self) -> tuple[str, frozenset[tuple[str, int, int]]]:
        """The tokens that it was measured on; means of other tokens do not compare."""
        return self.tokenizer, frozenset((row.domain, row.block_size, row.num_tokens) for row in self.rows)

    @property
    def mean(self) -> float:
        return sum(row.perplexity for row in self.rows) / len(self.rows)


def trained_domains(mixture: MixtureCard) -> frozenset[str]:
    """The domains that trained an expert that takes part."""
    return frozenset(name for member in mixture.members if member.takes_part for name in member.domains)


def trained_rows(
    mixture: MixtureCard, rows: Sequence[MixedDomain], experts: Mapping[str, ExpertCard]
) -> MixtureMean | None:
    """Of the rows of a mixture those that trained an expert that takes part; None without one."""
    trained = trained_domains(mixture)
    kept = tuple(row for row in rows if row.domain in trained)
    members = [experts[one.expert] for one in mixture.members if one.expert in experts]
    seeds = frozenset(one.seed for one in members if one.seed)
    tokenizer = members[0].tokenizer_sha256 if members else ""
    return MixtureMean(mixture.name, kept, tokenizer, seeds) if kept else None


def best_of(means: Sequence[MixtureMean]) -> MixtureMean | None:
    """The lowest mean among the mixtures measured on the same tokens of the most domains.

    Of several such texts it is the one that most mixtures were measured on, and of these the first.
    """
    if not means:
        return None
    most = max(len(one.domains) for one in means)
    texts = Counter(one.text for one in means if len(one.domains) == most)
    text = texts.most_common(1)[0][0]
    return min((one for one in means if one.text == text), key=lambda one: one.mean)


@dataclass(frozen=True)
class Baseline:
    """A single model and its perplexity by domain, on the tokens that the mixture was measured on."""

    title: str
    name: str
    by_domain: Mapping[str, float]


def dense_baseline(mixture: MixtureMean, model: ExpertCard, scores: Sequence[EvaluationCard]) -> Baseline | None:
    """A model that several of the mixture's domains trained, on these; None for others, as an expert of one cluster."""
    method = method_of(model.method)
    domains = mixture.domains & set(model.domains)
    if not (method.only_expert and method.is_trainable and len(domains) > 1):
        return None
    return Baseline("dense", model.name, _on_same_text(mixture, model, scores, domains))


def seed_baseline(mixture: MixtureMean, model: ExpertCard, scores: Sequence[EvaluationCard]) -> Baseline | None:
    """The seed model as it is, on every domain of the mixture; None for other models."""
    if not method_of(model.method).is_seed or model.seed not in mixture.seeds:
        return None
    return Baseline("its seed model", model.name, _on_same_text(mixture, model, scores, mixture.domains))


def best_single(mixture: MixtureMean) -> Baseline | None:
    """The expert of the mixture with the lowest mean loss on all its domains; None where none has all."""
    names = frozenset.intersection(*(frozenset(row.perplexity_by_expert) for row in mixture.rows))
    if not names:
        return None
    best = min(sorted(names), key=lambda name: sum(log(row.perplexity_by_expert[name]) for row in mixture.rows))
    by_domain = {row.domain: row.perplexity_by_expert[best] for row in mixture.rows}
    return Baseline("its best expert", best, by_domain)


def _on_same_text(
    mixture: MixtureMean, model: ExpertCard, scores: Sequence[EvaluationCard], domains: Collection[str]
) -> dict[str, float]:
    """A model's perplexities on the tokens that the mixture was measured on, by domain."""
    if model.tokenizer_sha256 != mixture.tokenizer:
        return {}
    known = {
        (score.domain, score.block_size, score.num_tokens): score.perplexity
        for score in scores
        if score.split == "test" and score.expert == model.name
    }
    values = {row.domain: known.get((row.domain, row.block_size, row.num_tokens)) for row in mixture.rows}
    return {domain: value for domain, value in values.items() if value is not None and domain in domains}


def baseline_of(
    mixture: MixtureMean, models: Sequence[ExpertCard], scores: Sequence[EvaluationCard]
) -> Baseline | None:
    """What a mixture is compared with: a dense model of most of its domains, else its seed model, else an expert."""
    for find in (dense_baseline, seed_baseline):
        matches = [one for model in models if (one := find(mixture, model, scores)) and one.by_domain]
        if matches:
            return max(matches, key=lambda one: len(one.by_domain))
    return best_single(mixture)


def mixture_headline(mixture: MixtureMean | None, baseline: Baseline | None = None, why: str = "") -> Headline:
    """On how many domains a mixture is better than a single model, with the changes by domain.

    It counts domains and shows no mean, which would change with its domains: a new expert adds a domain that only
    counts for better where the mixture is better there.
    """
    if mixture is None or baseline is None:
        return Headline("Mixture", DASH, sentence=why or "No mixture of several experts is scored on test text yet.")
    rows = [row for row in mixture.rows if row.domain in baseline.by_domain]
    changes = sorted((100 * (row.perplexity / baseline.by_domain[row.domain] - 1), row.domain) for row in rows)
    better, worse = (sum(sign * change >= LITTLE for change, _ in changes) for sign in (-1, 1))
    best, worst = (f"{signed_text(change)} % on {domain}" for change, domain in (changes[0], changes[-1]))
    tokens = [row.num_tokens for row in rows]
    counted = f"{min(tokens):,} to {max(tokens):,}" if min(tokens) < max(tokens) else f"{tokens[0]:,}"
    left_out = listed(list(dict.fromkeys(name for row in rows for name in row.without)), 2)
    words = [
        f"{mixture.mixture} against {baseline.name}: {best}" + (f" to {worst}" if len(changes) > 1 else ""),
        f"n = {counted} tokens a domain",
        *([f"without {left_out}, not scored yet"] if left_out else []),
    ]
    state = {"mixture": mixture.mixture}
    return Headline(
        f"Mixture against {baseline.title}",
        f"better on {better} of {len(rows)}",
        f"worse on {worse}" if worse else pluralize(len(rows), "domain"),
        better > 0 if not worse else (False if worse > better else None),
        "; ".join(words),
        "see the mixture",
        MIXTURES,
        state,
    )


def coverage_headline(
    domains: Sequence[DomainCard], experts: Sequence[ExpertCard], mixture: MixtureCard | None = None
) -> Headline:
    """How many domains have an enabled expert that was trained on nothing else, and how many in the page's mixture.

    A novel domain is held out to measure on: it needs no expert and does not count.
    """
    own = {expert.domain for expert in experts if expert.enabled and expert.domain}
    domains = [domain for domain in domains if domain.role != "novel" or domain.name in own]
    without = [domain.name for domain in domains if domain.name not in own]
    value = f"{len(domains) - len(without)} of {len(domains)}"
    words = f"without one: {listed(without, 3)}" if without else "Every domain has one."
    if mixture is not None:
        here = {member.domain for member in mixture.members if member.takes_part}
        elsewhere = [domain.name for domain in domains if domain.name in own - here]
        if elsewhere:
            words = f"{words.rstrip('.')}; not in {mixture.name}: {listed(elsewhere, 3)}"
    if not domains:
        return Headline("Coverage", DASH, sentence="Every domain is held out to measure on.")
    if not without:
        return Headline("Coverage", value, "domains have an expert", True, words, "see them", EXPERTS)
    return Headline("Coverage", value, "domains have an expert", None, words, "train one more", TRAIN)


def last_headline(
    additions: Sequence[ReportCard], mixtures: Sequence[MixtureCard], removals: Sequence[ReportCard] = ()
) -> Headline:
    """The newest change of a perplexity that was measured: a calibration, or a certified addition or removal.

    A switch is not measured: the sentence says where the expert of the change is off since.
    """
    changes = [*_calibrations(mixtures), *_additions(additions, mixtures), *_removals(removals)]
    if not changes:
        words = "None is measured yet: calibrate a mixture, or certify the addition of an expert."
        return Headline(_LAST, DASH, sentence=words)
    return max(changes, key=lambda change: change[0])[1]


def _calibrations(mixtures: Collection[MixtureCard]) -> list[tuple[float, Headline]]:
    changes = []
    for mixture_card in mixtures:
        if gain := mixture_card.calibration:
            words = f"perplexity of {mixture_card.name} after calibration, on its domains' text"
            interval = f"95 %: {signed_text(gain.low)} to {signed_text(gain.high)}"
            label = f"{_LAST}, {ago(gain.at)}" if gain.at else _LAST
            value, mixture = f"{signed_text(gain.value)} %", {"mixture": mixture_card.name}
            headline = Headline(label, value, interval, gain.value < 0, words, "what changed", MIXTURES, mixture)
            changes.append((gain.at or 0.0, headline))
    return changes


def _additions(reports: Sequence[ReportCard], mixtures: Collection[MixtureCard]) -> list[tuple[float, Headline]]:
    at_work = {member.expert for mixture in mixtures for member in mixture.members if member.takes_part}
    changes = []
    for report in reports:
        rows = [row for row in report.findings.get("domains", ()) if row.get("is_new")]
        if rows:
            expert = str(report.findings["expert"])
            off = "" if expert in at_work else ", which takes part in no mixture now"
            words = f"perplexity on {rows[0]['domain']} with {expert}{off}"
            changes.append(
                _certificate_headline(report, float(rows[0]["change_percent"]), words, {"experts.chosen": expert})
            )
    return changes


def _removals(reports: Sequence[ReportCard]) -> list[tuple[float, Headline]]:
    changes = []
    for report in reports:
        row: Mapping[str, Any] = next(iter(report.findings.get("perplexity", ())), {})
        if (before := row.get("with_expert")) and (after := row.get("without_expert")):
            words = f"perplexity on {row['domain']} without {report.findings['expert']}"
            mixture = {"mixture": str(report.findings["mixture"])}
            changes.append(_certificate_headline(report, 100 * (after / before - 1), words, mixture, MIXTURES))
    return changes


def _certificate_headline(
    report: ReportCard, percent: float, words: str, chosen: Mapping[str, str], page: Page = EXPERTS
) -> tuple[float, Headline]:
    """The headline of a certificate, which has no interval, and when it was made."""
    label, value = f"{_LAST}, {ago(report.created_at)}", f"{signed_text(percent)} %"
    headline = Headline(label, value, "no interval", percent < 0, words, "what changed", page, chosen)
    return report.created_at, headline


def perplexity_text(value: float) -> str:
    """One decimal; from 1,000 none."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def signed_text(value: float) -> str:
    """A change with its sign, a real minus, and one decimal."""
    return f"{value:+.1f}".replace("-", "−")
