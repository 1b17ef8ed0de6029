"""A model that has learnt to chat: OpenAI's own client talks with a mixture of experts of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.api_server import serve_api, unused_port
from tests.engine.chat_shapes import QWEN, qwen_model
from tests.journeys.conftest import Do, done
from ui.api.app import create_app
from ui.cli.app import main
from workbench.settings import get_settings

TALK = [{"role": "user", "content": "May a tenant sublet?"}]
SHORT = {"num_steps": 2, "block_size": 32, "learning_rate": 1e-3}
TRAIN = {"kind": "train-joint", "domains": ["court", "kitchen"], "training": SHORT}


@pytest.fixture
def talking(trained: Do, tmp_path: Path) -> Do:
    """A home with the mixture “talk” of two experts of a model that chats; “small” is one of a model that does not."""
    folder = qwen_model(tmp_path / "qwen")
    done(trained({"kind": "make-seed", "name": "qwen", "source": "folder", "location": str(folder)}))
    done(trained({**TRAIN, "name": "talk", "seed_model": "qwen"}))
    return trained


@pytest.fixture
def client(talking: Do) -> Iterator[openai.OpenAI]:
    port = unused_port()
    with (
        serve_api(create_app(get_settings(), playground=False), port),
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def test_openais_client_talks_with_a_mixture(client: openai.OpenAI) -> None:
    settings: dict[str, Any] = {"model": "talk", "messages": TALK, "max_completion_tokens": 6, "seed": 1}
    full = client.chat.completions.create(**settings, logprobs=True)
    chunks = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
    assert full.object == "chat.completion"
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    [choice] = full.choices
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == choice.message.content
    assert chunks[-1].usage == full.usage
    assert full.usage is not None
    assert full.usage.completion_tokens == 6
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == 6
    assert all(token.logprob < 0 for token in choice.logprobs.content)
    assert choice.model_extra is not None
    assert [set(weights) for weights in choice.model_extra["expert_weights"]] == [{"talk/court", "talk/kitchen"}] * 6


def test_the_prompt_and_the_answer_are_those_of_transformers(client: openai.OpenAI, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    assert main(["expert", "export", "talk/court", str(folder), "--here"]) == 0
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (folder / file).read_bytes() == (tmp_path / "qwen" / file).read_bytes()
    tokenizer, lm = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(TALK, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    with torch.no_grad():
        generated = lm.generate(ids, max_new_tokens=8, do_sample=False, attention_mask=torch.ones_like(ids))
    answer = client.chat.completions.create(model="talk/court", messages=TALK, max_tokens=8, temperature=0)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == ids.shape[1]
    text = tokenizer.decode(generated[0, ids.shape[1] :], skip_special_tokens=True)
    assert answer.choices[0].message.content == text
    assert text


def test_an_answer_ends_with_the_turn(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    for end in (258, 256):  # <|im_end|> and <|endoftext|>
        ids = iter([70, 71, end])
        monkeypatch.setattr("engine.inference.generate.sample_token", lambda *_, ids=ids: next(ids))
        answer = client.chat.completions.create(model="talk", messages=TALK)
        assert answer.usage is not None
        assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("stop", 2)


def test_the_conversation_in_the_documentation(
    client: openai.OpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_TOKEN", "none")
    page = Path(__file__).parents[2] / "docs" / "how_to" / "http_api.md"
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    url = "http://127.0.0.1:8000/v1"
    assert url in code
    exec(code.replace(url, str(client.base_url)), {})
    assert "{'talk/court': " in capsys.readouterr().out


def refusal(client: openai.OpenAI, **settings: Any) -> tuple[str | None, str]:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "talk", "messages": TALK, "max_tokens": 1, **settings})
    assert isinstance(caught.value.body, dict)
    return caught.value.code, caught.value.body["message"]


def test_what_cannot_be_expressed_in_a_conversation_is_refused_in_a_sentence(
    client: openai.OpenAI, talking: Do
) -> None:
    code, sentence = refusal(client, model="small")
    assert code == "chat_template_error"
    assert sentence.startswith("“small” has no chat template: its seed model came without one.")
    assert refusal(client, extra_body={"chat_template": QWEN})[1].startswith("chat_template is not a field")
    long = [{"role": "user", "content": "x" * 300}]
    assert refusal(client, messages=long)[0] == "context_length_exceeded"
    assert refusal(client, messages=[{"role": "user", "content": "x" * 90_000}])[0] == "context_length_exceeded"


def test_experts_whose_templates_differ_are_not_mixed(client: openai.OpenAI, talking: Do, tmp_path: Path) -> None:
    folder = qwen_model(tmp_path / "other")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    done(talking({"kind": "make-seed", "name": "other", "source": "folder", "location": str(folder)}))
    done(talking({**TRAIN, "name": "blunt", "domains": ["court"], "seed_model": "other"}))
    assert main(["mixture", "create", "both", "--experts", "blunt/court,talk/kitchen"]) == 0
    code, sentence = refusal(client, model="both")
    assert code == "mixture_error"
    assert "have different chat templates" in sentence
    continuation = client.chat.completions.create(
        model="both", messages=TALK, max_tokens=1, extra_body={"active": ["talk/kitchen"]}
    )
    assert continuation.choices[0].finish_reason == "length"


BAD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "raises": lambda config: {**config, "chat_template": "{{ raise_exception('Only one turn.') }}"},
    "is no text": lambda config: {**config, "chat_template": 7},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_a_bad_template_breaks_only_conversations(
    client: openai.OpenAI, talking: Do, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    folder = qwen_model(tmp_path / "bad")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(change(config)))
    done(talking({"kind": "make-seed", "name": "bad", "source": "folder", "location": str(folder)}))
    done(talking({**TRAIN, "name": "mute", "domains": ["court"], "seed_model": "bad"}))
    assert refusal(client, model="mute/court")[0] == "chat_template_error"
    text = client.completions.create(model="mute/court", prompt="the", max_tokens=1)
    assert text.choices[0].finish_reason == "length"
