"""Where two experts differ on a domain: its documents and tokens, from stored scores and stored tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.errors import ScoresError
from workbench.services.artifacts import find_artifact
from workbench.services.corpora import domain_row
from workbench.services.experts import expert_row
from workbench.services.scores import load
from workbench.storage import Storage
from workbench.tables import Domain, Evaluation, Expert

if TYPE_CHECKING:
    from engine.text.blocks import Tokens
    from engine.text.tokenizer import Tokenizer

Differences = NDArray[np.float64]


def contrast(
    session: Session,
    storage: Storage,
    domain: str,
    expert: str,
    rival: str,
    *,
    split: str = "test",
    num_documents: int = 3,
    max_tokens: int = 200,
) -> dict[str, Any]:
    """The scored documents of a domain on which an expert does worst and best against a rival, token by token.

    A difference is log p(expert) − log p(rival) in nats: above 0 the expert predicted the token better. `worst` and
    `best` hold documents with their `mean` difference over all their tokens, `num_tokens`, and of the first
    `max_tokens` the `tokens` as text and their `differences`. `overall` is the mean over all documents.
    Raises ScoresError when the two were not scored on the same tokens, or the tokens are gone.
    """
    first, second, row = expert_row(session, expert), expert_row(session, rival), domain_row(session, domain)
    pair = _pair(session, row, [first, second], split)
    tokens, tokenizer = _text(session, storage, row, first, split)
    (better_X, worse_X), _ = load(storage, pair)
    difference_X = (better_X.double() - worse_X.double()).numpy()
    documents = _documents(tokens, difference_X)
    ranked = sorted(documents, key=lambda document: document["mean"])

    def told(document: dict[str, Any]) -> dict[str, Any]:
        ids = tokens.array[document["start"] + 1 : document["end"]][:max_tokens].tolist()
        shown = tokenizer.stream()
        return {
            "number": document["number"], "mean": document["mean"], "num_tokens": document["num_tokens"],
            "tokens": [shown.push(id) for id in ids],
            "differences": difference_X[document["start"] : document["end"] - 1][:max_tokens].tolist(),
        }  # fmt: skip

    return {
        "domain": domain, "expert": expert, "rival": rival, "split": split, "num_documents": len(documents),
        "overall": float(difference_X.mean()),
        "worst": [told(one) for one in ranked[:num_documents]],
        "best": [told(one) for one in reversed(ranked[num_documents:][-num_documents:])],
    }  # fmt: skip


def _pair(session: Session, domain: Domain, experts: Sequence[Expert], split: str) -> list[Evaluation]:
    """The evaluations of both experts on the most tokens that both were scored on."""
    query = (
        select(Evaluation).options(joinedload(Evaluation.artifact))
        .where(Evaluation.domain_id == domain.id, Evaluation.split == split)
        .where(Evaluation.expert_id.in_([expert.id for expert in experts]))
    )  # fmt: skip
    measures: dict[tuple[int, int], dict[str, Evaluation]] = {}
    for row in session.scalars(query):
        measures.setdefault((row.num_tokens, row.block_size), {})[row.expert_id] = row
    whole = [measure for measure, rows in measures.items() if len(rows) == len({expert.id for expert in experts})]
    if not whole:
        names = " and ".join(f"“{expert.name}”" for expert in experts)
        raise ScoresError(
            f"{names} must be scored on the same {split} text of “{domain.name}” to be compared, but are not.",
            "Evaluate a mixture that holds both.",
        )
    return [measures[max(whole)][expert.id] for expert in experts]


def _text(session: Session, storage: Storage, domain: Domain, expert: Expert, split: str) -> tuple[Tokens, Tokenizer]:
    from engine.text.blocks import Tokens
    from engine.text.tokenizer import load_tokenizer

    artifact = find_artifact(session, f"tokens:{domain.id}:{expert.tokenizer_sha256}")
    if artifact is None:
        raise ScoresError(
            f"The tokens of “{domain.name}” must be kept to be shown, but are gone.", "Evaluate the mixture again."
        )
    return Tokens.open(storage.path(artifact.id), split), load_tokenizer(storage.path(expert.base_id))


def _documents(tokens: Tokens, difference_X: Differences) -> list[dict[str, Any]]:
    """Every document that was scored to its end: place and mean difference. Score i is that of token i + 1."""
    borders = [*tokens.starts.tolist(), len(tokens)]
    found = []
    for number, (start, end) in enumerate(pairwise(borders)):
        if end - 1 > len(difference_X):
            break
        if end - start > 1:
            mean = math.fsum(difference_X[start : end - 1]) / (end - 1 - start)
            found.append({"number": number, "start": start, "end": end, "mean": mean, "num_tokens": end - 1 - start})
    return found
