"""Plans a request for a model, and generates tokens and posteriors from the plan.

A plan is read in one short transaction that is closed before the first token. Active experts, weights and gates belong
to the plan, not to the loaded model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload, selectinload

from engine.config import SamplingConfig, ServePrecision
from engine.errors import ChatTemplateError, MixtureError
from engine.events import Done, Echo, Token
from engine.files import ArtifactRef
from engine.foreign_files import short
from engine.mixing.gate_registry import build_gate
from engine.mixing.gate_type import GateConfig
from workbench.answers.posteriors import Manifest, ManifestExpert, TextPosterior
from workbench.answers.server import CacheUse, DraftUse, LoadedBase
from workbench.clustering_cache import ClusteringCache
from workbench.errors import NotFound
from workbench.formatting.shell_command import shell_command
from workbench.gate_configs import changed_gate, default_gate, dump_gate, load_gate
from workbench.mixture_request import MixtureRequest
from workbench.registry.aliases import model_row
from workbench.registry.clusters.cluster_routing import Route, find_route
from workbench.registry.experts import part_names
from workbench.registry.priors import weights_under
from workbench.registry.tokenizers import with_another_tokenizer
from workbench.store.storage import Storage
from workbench.tables import Expert, Mixture, MixtureMember

if TYPE_CHECKING:
    from engine.clusters.artifact import Clustering
    from engine.clusters.distances import GrowingContext
    from engine.inference.ensemble import Ensemble, Group
    from engine.inference.prompt import Prompt
    from engine.inference.shared_passes import SharedPasses
    from engine.mixing.base import Gate
    from engine.models.context_length import Limits
    from engine.models.expert_model import ExpertModel
    from engine.text.chat.answers import Message
    from engine.text.chat.template import ChatTemplate
    from engine.text.tokenizer import Tokenizer

Value = TypeVar("Value")


@dataclass(frozen=True)
class PlannedExpert:
    """An expert of a plan: its files and its share of the prior."""

    id: str
    name: str
    sha256: str
    folder: Path
    weight: float
    base: ArtifactRef
    parts: tuple[str, ...] | None = None  # active parts of a MoDE expert; an empty tuple is its backbone alone
    record: Path | None = None  # of when its files were last verified

    @property
    def kept(self) -> ArtifactRef:
        """The folder of its weights, and their expected hash."""
        return ArtifactRef(self.folder, self.sha256, self.record)

    def manifest(self) -> ManifestExpert:
        """Its part of an answer's manifest."""
        return ManifestExpert(
            id=self.id,
            name=self.name,
            sha256=self.sha256,
            weight=self.weight,
            base_sha256=self.base.sha256,
            parts=None if self.parts is None else list(self.parts),
        )


@dataclass(frozen=True)
class GenerationPlan:
    """Everything that one generation needs. It holds only experts with a weight above 0."""

    model: str
    experts: tuple[PlannedExpert, ...]
    member_ids: tuple[str, ...]  # all experts of the model, inactive ones included
    tokenizer_sha256: str
    gate: GateConfig
    route: Route | None = None  # of a cluster gate
    precision: ServePrecision = "stored"  # what its weights are served in
    evidence_from: int = 0  # the token of the prompt where evidence begins: in a conversation the user's first words

    @property
    def base(self) -> ArtifactRef:
        """The first expert's base; all share its tokenizer."""
        return self.experts[0].base

    @property
    def clusters(self) -> tuple[int, ...] | None:
        """The cluster of each expert; None if an expert has none, so that distances alone cannot weigh them."""
        known = tuple(number for number in self.route.clusters if number is not None) if self.route else ()
        return known if self.route and len(known) == len(self.route.clusters) else None

    def by_base(self) -> dict[ArtifactRef, list[PlannedExpert]]:
        """The experts of each base."""
        groups: dict[ArtifactRef, list[PlannedExpert]] = {}
        for expert in self.experts:
            groups.setdefault(expert.base, []).append(expert)
        return groups

    def files(self) -> dict[ArtifactRef, dict[str, ArtifactRef]]:
        """The files of each base's experts, by their ids."""
        return {base: {expert.id: expert.kept for expert in experts} for base, experts in self.by_base().items()}

    def manifest(self, sampling: SamplingConfig | None = None) -> Manifest:
        """Which files, experts, weights and draws make the answer; `sampling` is None where nothing is sampled."""
        return Manifest(
            model=self.model,
            experts=[expert.manifest() for expert in self.experts],
            tokenizer_sha256=self.tokenizer_sha256,
            gate=dump_gate(self.gate),
            clustering_sha256=self.route.clustering.sha256 if self.route else None,
            sampling=None if sampling is None else asdict(sampling),
            versions=_versions(),
            precision=self.precision,
            evidence_from=self.evidence_from,
        )


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("expert-workbench", "torch", "transformers", "tokenizers")}


