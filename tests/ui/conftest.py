"""A registry with a mixture of two experts, and an honest host that answers for their weights."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from sqlalchemy.orm import Session

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceededError
from engine.events import Candidate, Done, Echo, GateWeights, TextReading, Token
from engine.inference.generate import Prompt
from engine.loading.plan import GenerationPlan, HostUse
from tests.api_server import serve_api, unused_port
from ui.api.app import create_app
from ui.cli.app import main
from workbench.registry import experts, mixtures
from workbench.registry.database import transaction
from workbench.schema.base import new_id
from workbench.schema.tables import Artifact, Corpus, Domain
from workbench.settings import Settings, get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts
from workbench.store.storage import Storage, get_storage

TWO_PARTS = {
    "domains": ["code", "law"],
    "parts": [{"name": name, "domain": name, "of": name} for name in ("code", "law")],
}
HOSTILE = "<script>alert('code')</script>"


class FakeHost:
    """Says the prompt's last word again and again, with a number; the weights are those of the plan."""

    def __init__(self) -> None:
        self.seconds = 0.0  # between two tokens
        self.fail_at: int | None = None
        self.open = self.most_open = 0
        self.sampling = SamplingConfig()  # of the last answer
        self.seeds: list[int | None] = []  # of all answers
        self.first_id = 0  # of the tokens that it says
        self.is_unlikely = False  # whether what it says is never the most probable
        self._lock = threading.Lock()

    def stream(
        self, plan: GenerationPlan, prompt: Prompt, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Iterator[Token | Done]:
        self._count(1)
        self.sampling = sampling
        self.seeds.append(sampling.seed)
        try:
            yield from self._tokens(plan, _as_text(prompt), sampling, stop)
        finally:
            self._count(-1)

    def conversation_prompt(
        self, _: GenerationPlan, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any]
    ) -> tuple[list[int], int]:
        """Its template writes how long each message is, and a 7 where it is to think; the user's first message."""
        ids = [*(len(message.get("content", "")) for message in messages), *[7] * bool(values.get("enable_thinking"))]
        return ids, next((place for place, message in enumerate(messages) if message["role"] == "user"), 0)

    def require_readable(self, _: GenerationPlan, prompt: Prompt, num_new: int = 0) -> None:
        """Its context is a thousand characters, or ids."""
        if len(prompt) + num_new > 1000:
            raise ContextLengthExceededError(f"{len(prompt)} are too many.", "Shorten it.")

    def prompt_ids(self, _: GenerationPlan, prompt: Prompt) -> list[int]:
        """One for each word, its length."""
        return [len(word) for word in prompt.split()] if isinstance(prompt, str) else list(prompt)

    def token_texts(self, _: GenerationPlan, before: Sequence[int], ids: Sequence[int]) -> list[str]:
        """Those that it says of the prompt “the sea”."""
        del before
        return [f" sea{id - self.first_id}" for id in ids]

    def echo(self, _: GenerationPlan, prompt: Prompt, num_candidates: int = 0) -> Echo:
        """Each word was the most probable one but the second, which was to be `Once`."""
        tokens = re.findall(r" ?[^ ]+", _as_text(prompt))
        best = [(word, -0.5) for word in tokens]
        best[1:2] = [("Once", -0.25)] * len(best[1:2])
        others = [Candidate(rank, f"other{rank}", -1.0 - rank) for rank in range(1, num_candidates)]
        candidates = [[Candidate(0, *one), *others][:num_candidates] for one in best[1:]]
        return Echo(tokens, [None, *[-0.5] * (len(tokens) - 1)], [None, *best[1:]], len(tokens), [(), *candidates])

    def posterior(self, plan: GenerationPlan, text: str) -> TextReading:
        """As the real host tells it; each word was the most probable one but the first, which was to be `Once`."""
        weights = list(self._weights(plan).values())
        tokens = re.findall(r" ?[^ ]+", text)
        return TextReading(
            experts=list(self._weights(plan)),
            tokens=tokens,
            weights=[weights] * len(tokens),
            logprobs=[-1.5, *[-0.5] * (len(tokens) - 1)],
            best=[("Once", -0.25), *((word, -0.5) for word in tokens[1:])],
            gate_weights=[_gates(plan)] * len(tokens),
        )

    def use(self) -> HostUse:
        return HostUse(
            num_bytes=123,
            num_clustering_bytes=45,
            num_stream_bytes=6,
            num_reserved_bytes=7,
            num_hits=2,
            num_misses=1,
            num_judged_drafts=8,
            num_accepted_drafts=5,
        )

    def _tokens(
        self, plan: GenerationPlan, prompt: str, sampling: SamplingConfig, stop: Sequence[str]
    ) -> Iterator[Token | Done]:
        for number in range(sampling.max_tokens):
            if str(number) in stop:
                yield Done("phrase", len(prompt.split()), number)
                return
            time.sleep(self.seconds)
            if number == self.fail_at:
                raise RuntimeError("a mistake of ours")
            text = f" {(prompt.split() or [''])[-1]}{number}"
            others = [Candidate(100 + rank, f"other{rank}", -1.0 - rank) for rank in range(sampling.num_candidates)]
            own = [] if self.is_unlikely else [Candidate(number, text, -0.5)]
            candidates = [*own, *others][: sampling.num_candidates]
            yield Token(self.first_id + number, text, -0.5, self._weights(plan), _gates(plan), candidates)
        yield Done("length", len(prompt.split()), sampling.max_tokens)

    def _weights(self, plan: GenerationPlan) -> dict[str, float]:
        total = sum(expert.weight for expert in plan.experts)
        return {expert.name: expert.weight / total for expert in plan.experts}

    def _count(self, change: int) -> None:
        with self._lock:
            self.open += change
            self.most_open = max(self.most_open, self.open)


