"""Programs that speak OpenAI's language talk with the API as they come: no client of ours is between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import uvicorn

from workbench.settings import Settings

TALK: Any = [{"role": "user", "content": "the sea"}]
OUTPUT = " 70 71 72"  # the fake host's template writes how long a message is


@pytest.fixture
def url(server: uvicorn.Server, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> str:
    """The base URL of a server that requires a token."""
    assert server.started
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return f"http://127.0.0.1:{settings.api_port}/v1"


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="s3cret", max_retries=0) as client:
        yield client


def test_openai_gets_every_field_that_it_sends(client: openai.OpenAI, host: Any) -> None:
    answer = client.chat.completions.create(
        model="both",
        messages=TALK,
        max_completion_tokens=3,
        n=2,
        temperature=0.5,
        top_p=0.9,
        presence_penalty=1,
        frequency_penalty=1,
        logit_bias={"5": -100},
        logprobs=True,
        top_logprobs=5,
        seed=4,
        stop=["never"],
        response_format={"type": "text"},
        tool_choice="none",
        store=False,
        metadata={"who": "me"},
        service_tier="auto",
        user="me",
    )
    assert [choice.message.content for choice in answer.choices] == [OUTPUT, OUTPUT]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content is not None
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 5
    assert (host.sampling.presence_penalty, host.sampling.logit_bias) == (1, {5: -100})
    assert answer._request_id is not None
    assert answer._request_id.startswith("req_")


def test_openai_streams_texts_with_their_log_probabilities(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="both",
            prompt="the sea",
            max_tokens=3,
            logprobs=2,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"expert_weights": 1, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1},
        )
    )
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " sea0 sea1 sea2"
    logprobs = chunks[0].choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs == [{" sea0": -0.5, "other0": -1.0}]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 5


def test_openai_requests_several_at_the_same_time(url: str) -> None:
    async def talk() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=url, api_key="s3cret") as client:
            request = (client.chat.completions.create(model="both", messages=TALK, max_tokens=3) for _ in range(6))
            return [answer.choices[0].message.content for answer in await asyncio.gather(*request)]

    assert asyncio.run(talk()) == [OUTPUT] * 6


def test_openai_streams_in_an_event_loop(url: str) -> None:
    async def talk() -> str:
        async with openai.AsyncOpenAI(base_url=url, api_key="s3cret") as client:
            stream = await client.chat.completions.create(model="both", messages=TALK, max_tokens=3, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(talk()) == OUTPUT


def test_openai_knows_each_refusal_by_its_class(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="both", prompt="x", suffix="y")
    assert (bad.value.param, bad.value.code) == ("suffix", "bad_request")
    with pytest.raises(openai.NotFoundError) as absent:
        client.completions.create(model="nobody", prompt="x")
    assert absent.value.code == "model_not_found"
    assert absent.value.request_id is not None
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="both", input="x")
    with (
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0) as other,
        pytest.raises(openai.AuthenticationError),
    ):
        other.models.list()


@pytest.mark.filterwarnings("ignore")
def test_litellm_completes_and_streams(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    request: dict[str, Any] = {"model": "openai/both", "api_base": url, "api_key": "s3cret", "messages": TALK}
    answer = litellm.completion(**request, max_tokens=3, top_k=5, presence_penalty=0.5)
    assert answer.choices[0].message.content == OUTPUT
    parts = litellm.completion(**request, max_tokens=3, stream=True, stream_options={"include_usage": True})
    assert "".join(part.choices[0].delta.content or "" for part in parts) == OUTPUT
    with pytest.raises(litellm.BadRequestError, match="min_tokens"):
        litellm.completion(**request, extra_body={"min_tokens": 3})


@pytest.mark.filterwarnings("ignore")
def test_langchain_invokes_streams_and_reads_log_probabilities(url: str) -> None:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    chat = ChatOpenAI(model="both", base_url=url, api_key=SecretStr("s3cret"), max_completion_tokens=3)
    assert chat.invoke("the sea").content == OUTPUT
    assert "".join(str(part.content) for part in chat.stream("the sea")) == OUTPUT
    read = chat.bind(logprobs=True, top_logprobs=2).invoke("the sea").response_metadata
    assert len(read["logprobs"]["content"]) == 3


@pytest.mark.filterwarnings("ignore")
def test_llm_prompts_and_streams(url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    from llm.default_plugins.openai_models import Chat

    model = Chat("ours", model_name="both", api_base=url)
    model.key = "s3cret"
    assert model.prompt("the sea", stream=False, max_tokens=3).text() == OUTPUT
    assert "".join(model.prompt("the sea", stream=True, max_tokens=3, seed=1)) == OUTPUT


def test_open_webui_lists_models_chats_and_requests_a_title(url: str) -> None:
    """Its calls as its source sends them: models, a streamed chat with a system message, a title without a stream."""
    headers = {"Authorization": "Bearer s3cret", "X-OpenWebUI-User-Name": "me"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        names = [one["id"] for one in client.get("/models").json()["data"]]
        messages = [{"role": "system", "content": "Be brief."}, *TALK]
        body = {"model": names[0], "messages": messages, "stream_options": {"include_usage": True}, "max_tokens": 3}
        sampling = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.0, "seed": 1, "stop": ["<end>"]}
        with client.stream("POST", "/chat/completions", json={**body, **sampling, "stream": True}) as response:
            events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        title = client.post(
            "/chat/completions", json={"model": names[0], "messages": TALK, "stream": False, "max_tokens": 3}
        )
    assert events[-1] == "[DONE]"
    parts = [json.loads(event) for event in events[:-1]]
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts if part["choices"]) == " 70 71 72"
    assert parts[-1]["usage"]["completion_tokens"] == 3
    assert title.json()["choices"][0]["message"]["content"] == OUTPUT