_EXPERTS = selectinload(Mixture.members).joinedload(MixtureMember.expert)
_MEMBERS = _EXPERTS.options(joinedload(Expert.artifact), joinedload(Expert.base))  # not one query for each


@dataclass(frozen=True)
class _Member:
    expert: Expert
    weight: float
    on: bool


@dataclass(frozen=True)
class _Model:
    """A stored mixture, or an expert as a mixture of one."""

    name: str
    members: Sequence[_Member]
    gate: GateConfig
    is_mixture: bool = True

    @property
    def names(self) -> list[str]:
        return [member.expert.name for member in self.members]


def plan(session: Session, storage: Storage, request: MixtureRequest | str) -> GenerationPlan:
    """The plan of a request. A name stands for a request that changes nothing.

    The model is read once. All parts of a MoDE expert are active unless `parts` names some; an empty list leaves the
    backbone alone. Raises NotFound, or MixtureError if no expert is left or the experts cannot be mixed.
    """
    request = MixtureRequest(request) if isinstance(request, str) else request
    model = _find_model(session, request.model)
    _require_known(model, [*(request.active or ()), *(request.weights or ()), *request.parts])
    for member in model.members:
        _require_parts(member.expert, request.parts.get(member.expert.name))
    chosen = _choose(model, request.active, _weights(session, model, request))
    experts = [member.expert for member in chosen]
    _require_one_tokenizer(experts)
    gate = changed_gate(model.gate, request.gate) if request.gate else model.gate
    return GenerationPlan(
        model.name,
        tuple(_planned(storage, member, request.parts) for member in chosen),
        tuple(member.expert.id for member in model.members),
        experts[0].tokenizer_sha256,
        gate,
        find_route(session, storage, gate, experts),
    )


def gate_of(planned: GenerationPlan, follow: Callable[[], GrowingContext] | None = None) -> Gate:
    """The gate of a plan. A cluster gate needs `follow` for a growing text, but not for stored scores."""
    from engine.mixing.cluster import Routing

    routing = Routing(planned.route.clusters, follow) if planned.route else None
    return build_gate(planned.gate, [expert.weight for expert in planned.experts], routing)


def _require_one_tokenizer(experts: Sequence[Expert]) -> None:
    first = experts[0]
    if others := with_another_tokenizer(first, experts[1:]):
        names = f"“{others[0].name}” and “{first.name}”"
        raise MixtureError(
            f"{names} have different tokenizers, so they cannot be mixed token by token.", "Switch one of them off."
        )


def _find_model(session: Session, name: str) -> _Model:
    mixture = session.scalar(select(Mixture).where(Mixture.name == name).options(_MEMBERS))
    if mixture is not None:
        members = [_Member(m.expert, m.weight, m.active and m.expert.enabled) for m in mixture.members]
        return _Model(name, members, load_gate(mixture.gate))
    expert = session.scalar(select(Expert).where(Expert.name == name))
    if expert is None:
        return _find_model(session, model_row(session, name).name)  # an alias
    return _Model(name, [_Member(expert, 1.0, expert.enabled)], default_gate(), is_mixture=False)


def _weights(session: Session, model: _Model, request: MixtureRequest) -> Mapping[str, float] | None:
    """The weights of a request: its own, or the shares of its prior for the active experts."""
    if request.prior is None:
        return request.weights
    if not model.is_mixture:
        raise NotFound("mixture", model.name, session.scalars(select(Mixture.name).order_by(Mixture.name).limit(20)))
    taking_part = [member.expert.name for member in model.members if member.on]
    return weights_under(session, request.prior, taking_part if request.active is None else request.active)


def _require_known(model: _Model, experts: Sequence[str]) -> None:
    for name in experts:
        if name not in model.names:
            raise NotFound("expert", name, model.names, where=f"in “{model.name}”")


def _require_parts(expert: Expert, requested: Collection[str] | None) -> None:
    existing = part_names(expert)
    if requested is not None and not existing:
        raise MixtureError(
            f"“{expert.name}” has no parts: its method is “{expert.method}”.",
            "Leave its parts out, or switch the expert off.",
        )
    for name in requested or ():
        if name not in existing:
            raise NotFound("part", name, existing, where=f"of “{expert.name}”")


