"""The API speaks OpenAI's language, says who made each answer, and refuses what it does not do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from engine.config import SamplingConfig
from engine.device import choose_device
from engine.mixing.gate_type import GateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.gates.updating import UpdatingGateConfig
from ui.api.app import create_app
from ui.api.schemas.completions import ChatRequest, CompletionRequest
from ui.api.schemas.generation import NeutralValues
from ui.generation import model_host
from ui.generation.model_host import ModelHost
from ui.studio.mixtures.mixture_controls import saved_request
from ui.studio.shared.health import device_sign
from workbench.answers.server import Health
from workbench.questions.perplexities import MixRequest
from workbench.registry import experts, mixtures
from workbench.registry.database import transaction
from workbench.requests.body import RequestBody
from workbench.settings import Settings, get_settings
from workbench.specs.requests import MixtureRequest

ASK = {"model": "both", "prompt": "the sea", "max_tokens": 3}


def neutral_values(request_type: type[RequestBody]) -> dict[str, list[Any]]:
    """By field that is not supported: the values that change nothing."""
    schemas = {name: field.json_schema_extra for name, field in request_type.model_fields.items()}
    return {name: schema["enum"][1:] for name, schema in schemas.items() if isinstance(schema, NeutralValues)}


def complete(api: TestClient, **changes: Any) -> dict[str, Any]:
    """A completion that succeeds."""
    response = api.post("/v1/completions", json={**ASK, **changes})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def refusal(api: TestClient, **changes: Any) -> tuple[int, str]:
    """Status and sentence of a completion that is refused."""
    response = api.post("/v1/completions", json={**ASK, **changes})
    return response.status_code, response.json()["error"]["message"]


def chunks(api: TestClient, **changes: Any) -> list[dict[str, Any]]:
    """The events of a stream; it must end with [DONE]."""
    with api.stream("POST", "/v1/completions", json={**ASK, "stream": True, **changes}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def test_every_mixture_and_every_expert_is_a_model(api: TestClient) -> None:
    models = api.get("/v1/models").json()["data"]

    assert [(one["id"], one["kind"]) for one in models] == [
        ("both", "mixture"),
        ("both/code", "expert"),
        ("both/law", "expert"),
    ]
    assert models[0]["experts"] == ["both/code", "both/law"]


def test_a_model_is_retrieved_by_a_name_with_a_slash(api: TestClient) -> None:
    assert api.get("/v1/models/both/law").json()["experts"] == ["both/law"]


def test_a_disabled_expert_is_no_model(api: TestClient) -> None:
    with transaction() as session:
        experts.set_enabled(session, ["both/law"], False)

    assert [one["id"] for one in api.get("/v1/models").json()["data"]] == ["both", "both/code"]


def test_an_unknown_model_is_404_with_the_names_there_are(api: TestClient) -> None:
    for response in (api.get("/v1/models/nobody"), api.post("/v1/completions", json={**ASK, "model": "nobody"})):
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (404, "model_not_found")
        assert "both/code" in error["message"]


def test_a_completion_says_which_files_and_weights_made_it(api: TestClient) -> None:
    answer = complete(api)

    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" sea0 sea1 sea2", "length")
    assert choice["expert_weights"][0] == {"both/code": 0.75, "both/law": 0.25}
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert [one["name"] for one in answer["manifest"]["experts"]] == ["both/code", "both/law"]
    assert len(answer["manifest"]["experts"][0]["sha256"]) == 64


def test_a_joined_stream_is_the_full_answer(api: TestClient) -> None:
    result = chunks(api)

    assert "".join(one["choices"][0]["text"] for one in result) == complete(api)["choices"][0]["text"]
    assert [one["choices"][0]["finish_reason"] for one in result] == [None, None, None, "length"]
    assert result[0]["choices"][0]["expert_weights"] == {"both/code": 0.75, "both/law": 0.25}
    assert result[-1]["manifest"]["model"] == "both"
    assert len({one["id"] for one in result}) == 1


def test_a_stream_counts_tokens_on_request(api: TestClient) -> None:
    last = chunks(api, stream_options={"include_usage": True})[-1]

    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 3)


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_each_chunk_has_the_counts_of_its_choice_so_far_on_request(api: TestClient, route: str) -> None:
    body = {**(ASK if route == "completions" else TALK), "n": 2, "stream": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    with api.stream("POST", f"/v1/{route}", json={**body, "stream_options": options}) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]

    *parts, last = events
    num_read = last["usage"]["prompt_tokens"]
    for index in (0, 1):
        counts = [part["usage"] for part in parts if part["choices"][0]["index"] == index]
        assert [one["completion_tokens"] for one in counts] == [1, 2, 3, 3]
        assert {one["prompt_tokens"] for one in counts} == {num_read}
        assert [one["total_tokens"] for one in counts] == [num_read + number for number in (1, 2, 3, 3)]
    assert last["usage"]["completion_tokens"] == 6
    assert "prompt_token_ids" not in parts[0]["choices"][0]


@pytest.mark.parametrize("options", [{"include_usage": True}, {"continuous_usage_stats": True}], ids=str)
def test_other_chunks_have_no_counts_by_default(api: TestClient, options: dict[str, bool]) -> None:
    assert [one for one in chunks(api, stream_options=options) if one["choices"] and "usage" in one] == []


def test_experts_and_weights_belong_to_the_request(api: TestClient) -> None:
    chosen = [{"id": "both/law", "weight": 1}, {"id": "both/code", "weight": 1}]

    assert complete(api, experts=chosen)["choices"][0]["expert_weights"][0] == {"both/code": 0.5, "both/law": 0.5}
    assert complete(api, active=["both/law"])["choices"][0]["expert_weights"][0] == {"both/law": 1.0}
    assert complete(api)["choices"][0]["expert_weights"][0] == {"both/code": 0.75, "both/law": 0.25}


def test_a_gate_may_be_changed_for_one_request(api: TestClient) -> None:
    changed = complete(api, gate={"evidence": "last_token"}, top_k_experts=1)["manifest"]["gate"]

    assert changed == asdict(PosteriorGateConfig(evidence="last_token", top_k=1))
    assert complete(api, gate="fixed")["manifest"]["gate"]["kind"] == "fixed"
    assert complete(api)["manifest"]["gate"] == asdict(PosteriorGateConfig())


def test_the_controls_of_a_mixture_can_clear_what_is_saved(mixed: Path) -> None:
    with transaction() as session:
        mixtures.set_gate(session, "both", PosteriorGateConfig(top_k=2))
        card = mixtures.get_mixture(session, "both")
    saved = saved_request(card)
    cleared = replace(saved, gate={**saved.gate, "top_k": None})

    def gate(choice: MixtureRequest) -> GateConfig:
        body = {"mixture": choice.model, **choice.changes(), "split": "test"}
        return ModelHost(Settings(home=mixed)).plan(MixRequest(**body).to_request()).gate

    assert gate(saved) == PosteriorGateConfig(top_k=2)
    assert gate(cleared) == PosteriorGateConfig()


def test_a_request_may_change_every_knob_of_the_gate() -> None:
    changes = asdict(UpdatingGateConfig(evidence="last_token", newest_weight=0.3, update_every=64, top_k=1))

    assert MixRequest(mixture="both", gate=changes).to_request().gate == changes


def test_the_text_ends_before_a_stop_phrase(api: TestClient) -> None:
    choice = complete(api, stop=["2"])["choices"][0]

    assert (choice["text"], choice["finish_reason"]) == (" sea0 sea1", "stop")


def test_log_probabilities_come_with_offsets(api: TestClient) -> None:
    result = complete(api, logprobs=0)["choices"][0]["logprobs"]

    assert result["tokens"] == [" sea0", " sea1", " sea2"]
    assert result["token_logprobs"] == [-0.5] * 3
    assert result["text_offset"] == [0, 5, 10]


def test_echo_without_generation_scores_the_prompt(api: TestClient) -> None:
    answer = complete(api, echo=True, max_tokens=0, logprobs=0)
    [choice] = answer["choices"]

    assert (choice["text"], answer["usage"]["prompt_tokens"]) == ("the sea", 2)
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5]  # as OpenAI tells it
    assert choice["logprobs"]["text_offset"] == [0, 3]


@pytest.mark.parametrize("changes", [{"temperature": 0}, {"max_tokens": 0}], ids=str)
def test_echo_names_the_most_probable_token_in_the_place_of_each(api: TestClient, changes: dict[str, Any]) -> None:
    result = complete(api, echo=True, logprobs=1, **changes)["choices"][0]["logprobs"]

    assert result["tokens"][:2] == ["the", " sea"]
    assert result["top_logprobs"][:2] == [None, {"Once": -0.25}]


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 0},
        {"n": 300},
        {"best_of": 3},
        {"presence_penalty": 2.5},
        {"logit_bias": {"x": 5}},
        {"logit_bias": {"1": 101}},
        {"logit_bias": {str(token): 1 for token in range(1025)}},
        {"frequency_penalty": -3},
        {"suffix": "end"},
        {"top_k": -2},
        {"min_p": 1.1},
        {"repetition_penalty": 0},
        {"length_penalty": 2},
        {"min_tokens": 1},
        {"typical_p": 0.5},
        {"use_beam_search": True},
        {"prompt_logprobs": 1},
        {"truncate_prompt_tokens": 5},
        {"stop_token_ids": [0]},
        {"include_stop_str_in_output": True},
        {"add_special_tokens": False},
        {"skip_special_tokens": False},
        {"spaces_between_special_tokens": False},
        {"priority": 1},
        {"prompt": []},
        {"prompt": [[]]},
        {"prompt": [[1], []]},
        {"prompt": ["a", 1]},
        {"prompt": ["a", [1]]},
        {"prompt": [True]},
        {"prompt": 1},
        {"prompt": ["a"] * 257},
        {"n": 2, "prompt": ["a"] * 129},
        {"stop": ["a"] * 17},
        {"stop": ["a"] * 5000},
        {"stop": ["a", ""]},
        {"stop": "a" * 1001},
        {"logprobs": 21},
        {"expert_weights": -1},
        {"max_tokens": 0},
        {"temperature": -1},
        {"seed": 2**64},
        {"experts": [{"id": "both/law"}, {"id": "both/law", "weight": 3}]},
        {"active": ["both/law"], "experts": [{"id": "both/law"}]},
        {"experts": [{"id": "both/law", "weight": -1}]},
        {"no_such_field": 1},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_what_is_not_supported_is_refused_by_name(api: TestClient, changes: dict[str, Any]) -> None:
    status, message = refusal(api, **changes)
    error = api.post("/v1/completions", json={**ASK, **changes}).json()["error"]

    assert status == 400
    assert next(iter(changes)) in message
    assert error["param"].split(".")[0] == next(iter(changes))
    assert (error["type"], error["code"]) == ("invalid_request_error", "bad_request")


def test_a_refusal_says_what_to_do_instead(api: TestClient) -> None:
    assert refusal(api, suffix="end")[1].endswith("infilling is not supported: the models continue a text.")
    assert refusal(api, stop=["a"] * 5000)[1] == "stop: at most 16 phrases are supported, but it has 5000."
    error = api.post("/v1/completions", json={"model": "both"}).json()["error"]
    assert (error["param"], error["message"]) == ("prompt", "prompt: Field required.")


SETTINGS = {
    "top_k": 5,
    "min_p": 0.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -1,
    "repetition_penalty": 1.1,
    "ignore_eos": True,
    "speculate": True,
    "top_p": 0.5,
    "seed": 3,
}


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_settings_of_sampling_reach_the_models_and_the_manifest(api: TestClient, host: Any, route: str) -> None:
    body = ASK if route == "completions" else TALK
    answer = api.post(f"/v1/{route}", json={**body, **SETTINGS, "logit_bias": {"7": -2}}).json()

    assert host.sampling == SamplingConfig(3, **SETTINGS, logit_bias={7: -2.0})
    assert answer["manifest"]["sampling"] == {**asdict(host.sampling), "logit_bias": {"7": -2.0}}
    assert {"expert-workbench", "torch", "transformers"} <= set(answer["manifest"]["versions"])


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_a_seed_of_minus_one_is_drawn_as_if_it_were_left_out(api: TestClient, host: Any, route: str) -> None:
    body = ASK if route == "completions" else TALK
    for seed in (-1, None):
        answer = api.post(f"/v1/{route}", json={**body, "seed": seed}).json()
        assert answer["manifest"]["sampling"]["seed"] == host.sampling.seed >= 0
    assert api.post(f"/v1/{route}", json={**body, "seed": -2}).json()["error"]["param"] == "seed"


@pytest.mark.parametrize("is_stream", [False, True])
def test_each_of_n_answers_has_a_seed_and_a_choice_of_its_own(api: TestClient, host: Any, is_stream: bool) -> None:
    body = {"prompt": ["the sea", "the law"], "n": 2, "seed": 7, "stream_options": {"include_usage": True}}
    if is_stream:
        *parts, last = chunks(api, **body)
        assert {part["choices"][0]["index"] for part in parts} == {0, 1, 2, 3}
    else:
        last = complete(api, **{**body, "stream_options": None})
        assert [one["text"][:4] for one in last["choices"]] == [" sea", " sea", " law", " law"]
    assert sorted(host.seeds) == [7, 7, 8, 8]
    assert last["usage"] == {"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16}


def test_n_answers_to_a_conversation_each_name_their_role(api: TestClient) -> None:
    assert [one["index"] for one in chat(api, n=2)["choices"]] == [0, 1]
    with api.stream("POST", "/v1/chat/completions", json={**TALK, "n": 2, "stream": True}) as response:
        parts = [json.loads(line[6:])["choices"][0] for line in response.iter_lines() if "{" in line]
    assert sorted(part["index"] for part in parts if part["delta"].get("role")) == [0, 1]  # which is first is open


def test_log_probabilities_have_the_most_probable_tokens_in_openais_shape(api: TestClient) -> None:
    result = complete(api, logprobs=3, echo=True)["choices"][0]["logprobs"]
    assert result["top_logprobs"][:2] == [None, {"Once": -0.25, "other1": -2.0, "other2": -3.0}]
    assert result["top_logprobs"][2] == {" sea0": -0.5, "other0": -1.0, "other1": -2.0}

    content = chat(api, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in content[0]["top_logprobs"]] == [" 70", "other0"]


def test_a_sampled_token_is_named_besides_the_most_probable_ones(api: TestClient, host: Any) -> None:
    host.is_unlikely = True
    assert complete(api, logprobs=1)["choices"][0]["logprobs"]["top_logprobs"][0] == {"other0": -1.0, " sea0": -0.5}


def test_weights_are_sent_for_the_leading_experts_or_not_at_all(api: TestClient) -> None:
    assert complete(api, expert_weights=1)["choices"][0]["expert_weights"] == [{"both/code": 0.75}] * 3
    for off in (False, 0):
        assert complete(api, expert_weights=off, gate_weights=False)["choices"][0]["expert_weights"] is None
        parts = [one["choices"][0] for one in chunks(api, expert_weights=off, gate_weights=False)]
        assert not [part for part in parts if {"expert_weights", "gate_weights"} & set(part)]
    assert chunks(api, expert_weights=1)[0]["choices"][0]["expert_weights"] == {"both/code": 0.75}


def test_token_ids_are_sent_where_requested(api: TestClient) -> None:
    choice = complete(api, return_token_ids=True)["choices"][0]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([3, 3], [0, 1, 2])
    parts = [one["choices"][0] for one in chunks(api, return_token_ids=True)]
    assert [part["token_ids"] for part in parts] == [[0], [1], [2], []]
    assert [part.get("prompt_token_ids") for part in parts] == [[3, 3], None, None, None]
    assert complete(api)["choices"][0]["token_ids"] is None


def test_a_prompt_that_is_too_long_is_named_among_several(api: TestClient) -> None:
    assert refusal(api, prompt=["x", "x" * 1001])[1].startswith("Prompt 2 of 2: ")
    assert not refusal(api, prompt=["x" * 1001])[1].startswith("Prompt")


@pytest.mark.parametrize(
    "changes",
    [
        *({name: value} for name, values in neutral_values(CompletionRequest).items() for value in values),
        *({name: None} for name, field in CompletionRequest.model_fields.items() if not field.is_required()),
        {"stream_options": {"include_usage": None}},
        {"stream_options": {"continuous_usage_stats": True}},
        {"n": 1},
        {"best_of": 1},
        {"presence_penalty": 0},
        {"frequency_penalty": 0},
        {"logit_bias": {}},
        {"top_k": 0},
        {"top_k": -1},
        {"min_p": 0},
        {"repetition_penalty": 1},
        {"ignore_eos": False},
        {"expert_weights": True},
        {"stop": []},
        {"stop": ""},
        {"response_format": {"type": "text"}},
        {"user": "me"},
        {"prompt": ["the sea"]},
    ],
    ids=str,
)
def test_what_changes_nothing_is_accepted(api: TestClient, changes: dict[str, Any]) -> None:
    plain, answer = complete(api, max_tokens=16), complete(api, **{"max_tokens": 16, **changes})  # OpenAI's default

    assert {**answer, "id": "", "created": 0} == {**plain, "id": "", "created": 0}


def test_an_unknown_field_is_refused_though_it_is_null(api: TestClient) -> None:
    assert refusal(api, no_such_field=None) == (400, "no_such_field is not a field this server knows.")


def test_no_prompt_at_all_is_the_start_of_a_document() -> None:
    assert CompletionRequest(model="both", prompt=None).prompt == [""]


@pytest.mark.parametrize("prompt", [["the sea", "the law"], [[1, 2], [3]]], ids=["texts", "ids"])
def test_each_prompt_of_a_list_has_a_choice_of_its_own(api: TestClient, prompt: list[Any]) -> None:
    options = {"echo": True, "logprobs": 0}
    answer = complete(api, prompt=prompt, **options)
    by_itself = [complete(api, prompt=[one], **options) for one in prompt]

    assert [one["index"] for one in answer["choices"]] == [0, 1]
    assert answer["choices"] == [{**one["choices"][0], "index": place} for place, one in enumerate(by_itself)]
    for count, number in answer["usage"].items():
        assert number == sum(one["usage"][count] for one in by_itself)


def test_prompts_that_are_streamed_are_distinguished_by_index(api: TestClient) -> None:
    body = {"prompt": ["the sea", "the law"], "echo": True, "logprobs": 0}
    *result, last = chunks(api, **body, stream_options={"include_usage": True})
    answer = complete(api, **body)

    for full in answer["choices"]:
        own = [one["choices"][0] for one in result if one["choices"][0]["index"] == full["index"]]
        assert "".join(one["text"] for one in own) == full["text"]
        offsets = [offset for one in own for offset in one["logprobs"]["text_offset"]]
        assert offsets == full["logprobs"]["text_offset"]
        assert [one["finish_reason"] for one in own] == [None, None, None, None, "length"]
    assert ["manifest" in one for one in result] == [False] * 9 + [True]
    assert last["usage"] == answer["usage"]


@pytest.mark.parametrize(
    "prompt", ["word " * 1000, ["short", "word " * 1000], [[1] * 2000]], ids=["text", "one", "ids"]
)
def test_a_prompt_beyond_the_context_is_refused_before_it_waits(api: TestClient, host: Any, prompt: Any) -> None:
    host.fail_at = 0
    error = api.post("/v1/completions", json={**ASK, "prompt": prompt, "stream": True})

    assert (error.status_code, error.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert host.most_open == 0


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "é"], ids=ascii)
def test_no_character_of_a_text_ends_a_line_of_the_stream(api: TestClient, end: str) -> None:
    result = chunks(api, prompt=f"the{end}sea", echo=True)  # httpx cuts lines as str.splitlines does

    assert result[0]["choices"][0]["text"] == f"the{end}sea"


def test_no_expert_left_is_reported_in_words(api: TestClient) -> None:
    status, message = refusal(api, active=[])
    assert status == 400
    assert "has no active expert" in message


def test_a_mistake_of_ours_shows_no_inner_parts(api: TestClient, host: Any) -> None:
    host.fail_at = 0

    assert refusal(api) == (500, "The server raised an unexpected error. See its log.")


def test_a_stream_that_breaks_says_so_and_ends(api: TestClient, host: Any) -> None:
    host.fail_at = 2

    result = chunks(api)

    assert "error" in result[-1]
    assert host.open == 0


def test_a_posterior_has_a_weight_for_every_expert_at_every_token(api: TestClient) -> None:
    result = api.post("/v1/workbench/posterior", json={"model": "both", "text": "to be or"}).json()

    assert (result["tokens"], result["experts"]) == (["to", " be", " or"], ["both/code", "both/law"])
    assert result["weights"] == [[0.75, 0.25]] * 3


def test_a_mix_without_scores_is_empty(api: TestClient) -> None:
    result = api.post("/v1/workbench/mix", json={"mixture": "both", "active": ["both/law"]}).json()

    assert (result["domains"], result["experts"]) == ([], ["both/law"])


def test_a_split_that_is_none_is_refused_with_those_that_are(api: TestClient) -> None:
    refused = api.post("/v1/workbench/mix", json={"mixture": "both", "split": "train"})

    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "split: Input should be 'test' or 'dev'."


def test_costs_of_a_removal_without_scores_say_what_is_missing(api: TestClient) -> None:
    rows = api.post("/v1/workbench/removal", json={"mixture": "both"}).json()["rows"]

    assert [(one["expert"], one["with_expert"]) for one in rows] == [("both/code", None), ("both/law", None)]
    assert "not scored" in rows[0]["why"]
    refused = api.post("/v1/workbench/removal", json={"mixture": "both", "retrained": {"law": "both"}})
    assert refused.status_code == 400
    assert "has seen it" in refused.json()["error"]["message"]


def test_health_says_what_is_loaded(api: TestClient) -> None:
    result = api.get("/healthz").json()

    assert (result["status"], result["loaded"], result["busy"]) == ("ok", [], 0)


def test_health_names_the_device_that_computes_not_the_one_requested(
    mixed: Path, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_host, "_make_host", lambda _: host)
    with TestClient(create_app(Settings(home=mixed), playground=False), base_url="http://localhost") as api:

        def messages() -> str:
            return device_sign(Health.model_validate(api.get("/healthz").json())).sentence

        assert messages() == "requested “auto”; known once a model is loaded"
        complete(api)
        assert messages() == f"computes on “{choose_device('auto')}”"


def test_no_page_of_the_api_loads_scripts_from_elsewhere(api: TestClient) -> None:
    page = api.get("/docs").text
    loaded = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(loaded) == 3
    for path in loaded:
        assert path.startswith("/")
        assert api.get(path).status_code == 200
    assert "url: '/openapi.json'" in page
    assert api.get("/redoc").status_code == 404


def test_without_a_registry_the_command_to_run_is_named(host: Any) -> None:
    with TestClient(create_app(get_settings(), host, playground=False), base_url="http://localhost") as client:
        response = client.get("/v1/models")

    assert response.status_code == 503
    assert "workbench migrate" in response.json()["error"]["message"]


TALK = {"model": "both", "messages": [{"role": "user", "content": "the sea"}], "max_tokens": 3}


def chat(api: TestClient, **changes: Any) -> dict[str, Any]:
    """An answer in a conversation that succeeds."""
    response = api.post("/v1/chat/completions", json={**TALK, **changes})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def test_a_conversation_is_answered_by_what_completes_a_text(api: TestClient) -> None:
    answer, completion = chat(api, seed=1), complete(api, prompt=[7], seed=1)
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": " 70 71 72", "refusal": None}
    for name in ("expert_weights", "gate_weights", "finish_reason"):
        assert choice[name] == completion["choices"][0][name]
    for name in ("usage", "manifest", "model"):
        assert answer[name] == completion[name]


@pytest.mark.parametrize(
    ("options", "begins"), [({}, 1), ({"evidence_from": "user"}, 1), ({"evidence_from": "start"}, 0)]
)
def test_in_a_conversation_evidence_begins_with_the_users_words_unless_requested_otherwise(
    api: TestClient, options: dict[str, str], begins: int
) -> None:
    messages = [{"role": "system", "content": "You are helpful."}, *TALK["messages"]]
    assert chat(api, messages=messages, **options)["manifest"]["evidence_from"] == begins


def test_a_conversation_takes_the_same_choices_of_experts(api: TestClient) -> None:
    answer = chat(api, active=["both/law"], gate="fixed")
    assert answer["choices"][0]["expert_weights"][0] == {"both/law": 1.0}
    assert answer["manifest"]["gate"]["kind"] == "fixed"


def test_a_streamed_answer_names_its_role_once_and_ends_like_a_completion(api: TestClient) -> None:
    body = {**TALK, "stream": True, "stream_options": {"include_usage": True}}
    with api.stream("POST", "/v1/chat/completions", json=body) as response:
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    *parts, counts = [json.loads(event) for event in events[:-1]]
    assert events[-1] == "[DONE]"
    assert [part["choices"][0]["delta"].get("role") for part in parts] == ["assistant", None, None, None]
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == " 70 71 72"
    assert parts[-1]["choices"][0]["finish_reason"] == "length"
    assert parts[-1]["manifest"]["model"] == "both"
    assert (counts["choices"], counts["usage"]["completion_tokens"]) == ([], 3)


def test_values_for_the_template_reach_it_and_count_as_tokens(api: TestClient) -> None:
    plain = chat(api)["usage"]["prompt_tokens"]
    for value, number in ((True, plain + 1), (False, plain), (None, plain)):
        answer = chat(api, chat_template_kwargs={"enable_thinking": value})
        assert answer["usage"]["prompt_tokens"] == number


def test_hints_of_other_clients_change_nothing(api: TestClient) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    content = [{"type": "text", "text": "the sea", **mark}]
    hints = {"keep_alive": "5m", "cache_prompt": True, "id_slot": 0, "cache_salt": "x", **mark}
    assert (
        chat(api, messages=[{"role": "user", "content": content, **mark}], **hints)["choices"] == chat(api)["choices"]
    )
    body = {"model": "both", "prompt": "the sea", "max_tokens": 2, "seed": 1}
    answers = [api.post("/v1/completions", json={**body, **more}).json()["choices"] for more in ({}, hints)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "Send POST /v1/chat/completions."),
        ("/v1/v1/chat/completions", "Send POST /v1/chat/completions."),
        ("/openai/v1/chat/completions/", "Send POST /v1/chat/completions."),
        ("/V1/Models", "Send GET /v1/models."),
        ("/v1/v1/models/both", "Send GET /v1/models/both."),
        ("/api/chat", "Send POST /v1/chat/completions."),
        ("/v1/messages", "Send POST /v1/chat/completions."),
        ("/v1/engines/both/completions", "Send POST /v1/completions."),
        ("/nothing", "The page /docs lists every route."),
        ("/" + "a" * 5000, "The page /docs lists every route."),
    ],
)
def test_a_route_that_is_not_there_names_the_one_that_was_meant(api: TestClient, path: str, meant: str) -> None:
    answer = api.post(path, json={})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 404
    assert message.endswith(f" here. {meant}")
    assert len(message) < 400


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"model": "both",}', "line 1, column 1"),
        (b'{"model": "both",\n "prompt": x}', "line 2, column 12: Expecting value, near"),
        (b'{"model": "both"', "line 1, column 17"),
        (b'{"model": "\xe9"}', "byte 11 is part of no character"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_broken_body_says_where_it_is_broken(api: TestClient, body: bytes, fault: str) -> None:
    answer = api.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert fault in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"model": "x" * 2_000_000, "prompt": "x"},
        {"model": "both", "prompt": [1] * 600_000},
        {"model": "both", "prompt": [[1] * 3000] * 200},
        {"model": "both", "prompt": "x", "stop": [1] * 500_000},
        {"model": "both", "prompt": "x", "active": ["x" * 5000]},
        {"model": "both", "prompt": "x", "experts": [{"x": 1}] * 60_000},
        {"model": "both", "prompt": "x", "logit_bias": {str(i): "x" for i in range(100_000)}},
        {"model": "both", "prompt": "x", **{f"unknown{i}": 1 for i in range(100_000)}},
        {"model": "both", "prompt": "x", "y" * 1_000_000: 1},
        {"model": "both", "prompt": "x", "bad_words": ["x"] * 60_000},
    ],
    ids=["name", "ids", "lists-of-ids", "stops", "experts", "objects", "biases", "fields", "field", "words"],
)
def test_what_is_too_much_is_refused_in_few_words(api: TestClient, body: dict[str, Any]) -> None:
    answer = api.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert len(answer.content) < 3000


def test_parts_of_a_message_are_one_text(api: TestClient) -> None:
    content = [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}]
    assert chat(api, messages=[{"role": "user", "content": content}])["choices"] == chat(api)["choices"]


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": [{"role": "king", "content": "x"}]},
        {"chat_template": "{{ messages }}"},
        *(
            {"chat_template_kwargs": {name: []}}
            for name in ("messages", "tools", "add_generation_prompt", "bos_token", "self", "a-b", "__class__")
        ),
        {"repeat_penalty": 1.1},
        {"enable_thinking": False},
        {"messages": [{"role": "user", "content": "x", "prefix": True}]},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "x"}}},
        {"functions": [{"name": "x"}]},
        {"response_format": {"type": "json_object"}},
        {"modalities": ["text", "audio"]},
        {"store": True},
        {"continue_final_message": True},
        {"best_of": 2},
        {"suffix": "x"},
        {"reasoning_effort": "high"},
        {"structured_outputs": {"json": {}}},
        {"n": 0},
        {"top_logprobs": 1},
        {"top_logprobs": 21, "logprobs": True},
        {"max_tokens": 0},
        {"prompt": "x"},
    ],
    ids=str,
)
def test_what_a_conversation_does_not_support_is_refused_by_name(api: TestClient, changes: dict[str, Any]) -> None:
    response = api.post("/v1/chat/completions", json={**TALK, **changes})
    assert response.status_code == 400
    names = list(changes) if "messages" not in changes else ["messages", "content"]
    assert any(name in response.json()["error"]["message"] for name in names)


@pytest.mark.parametrize(
    "changes",
    [
        *({name: value} for name, values in neutral_values(ChatRequest).items() for value in values),
        {"best_of": 1},
        {"suffix": None},
        {"ignore_eos": False},
        {"repetition_penalty": 1.0},
        {"parallel_tool_calls": True},
        {"prompt_cache_key": "mine", "prompt_cache_retention": "24h", "safety_identifier": "me"},
        {"tools": [], "tool_choice": "none"},
    ],
    ids=str,
)
def test_what_changes_nothing_in_a_conversation_is_accepted(api: TestClient, changes: dict[str, Any]) -> None:
    assert chat(api, **changes)["choices"] == chat(api)["choices"]


@pytest.mark.parametrize(("path", "instead"), [("/v1/embeddings", "embedding model"), ("/v1/nothing", "/docs")])
def test_a_route_that_is_absent_says_where_to_go(api: TestClient, path: str, instead: str) -> None:
    response = api.post(path, json={"model": "both", "input": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert instead in response.json()["error"]["message"]


def test_a_wrong_method_is_answered_with_those_there_are(api: TestClient) -> None:
    assert api.get("/v1/completions").headers["allow"] == "POST"
    assert api.put("/v1/workbench/mixtures").headers["allow"] == "GET, POST"


BAD_CHATS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no message": ({"messages": []}, "messages", "at least 1"),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages.0.content.parts.0",
        "a part is of type “image_url”, but these models read only text; leave it out.",
    ),
    "a tool's answer to no call": (
        {"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "4"}]},
        "messages.1",
        "must follow one with tool_calls",
    ),
    "a user's message without a text": ({"messages": [{"role": "user"}]}, "messages.0.content", "needs a text"),
    "an answer without a text": (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None}]},
        "messages.1.content",
        "needs a text",
    ),
    "a function's call": (
        {"messages": [{"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": ""}}]},
        "messages.0.function_call",
        "must be null",
    ),
    "tools": ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools", "put what the tools gave into"),
    "a form": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        "response_format",
        "say in the messages which form",
    ),
    "stop strings": ({"stop": [f"stop{number}" for number in range(5000)]}, "stop", "at most 16 phrases"),
}


@pytest.mark.parametrize(("changes", "param", "sentence"), BAD_CHATS.values(), ids=BAD_CHATS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_bad_conversation_is_refused_in_openais_shape_with_a_sentence_that_helps(
    api: TestClient, changes: dict[str, Any], param: str, sentence: str, is_stream: bool
) -> None:
    response = api.post("/v1/chat/completions", json={**TALK, **changes, "stream": is_stream})
    error = response.json()["error"]
    assert (response.status_code, set(error)) == (400, {"message", "type", "param", "code"})
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "bad_request", param)
    assert sentence in error["message"]


def test_logprobs_of_an_answer_have_the_most_probable_token_at_temperature_0(api: TestClient) -> None:
    [choice] = chat(api, logprobs=True, top_logprobs=1, temperature=0)["choices"]
    best = {"token": " 70", "logprob": -0.5, "bytes": [32, 55, 48]}
    assert choice["logprobs"]["content"][0] == {**best, "top_logprobs": [best]}
    assert chat(api)["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    "sent",
    [
        {"json": [1]},
        {"content": b"{no"},
        {"content": b'{"model": "both"}'},
        {},
        {"content": b'{"a":' * 100_000, "headers": {"content-type": "application/json"}},
    ],
    ids=["list", "cut", "no type", "nothing", "deep"],
)
def test_a_body_that_is_not_a_json_object_is_refused(api: TestClient, sent: dict[str, Any]) -> None:
    error = api.post("/v1/completions", **sent).json()["error"]
    assert error["message"].count("Content-Type: application/json") == 1
    assert error["param"] is None


@pytest.mark.parametrize("field", ["model", "prompt", "active", "stop"])
def test_half_a_character_is_refused_where_it_stands(api: TestClient, field: str) -> None:
    value = ["\ud800"] if field == "active" else "\ud800"
    body = json.dumps({**ASK, field: value})
    response = api.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert f"{field}" in response.json()["error"]["message"]
    assert "unpaired surrogate" in response.json()["error"]["message"]


def test_an_expert_disabled_in_the_registry_says_so(api: TestClient) -> None:
    with transaction() as session:
        name = experts.list_experts(session)[0].name
        experts.set_enabled(session, [name], False)
    status, message = refusal(api, model=name)
    assert status == 400
    assert f"The expert “{name}” is disabled in the registry." in message


def requests(base: type[RequestBody] = RequestBody) -> Iterator[type[RequestBody]]:
    for one in base.__subclasses__():
        yield one
        yield from requests(one)


ABSURD = {"int": [1.5, 2**64], "float": [5e-324, 1e31]}
NUMBERS = {
    f"{request_type.__name__}.{name}": (request_type, name, kind[0], kind.string)
    for request_type in requests()
    for name, field in request_type.model_fields.items()
    if name not in neutral_values(request_type) and (kind := re.search(r"\b(int|float)\b", str(field.annotation)))
}


@pytest.mark.parametrize(("request_type", "name", "kind", "annotation"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_nobody_can_mean_is_refused(
    request_type: type[RequestBody], name: str, kind: str, annotation: str
) -> None:
    for number in [json.loads("1e400"), float("-inf"), float("nan"), *ABSURD[kind]]:
        value = (
            [number] if annotation.startswith("list") else {"law": number} if annotation.startswith("dict") else number
        )
        with pytest.raises(ValidationError) as caught:
            request_type.model_validate({name: value})
        assert name in {str(fault["loc"][0]) for fault in caught.value.errors()}, number
