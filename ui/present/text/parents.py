"""The proposed parent of a new expert as text: its posterior, and the learning rate of the copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.present.text.formatting import pluralize
from workbench.answers.posteriors import ParentProposal


def proposal_words(proposal: ParentProposal) -> str:
    """What `workbench.analysis.parent_proposal` proposes, before anything is trained."""
    parent, share = proposal.parent, proposal.posterior[proposal.parent]
    chosen = f"Proposed parent: {parent}, with a mean posterior of {share:.2f} over {blocks_words(proposal.num_blocks)}"
    rate = proposal.learning_rate
    words = f"{chosen} of {proposal.block_size} tokens ({proposal.split})."
    if rate is None:
        return words
    learns = f"its copy learns at {rate:g}, a tenth of the rate of its first ancestor"
    return f"{words} By default {learns}."


def blocks_words(num_blocks: int) -> str:
    """`100 held-out blocks`."""
    return pluralize(num_blocks, "held-out block")


def known_words(findings: Mapping[str, Any], parent: str) -> str:
    """The share of the new expert's text that its parent was trained on; empty if none or not measured."""
    share = findings.get("parent_documents")
    return f"{parent} was trained on {share:.0%} of the same documents." if share else ""
