"""The three numbers of the page Overview: each with what it is compared with, and what is said where it is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.methods.registry import method_of
from ui.present.pages import EXPERTS, MIXTURES, TRAIN, Page
from ui.present.text.formatting import ago, listed, pluralize
from workbench.answers.cards import DomainCard, EvaluationCard, ExpertCard, MixtureCard, ReportCard
from workbench.formatting.number_format import DASH
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


def trained_rows(mixture: MixtureCard, rows: Sequence[MixedDomain], tokenizer: str = "") -> MixtureMean | None:
    """Of the rows of a mixture those that trained an expert that takes part; None without one."""
    trained = trained_domains(mixture)
    kept = tuple(row for row in rows if row.domain in trained)
    return MixtureMean(mixture.name, kept, tokenizer) if kept else None


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


def shared_with(mixture: MixtureMean, model: ExpertCard) -> MixtureMean | None:
    """The mixture on the domains that also trained a single model; None where that is not a baseline.

    A baseline is one model that several of the mixture's domains trained; an expert of one cluster is not.
    """
    method = method_of(model.method)
    rows = tuple(row for row in mixture.rows if row.domain in model.domains)
    is_baseline = method.only_expert and method.is_trainable and model.tokenizer_sha256 == mixture.tokenizer
    return replace(mixture, rows=rows) if is_baseline and len(rows) > 1 else None


def mean_of_model(best: MixtureMean, scores: Sequence[EvaluationCard]) -> float | None:
    """One model's mean perplexity on the tokens that the mixture was measured on; None where it lacks a domain."""
    known = {
        (score.domain, score.block_size, score.num_tokens): score.perplexity
        for score in scores
        if score.split == "test"
    }
    values = [known.get((row.domain, row.block_size, row.num_tokens)) for row in best.rows]
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None


@dataclass(frozen=True)
class Baseline:
    """A single model, its mean perplexity where it is scored on the same text, and the mixture on that text."""

    name: str
    mean: float | None
    mixture: MixtureMean


def best_headline(best: MixtureMean | None, models: Sequence[Baseline], why: str = "") -> Headline:
    """The best mixture against the best single model, on the domains that trained both."""
    label = "Best mixture against dense"
    if best is None:
        return Headline(label, DASH, sentence=why or "No mixture is scored on test text yet.")
    chosen: dict[str, Any] = {"page": MIXTURES, "state": {"mixture": best.mixture}, "link": "see the mixture"}
    known = [(one.mean, one) for one in models if one.mean is not None]
    if not known:
        words = f"{best.mixture}, mean perplexity of {pluralize(len(best.rows), 'training domain')}"
        if models:
            names = listed([one.name for one in models], 1)
            words = f"{words}. {names} is not scored on the same text: evaluate it to compare"
        else:
            words = f"{words}. Train a dense model to compare"
            chosen = {"page": TRAIN, "link": "train one"}
        return Headline(label, perplexity_text(best.mean), sentence=words, **chosen)
    mean, model = min(known, key=lambda one: one[0])
    own = model.mixture.mean
    change = (own / mean - 1) * 100
    domains = pluralize(len(model.mixture.rows), "domain")
    words = f"{best.mixture}, mean perplexity of {domains} that trained both; {model.name}: {perplexity_text(mean)}"
    beside = f"{'↓' if change < 0 else '↑'} {abs(change):.1f} %"
    return Headline(label, perplexity_text(own), beside, change < 0, words, **chosen)


def coverage_headline(
    domains: Sequence[DomainCard], experts: Sequence[ExpertCard], mixture: MixtureCard | None = None
) -> Headline:
    """How many domains have an enabled expert that was trained on nothing else, and how many in the page's mixture."""
    own = {expert.domain for expert in experts if expert.enabled and expert.domain}
    without = [domain.name for domain in domains if domain.name not in own]
    value = f"{len(domains) - len(without)} of {len(domains)}"
    words = f"without one: {listed(without, 3)}" if without else "Every domain has one."
    if mixture is not None:
        here = {member.domain for member in mixture.members if member.takes_part}
        elsewhere = [domain.name for domain in domains if domain.name in own - here]
        if elsewhere:
            words = f"{words.rstrip('.')}; not in {mixture.name}: {listed(elsewhere, 3)}"
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
