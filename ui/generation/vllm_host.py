"""Runs plans on a vLLM server where it can answer them, and on the weights of this process where it cannot.

A mixture of E experts is E requests of one group, whose next token the plug-in in vLLM draws for all of them
(`serving/vllm_mixtures`). Weights are computed here from what each expert gave each token. Before that the experts read
the prompt, each in one request, if their predictions of it count as evidence: what they read stays in vLLM's cache.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from threading import Lock
from typing import Any

from engine.config import SamplingConfig, ServeEngine
from engine.errors import MixtureError
from engine.events import Done, Token
from engine.files import new_folder
from engine.inference.generate import Prompt, encode_prompt, require_fits, require_readable, write_answer
from engine.inference.remote_rows import RemoteMixture, RowToken
from engine.inference.sampling import StopPhrases
from engine.loading.host import Host
from engine.loading.plan import GenerationPlan, PlannedExpert
from engine.methods.registry import method_of
from engine.mixing.gate_type import gate_type
from engine.mixing.gates.fixed import FixedGateConfig
from engine.models.expert_model import ModelLimits
from ui.errors import ServingEngineError
from ui.generation.vllm_server import ROW, VllmServer
from workbench.store.storage import ADAPTERS

log = logging.getLogger(__name__)


class VllmHost(Host):
    """A host whose plans a vLLM server answers where it holds their seed model, and only adapters of it take part."""

    def __init__(self, server: VllmServer, *arguments: Any, routes: bool = False, **options: Any) -> None:
        """vLLM reads adapters next to the artifacts. With `routes` one expert answers for a mixture."""
        super().__init__(*arguments, **options)
        self._server, self._routes = server, routes
        self._loading = Lock()
        self._loaded: dict[str, Path] = {}  # the artifact of each adapter that vLLM was made to load
        self._logged: set[str] = set()  # why plans were answered here

    def engine_of(self, plan: GenerationPlan, num_candidates: int = 0) -> ServeEngine:
        """What computes the answer of a plan; why vLLM cannot is logged once. Raises ServingEngineError."""
        self._server.forget(is_same=True)  # it may have been started anew, without the adapters
        why = self._why_here(plan, num_candidates)
        if why and why not in self._logged:
            self._logged.add(why)
            log.warning("“%s” is answered by this process and not by vLLM: %s.", plan.model, why)
        return "own" if why else "vllm-route" if self._routes and len(plan.experts) > 1 else "vllm"

    def stream(
        self, plan: GenerationPlan, prompt: Prompt, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Iterator[Token | Done]:
        """Generates tokens as the base class does, where the plan says so on vLLM."""
        if sampling.draw_expert and plan.engine != "own" and len(plan.experts) > 1:
            raise MixtureError(
                "vLLM runs all experts at each token, so none is drawn (draw_expert).",
                "Leave draw_expert out, or serve without vLLM.",
            )
        tokenizer, limits = self._tokenizer(plan), self._limits(plan)
        require_readable(prompt, tokenizer, limits, 1)
        ids, _ = encode_prompt(prompt, tokenizer)
        if plan.engine == "own" or len(ids) < 2:  # a row reads a token before the one that it predicts with
            yield from super().stream(plan, prompt, sampling, stop)
            return
        require_fits(len(ids), limits, 1)
        if len(plan.experts) == 1:
            plan = replace(plan, gate=FixedGateConfig(), route=None)  # its weight is 1
        names = [self._name(expert) for expert in plan.experts]
        mixture, keys = RemoteMixture(self._gate(plan), len(names)), list(plan.names.values())
        observed = mixture.read_prompt(ids, plan.evidence_from, lambda: self._server.read(names, ids))
        if plan.engine == "vllm-route" and len(names) > 1:
            chosen = mixture.leader()
            plan = replace(plan.of_experts([chosen]), gate=FixedGateConfig(), route=None)
            keys, names, observed = [keys[chosen]], [names[chosen]], []
            mixture = RemoteMixture(self._gate(plan), 1)
        limit = min(sampling.max_tokens, limits.max_positions - len(ids))
        ends = frozenset() if sampling.ignore_eos else self._stop_ids(plan, tokenizer)
        spec = {
            "gate": asdict(plan.gate),
            "prior": [expert.weight for expert in plan.experts],
            "sampling": asdict(sampling),
            "observed": observed,
            "evidence_from": plan.evidence_from,
            "unused": tokenizer.unused_rows(limits.vocab_size),
        }
        rows = self._server.stream(_requests(names, ids, limit, sorted(ends), spec))
        with closing(rows):
            drawn = mixture.drawn(_alike(rows))
            yield from write_answer(drawn, keys, tokenizer.stream(ids), len(ids), ends, StopPhrases(stop), limit)

    def _limits(self, plan: GenerationPlan) -> ModelLimits:
        """Those of the models, and of vLLM, which may have been started for shorter texts."""
        limits = self._least_limits(plan)
        if plan.engine == "own":
            return limits
        most = self._server.models().get(str(plan.base.sha256)) or limits.max_positions
        return limits if most >= limits.max_positions else replace(limits, max_positions=most)

    def _why_here(self, plan: GenerationPlan, num_candidates: int) -> str:
        """Why vLLM cannot answer a plan; empty where it can. Raises ServingEngineError when vLLM is away."""
        methods = {expert.name: method_of(expert.method) for expert in plan.experts}
        if others := [name for name, method in methods.items() if not (method.is_adapter or method.is_seed)]:
            return f"{others[0]} is neither an adapter nor a seed model ({methods[others[0]].title})"
        if len(plan.by_base()) > 1:
            return "its experts have several seed models"
        if len(plan.experts) > 1 and not self._routes:
            if gate_type(plan.gate.kind).needs_clustering:
                return "its gate needs a clustering"
            if not type(plan.gate).__module__.startswith("engine."):
                return f"its gate “{plan.gate.kind}” is of another package, which vLLM does not have"
        if num_candidates:
            return "vLLM gives the most probable tokens of single experts only"
        if plan.base.sha256 not in self._server.models():
            return "vLLM holds another seed model"
        return ""

    def _name(self, expert: PlannedExpert) -> str:
        """The name of an expert in vLLM, which is made to load it if it does not know it."""
        if method_of(expert.method).is_seed:
            return str(expert.base.sha256)
        with self._loading:
            for name, artifact in list(self._loaded.items()):
                if not artifact.is_dir():  # deleted
                    if name in self._server.models():
                        self._server.unload(name)
                    del self._loaded[name]
            if expert.sha256 not in self._server.models():
                self._server.load(expert.sha256, _exported(expert))
            self._loaded[expert.sha256] = expert.folder
        return expert.sha256


def _exported(expert: PlannedExpert) -> Path:
    """The folder of the expert as a PEFT adapter, written once."""
    target = expert.folder.parent / ADAPTERS / expert.folder.name
    if not target.is_dir():
        target.parent.mkdir(exist_ok=True)
        with new_folder(target) as folder:
            method_of(expert.method).export_adapter(
                expert.base, expert.kept, folder, base_model=str(expert.base.sha256)
            )
    return target


def _requests(
    names: Sequence[str], ids: Sequence[int], limit: int, stop_ids: Sequence[int], spec: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The requests of a group, one for each expert."""
    group = secrets.token_hex(16)
    bodies = []
    for number, name in enumerate(names):
        row = {"group": group, "row": number, "rows": len(names)} | ({} if number else {"spec": spec})
        bodies.append(
            {
                "model": name,
                "prompt": list(ids),
                "max_tokens": limit,
                "temperature": 0,
                "stop_token_ids": list(stop_ids),
                "ignore_eos": True,
                "logprobs": 0,
                "return_token_ids": True,
                "stream": True,
                "vllm_xargs": {ROW: json.dumps(row)},
            }
        )
    return bodies


def _alike(rows: Iterator[Sequence[RowToken]]) -> Iterator[Sequence[RowToken]]:
    """The tokens of a group, which its rows must have in common."""
    for row in rows:
        if len({one.id for one in row}) > 1:
            raise ServingEngineError(
                "vLLM drew different tokens for the experts of a mixture.",
                "Start it with --scheduler-cls vllm_mixtures.scheduler.MixtureScheduler, and look at its log.",
            )
        yield row
