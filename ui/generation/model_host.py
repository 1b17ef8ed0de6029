"""The weights of this process: a request becomes a plan, and the plan a stream of tokens.

Nothing is loaded before the first request: importing the API, or `--help`, does not import torch.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from engine.config import SamplingConfig, ServePrecision
from engine.errors import ContextLengthExceededError, Problem, TokenizerError
from engine.events import Done, Echo, TextReading, Token
from engine.loading.plan import GenerationPlan, HostUse
from workbench.errors import NotFoundError

if TYPE_CHECKING:
    from engine.inference.generate import Prompt
    from engine.loading.host import Host
    from workbench.settings import Settings
    from workbench.specs.requests import MixtureRequest


log = logging.getLogger(__name__)

PROMPT = "Prompt"
_INSTEAD_OF: Mapping[ServePrecision, str] = {  # a precision that was chosen automatically
    "float32": "WORKBENCH_SERVE_PRECISION=stored serves them as they are stored.",
    "stored": "WORKBENCH_SERVE_PRECISION=float32 serves them in float32, WORKBENCH_CACHE_BYTES sets this limit.",
}
EvidenceFrom = Literal["user", "start"]  # of a conversation


def new_seed() -> int:
    """A seed for an answer to a request without one, so that its manifest can name it; JavaScript reads it exactly."""
    return secrets.randbits(53)


def with_number(problem: Problem, index: int, num_prompts: int) -> Problem:
    """The same problem, with which of several prompts has it."""
    if num_prompts == 1 or problem.problem.startswith(PROMPT):
        return problem
    return type(problem)(f"{PROMPT} {index + 1} of {num_prompts}: {problem.problem}", problem.next_step)


class ModelHost:
    """Plans requests and streams their tokens; the weights are loaded at the first one."""

    def __init__(self, settings: Settings, host: Host | None = None) -> None:
        self.settings = settings
        self._host = host
        self._device: str | None = None
        self._lock = Lock()
        self._logged: set[str] = set()  # sentences about the precision

    def plan(self, request: MixtureRequest, num_candidates: int = 0, *, only_reads: bool = False) -> GenerationPlan:
        """The plan for answering a request, read in one short transaction.

        `num_candidates` are named in the place of each token, which not every engine can. A plan that `only_reads` a
        text is of this process's own engine.
        """
        from workbench.registry.database import reading
        from workbench.requests import planning
        from workbench.store.storage import get_storage

        with reading(self.settings) as session:
            planned = planning.plan(session, get_storage(self.settings), request)
        is_elsewhere = bool(self.settings.vllm_url) and not only_reads
        engine = self.host.engine_of(planned, num_candidates) if is_elsewhere else "own"
        precision = self._precision_of(planned) if engine == "own" else "stored"
        return replace(planned, precision=precision, engine=engine)

    def _precision_of(self, plan: GenerationPlan) -> ServePrecision:
        """What the weights of a plan are held in; a choice that was not asked for is logged once."""
        from engine.loading.loaded_base import choose_precision

        settings = self.settings
        kept = {*plan.by_base(), *(expert.kept for expert in plan.experts)}
        chosen = choose_precision(settings.serve_precision, kept, settings.device, settings.cache_bytes)
        if chosen.because and chosen.because not in self._logged:
            self._logged.add(chosen.because)
            log.warning("%s %s", chosen.because, _INSTEAD_OF[chosen.precision])
        return chosen.precision

    def stream(
        self, plan: GenerationPlan, prompt: Prompt, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Generator[Token | Done, None, None]:
        """Tokens as they come, then one Done; closing the iterator stops the work."""
        with self._naming_damage():
            yield from self.host.stream(plan, prompt, sampling, tuple(stop))

    def conversation(
        self,
        plan: GenerationPlan,
        messages: Sequence[Mapping[str, Any]],
        evidence_from: EvidenceFrom = "user",
        values: Mapping[str, Any] | None = None,
    ) -> tuple[GenerationPlan, list[int]]:
        """The plan with where evidence begins, and the prompt that the models' chat template writes for an answer.

        What a template writes before the user's words is the same for every question, so it says nothing of this one.
        `values` are for variables of the template, such as `enable_thinking`.
        """
        with self._naming_damage():
            ids, first_words = self.host.conversation_prompt(plan, messages, values or {})
        return replace(plan, evidence_from=first_words if evidence_from == "user" else 0), ids

    def require_readable(self, plan: GenerationPlan, *prompts: Prompt, num_new: int = 0) -> None:
        """Refuses prompts that are too long or hold foreign ids, before they wait for their turn.

        `num_new` tokens are to fit behind each.
        """
        for index, prompt in enumerate(prompts):
            try:
                with self._naming_damage():
                    self.host.require_readable(plan, prompt, num_new=num_new)
            except (ContextLengthExceededError, TokenizerError) as problem:
                raise with_number(problem, index, len(prompts)) from problem

    def echo(self, plan: GenerationPlan, prompt: Prompt, num_candidates: int = 0) -> Echo:
        """A prompt token by token, with what the mixture gave each, and the most probable tokens in its place."""
        with self._naming_damage():
            return self.host.echo(plan, prompt, num_candidates)

    def posterior(self, plan: GenerationPlan, text: str) -> TextReading:
        """The weight of every expert, and of every part of those that have some, at every token of a text."""
        with self._naming_damage():
            return self.host.posterior(plan, text)

    def use(self) -> HostUse:
        """What is in memory, and how often a request found its experts there; nothing before the first request."""
        return self._host.use() if self._host is not None else HostUse()

    def _naming_damage(self) -> AbstractContextManager[None]:
        from workbench.integrity.check import naming_damage

        return naming_damage(self.settings)

    def device(self) -> str | None:
        """The device of the weights; None before the first request."""
        return self._device

    @property
    def host(self) -> Host:
        """The weights of this process, made once."""
        with self._lock:
            if self._host is None:
                from engine.device import choose_device

                self._host = _make_host(self.settings)
                self._device = str(choose_device(self.settings.device))
            return self._host


def _make_host(settings: Settings) -> Host:
    from engine.loading.host import Host

    if not settings.vllm_url:
        return Host(settings.cache_bytes, settings.device, shares_passes=True)
    from ui.generation.vllm_host import VllmHost
    from ui.generation.vllm_server import VllmServer

    server = VllmServer(settings.vllm_url, settings.vllm_seconds, settings.vllm_key.get_secret_value())
    routes = settings.vllm_mode == "route"
    return VllmHost(server, settings.cache_bytes, settings.device, shares_passes=True, routes=routes)


def find_member(members: Mapping[str, str], name: str) -> str:
    """An expert of a mixture by its name, or by its domain's where that is enough. `members`: names with domains."""
    if name in members:
        return name
    by_domain = [expert for expert, domain in members.items() if domain == name]
    if len(by_domain) == 1:
        return by_domain[0]
    raise NotFoundError("expert taking part", name, members)


def with_clustering_id(gate: Mapping[str, Any], settings: Settings | None = None) -> dict[str, Any]:
    """The same settings of a gate, with the id of the clustering that was given by its name."""
    if gate.get("clustering") is None:
        return dict(gate)
    from workbench.registry.clusters.clusterings import get_clustering
    from workbench.registry.database import reading

    with reading(settings) as session:
        return {**gate, "clustering": get_clustering(session, gate["clustering"]).id}
