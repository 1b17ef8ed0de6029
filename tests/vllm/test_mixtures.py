"""Mixtures on a real vLLM are those of the own engine: the same tokens, and weights within 1e-4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.harness.vllm import RunningVllm, running_vllm
from engine.config import SamplingConfig
from engine.events import Done, Token
from tests.vllm.conftest import EXPERTS
from ui.errors import ServingEngineError
from ui.generation.model_host import ModelHost
from ui.generation.vllm_host import VllmHost
from ui.generation.vllm_server import ROW, VllmServer
from workbench.answers.posteriors import Manifest
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest

pytestmark = pytest.mark.slow
PROMPT = "The tenant shall pay 7 gulls above the return of each number, and the landlord shall keep the ship. def f(x):"
GREEDY = SamplingConfig(max_tokens=12, temperature=0)
BROKEN: list[dict[str, Any]] = [{"group": "one token", "row": number, "rows": 3} for number in range(3)]
BROKEN[0]["spec"] = {"gate": {"kind": "fixed"}, "prior": [1, 1, 1], "sampling": {"temperature": 0}}
GATES: tuple[dict[str, Any], ...] = (
    {"kind": "posterior"},
    {"kind": "posterior", "evidence": {"decay": 0.9, "power": 0.3}},
    {"kind": "posterior", "evidence": "last_token", "top_k": 2},
    {"kind": "posterior", "evidence": {"decay": 0.5, "power": 0.5, "slow_decay": 0.99, "slow_power": 0.1}},
    {"kind": "updating", "update_every": 8},
    {"kind": "fixed"},
    {"kind": "fixed", "top_k": 1},
)


@dataclass(frozen=True)
class Case:
    """A request with its prompt and its sampling."""

    request: MixtureRequest
    prompt: str
    sampling: SamplingConfig


def cases() -> list[Case]:
    """Every gate, greedy and sampled, with switches and weights of the request, and prompts of 2 to 60 tokens."""
    listed = []
    for number, gate in enumerate(GATES):
        all_of_them = MixtureRequest("lo", gate=gate)
        listed += [
            Case(all_of_them, PROMPT, replace(GREEDY, repetition_penalty=1.2)),
            Case(all_of_them, PROMPT[number:], SamplingConfig(max_tokens=12, temperature=0.9, top_p=0.9, seed=number)),
        ]
    weighed = MixtureRequest("lo", weights={"lo/law": 3.0, "lo/sea": 1.0, "lo/code": 0.5})
    listed += [
        Case(weighed, "T", SamplingConfig(max_tokens=20, temperature=1.0, seed=9, frequency_penalty=0.5)),
        Case(MixtureRequest("lo", active=["lo/sea"]), PROMPT, GREEDY),
        Case(MixtureRequest("lo/law"), PROMPT, SamplingConfig(max_tokens=9, temperature=0.7, seed=1)),
        Case(MixtureRequest("seed:tiny"), PROMPT, GREEDY),
        Case(MixtureRequest("lo", active=["lo/sea", "lo/code"]), PROMPT, replace(GREEDY, logit_bias={70: 5.0})),
    ]
    return listed


def answer(host: ModelHost, case: Case) -> list[Token | Done]:
    plan = host.plan(case.request, case.sampling.num_candidates)
    return list(host.stream(plan, case.prompt, case.sampling))


@pytest.fixture
def own(home: Path) -> ModelHost:
    return ModelHost(get_settings())


def host_on(client: VllmServer, *, routes: bool = False) -> ModelHost:
    """A host whose answers come from a vLLM server."""
    settings = get_settings().model_copy(update={"vllm_url": client.url})
    return ModelHost(settings, VllmHost(client, settings.cache_bytes, "cpu", routes=routes))


def require_same(expected: list[Token | Done], got: list[Token | Done]) -> None:
    assert [(one.id, one.text) for one in tokens(expected)] == [(one.id, one.text) for one in tokens(got)]
    assert expected[-1] == got[-1]
    for one, other in zip(tokens(expected), tokens(got), strict=True):
        assert other.logprob == pytest.approx(one.logprob, abs=1e-4)
        assert other.weights == pytest.approx(one.weights, abs=1e-4)


def tokens(events: list[Token | Done]) -> Iterator[Token]:
    return (event for event in events if isinstance(event, Token))


def test_all_gates_at_once_give_the_tokens_of_the_own_engine(own: ModelHost, vllm: RunningVllm) -> None:
    """Of 19 requests side by side, in a cache that holds few of them, with prompts longer than a step."""
    expected = [answer(own, case) for case in cases()]
    host = host_on(vllm.client())
    with ThreadPoolExecutor(len(expected)) as pool:
        got = list(pool.map(lambda case: answer(host, case), cases()))
    for one, other in zip(expected, got, strict=True):
        require_same(one, other)
    assert vllm.metric("num_requests_running") == 0


def test_a_preempted_group_goes_on_where_it_was(own: ModelHost, vllm: RunningVllm) -> None:
    many = [
        Case(MixtureRequest("lo"), PROMPT[place:], SamplingConfig(max_tokens=60, temperature=0.9, seed=place))
        for place in range(6)
    ]
    expected, before = [answer(own, case) for case in many], vllm.metric("num_preemptions_total")
    host = host_on(vllm.client())
    with ThreadPoolExecutor(len(many)) as pool:
        got = list(pool.map(lambda case: answer(host, case), many))
    for one, other in zip(expected, got, strict=True):
        require_same(one, other)
    assert vllm.metric("num_preemptions_total") > before


def test_a_client_that_leaves_frees_all_rows(own: ModelHost, vllm: RunningVllm) -> None:
    host, case = host_on(vllm.client()), Case(MixtureRequest("lo"), PROMPT, replace(GREEDY, max_tokens=150))
    with closing(host.stream(host.plan(case.request), case.prompt, case.sampling)) as stream:
        next(stream)
    after = replace(case, sampling=GREEDY)
    require_same(answer(own, after), answer(host, after))
    assert vllm.metric("num_requests_running") == vllm.metric("num_requests_waiting") == 0


@pytest.mark.parametrize(
    "path", ["/v1/models", "/invocations", "/tokenize", "/metrics", "/docs", "/v1/load_lora_adapter"]
)
def test_no_route_of_vllm_answers_without_the_key(path: str, vllm: RunningVllm) -> None:
    for headers in ({}, {"Authorization": "Bearer another"}):
        for method in ("GET", "POST"):
            response = httpx.request(method, f"{vllm.url}{path}", headers=headers, json={}, trust_env=False)
            assert response.status_code == 401


def test_a_prompt_of_one_token_is_answered_here_and_leaves_vllm_alive(own: ModelHost, vllm: RunningVllm) -> None:
    host = host_on(vllm.client())
    plan = host.plan(MixtureRequest("lo"))
    assert list(host.stream(plan, [70], GREEDY)) == list(own.stream(own.plan(MixtureRequest("lo")), [70], GREEDY))
    rows = [
        {"model": expert.sha256, "prompt": [70], "max_tokens": 3, "vllm_xargs": {ROW: json.dumps(row)}}
        for expert, row in zip(plan.experts, BROKEN, strict=True)
    ]
    with pytest.raises(ServingEngineError):
        list(vllm.client().stream([row | {"stream": True, "return_token_ids": True, "logprobs": 0} for row in rows]))
    require_same(answer(own, cases()[0]), answer(host, cases()[0]))


def test_rows_that_are_no_group_leave_vllm_alive(own: ModelHost, vllm: RunningVllm) -> None:
    """The same row twice, a group that never comes together, and rows that end apart."""
    host, case = host_on(vllm.client()), cases()[0]
    plan, client = host.plan(MixtureRequest("lo")), vllm.client(silent_seconds=3.0)
    body = {"prompt": [70, 71, 72], "max_tokens": 3, "stream": True, "return_token_ids": True, "logprobs": 0}
    answer(host, case)  # loads the adapters
    for rows, lengths in (([0, 0, 1], (3, 3, 3)), ([1, 2], (3, 3)), ([0, 1, 2], (3, 9, 3))):
        bodies = [
            {
                **body,
                "max_tokens": length,
                "model": plan.experts[0].sha256,
                "vllm_xargs": {ROW: json.dumps(BROKEN[row])},
            }
            for row, length in zip(rows, lengths, strict=True)
        ]
        bodies = json.loads(json.dumps(bodies).replace("one token", f"group {rows} {lengths}"))
        with pytest.raises(ServingEngineError):
            list(client.stream(bodies))
    require_same(answer(own, case), answer(host, case))
    assert vllm.metric("num_requests_running") == 0


def test_route_answers_by_the_expert_that_the_prompt_speaks_for(own: ModelHost, vllm: RunningVllm) -> None:
    host = host_on(vllm.client(), routes=True)
    prompt = "The old ship sailed 12 miles over the grey waves, and 36 gulls"
    got = answer(host, Case(MixtureRequest("lo"), prompt, GREEDY))
    assert Manifest.of(host.plan(MixtureRequest("lo"))).engine == "vllm-route"
    assert {tuple(one.weights.items()) for one in tokens(got)} == {(("lo/sea", 1.0),)}
    require_same(answer(own, Case(MixtureRequest("lo/sea"), prompt, GREEDY)), got)


def test_what_vllm_cannot_answer_is_answered_here_and_says_why(
    own: ModelHost, vllm: RunningVllm, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(MixtureRequest("lo"), PROMPT, replace(GREEDY, num_candidates=3))
    host = host_on(vllm.client())
    assert answer(host, case) == answer(own, case)
    assert [Manifest.of(host.plan(case.request, number)).engine for number in (3, 0)] == ["own", "vllm"]
    assert "vLLM gives the most probable tokens of single experts only" in caplog.text


def test_a_group_that_cannot_run_together_fails_and_no_other(own: ModelHost, home: Path, tmp_path: Path) -> None:
    few = ("--max-num-seqs", "2", "--max-num-batched-tokens", "64")
    with running_vllm(home, tmp_path, *few) as server:
        host = host_on(server.client())
        with pytest.raises(ServingEngineError):
            answer(host, Case(MixtureRequest("lo"), PROMPT, GREEDY))
        two = Case(MixtureRequest("lo", active=list(EXPERTS[:2])), PROMPT, GREEDY)
        require_same(answer(own, two), answer(host, two))
        assert "it has 3 rows, and vLLM runs 2" in server.log.read_text(errors="replace")
        stream = host.stream(host.plan(two.request), two.prompt, replace(GREEDY, max_tokens=100))
        next(stream)
        server.process.kill()
        events: list[Token | Done] = []
        with suppress(ServingEngineError):  # unless all of it had arrived
            events = list(stream)
        assert not events or isinstance(events[-1], Done)
        with pytest.raises(ServingEngineError, match="does not answer"):
            answer(host, two)
        assert host.plan(two.request, only_reads=True).engine == "own"  # a text is read without vLLM
