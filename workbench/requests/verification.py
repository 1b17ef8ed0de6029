"""Stored answers: making one again by its manifest, and what the link to a comparison opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from engine.config import SamplingConfig
from engine.errors import EngineError, Problem
from engine.events import Done, Token
from workbench.answers.base import Answer
from workbench.answers.history import ComparedAnswerCard, ComparisonCard, LinkedAnswer, OpenedLink
from workbench.answers.posteriors import Manifest, StoredAnswer, StoredChoice
from workbench.errors import BadSpecError
from workbench.specs.requests import MixtureRequest

if TYPE_CHECKING:
    from engine.loading.plan import GenerationPlan


class ChoiceReplay(Answer):
    """One text of a stored answer, compared with the same made again."""

    index: int
    num_tokens: int
    first_difference: int | None = Field(description="Place of the first token that differs; None if none does.")


class Verification(Answer):
    """Whether the stored tokens are those that the models give today."""

    agrees: bool
    changed: list[str] = Field(description="What of the manifest is not as it was.")
    choices: list[ChoiceReplay]


class AnswerVerification(Verification):
    """The same for one answer of a comparison."""

    letter: str


class ComparisonVerification(Answer):
    """Whether all answers of a comparison can be made again."""

    agrees: bool
    answers: list[AnswerVerification]


MAX_BYTES = 256 << 20
Stream = Callable[["GenerationPlan", list[int], SamplingConfig], Iterator[Token | Done]]


def read_answer(path: Path) -> StoredAnswer:
    """The stored answer in a file; raises BadSpecError for another file, and for one that cannot be made again."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadSpecError([f"{path} has more than {MAX_BYTES:,} bytes."], "Give the JSON of one answer.")
        answer = StoredAnswer.model_validate_json(path.read_bytes())
        for choice in answer.choices:
            answer.sampling(choice)
    except OSError as error:
        raise BadSpecError([f"{path} cannot be read: {error.strerror}."], "Give the file of an answer.") from None
    except (ValidationError, ValueError, TypeError, EngineError) as error:
        raise BadSpecError(
            [f"{path} is not an answer of the API with a manifest."], "Store the JSON of a request without stream."
        ) from error
    if answer.manifest.sampling is None or any(
        choice.token_ids is None or choice.prompt_token_ids is None for choice in answer.choices
    ):
        raise BadSpecError([f"{path} has no token ids."], "Ask for the answer with return_token_ids: true.")
    return answer


def verify(answer: StoredAnswer, plan: GenerationPlan, stream: Stream) -> Verification:
    """Generates every choice again, in the precision of the answer.

    What changed since is listed, whether it changes a token or not: also another precision of this machine or setting.
    """
    choices = [_replay(answer, choice, plan, stream) for choice in answer.choices]
    return Verification(
        agrees=all(choice.first_difference is None for choice in choices),
        changed=changes_since(answer.manifest, Manifest.of(plan)),
        choices=choices,
    )


def verify_comparison(
    stored: Mapping[str, StoredAnswer], plan: Callable[[MixtureRequest], GenerationPlan], stream: Stream
) -> ComparisonVerification:
    """Generates every answer of a comparison again, by their letters."""
    results = {letter: verify(answer, plan(answer.request()), stream) for letter, answer in stored.items()}
    return ComparisonVerification(
        agrees=all(result.agrees for result in results.values()),
        answers=[AnswerVerification(letter=letter, **dict(result)) for letter, result in results.items()],
    )


def _replay(answer: StoredAnswer, choice: StoredChoice, plan: GenerationPlan, stream: Stream) -> ChoiceReplay:
    stored, prompt = choice.token_ids or [], choice.prompt_token_ids or []
    plan = replace(plan, evidence_from=answer.manifest.evidence_from, precision=answer.manifest.precision)
    sampling = answer.sampling(choice)
    if answer.manifest.num_drafted == 0:  # as it was decoded, whatever was asked for
        sampling = replace(sampling, speculate=False)
    events = stream(plan, prompt, sampling) if stored else iter(())
    made = [event.id for event in events if isinstance(event, Token)]
    same = next((place for place, pair in enumerate(zip(stored, made, strict=False)) if pair[0] != pair[1]), len(made))
    return ChoiceReplay(
        index=choice.index, num_tokens=len(stored), first_difference=None if same >= len(stored) else same
    )


def changes_since(stored: Manifest, now: Manifest) -> list[str]:
    """What changed since a manifest was written: files of experts, tokenizer, clustering, precision and packages."""
    hashes = {expert.name: (expert.sha256, expert.base_sha256) for expert in stored.experts}
    changed = [
        f"expert {expert.name}" for expert in now.experts if hashes[expert.name] != (expert.sha256, expert.base_sha256)
    ]
    taking_part = {expert.name for expert in now.experts}
    changed += [f"expert {name}, which is disabled" for name in hashes if name not in taking_part]
    changed += ["tokenizer"] if stored.tokenizer_sha256 != now.tokenizer_sha256 else []
    changed += ["clustering"] if stored.clustering_sha256 != now.clustering_sha256 else []
    changed += [f"precision {stored.precision}, now {now.precision}"] if stored.precision != now.precision else []
    changed += [f"engine {stored.engine}, now {now.engine}"] if stored.engine != now.engine else []
    versions = {**stored.versions, **now.versions}
    return changed + [
        f"{name} {stored.versions.get(name, 'unknown')}, now {now.versions.get(name, 'unknown')}"
        for name in versions
        if stored.versions.get(name) != now.versions.get(name)
    ]


def linked_comparison(card: ComparisonCard, plan: Callable[[MixtureRequest], GenerationPlan]) -> OpenedLink:
    """Plans every answer of a comparison as it was made. Generates nothing and loads no weights.

    An answer whose model, experts or files are gone has a sentence with the problem; of a comparison without stored
    text only models and sampling are known.
    """
    answers = []
    for answer in card.answers:
        stored = StoredAnswer(manifest=answer.manifest, choices=[])
        try:
            changed, problem = changes_since(answer.manifest, Manifest.of(plan(stored.request()))), ""
        except Problem as missing:
            changed, problem = [], missing.problem
        request = _request(card, answer)
        answers.append(LinkedAnswer(letter=answer.letter, request=request, changed=changed, problem=problem))
    return OpenedLink(comparison=card, answers=answers)


def _request(card: ComparisonCard, answer: ComparedAnswerCard) -> dict[str, Any]:
    manifest = answer.manifest
    experts = [
        {"id": expert.name, "weight": expert.weight, **({} if expert.parts is None else {"parts": expert.parts})}
        for expert in manifest.experts
    ]
    text: dict[str, Any] = {"prompt": card.prompt}
    if card.is_chat:
        text = {"messages": list(card.turns_of(answer))}
        text |= {} if manifest.evidence_from else {"evidence_from": "start"}  # as it was read
    body = {"model": manifest.model, "experts": experts, "gate": manifest.gate, **_sampling(answer), **text}
    return {**body, "return_token_ids": True}


def _sampling(answer: ComparedAnswerCard) -> dict[str, Any]:
    """The fields of the request: its own bound of tokens, or those that an answer had when it was stopped."""
    choice = StoredChoice(index=answer.choices[0].index if answer.choices else 0)
    drawn = asdict(StoredAnswer(manifest=answer.manifest, choices=[]).sampling(choice))
    stopped = answer.choices and answer.choices[0].finish_reason is None
    bound = answer.num_tokens if stopped else (answer.manifest.sampling or {}).get("max_tokens", answer.num_tokens)
    del drawn["num_candidates"]
    return {**drawn, "max_tokens": max(1, bound)}
