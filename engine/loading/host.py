"""Holds the weights of a process and runs plans on them.

Active experts, weights and gates belong to a plan, never to the loaded models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from threading import Condition, Lock
from typing import Any, TypeVar

from engine.clusters.artifact import ClusteringCache, FittedClustering
from engine.clusters.distances import GrowingContext
from engine.config import SamplingConfig, ServeEngine
from engine.device import choose_device
from engine.errors import ChatTemplateError, MixtureError
from engine.events import Done, Echo, TextReading, Token
from engine.files import ArtifactRef
from engine.foreign_files import short
from engine.inference.cancellation import CHECK_SECONDS, check_cancelled
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import (
    DraftCount,
    Prompt,
    encode_prompt,
    generate,
    read_prompt,
    read_text,
    require_fits,
    require_readable,
)
from engine.inference.shared_passes import SharedPasses, why_not_shared
from engine.loading.loaded_base import ModelCache
from engine.loading.plan import BaseInMemory, GenerationPlan, HostUse, PlannedExpert, gate_of
from engine.methods.multi_expert_files import read_limits
from engine.mixing.base import Gate
from engine.models.expert_model import ExpertModel, ModelLimits
from engine.models.model_files import read_config
from engine.text.chat.answers import Message
from engine.text.chat.template import ChatTemplate, load_chat_template, stop_ids, template_folder
from engine.text.tokenizer import Tokenizer, load_tokenizer

_BYTES = 4  # of a number, as if all were float32


class CacheBytes:
    """At most `capacity` bytes are reserved at a time, in the order of asking; one stream always fits.

    `shrink` frees what else counts toward the capacity, such as idle models, until so many bytes fit next to it; it
    gives the bytes that are still held.
    """

    def __init__(self, capacity: int, shrink: Callable[[int], int] = lambda _: 0) -> None:
        self._capacity, self._shrink = capacity, shrink
        self._changed = Condition()
        self._turns: deque[object] = deque()
        self.num_reserved = 0  # bytes of running streams

    @contextmanager
    def reserved(self, num_bytes: int) -> Iterator[None]:
        """Waits for this many bytes and holds them: all at once, so that no two streams wait for each other.

        Raises CancelledError, and leaves its place, once nobody waits for the stream.
        """
        with self._changed:
            turn = object()
            self._turns.append(turn)
            try:
                while not self._changed.wait_for(
                    lambda: self._turns[0] is turn and self._fits(num_bytes), timeout=CHECK_SECONDS
                ):
                    check_cancelled()
            finally:
                self._turns.remove(turn)
                self._changed.notify_all()
            self.num_reserved += num_bytes
        try:
            yield
        finally:
            with self._changed:
                self.num_reserved -= num_bytes
                self._changed.notify_all()

    def retry(self) -> None:
        """Has streams that wait look again: what else counts toward the capacity may be idle now."""
        with self._changed:
            self._changed.notify_all()

    def _fits(self, num_bytes: int) -> bool:
        wanted = self.num_reserved + num_bytes
        return wanted + self._shrink(wanted) <= self._capacity or not self.num_reserved


def bytes_per_position(config: Any) -> int:
    """Bytes of the keys and values of one token in one expert's row, counted as float32.

    Those of a decoder with heads of one width; what recurrent layers or parts of MoDE hold in addition is not counted.
    """
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * width * _BYTES)


class ModelFolder:
    """The limits and the tokenizer of a base, and the chat templates of its experts. Each file is read once."""

    def __init__(self, folder: Path) -> None:
        """Raises DamagedFileError where the limits cannot be read."""
        self._folder = folder
        self.limits = read_limits(folder)
        self.bytes_per_position = bytes_per_position(read_config(folder))  # of one expert's keys and values
        self._load_template = cache(lambda own: load_chat_template(own, "this model"))
        self._stop_ids: dict[Path, frozenset[int]] = {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; of a mixture over several bases only the first one's is read, since all are alike."""
        return load_tokenizer(self._folder)

    def template(self, expert: Path) -> ChatTemplate | None:
        """The chat template of an expert: its own, or else the base's; None without one."""
        return self._load_template(template_folder(self._folder, expert))

    def stop_ids(self, expert: Path, tokenizer: Tokenizer) -> frozenset[int]:
        """The tokens that end an answer of an expert, with those that end a turn by its chat template."""
        folder = template_folder(self._folder, expert)
        if folder not in self._stop_ids:
            self._stop_ids[folder] = stop_ids(tokenizer, self._folder, folder)
        return self._stop_ids[folder]


Value = TypeVar("Value")


