"""Comparisons of answers: stored, searched, shown and deleted. All their text is data.

Only what is named in `NewComparison` is stored, so no header, token or user of a request; the audit log names who
stored a comparison, voted on it or deleted it. Text older than
`history_days` is removed; votes stay, with the manifests of the answers, which hold no text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select
from sqlalchemy.orm import Session, selectinload

from engine.errors import EngineError
from workbench.access import audit
from workbench.answers.history import (
    LETTERS,
    MOST_TOKENS,
    SHOWN_EXPERTS,
    Choice,
    ComparedAnswerCard,
    ComparisonCard,
    ComparisonHead,
    ComparisonPage,
    HistoryDeletion,
    NewAnswer,
    NewComparison,
    NewVote,
    StoredTokens,
    Turn,
    VoteCard,
)
from workbench.answers.posteriors import Manifest, StoredAnswer
from workbench.errors import BadComparisonError, NotFoundError
from workbench.registry.database import plain
from workbench.registry.setups import domain_weights, leading_domain, setup_sha256, variant_of
from workbench.schema.names import by_id, by_name, unknown_id
from workbench.schema.tables import ComparedAnswer, Comparison, Domain, Vote
from workbench.specs.gates import load_gate

EXCERPT = 300  # characters of a prompt in a list
DAY_SECONDS = 86_400.0
_BATCH = 500  # rows of one statement
_CHOICES: dict[Choice, str] = {"a": "first", "b": "second", "tie": "tie", "both_bad": "both_bad"}
_SWAPPED: dict[Choice, Choice] = {"a": "b", "b": "a", "tie": "tie", "both_bad": "both_bad"}


def store_comparison(session: Session, new: NewComparison, history_days: float = 1.0) -> ComparisonCard:
    """Stores a prompt and its answers; with `history_days` 0 nothing of their text.

    Raises BadComparisonError for an answer that could not be made again, NotFoundError for an unknown domain.
    """
    for answer in new.answers:
        _require_replayable(answer)
    if new.domain:
        by_name(session, Domain, new.domain)
    weights, has_text = domain_weights(session, new.answers), history_days > 0
    domain = new.domain or leading_domain(weights)
    row = Comparison(
        prompt=plain(new.messages[-1].content if new.messages else new.prompt) if has_text else "",
        messages=_messages(new.messages) if has_text else [],
        has_text=has_text,
        domain=domain,
        domain_source="user" if new.domain else "posterior" if domain else "",
        domain_weights=weights,
    )
    row.answers = [
        ComparedAnswer(
            position=position,
            model=answer.manifest.model[:200],
            variant=variant_of(session, answer.manifest)[:300],
            setup_sha256=setup_sha256(answer.manifest),
            text=plain(answer.text) if has_text else "",
            manifest=answer.manifest.model_dump(mode="json"),
            tokens=_tokens(answer) if has_text else {},
        )
        for position, answer in enumerate(new.answers)
    ]
    session.add(row)
    session.flush()
    audit.record(session, "add", "comparison", row.id)
    return _card(row)


def require_letters(num_answers: int) -> None:
    """Raises BadComparisonError for too few or too many answers."""
    if not 2 <= num_answers <= len(LETTERS):
        raise BadComparisonError(
            f"A comparison has 2 to {len(LETTERS)} models, got {num_answers}.", "Name other models."
        )


def _require_replayable(answer: NewAnswer) -> None:
    """Raises BadComparisonError unless `workbench verify` could make the answer again."""
    try:
        load_gate(answer.manifest.gate)
        if answer.manifest.sampling is None or not answer.manifest.experts:
            raise ValueError
        choice = {"index": answer.index, "token_ids": answer.token_ids, "prompt_token_ids": answer.prompt_token_ids}
        stored = StoredAnswer.model_validate({"manifest": answer.manifest.model_dump(), "choices": [choice]})
        stored.sampling(stored.choices[0])
    except (ValueError, TypeError, ArithmeticError, EngineError):
        raise BadComparisonError(
            f"The answer of “{answer.manifest.model}” cannot be stored: its manifest does not say how it was made.",
            "Send the answer as the API gave it, made with return_token_ids.",
        ) from None


def _messages(turns: Sequence[Turn]) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": plain(turn.content)} for turn in turns]


def _tokens(answer: NewAnswer) -> dict[str, Any]:
    """Ids and weights of an answer, bounded: `MOST_TOKENS` tokens, and the weights of `SHOWN_EXPERTS` experts."""
    weights = (answer.expert_weights or [])[: min(MOST_TOKENS, len(answer.token_ids))]
    places = {expert.name: place for place, expert in enumerate(answer.manifest.experts)}
    totals = {name: sum(weight.get(name, 0.0) for weight in weights) for name in places}
    experts = sorted(totals, key=lambda name: -totals[name])[:SHOWN_EXPERTS] if weights else []
    return {
        "index": answer.index,
        "finish_reason": answer.finish_reason,
        "num_tokens": len(answer.token_ids),
        "token_ids": answer.token_ids[:MOST_TOKENS],
        "prompt_token_ids": answer.prompt_token_ids,
        "experts": experts,
        "weights": [[round(weight.get(name, 0.0), 4) for name in experts] for weight in weights],
        "messages": _messages(answer.messages),
        "leading": [places.get(max(weight, key=weight.__getitem__), -1) if weight else -1 for weight in weights],
    }


def list_comparisons(
    session: Session,
    *,
    search: str = "",
    model: str = "",
    domain: str = "",
    limit: int = 50,
    offset: int = 0,
    history_days: float = 1.0,
) -> ComparisonPage:
    """The history, the newest first. Each word of `search` must stand in the prompt or in an answer."""
    matching = select(Comparison).where(Comparison.has_text, *_matches(search, model, domain))
    matching = matching.where(Comparison.created_at > _oldest(history_days))
    total = session.scalar(select(func.count()).select_from(matching.subquery())) or 0
    page = matching.order_by(Comparison.created_at.desc(), Comparison.id).limit(limit).offset(offset)
    return ComparisonPage(data=_heads(session, page), total=total, history_days=history_days)


def _matches(search: str, model: str, domain: str) -> list[ColumnElement[bool]]:
    conditions = [
        or_(
            Comparison.prompt.icontains(word, autoescape=True),
            Comparison.answers.any(ComparedAnswer.text.icontains(word, autoescape=True)),
        )
        for word in plain(search).split()[:20]
    ]
    conditions += [Comparison.answers.any(ComparedAnswer.model == plain(model))] if model else []
    return conditions + ([Comparison.domain == plain(domain)] if domain else [])


def _heads(session: Session, page: Select[Comparison]) -> list[ComparisonHead]:
    """The comparisons of a page, without reading the tokens of their answers."""
    answers = selectinload(Comparison.answers).load_only(ComparedAnswer.model, ComparedAnswer.variant)
    return [
        ComparisonHead.from_fields(row, prompt=row.prompt[:EXCERPT], **_head(row))
        for row in session.scalars(page.options(answers, selectinload(Comparison.votes)))
    ]


def get_comparison(session: Session, id: str, history_days: float = 1.0) -> ComparisonCard:
    """One comparison by its id or a unique prefix. Raises NotFoundError, also once its text is no longer stored."""
    row = _row(session, id)
    if row.has_text and row.created_at <= _oldest(history_days):
        raise unknown_id(session, Comparison, id, Comparison.has_text)
    return _card(row)


def _oldest(history_days: float) -> float:
    return time.time() - history_days * DAY_SECONDS


def _row(session: Session, id: str) -> Comparison:
    return by_id(session, Comparison, plain(id), Comparison.has_text)


def answer_of(card: ComparisonCard, letter: str) -> ComparedAnswerCard:
    """One answer of a comparison. Raises NotFoundError."""
    for answer in card.answers:
        if answer.letter == letter:
            return answer
    raise NotFoundError("answer", letter, [one.letter for one in card.answers], where=f"in comparison {card.id[:8]}")


def replayable(card: ComparisonCard) -> dict[str, StoredAnswer]:
    """The answers by their letters, as `workbench.requests.verification` makes them again.

    Raises BadComparisonError without text."""
    if not card.has_text:
        raise BadComparisonError(f"The text of comparison {card.id[:8]} is not stored.", "Choose another comparison.")
    return {answer.letter: StoredAnswer.model_validate(answer.model_dump()) for answer in card.answers}


def vote(session: Session, id: str, new: NewVote) -> ComparisonCard:
    """Records a vote on two answers. Another vote on the same two replaces it, and is not blind any more.

    Raises NotFoundError for a comparison, an answer or a domain that does not exist, BadComparisonError for a pair of
    one.
    """
    row = _row(session, id)
    first, second, choice = _pair(row, new)
    before = _vote_on(row, first, second)
    if new.domain:
        by_name(session, Domain, new.domain)
        row.domain, row.domain_source = new.domain, "user"
    if before is None:
        row.votes.append(Vote(first=first, second=second, choice=_CHOICES[choice], is_blind=new.is_blind))
    else:
        before.choice, before.is_blind, before.created_at = _CHOICES[choice], False, time.time()
    _record_vote(session, "add" if before is None else "change", row, (first, second), choice)
    session.flush()
    return _card(row)


def withdraw_vote(session: Session, id: str, a: str = "A", b: str = "B") -> ComparisonCard:
    """Deletes the vote on two answers. Raises NotFoundError if there is none."""
    row = _row(session, id)
    first, second = sorted((_place(row, a), _place(row, b)))
    existing = _vote_on(row, first, second)
    if existing is None:
        voted = [f"{LETTERS[one.first]} and {LETTERS[one.second]}" for one in row.votes]
        raise NotFoundError("vote", f"{a} and {b}", voted, where=f"in comparison {row.id[:8]}")
    row.votes.remove(existing)
    _record_vote(session, "delete", row, (first, second))
    session.flush()
    return _card(row)


def _record_vote(session: Session, action: str, row: Comparison, pair: tuple[int, int], choice: str = "") -> None:
    letters = f"{LETTERS[pair[0]]} and {LETTERS[pair[1]]}"
    audit.record(session, action, "vote", row.id, f"{letters}: {choice}" if choice else letters)


def _pair(row: Comparison, new: NewVote) -> tuple[int, int, Choice]:
    """The positions of a vote's two answers, the smaller first, and the choice that fits them."""
    first, second = _place(row, new.a), _place(row, new.b)
    if first == second:
        raise BadComparisonError(f"A vote needs two answers, got {new.a} twice.", "Name another answer.")
    return (first, second, new.choice) if first < second else (second, first, _SWAPPED[new.choice])


