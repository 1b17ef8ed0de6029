"""Where two experts differ on a domain: its passages and tokens, from stored scores and stored tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.errors import ScoresError
from engine.text.split_names import HeldOutSplit
from workbench.analysis.scores import load_counted, load_places, load_scores, scored_tokens
from workbench.answers.base import Answer
from workbench.questions.question import Question, Split
from workbench.registry.corpora import domain_row
from workbench.registry.experts import expert_row
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer


class Passage(Answer):
    """A block of text that was scored on its own."""

    document: int = Field(description="Number of the document that it begins in, from 0.")
    mean: float = Field(description="Mean difference over all tokens (nats).")
    num_tokens: int
    tokens: list[str]
    differences: list[float] = Field(description="log p(expert) − log p(rival) of each token shown (nats).")


class TokenComparison(Answer):
    """The passages of a domain on which an expert does worst and best against a rival."""

    domain: str
    expert: str
    rival: str
    split: HeldOutSplit
    num_passages: int
    num_documents: int
    overall: float = Field(description="Mean difference over all tokens (nats).")
    worst: list[Passage]
    best: list[Passage]


class ContrastRequest(Question[TokenComparison]):
    """The passages of a domain on which one expert does worst and best against another, from stored scores."""

    path = "contrast"
    operation = "compare_tokens"

    domain: str = Field(description="Name of a domain.")
    expert: str = Field(description="Name of an expert.")
    rival: str = Field(description="Name of the expert to compare it with, such as the domain's own.")
    num_passages: int = Field(3, ge=1, le=50, description="Passages at each end.")
    max_tokens: int = Field(200, ge=1, le=2000, description="Tokens shown of each.")
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> TokenComparison:
        """The scored passages, token by token.

        Raises ScoresError when the two were not scored on the same tokens, or the tokens are gone.
        """
        first, second = expert_row(session, self.expert), expert_row(session, self.rival)
        row = domain_row(session, self.domain)
        pair = _pair(session, row, [first, second], self.split)
        (better_X, worse_X), block_size = load_scores(storage, pair)
        tokens, tokenizer = scored_tokens(session, storage, row, first, pair[0]), _tokenizer(storage, first)
        difference_X = (better_X.double() - worse_X.double()).numpy()
        counted_X = load_counted(storage, pair[0])
        is_counted_X = np.ones(len(difference_X), np.bool_) if counted_X is None else counted_X.numpy()
        ends = range(block_size, len(difference_X), block_size)  # of the scored blocks; the last may be shorter
        passages, counts = (np.split(one, ends) for one in (difference_X * is_counted_X, is_counted_X))
        starts_N, documents_N = load_places(storage, pair[0])
        means = [float(some.sum()) / max(int(count.sum()), 1) for some, count in zip(passages, counts, strict=True)]
        ranked = sorted(range(len(passages)), key=lambda n: (means[n], n))

        def passage(n: int) -> Passage:
            differences, start = passages[n], int(starts_N[n]) + 1
            shown = tokenizer.stream(tokens.array[start - 1 : start].tolist())
            ids = tokens.array[start : start + len(differences)][: self.max_tokens].tolist()
            return Passage(
                document=int(documents_N[n]),
                mean=means[n],
                num_tokens=int(counts[n].sum()),
                tokens=[shown.push(id) for id in ids],
                differences=differences[: self.max_tokens].tolist(),
            )

        return TokenComparison.from_fields(
            self,
            num_passages=len(passages),
            num_documents=len(set(documents_N.tolist())),
            overall=float(difference_X[is_counted_X].mean()),
            worst=[passage(n) for n in ranked[: self.num_passages]],
            best=[passage(n) for n in reversed(ranked[self.num_passages :][-self.num_passages :])],
        )


QUESTION = ContrastRequest


def _pair(session: Session, domain: Domain, experts: Sequence[Expert], split: HeldOutSplit) -> list[Evaluation]:
    """The evaluations of both experts on the most tokens that both were scored on."""
    query = (
        select(Evaluation)
        .options(joinedload(Evaluation.artifact))
        .where(Evaluation.domain_id == domain.id, Evaluation.split == split)
        .where(Evaluation.expert_id.in_([expert.id for expert in experts]))
    )
    measures: dict[tuple[int, int], dict[str, Evaluation]] = {}
    for row in session.scalars(query):
        measures.setdefault((row.num_tokens, row.block_size), {})[row.expert_id] = row
    shared = [measure for measure, rows in measures.items() if len(rows) == len({expert.id for expert in experts})]
    if not shared:
        names = " and ".join(f"“{expert.name}”" for expert in experts)
        raise ScoresError(
            f"{names} cannot be compared: they are not scored on the same {split} text of “{domain.name}”.",
            "Evaluate a mixture that holds both.",
        )
    return [measures[max(shared)][expert.id] for expert in experts]


def _tokenizer(storage: Storage, expert: Expert) -> Tokenizer:
    from engine.text.tokenizer import load_tokenizer

    return load_tokenizer(storage.path(expert.base_id))