def _as_text(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def _gates(plan: GenerationPlan) -> dict[str, GateWeights]:
    """Half of the weight in the first block is the backbone's, a quarter in the second; parts share the rest."""
    result = {}
    for expert in plan.experts:
        if expert.parts is not None:
            backbone = (0.5, 0.25) if expert.parts else (1.0, 1.0)
            shares = tuple((1 - weight) / max(1, len(expert.parts)) for weight in backbone)
            result[expert.name] = GateWeights(backbone, dict.fromkeys(expert.parts, shares))
    return result


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def mixed(home: Path) -> Path:
    """A home with the mixture `both` of `both/code` (weight 3) and `both/law` (weight 1)."""
    storage = get_storage(get_settings())
    with transaction() as session:
        base = _artifact(session, storage, "base")
        for domain in ("code", "law"):
            _expert(session, storage, base, domain)
        mixtures.create_mixture(
            session, MixtureSpec(name="both", experts=["both/code", "both/law"], weights=[3.0, 1.0])
        )
    return home


@pytest.fixture
def composed(mixed: Path) -> Path:
    """The same, and the mixture `apps` of `apps/composed`, an expert of MoDE with the parts `code` and `law`."""
    storage = get_storage(get_settings())
    with transaction() as session:
        base, artifact = (_artifact(session, storage, kind) for kind in ("seed", "mode-expert"))
        _register(session, base, artifact, "apps/composed", method="mode", domain_id=None, config=TWO_PARTS)
        mixtures.create_mixture(session, MixtureSpec(name="apps", experts=["apps/composed"]))
    return mixed


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Waits until something holds; fails after a minute, which a loaded machine may need."""

    def wait(holds: Callable[[], bool]) -> None:
        over = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < over, "it never came true"
            time.sleep(0.01)

    return wait


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this machine, a test that starts no server finds none."""
    monkeypatch.setenv("WORKBENCH_API_PORT", str(unused_port()))
    monkeypatch.setenv("WORKBENCH_STUDIO_PORT", str(unused_port()))
    get_settings.cache_clear()


@pytest.fixture
def free_port() -> int:
    return unused_port()


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


@pytest.fixture
def settings(mixed: Path, free_port: int, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a server and of those who look for it: a free port, two slots, a token."""
    for name, value in {"API_PORT": str(free_port), "MAX_STREAMS": "2", "TOKEN": "s3cret"}.items():
        monkeypatch.setenv(f"WORKBENCH_{name}", value)
    get_settings.cache_clear()
    assert get_settings().root == mixed.resolve()
    return get_settings()


@pytest.fixture
def server(settings: Settings, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[uvicorn.Server]:
    """The API on its port, in a thread of this process; our client waits long for it, the machine may be loaded."""
    monkeypatch.setattr("ui.client.CONNECT_SECONDS", 60.0)
    with serve_api(create_app(settings, host, playground=False), settings.api_port) as server:
        yield server


def _artifact(session: Session, storage: Storage, kind: str) -> Artifact:
    id = new_id()
    with storage.new(id) as folder:
        (folder / "data.txt").write_text(kind, encoding="utf-8")
    return artifacts.register_artifact(session, storage, id, kind)


def _expert(session: Session, storage: Storage, base: Artifact, domain: str) -> None:
    row = Domain(
        corpus=Corpus(name=domain, source="here"),
        name=domain,
        num_documents=1,
        num_words=2,
        num_bytes=3,
        data_sha256="cd" * 32,
        artifact=_artifact(session, storage, "corpus"),
        folder="0",
    )
    session.add(row)
    session.flush()
    artifact = _artifact(session, storage, "expert")
    _register(session, base, artifact, f"both/{domain}", method="demix", domain_id=row.id, config={})


def _register(session: Session, base: Artifact, artifact: Artifact, name: str, **shown: Any) -> None:
    experts.register_expert(
        session,
        id=artifact.id,
        name=name,
        seed_id=None,
        parent_id=None,
        base=base,
        artifact=artifact,
        tokenizer_sha256="ab" * 32,
        data_sha256="cd" * 32,
        num_parameters=1000,
        metrics={},
        **shown,
    )


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints with --json."""
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)