def _place(row: Comparison, letter: str) -> int:
    position = LETTERS.find(letter) if len(letter) == 1 else -1
    if not 0 <= position < len(row.answers):
        raise NotFoundError("answer", letter, LETTERS[: len(row.answers)], where=f"in comparison {row.id[:8]}")
    return position


def _vote_on(row: Comparison, first: int, second: int) -> Vote | None:
    return next((one for one in row.votes if (one.first, one.second) == (first, second)), None)


def delete_comparison(session: Session, id: str) -> HistoryDeletion:
    """Deletes a comparison with its votes."""
    row = _row(session, id)
    num_votes = len(row.votes)
    session.delete(row)
    return HistoryDeletion(num_comparisons=1, num_votes=num_votes)


def delete_history(session: Session, *, older_than_days: float = 0.0, with_votes: bool = False) -> HistoryDeletion:
    """Deletes the text of comparisons. Those with votes stay without it, unless `with_votes`."""
    old: ColumnElement[bool] = Comparison.created_at <= _oldest(older_than_days)
    if not with_votes:
        unvoted = and_(~Comparison.votes.any(), Comparison.created_at <= _oldest(max(1.0, older_than_days)))
        old = and_(old, or_(Comparison.has_text, unvoted))  # one without text may wait a day for its vote
    ids = session.scalars(select(Comparison.id).where(old)).all()
    if ids:
        audit.record(session, "delete", "comparison", "history", f"{len(ids)} comparisons or their text")
    return HistoryDeletion(num_comparisons=len(ids), num_votes=_delete(session, ids, with_votes))