def _choose(model: _Model, active: Sequence[str] | None, weights: Mapping[str, float] | None) -> list[_Member]:
    chosen = []
    for member in model.members:
        name = member.expert.name
        on = member.on if active is None else name in active and member.expert.enabled
        weight = member.weight if weights is None else weights.get(name, 0.0)
        if on and weight > 0:
            chosen.append(_Member(member.expert, weight, True))
    if not chosen:
        raise _no_active_expert(
            model.name, [member.expert.name for member in model.members if not member.expert.enabled]
        )
    return chosen


def _no_active_expert(model: str, disabled: Sequence[str]) -> MixtureError:
    if disabled == [model]:
        problem = f"The expert “{model}” is disabled in the registry."
        command = shell_command("expert", "enable", model)
        return MixtureError(problem, f"Enable it on the page Experts, or with `{command}`.")
    of_these = f" Disabled in the registry: {', '.join(disabled)}." if disabled else ""
    return MixtureError(
        f"“{model}” has no active expert with a weight above 0.{of_these}",
        "Switch an expert on.",
    )


def _planned(storage: Storage, member: _Member, requested: Mapping[str, Collection[str]]) -> PlannedExpert:
    expert = member.expert
    return PlannedExpert(
        expert.id,
        expert.name,
        expert.artifact.sha256,
        storage.path(expert.artifact_id),
        member.weight,
        storage.kept(expert.base),
        _active_parts(expert, requested.get(expert.name)),
        storage.kept(expert.artifact).record,
    )


def _active_parts(expert: Expert, requested: Collection[str] | None) -> tuple[str, ...] | None:
    """The active parts in the expert's order, so that the same parts give bit-identical output in any request order."""
    existing = part_names(expert)
    return tuple(name for name in existing if requested is None or name in requested) if existing else None


