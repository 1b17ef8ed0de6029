"""Whether a mixture was still trained on a domain after the domain's expert is removed, from the registry's records.

Methods differ: DEMix trains the shared parameters with all experts; an expert that was added later, an adapter or a
MoDE part was trained while its base was frozen; and a full model shares nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy.orm import Session

from engine.methods.registry import method_of
from workbench.analysis.changes.retrained_baselines import seen, seen_by_base, unknown, unknown_by_base
from workbench.registry.experts import origins
from workbench.registry.mixtures import mixture_row
from workbench.schema.tables import Domain, Expert

_IMPORTED = ("folder:", "hub:", "packed")


def what_stays(session: Session, mixture: str, removed: Expert) -> str:
    """Sentences that say whether the rest of a mixture was trained on the removed expert's domain.

    Empty for an expert of several domains: a removal concerns one domain.
    """
    if removed.domain is None:
        return ""
    remaining = [one.expert for one in mixture_row(session, mixture).members if one.expert is not removed]
    if any(one.base_id == removed.base_id for one in remaining):
        sentence = _of_base(session, removed, removed.domain)
    else:
        nothing_shared = "No other expert of the mixture shares a parameter with this one: its full model is removed."
        sentence = " ".join([nothing_shared, *_before_import(session, remaining)])
    return " ".join([sentence, *_of_experts(session, removed, removed.domain, remaining)])


def _of_base(session: Session, removed: Expert, domain: Domain) -> str:
    """A sentence that says whether the expert's shared parameters were trained on the domain."""
    method = method_of(removed.method)
    if seen_by_base(session, removed, domain):
        return (
            f"Removing this expert is not unlearning: {method.shared_words} was also trained on “{domain.name}” and "
            "stays unchanged."
        )
    if why := unknown_by_base(session, removed):
        return f"It is not known whether removing this expert is unlearning: {method.shared_words} stays, and {why}."
    sentence = (
        f"All that this expert learned on “{domain.name}” is removed with its {method.expert_words}: "
        f"{method.shared_words} was frozen, and no training of it on “{domain.name}” is recorded."
    )
    return " ".join([sentence, *_before_import(session, [removed])])


def _before_import(session: Session, experts: Iterable[Expert]) -> list[str]:
    """Sentences that name imported seeds, whose earlier training text is not recorded."""
    seeds = [one.seed for expert in experts for one in (expert, *origins(session, expert)) if one.seed is not None]
    names = dict.fromkeys(seed.name for seed in seeds if seed.source.startswith(_IMPORTED))
    return [f"What “{name}” had read before it was imported is not recorded." for name in names]


def _of_experts(session: Session, removed: Expert, domain: Domain, remaining: Sequence[Expert]) -> list[str]:
    """Sentences that name the other experts which were trained on the domain, or may have been."""
    knowing, perhaps = list[str](), list[str]()
    for one in remaining:
        with_bases = one.base_id != removed.base_id
        if seen(session, one, domain, with_bases=with_bases):
            knowing.append(f"“{one.name}”")
        elif unknown(session, one, with_bases=with_bases):
            perhaps.append(f"“{one.name}”")
    names_by_text = {
        f"Remaining experts trained on “{domain.name}”, or started from one that was:": knowing,
        f"Remaining experts that may have been trained on “{domain.name}”:": perhaps,
    }
    return [f"{words} {', '.join(names)}." for words, names in names_by_text.items() if names]