def _delete(session: Session, ids: Sequence[str], with_votes: bool) -> int:
    """Deletes comparisons, or the text of those that have votes; returns the number of deleted votes."""
    num_votes = 0
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        of_votes = select(Vote.comparison_id).where(Vote.comparison_id.in_(some))
        voted = set() if with_votes else set(session.scalars(of_votes))
        full = [id for id in some if id not in voted]
        num_votes += session.scalar(select(func.count()).select_from(Vote).where(Vote.comparison_id.in_(full))) or 0
        for table, column in ((Vote, Vote.comparison_id), (ComparedAnswer, ComparedAnswer.comparison_id)):
            session.execute(delete(table).where(column.in_(full)))
        session.execute(delete(Comparison).where(Comparison.id.in_(full)))
        for row in session.scalars(select(Comparison).where(Comparison.id.in_(voted))):
            row.prompt, row.messages, row.has_text = "", [], False
            for answer in row.answers:
                answer.text, answer.tokens = "", {}
    session.flush()
    return num_votes


def _head(row: Comparison) -> dict[str, Any]:
    choices = {stored: choice for choice, stored in _CHOICES.items()}
    votes = [
        VoteCard.from_fields(one, a=LETTERS[one.first], b=LETTERS[one.second], choice=choices[one.choice])
        for one in row.votes
    ]
    models = [label(answer.model, answer.variant) for answer in row.answers]
    return {"is_chat": bool(row.messages), "models": models, "votes": votes}


def label(model: str, variant: str) -> str:
    """A model with how the request changed it."""
    return f"{model} {variant}".strip()


def _card(row: Comparison) -> ComparisonCard:
    messages = [Turn(**message) for message in row.messages]
    return ComparisonCard.from_fields(
        row, messages=messages, answers=[_answer_card(answer) for answer in row.answers], **_head(row)
    )


def _answer_card(row: ComparedAnswer) -> ComparedAnswerCard:
    tokens = row.tokens
    choice = (
        {name: tokens[name] for name in ("index", "finish_reason", "token_ids", "prompt_token_ids")} if tokens else {}
    )
    return ComparedAnswerCard.from_fields(
        row,
        letter=LETTERS[row.position],
        messages=tokens.get("messages", []),
        manifest=Manifest(**row.manifest),
        choices=[StoredTokens(text=row.text, **choice)] if choice else [],
        num_tokens=tokens.get("num_tokens", 0),
        experts=tokens.get("experts", []),
        weights=tokens.get("weights", []),
        leading=tokens.get("leading", []),
    )
