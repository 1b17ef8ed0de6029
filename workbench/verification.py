"""Makes a stored answer of the API again by its manifest, and compares the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from engine.config import SamplingConfig
from engine.errors import EngineError
from engine.events import Done, Token
from workbench.answers.posteriors import Manifest
from workbench.answers.verification import ChoiceReplay, Verification
from workbench.errors import BadSpec
from workbench.mixture_request import MixtureRequest

if TYPE_CHECKING:
    from workbench.generation import GenerationPlan

MAX_BYTES = 256 << 20
NUM_SEEDS = 2**64
Stream = Callable[["GenerationPlan", list[int], SamplingConfig], Iterator[Token | Done]]


class StoredChoice(BaseModel):
    """One text of a stored answer."""

    index: int
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class StoredAnswer(BaseModel):
    """What is read of a stored completion, or of a stored answer in a conversation."""

    manifest: Manifest
    choices: list[StoredChoice]

    def request(self) -> MixtureRequest:
        """The request for the same experts, weights, parts and gate."""
        experts = self.manifest.experts
        return MixtureRequest(
            self.manifest.model,
            [one.name for one in experts],
            {one.name: one.weight for one in experts},
            self.manifest.gate,
            parts={one.name: one.parts for one in experts if one.parts is not None},
        )

    def sampling(self, choice: StoredChoice) -> SamplingConfig:
        """How the tokens of a choice were drawn; no more of them than it has."""
        given = dict(self.manifest.sampling or {})
        given["logit_bias"] = {int(token): bias for token, bias in given.get("logit_bias", {}).items()}
        first = SamplingConfig(**given)
        seed = None if first.seed is None else (first.seed + choice.index % self.manifest.n) % NUM_SEEDS
        return replace(first, seed=seed, max_tokens=max(1, len(choice.token_ids or ())), num_candidates=0)


def read_answer(path: Path) -> StoredAnswer:
    """The stored answer in a file; raises BadSpec for what is none, or one that cannot be made again."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadSpec([f"{path} has more than {MAX_BYTES:,} bytes."], "Give the JSON of one answer.")
        answer = StoredAnswer.model_validate_json(path.read_bytes())
        for choice in answer.choices:
            answer.sampling(choice)
    except OSError as error:
        raise BadSpec([f"{path} cannot be read: {error.strerror}."], "Give the file of an answer.") from None
    except (ValidationError, ValueError, TypeError, EngineError) as error:
        raise BadSpec(
            [f"{path} is no answer of the API with a manifest."], "Store the JSON of a request without stream."
        ) from error
    if answer.manifest.sampling is None or any(
        choice.token_ids is None or choice.prompt_token_ids is None for choice in answer.choices
    ):
        raise BadSpec([f"{path} has no token ids."], "Ask for the answer with return_token_ids: true.")
    return answer


def verify(answer: StoredAnswer, plan: GenerationPlan, stream: Stream) -> Verification:
    """Generates every choice again. What changed since is listed, whether it changes a token or not."""
    choices = [_replay(answer, choice, plan, stream) for choice in answer.choices]
    return Verification(
        agrees=all(choice.first_difference is None for choice in choices),
        changed=_changed(answer.manifest, plan.manifest()),
        choices=choices,
    )


def _replay(answer: StoredAnswer, choice: StoredChoice, plan: GenerationPlan, stream: Stream) -> ChoiceReplay:
    stored, prompt = choice.token_ids or [], choice.prompt_token_ids or []
    events = stream(plan, prompt, answer.sampling(choice)) if stored else iter(())
    made = [event.id for event in events if isinstance(event, Token)]
    same = next((place for place, pair in enumerate(zip(stored, made, strict=False)) if pair[0] != pair[1]), len(made))
    return ChoiceReplay(
        index=choice.index, num_tokens=len(stored), first_difference=None if same >= len(stored) else same
    )


def _changed(stored: Manifest, now: Manifest) -> list[str]:
    hashes = {one.name: (one.sha256, one.base_sha256) for one in stored.experts}
    changed = [f"expert {one.name}" for one in now.experts if hashes[one.name] != (one.sha256, one.base_sha256)]
    changed += ["tokenizer"] if stored.tokenizer_sha256 != now.tokenizer_sha256 else []
    changed += ["clustering"] if stored.clustering_sha256 != now.clustering_sha256 else []
    versions = {**stored.versions, **now.versions}
    return changed + [
        f"{name} {stored.versions.get(name, 'unknown')}, now {now.versions.get(name, 'unknown')}"
        for name in versions
        if stored.versions.get(name) != now.versions.get(name)
    ]
