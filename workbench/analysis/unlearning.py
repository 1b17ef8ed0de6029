"""What a mixture still holds of a domain's text when the domain's expert is removed, as far as the registry knows.

Methods differ: DEMix trains what its experts share with all of them, an expert that was added later, an adapter and a
part beside a backbone were trained while that was frozen, and of a whole model nothing is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy.orm import Session

from engine.methods.registry import method_of
from workbench.analysis.retrained_baselines import seen, seen_by_base, unknown, unknown_by_base
from workbench.registry.experts import origins
from workbench.registry.mixtures import mixture_row
from workbench.registry.tables import Domain, Expert

_IMPORTED = ("folder:", "hub:")


def what_stays(session: Session, mixture: str, removed: Expert) -> str:
    """Whether what is left of a mixture without an expert was trained on the expert's domain, in sentences.

    Empty for an expert of several domains: a removal is of one.
    """
    if removed.domain is None:
        return ""
    left = [one.expert for one in mixture_row(session, mixture).members if one.expert is not removed]
    if any(one.base_id == removed.base_id for one in left):
        told = _of_base(session, removed, removed.domain)
    else:
        whole = "No other expert of the mixture shares a parameter with this one: all of its model is taken out."
        told = " ".join([whole, *_before_import(session, left)])
    return " ".join([told, *_of_experts(session, removed, removed.domain, left)])


def _of_base(session: Session, removed: Expert, domain: Domain) -> str:
    """Whether what the expert shares was trained on the domain."""
    method = method_of(removed.method)
    if seen_by_base(session, removed, domain):
        return (
            f"Removing this expert is not unlearning: {method.shared_words} was trained on “{domain.name}”, too, "
            "and stays as it is."
        )
    if why := unknown_by_base(session, removed):
        return f"Whether removing this expert is unlearning is not known: {method.shared_words} stays, and {why}."
    told = (
        f"All that this expert learned on “{domain.name}” is taken out with its {method.expert_words}: "
        f"{method.shared_words} was frozen, and no training of it on “{domain.name}” is recorded."
    )
    return " ".join([told, *_before_import(session, [removed])])


def _before_import(session: Session, experts: Iterable[Expert]) -> list[str]:
    """That nobody knows what the imported seeds of experts had read, or of what they come of."""
    seeds = [one.seed for expert in experts for one in (expert, *origins(session, expert)) if one.seed is not None]
    names = dict.fromkeys(seed.name for seed in seeds if seed.source.startswith(_IMPORTED))
    return [f"What “{name}” had read before it was imported is not recorded." for name in names]


def _of_experts(session: Session, removed: Expert, domain: Domain, left: Sequence[Expert]) -> list[str]:
    """Which of the other experts know the domain, themselves or by what they began from."""
    knowing, perhaps = list[str](), list[str]()
    for one in left:
        with_bases = one.base_id != removed.base_id
        if seen(session, one, domain, with_bases=with_bases):
            knowing.append(f"“{one.name}”")
        elif unknown(session, one, with_bases=with_bases):
            perhaps.append(f"“{one.name}”")
    told = {
        f"Still there and trained on “{domain.name}”, or begun from what was:": knowing,
        f"Still there, and whether it was trained on “{domain.name}” is not known:": perhaps,
    }
    return [f"{words} {', '.join(names)}." for words, names in told.items() if names]
