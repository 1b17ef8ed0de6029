"""The proposed parent of a new expert as text: its posterior, and the learning rate of the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ui.present.text.formatting import listed, pluralize
from workbench.formatting.number_format import perplexity, weight
from workbench.questions.parent_proposal import ParentProposal


def describe_unscored(domain: str, unscored: Sequence[str], num_scored: int) -> str:
    """Which scores a proposal of the parent lacks: of some experts, or of all."""
    words = f"To see which parent is nearest before the training, score the dev text of {domain}"
    if not num_scored:
        return f"{words}: "
    others = "the other expert has scores" if num_scored == 1 else f"the {num_scored} others have scores"
    return f"{words} under {listed(list(unscored))} ({others}): "


def describe_parent(proposal: ParentProposal) -> str:
    """What `workbench.questions.parent_proposal` proposes, before anything is trained."""
    parent, share = proposal.parent, proposal.posterior[proposal.parent]
    chosen = (
        f"Proposed parent: {parent}, with a mean posterior of {weight(share)} over {blocks_text(proposal.num_blocks)}"
    )
    rate = proposal.learning_rate
    words = f"{chosen} of {proposal.block_size} tokens ({proposal.split})."
    if rate is not None:
        words += f" By default its copy learns at {rate:g}, a tenth of the rate of its first ancestor."
    return " ".join([words, *_disagreement(proposal)])


def _disagreement(proposal: ParentProposal) -> Iterator[str]:
    """A sentence where another expert than the parent has the lowest perplexity."""
    parent, other = proposal.parent, proposal.of_lowest_perplexity
    if other != parent:
        yield (
            f"Perplexity disagrees: {other} has {perplexity(proposal.perplexity[other])} on these blocks, {parent} "
            f"{perplexity(proposal.perplexity[parent])}. The posterior counts in how many blocks an expert is best, "
            f"perplexity also how badly it fails in the others. To start from {other}, name it as the parent."
        )


def proposal_rows(proposal: ParentProposal) -> list[tuple[str, str, str]]:
    """Each expert with its mean posterior and its perplexity, the greatest posterior first."""
    ranked = sorted(proposal.posterior.items(), key=lambda pair: -pair[1])
    return [(name, weight(share), perplexity(proposal.perplexity[name])) for name, share in ranked]


def blocks_text(num_blocks: int) -> str:
    """`100 held-out blocks`."""
    return pluralize(num_blocks, "held-out block")