class Host:
    """Holds all loaded weights of a process, bounded in bytes, and runs plans on them."""

    def __init__(self, cache_bytes: int = 6 << 30, device: str = "auto", *, shares_passes: bool = False) -> None:
        """`cache_bytes` bounds weights, clusterings, and the keys and values of running streams together.

        A stream that does not fit has idle models evicted, and waits for others if that is not enough.
        In float32 streams that share passes give the tokens that they give on their own; others also the same bits.
        """
        self._drafts = DraftCount()
        self._clusterings = ClusteringCache(device)
        self._cache = ModelCache(cache_bytes, choose_device(device), self._other_bytes)
        self._stream_bytes = CacheBytes(cache_bytes, self._shrink)
        self._passes = SharedPasses() if shares_passes else None
        self._separate_because: dict[str, str] = {}  # why, by the base's hash; empty where its streams share passes
        self._folders: dict[ArtifactRef, ModelFolder] = {}
        self._reading = Lock()  # the first read of a base imports transformers, which must not happen in two threads

    def engine_of(self, _plan: GenerationPlan, _num_candidates: int = 0) -> ServeEngine:
        """What computes the answer of a plan."""
        return "own"

    def stream(
        self, plan: GenerationPlan, prompt: Prompt, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Iterator[Token | Done]:
        """Generates tokens, in passes that are shared with other streams of the same bases if the host was made so.

        The weights and gates of each are keyed by expert name.
        """
        models, tokenizer, names = self._models(plan, self._passes), self._tokenizer(plan), plan.names
        bytes_per_position = sum(
            self._folder(base).bytes_per_position * len(experts) for base, experts in plan.by_base().items()
        )

        def reserve(num_positions: int) -> AbstractContextManager[None]:
            return self._stream_bytes.reserved(num_positions * bytes_per_position)

        events = generate(
            models,
            list(names),
            self._gate(plan),
            tokenizer,
            prompt,
            sampling,
            stop,
            self._stop_ids(plan, tokenizer),
            reserve,
            self._drafts,
            plan.evidence_from,
        )
        with self._using(plan), closing(events):
            for event in events:
                if isinstance(event, Token):
                    event = replace(event, weights=_by_name(event.weights, names), gates=_by_name(event.gates, names))
                yield event

    def require_readable(self, plan: GenerationPlan, prompt: Prompt, num_new: int = 0) -> None:
        """Raises an error for a prompt that the plan's models cannot read, without loading them.

        `num_new` tokens are to fit behind it. A text that cannot fit is not tokenized, nor is one that fits however it
        is cut.
        """
        limits, tokenizer = self._least_limits(plan), self._tokenizer(plan)
        require_readable(prompt, tokenizer, limits, num_new)
        if isinstance(prompt, str) and len(prompt.encode()) >= limits.max_positions - num_new:
            require_fits(len(encode_prompt(prompt, tokenizer)[0]), limits, num_new)

    def conversation_prompt(
        self, plan: GenerationPlan, messages: Sequence[Message], values: Mapping[str, Any]
    ) -> tuple[list[int], int]:
        """The prompt for the next answer in a conversation, and the index of the first token of its first user.

        `values` are for its template. Loads no weights. Raises ChatTemplateError without a template, or for what it
        refuses or does not read; MixtureError for experts whose templates differ; ContextLengthExceededError for
        messages that cannot fit.
        """
        template, tokenizer = self._template(plan), self._tokenizer(plan)
        content = "".join(str(message.get("content", "")) for message in messages)
        require_readable(content, tokenizer, self._least_limits(plan))
        if unread := template.unread(values):
            problem = f"The chat template of these models does not read “{short(unread[0])}”."
            raise ChatTemplateError(problem, "Leave it out.")
        return template.with_values(values).encode_prompt(tokenizer, messages)

    def prompt_ids(self, plan: GenerationPlan, prompt: Prompt) -> list[int]:
        """The ids that are read for a prompt, with those put before it. Loads no weights."""
        return encode_prompt(prompt, self._tokenizer(plan))[0]

    def token_texts(self, plan: GenerationPlan, before: Sequence[int], ids: Sequence[int]) -> list[str]:
        """The text of each of these tokens after those `before`, as `stream` gives it. Loads no weights."""
        stream = self._tokenizer(plan).stream(before)
        return [stream.push(id) for id in ids]

    def echo(self, plan: GenerationPlan, prompt: Prompt, num_candidates: int = 0) -> Echo:
        """Scores a prompt: its tokens, with the mixture's log-probability of each (nats) and the most probable ones."""
        models, tokenizer = self._models(plan), self._tokenizer(plan)
        with self._using(plan):
            return read_prompt(models, list(plan.names), self._gate(plan), tokenizer, prompt, num_candidates)

    def posterior(self, plan: GenerationPlan, text: str) -> TextReading:
        """The text token by token: the weights before each, and the log-probability the mixture gave it (nats)."""
        models, tokenizer, names = self._models(plan), self._tokenizer(plan), plan.names
        with self._using(plan):
            columns = read_text(models, list(names), self._gate(plan), tokenizer, text)
        gates = [_by_name(weights, names) for weights in columns.pop("gates")]
        return TextReading(experts=list(names.values()), **columns, gate_weights=gates)

    def use(self) -> HostUse:
        """The bases in memory, the bytes of models, clusterings and streams, and the drafts of all answers so far."""
        cache, separate = self._cache, self._separate_because
        return HostUse(
            bases=[
                BaseInMemory(base, precision, experts, separate.get(base) or None)
                for (base, precision), experts in cache.loaded().items()
            ],
            num_bytes=cache.num_bytes(),
            num_clustering_bytes=self._clusterings.num_bytes(),
            num_stream_bytes=self._passes.num_bytes() if self._passes is not None else 0,
            num_reserved_bytes=self._stream_bytes.num_reserved,
            num_hits=cache.num_hits,
            num_misses=cache.num_misses,
            num_judged_drafts=self._drafts.num_judged,
            num_accepted_drafts=self._drafts.num_accepted,
        )

    @contextmanager
    def _using(self, plan: GenerationPlan) -> Iterator[None]:
        """Keeps the bases of a plan in memory, as far as possible; afterwards waiting streams may have their place."""
        try:
            with self._cache.using(plan.by_base(), plan.precision):
                yield
        finally:
            self._stream_bytes.retry()

    def _other_bytes(self) -> int:
        """What counts in addition to the weights."""
        return self._stream_bytes.num_reserved + self._clusterings.num_bytes()

    def _shrink(self, wanted_bytes: int) -> int:
        """Evicts idle models for streams; gives the bytes that are not those of streams."""
        clusterings = self._clusterings.num_bytes()
        return self._cache.evict_idle(wanted_bytes + clusterings) + clusterings

    def _models(self, plan: GenerationPlan, passes: SharedPasses | None = None) -> Ensemble:
        """The experts of each base. A base is loaded on first use and stays in memory while the cache has space."""
        return Ensemble(tuple(self._group(plan, base, experts, passes) for base, experts in plan.by_base().items()))

    def _group(
        self, plan: GenerationPlan, base: ArtifactRef, experts: Sequence[PlannedExpert], passes: SharedPasses | None
    ) -> Group:
        limits, kept = self._folder(base).limits, {expert.id: expert.kept for expert in experts}
        parts = {expert.id: expert.parts for expert in experts if expert.parts is not None}
        is_first = iter([True])

        def model() -> ExpertModel:
            loaded = self._cache.get(base, kept, plan.precision, is_first=next(is_first, False))
            view = loaded.view(list(kept), parts)
            if passes is None:
                return view
            shared = passes.view(view)
            self._separate_because[str(base.sha256)] = why_not_shared(shared)
            return shared

        return Group(tuple(kept), model, limits.max_positions, limits.vocab_size)

    def _folder(self, base: ArtifactRef) -> ModelFolder:
        with self._reading:
            if base not in self._folders:
                self._folders[base] = ModelFolder(base.folder)
            return self._folders[base]

    def _least_limits(self, plan: GenerationPlan) -> ModelLimits:
        return min((self._folder(base).limits for base in plan.by_base()), key=lambda limits: limits.max_positions)

    def _tokenizer(self, plan: GenerationPlan) -> Tokenizer:
        return self._folder(plan.base).tokenizer

    def _gate(self, plan: GenerationPlan) -> Gate:
        return gate_of(plan, lambda: GrowingContext(self._clustering(plan), self._tokenizer(plan)))

    def _clustering(self, plan: GenerationPlan) -> FittedClustering:
        assert plan.route is not None
        clustering = self._clusterings.get(plan.route.clustering, plan.route.seed)
        self._cache.evict_idle(self._other_bytes())
        return clustering

    def _template(self, plan: GenerationPlan) -> ChatTemplate:
        """The chat template that all experts of a plan have."""
        first, *others = plan.experts
        template = self._folder(first.base).template(first.folder)
        for expert in others:
            other = self._folder(expert.base).template(expert.folder)
            if (other and other.sha256) != (template and template.sha256):
                problem = f"“{expert.name}” and “{first.name}” have different chat templates, so no prompt suits both."
                raise MixtureError(problem, "Switch one of them off, or ask for the completion of a text.")
        if template is None:
            raise ChatTemplateError(
                f"“{plan.model}” has no chat template: its seed model came without one.",
                "Ask for the completion of a text, or make experts of a seed model that has learnt to chat.",
            )
        return template

    def _stop_ids(self, plan: GenerationPlan, tokenizer: Tokenizer) -> frozenset[int]:
        """The stop tokens of all bases and experts together, with those that end a turn."""
        own = (self._folder(expert.base).stop_ids(expert.folder, tokenizer) for expert in plan.experts)
        return frozenset().union(*own)


def _by_name(by_id: Mapping[str, Value], names: Mapping[str, str]) -> dict[str, Value]:
    """A mapping keyed by experts' names, made from one keyed by their ids."""
    return {names[key]: value for key, value in by_id.items()}
