"""Effects of adding, adapting and removing experts: figure 6, and tables 6, 7 and 13."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.statistics.bootstrap import Change
from workbench_studies.core.verdicts import FLOOR, Claim, Verdict, is_above, is_below, untestable
from workbench_studies.demix.evidence import DemixEvidence
from workbench_studies.demix.names import Reading, System, demix_dapt, dense_dapt, system

ADAPTING = "adapting"  # topic: training on a target
SMALL_RISE = 1.0  # %: what is “not up” rises by less than this
ADAPTED_PLACES = ("Table 6", "Figure 6", "§6.2", "Table 13", "Table 13, Figure 6")  # of the claims on what was adapted
CLOSE = 10.0  # %: what comes “close” has at most so much more; ours, since figure 6 prints no numbers

MORE_NOVEL = Claim("Table 6", "an expert for each novel domain lowers the perplexity on novel text", "16.0 < 21.4")
MORE_TRAINING = Claim(
    "Table 6", f"and does not raise it on the training domains (by {SMALL_RISE:g} % or more)", "17.7 against 17.8"
)
LESS_TRAINING = Claim("Table 6", "and lowers it on the training domains", "17.7 < 17.8")
MINUS_EXPERT = Claim("Table 7", "without its expert a domain has more perplexity (+Expert < –Expert)", "18.2 < 28.5")
MINUS_DOMAIN = Claim("Table 7", "a model that never saw it has more still (–Expert < –Domain)", "28.5 < 30.6")
DENSE_TRAINING = Claim(
    "Table 13, Figure 6",
    "dense-DAPT raises the perplexity on the training domains",
    "+70.1 %",
    topics=(ADAPTING,),
)
DENSE_NOVEL = Claim(
    "Table 13, Figure 6", "dense-DAPT lowers the perplexity on its target", "–55.1 %", topics=(ADAPTING,)
)
DEMIX_TRAINING = Claim(
    "Figure 6",
    f"DEMix-DAPT does not raise it on the training domains (by {SMALL_RISE:g} % or more)",
    "unchanged",
    topics=(ADAPTING,),
)
DEMIX_CLOSE = Claim(
    "Figure 6",
    f"DEMix-DAPT comes close to dense-DAPT on its target, or is better (at most {CLOSE:g} % more, on every target)",
    "“close (in the case of Gutenberg) or better (in the case of CORD-19)”",
    topics=(ADAPTING,),
)
DEMIX_NOVEL = Claim(
    "§6.2",
    "DEMix-DAPT lowers the perplexity on its target",
    "“reduces perplexity on the novel domain”",
    topics=(ADAPTING,),
)
DENSE_MORE = Claim(
    "Table 13",
    "after dense-DAPT the targets have less perplexity than after DEMix-DAPT",
    "“decreases more for Dense-DAPT”",
    topics=(ADAPTING,),
)


def judge_growth(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """All claims on adding, adapting and removing."""
    return [*judge_adding(evidence, reading), *_judge_dense(evidence), *judge_removal(evidence, reading)]


def judge_adding(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Those that depend on how the posterior is read: a mixture of more experts."""
    subject, resampled = evidence.subject, evidence.resampled
    before, after = system("cached", reading), system("grown", reading)
    dapt = _adapted(evidence, lambda novel: demix_dapt(novel, reading))
    targets = [Change(demix_dapt(novel, reading), before, novel) for novel in dapt]
    old = [Change(demix_dapt(novel, reading), before, domain) for novel in dapt for domain in subject.domains]
    rise = resampled.changes([Change(after, before, domain) for domain in subject.domains])
    return [
        is_below(
            MORE_NOVEL,
            resampled.difference(after, before, subject.novel),
            ours=evidence.against(after, before, subject.novel),
            unit="perplexity",
        ),
        is_below(MORE_TRAINING, rise, SMALL_RISE, unit="%"),
        is_below(LESS_TRAINING, rise, unit="%"),
        _close(evidence, reading, dapt),
        is_above(DENSE_MORE, resampled.changes(_from_dense(reading, dapt)), unit="%"),
        is_below(DEMIX_NOVEL, resampled.changes(targets), unit="%"),
        is_below(DEMIX_TRAINING, resampled.changes(old), SMALL_RISE, unit="%"),
    ]


def _from_dense(reading: Reading, adapted: Sequence[str]) -> list[Change]:
    """The change from dense-DAPT to DEMix-DAPT on each target."""
    return [Change(demix_dapt(novel, reading), dense_dapt(novel), novel) for novel in adapted]


def _close(evidence: DemixEvidence, reading: Reading, adapted: Sequence[str]) -> Verdict:
    """How far DEMix-DAPT is from dense-DAPT on each target; the one on which it is least surely close is judged."""
    changes = {one.domain: evidence.resampled.changes([one]) for one in _from_dense(reading, adapted)}
    known = {novel: change for novel, change in changes.items() if change is not None}
    if not known:
        return untestable(DEMIX_CLOSE)
    each = ", ".join(f"{novel} {change.value:+.0f} %" for novel, change in known.items())
    dense = {one: evidence.resampled.changes([Change(dense_dapt(one), System("dense"), one)]) for one in known}
    collapsed = [f"{novel} ({one.value:+.0f} %)" for novel, one in dense.items() if one and one.value > 0]
    if collapsed:
        why = f"dense-DAPT ended above the untouched Dense on its own target: {', '.join(collapsed)}."
        return untestable(DEMIX_CLOSE, f"{FLOOR}{why}", each)
    worst = max(known.values(), key=lambda change: change.high)
    ours = f"perplexity against dense-DAPT's: {each}; the least surely close is shown"
    return is_below(DEMIX_CLOSE, worst, CLOSE, ours=ours, unit="%")


def _judge_dense(evidence: DemixEvidence) -> list[Verdict]:
    adapted, dense = _adapted(evidence, dense_dapt), System("dense")
    old = [Change(dense_dapt(novel), dense, domain) for novel in adapted for domain in evidence.subject.domains]
    targets = [Change(dense_dapt(novel), dense, novel) for novel in adapted]
    return [
        is_above(DENSE_TRAINING, evidence.resampled.changes(old), unit="%"),
        is_below(DENSE_NOVEL, evidence.resampled.changes(targets), unit="%"),
    ]


def _adapted(evidence: DemixEvidence, name: Callable[[str], System]) -> list[str]:
    """The novel domains to which a model was adapted and scored, in some seed."""
    subject = evidence.subject
    return [n for n in subject.novel if evidence.resampled.seeds_with([name(n)], [*subject.domains, n])]


def judge_removal(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """What a domain loses without its expert, and what a model lacks that never saw it."""
    subject, resampled = evidence.subject, evidence.resampled
    with_it, minus = system("cached", reading), system("minus expert", reading)
    never = system("minus domain", reading)
    result = resampled.difference(with_it, minus, subject.domains)
    if not subject.removed:
        unseen = untestable(MINUS_DOMAIN, "No model was trained without a domain.")
    else:
        both = evidence.against(minus, never, subject.removed)
        ours = f"{both} on {', '.join(subject.removed)}; for the others it would be a full training each"
        difference = resampled.difference(minus, never, subject.removed)
        unseen = is_below(MINUS_DOMAIN, difference, ours=ours, unit="perplexity")
    ours = evidence.against(with_it, minus, subject.domains)
    return [is_below(MINUS_EXPERT, result, ours=ours, unit="perplexity"), unseen]
