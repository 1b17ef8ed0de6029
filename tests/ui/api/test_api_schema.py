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


def _check(operation: Any, mode: GenerationMode, address: str) -> None:
    """Sends some requests of a route, the same in every run."""

    @seed(1)
    @bounds(
        max_examples=NUM_EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.validate_response(case.call(base_url=address, headers=HEADERS), checks=CHECKS)

    check()