class Host:
    """Holds all loaded weights of a process, bounded in bytes, and runs plans on them."""

    def __init__(
        self,
        cache_bytes: int = 6 << 30,
        device: str = "auto",
        *,
        shares_passes: bool = False,
    ) -> None:
        """`cache_bytes` bounds weights, clusterings, and the keys and values of running streams together.

        A stream that does not fit has idle models evicted, and waits for others if that is not enough.
        With `shares_passes` streams have the tokens that they have alone in float32, and else the same bits, too.
        """
        from engine.device import choose_device
        from engine.inference.cache_bytes import CacheBytes
        from engine.inference.speculation import DraftCount
        from engine.loading.model_cache import ModelCache

        self._drafts = DraftCount()
        self._clusterings = ClusteringCache(device)
        self._cache = ModelCache(cache_bytes, choose_device(device), self._other_bytes)
        self._stream_bytes = CacheBytes(cache_bytes, self._shrink)
        self._passes: SharedPasses | None = None
        self._shares_passes = shares_passes
        self._separate_because: dict[str, str] = {}  # why, by the base's hash; empty where its streams share passes
        self._tokenizers: dict[ArtifactRef, Tokenizer] = {}
        self._templates: dict[Path, ChatTemplate | None] = {}  # by the folder of a base, or of an expert with its own
        self._stops: dict[tuple[Path, Path], frozenset[int]] = {}  # stop tokens, by the same folders
        self._limits: dict[ArtifactRef, Limits] = {}
        self._reading = Lock()  # the first read of a base imports transformers, which must not happen in two threads

    def stream(
        self, plan: GenerationPlan, prompt: Prompt, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Iterator[Token | Done]:
        """Generates tokens, in passes that are shared with other streams of the same bases if the host was made so.

        The weights and gates of each are keyed by expert name.
        """
        from engine.inference.generate import generate

        models, tokenizer = self._models(plan, shares=self._shares_passes), self._tokenizer(plan)
        names = {expert.id: expert.name for expert in plan.experts}
        ends, gate = self._stop_ids(plan), self._gate(plan)

        def reserve(num_positions: int) -> AbstractContextManager[None]:
            return self._stream_bytes.reserved(num_positions * self._bytes_per_position(plan))

        events = generate(
            models,
            list(names),
            gate,
            tokenizer,
            prompt,
            sampling,
            stop,
            ends,
            reserve,
            self._drafts,
            plan.evidence_from,
        )
        with self._using(plan), closing(events):
            for event in events:
                if isinstance(event, Token):
                    event = replace(event, weights=_named(event.weights, names), gates=_named(event.gates, names))
                yield event

    def require_readable(self, plan: GenerationPlan, prompt: Prompt, num_new: int = 0) -> None:
        """Raises an error for a prompt that the plan's models cannot read, without loading them.

        `num_new` tokens are to fit behind it. A text that cannot fit is not tokenized, nor is one that fits however it
        is cut.
        """
        from engine.inference.prompt import encode_prompt, require_fits, require_readable

        limits, tokenizer = self._least_limits(plan), self._tokenizer(plan)
        require_readable(prompt, tokenizer, limits, num_new)
        if isinstance(prompt, str) and len(prompt.encode()) >= limits.max_positions - num_new:
            require_fits(len(encode_prompt(prompt, tokenizer)[0]), limits, num_new)

    def conversation_prompt(
        self, plan: GenerationPlan, messages: Sequence[Message], values: Mapping[str, Any]
    ) -> tuple[list[int], int]:
        """The prompt for the next answer in a conversation, and the index of the first token of its first user.

        `values` are for its template. Loads no weights. Raises ChatTemplateError without a template, or for what it
        refuses or does not read; MixtureError for experts whose templates differ; ContextLengthExceeded for messages
        that cannot fit.
        """
        from engine.inference.prompt import require_readable

        template, tokenizer = self._template(plan), self._tokenizer(plan)
        content = "".join(str(message.get("content", "")) for message in messages)
        require_readable(content, tokenizer, self._least_limits(plan))
        if unread := template.unread(values):
            raise ChatTemplateError(
                f"The chat template of these models does not read “{short(unread[0])}”.", "Leave it out."
            )
        return template.with_values(values).encode_prompt(tokenizer, messages)

    def prompt_ids(self, plan: GenerationPlan, prompt: Prompt) -> list[int]:
        """The ids that are read for a prompt, with those put before it. Loads no weights."""
        from engine.inference.prompt import encode_prompt

        return encode_prompt(prompt, self._tokenizer(plan))[0]

    def echo(self, plan: GenerationPlan, prompt: Prompt, num_candidates: int = 0) -> Echo:
        """Scores a prompt: its tokens, with the mixture's log-probability of each (nats) and the most probable ones."""
        from engine.inference.read_text import read_prompt

        models, keys = self._models(plan), [expert.id for expert in plan.experts]
        with self._using(plan):
            return read_prompt(models, keys, self._gate(plan), self._tokenizer(plan), prompt, num_candidates)

    def posterior(self, plan: GenerationPlan, text: str) -> TextPosterior:
        """The text token by token: the weights before each, and the log-probability the mixture gave it (nats)."""
        from engine.inference.read_text import read_text

        models, tokenizer = self._models(plan), self._tokenizer(plan)
        with self._using(plan):
            reading = read_text(models, [expert.id for expert in plan.experts], self._gate(plan), tokenizer, text)
        names = {expert.id: expert.name for expert in plan.experts}
        gates = [_named(weights, names) for weights in reading.pop("gates")]
        return TextPosterior(experts=list(names.values()), **reading, gate_weights=gates)

    def loaded(self) -> list[LoadedBase]:
        """Bases in memory, with the ids of the experts loaded on each."""
        return [
            LoadedBase(
                base_sha256=base,
                precision=precision,
                experts=experts,
                separate_because=self._separate_because.get(base) or None,
            )
            for (base, precision), experts in self._cache.loaded().items()
        ]

    def cache_use(self) -> CacheUse:
        """The bytes of loaded models, clusterings and streams, and how often models were there when requested."""
        cache = self._cache
        return CacheUse(
            num_bytes=cache.num_bytes(),
            num_clustering_bytes=self._clusterings.num_bytes(),
            num_stream_bytes=self._passes.num_bytes() if self._passes is not None else 0,
            num_reserved_bytes=self._stream_bytes.num_reserved,
            num_hits=cache.num_hits,
            num_misses=cache.num_misses,
        )

    def draft_use(self) -> DraftUse:
        """The drafts of all answers so far."""
        return DraftUse(num_judged=self._drafts.num_judged, num_accepted=self._drafts.num_accepted)

    @contextmanager
    def _using(self, plan: GenerationPlan) -> Iterator[None]:
        """Keeps the bases of a plan in memory, as far as possible; afterwards waiting streams may have their place."""
        try:
            with self._cache.using(plan.by_base(), plan.precision):
                yield
        finally:
            self._stream_bytes.retry()

    def _other_bytes(self) -> int:
        """What counts beside the weights."""
        return self._stream_bytes.num_reserved + self._clusterings.num_bytes()

    def _shrink(self, wanted_bytes: int) -> int:
        """Evicts idle models for streams; gives the bytes that are not those of streams."""
        clusterings = self._clusterings.num_bytes()
        return self._cache.evict_idle(wanted_bytes + clusterings) + clusterings

    def _models(self, plan: GenerationPlan, *, shares: bool = False) -> Ensemble:
        """The experts of each base. A base is loaded on first use and stays in memory while the cache has space."""
        from engine.inference.ensemble import Ensemble

        return Ensemble(
            tuple(self._group(base, experts, plan.precision, shares) for base, experts in plan.by_base().items())
        )

    def _group(
        self, base: ArtifactRef, experts: Sequence[PlannedExpert], precision: ServePrecision, shares: bool
    ) -> Group:
        from engine.inference.ensemble import Group

        limits, kept = self._limits_of(base), {expert.id: expert.kept for expert in experts}
        parts = {expert.id: expert.parts for expert in experts if expert.parts is not None}
        is_first = iter([True])

        def model() -> ExpertModel:
            loaded = self._cache.get(base, kept, precision, is_first=next(is_first, False))
            view = loaded.view(list(kept), parts)
            return self._shared(base, view) if shares else view

        return Group(
            tuple(kept),
            model,
            limits.max_positions,
            limits.vocab_size,
        )

    def _shared(self, base: ArtifactRef, model: ExpertModel) -> ExpertModel:
        """The model, reading in passes that are shared with other streams."""
        from engine.inference.shared_passes import SharedPasses, why_not_shared

        with self._reading:
            self._passes = self._passes or SharedPasses()
        shared = self._passes.view(model)
        self._separate_because[str(base.sha256)] = why_not_shared(shared)
        return shared

    def _bytes_per_position(self, plan: GenerationPlan) -> int:
        """Bytes of the keys and values of one token in the rows of all experts."""
        from engine.inference.cache_bytes import bytes_per_position
        from engine.models.families import read_config

        return sum(bytes_per_position(read_config(base.folder)) * len(own) for base, own in plan.by_base().items())

    def _least_limits(self, plan: GenerationPlan) -> Limits:
        """Those of the base with the shortest context."""
        return min((self._limits_of(base) for base in plan.by_base()), key=lambda one: one.max_positions)

    def _limits_of(self, base: ArtifactRef) -> Limits:
        from engine.methods.row_registry import read_limits

        with self._reading:
            if base not in self._limits:
                self._limits[base] = read_limits(base.folder)
        return self._limits[base]

    def _gate(self, plan: GenerationPlan) -> Gate:
        from engine.clusters.distances import GrowingContext

        return gate_of(plan, lambda: GrowingContext(self._clustering(plan), self._tokenizer(plan)))

    def _clustering(self, plan: GenerationPlan) -> Clustering:
        assert plan.route is not None
        clustering = self._clusterings.get(plan.route.clustering, plan.route.seed)
        self._cache.evict_idle(self._other_bytes())
        return clustering

    def _tokenizer(self, plan: GenerationPlan) -> Tokenizer:
        from engine.text.tokenizer import load_tokenizer

        if plan.base not in self._tokenizers:
            self._tokenizers[plan.base] = load_tokenizer(plan.base.folder)
        return self._tokenizers[plan.base]

    def _template(self, plan: GenerationPlan) -> ChatTemplate:
        """The chat template that all experts of a plan have."""
        from engine.text.chat.own_template import template_folder
        from engine.text.chat.template import load_chat_template

        folders = {expert.id: template_folder(expert.base.folder, expert.folder) for expert in plan.experts}
        for folder in folders.values():
            if folder not in self._templates:
                self._templates[folder] = load_chat_template(folder, "this model")
        first = plan.experts[0]
        template = self._templates[folders[first.id]]
        for expert in plan.experts:
            other = self._templates[folders[expert.id]]
            if (other and other.sha256) != (template and template.sha256):
                raise MixtureError(
                    f"“{expert.name}” and “{first.name}” have different chat templates, so no prompt suits both.",
                    "Switch one of them off, or ask for the completion of a text.",
                )
        if template is None:
            raise ChatTemplateError(
                f"“{plan.model}” has no chat template: its seed model came without one.",
                "Ask for the completion of a text, or make experts of a seed model that has learnt to chat.",
            )
        return template

    def _stop_ids(self, plan: GenerationPlan) -> frozenset[int]:
        """The stop tokens of all bases and experts together, with those that end a turn."""
        from engine.text.chat.own_template import stop_ids, template_folder

        tokenizer, experts = self._tokenizer(plan), [(expert.base.folder, expert.folder) for expert in plan.experts]
        folders = {(base, template_folder(base, expert)) for base, expert in experts}
        for pair in folders - self._stops.keys():
            self._stops[pair] = stop_ids(tokenizer, *pair)
        return frozenset().union(*(self._stops[pair] for pair in folders))


def _named(by_id: Mapping[str, Value], names: Mapping[str, str]) -> dict[str, Value]:
    """A mapping keyed by experts' names, made from one keyed by their ids."""
    return {names[key]: value for key, value in by_id.items()}
