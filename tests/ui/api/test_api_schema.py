"""The OpenAPI schema keeps its word: schemathesis sends what it allows and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as bounds
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ui.api.app import create_app
from workbench.settings import Settings

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
NUM_EXAMPLES = 4  # of each route
HEADERS = {"authorization": "Bearer s3cret"}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_no_route_answers_what_its_schema_does_not_declare(
    server: uvicorn.Server, settings: Settings, mode: GenerationMode
) -> None:
    assert server.started
    address, num_routes = f"http://127.0.0.1:{settings.api_port}", 0
    schema = schemathesis.openapi.from_dict(create_app(settings, playground=False).openapi())
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.POSITIVE or operation.body:  # nothing can be wrong with a request for a name
            num_routes += 1
            _check(operation, mode, address)
    assert num_routes > 10


# What a schema cannot say: which names exist, which fields do not go together, and that 5e-324 is no number to send.
UNSET = ("experts", "active", "parts", "gate", "top_k_experts", "prior", "best_of", "metadata")
NO_NAMES: dict[str, Any] = {name: {"enum": [None]} for name in UNSET}
NUMBERS: dict[str, Any] = {
    "seed": {"enum": [None, -1, 7]},  # its largest value is no number of JSON to many programs
    "temperature": {"enum": [0, 0.7]},
    "top_p": {"enum": [0.5, 1]},
    "min_p": {"enum": [0, 0.1]},
    "presence_penalty": {"enum": [-2, 0.5]},
    "frequency_penalty": {"enum": [0, 2]},
    "repetition_penalty": {"enum": [1, 1.1]},
    "logit_bias": {"enum": [None, {}, {"7": -1.5}]},
}
SMALL = {"model": {"enum": ["both"]}, "n": {"enum": [1, 2]}, **NUMBERS, **NO_NAMES}
CHOSEN = {
    "/v1/completions": {**SMALL, "max_tokens": {"enum": [1, 3]}, "prompt": {"type": "string", "maxLength": 50}},
    "/v1/chat/completions": {**SMALL, "max_tokens": {"enum": [1, 3]}, "max_completion_tokens": {"enum": [2]}},
}


@pytest.mark.parametrize("path", CHOSEN)
def test_no_valid_request_is_rejected(server: uvicorn.Server, settings: Settings, path: str) -> None:
    assert server.started
    openapi = create_app(settings, playground=False).openapi()
    body = "CompletionRequest" if path == "/v1/completions" else "ChatRequest"
    properties = openapi["components"]["schemas"][body]["properties"]
    properties |= {name: schema for name, schema in CHOSEN[path].items() if name in properties}
    openapi["components"]["schemas"]["ChatMessage"]["properties"] |= {
        "tool_calls": {"enum": [None]},
        "annotations": {"enum": [None, []]},
        "content": {"type": "string"},  # without a text there must be tool_calls
        "role": {"enum": ["system", "user", "assistant"]},  # a message of a tool must follow one with tool_calls
    }
    if "top_logprobs" in properties:
        properties["logprobs"] = {"enum": [True]}
        openapi["components"]["schemas"][body]["required"] += ["logprobs", "max_completion_tokens"]
        openapi["components"]["schemas"]["ChatMessage"]["required"] += ["content"]
    operation = schemathesis.openapi.from_dict(openapi)[path]["POST"]
    _check(operation, GenerationMode.POSITIVE, f"http://127.0.0.1:{settings.api_port}", is_accepted=True)


def _check(operation: Any, mode: GenerationMode, address: str, is_accepted: bool = False) -> None:
    """Sends some requests of a route, the same in every run."""

    @seed(1)
    @bounds(
        max_examples=40 if is_accepted else NUM_EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        response = case.call(base_url=address, headers=HEADERS)
        case.validate_response(response, checks=CHECKS)
        assert response.status_code == 200 or not is_accepted, response.text

    check()
