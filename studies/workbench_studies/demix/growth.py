"""Effects of adding, adapting and removing experts: figure 6, and tables 6, 7 and 13."""

from __future__ import annotations

from engine.statistics.bootstrap import Change
from workbench_studies.core.study import Options
from workbench_studies.core.verdicts import FLOOR, Claim, Verdict, is_above, is_below, untestable
from workbench_studies.demix.evidence import DemixCase

ADAPTING = "adapting"  # topic: training on a target


def changes_by_adapting(case: DemixCase, claim: Claim, options: Options) -> Verdict:
    """From one system to another, of every target to which a model was adapted: on it, or on the training domains."""
    after, before = options["after"], options["before"]
    changes = [
        Change(case.system(after, target), case.system(before, target), domain)
        for target in _adapted(case, after)
        for domain in ([target] if options["on"] == "target" else case.texts(options["on"]))
    ]
    is_so = is_above if options["side"] == "above" else is_below
    return is_so(claim, case.evidence.resampled.changes(changes), options.get("border", 0.0), unit="%")


def _adapted(case: DemixCase, mode: str) -> list[str]:
    """The novel domains to which a model was adapted and scored, in some seed."""
    training, resampled = case.texts("training"), case.evidence.resampled
    return [one for one in case.texts("novel") if resampled.seeds_with([case.system(mode, one)], [*training, one])]


def comes_close(case: DemixCase, claim: Claim, options: Options) -> Verdict:
    """How far DEMix-DAPT is from dense-DAPT on each target; the one on which it is least surely close is judged."""
    resampled = case.evidence.resampled
    pairs = {
        one: (case.system("demix-dapt", one), case.system("dense-dapt", one)) for one in _adapted(case, "demix-dapt")
    }
    changes = {target: resampled.changes([Change(*pair, target)]) for target, pair in pairs.items()}
    known = {novel: change for novel, change in changes.items() if change is not None}
    if not known:
        return untestable(claim)
    each = ", ".join(f"{novel} {change.value:+.0f} %" for novel, change in known.items())
    dense = {one: resampled.changes([Change(pairs[one][1], case.system("dense"), one)]) for one in known}
    collapsed = [f"{novel} ({one.value:+.0f} %)" for novel, one in dense.items() if one and one.value > 0]
    if collapsed:
        why = f"dense-DAPT ended above the untouched Dense on its own target: {', '.join(collapsed)}."
        return untestable(claim, f"{FLOOR}{why}", each)
    worst = max(known.values(), key=lambda change: change.high)
    ours = f"perplexity against dense-DAPT's: {each}; the least surely close is shown"
    return is_below(claim, worst, options["border"], ours=ours, unit="%")


def loses_more_without_domain(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """A model that never saw a domain has more perplexity on it than one whose expert of it is left out."""
    removed, evidence = case.evidence.subject.removed, case.evidence
    if not removed:
        return untestable(claim, "No model was trained without a domain.")
    minus, never = case.system("minus expert"), case.system("minus domain")
    both = evidence.against(minus, never, removed)
    ours = f"{both} on {', '.join(removed)}; for the others it would be a full training each"
    return is_below(claim, evidence.resampled.difference(minus, never, removed), ours=ours, unit="perplexity")
