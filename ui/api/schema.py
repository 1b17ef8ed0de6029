"""The OpenAPI schema with every error that a route can answer, and a page that shows it, with its files on board."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from workbench.answers.server import ErrorAnswer

ASSETS = "/docs/assets"
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/workbench/posterior")
SUBMITTING = "/v1/workbench/jobs"
MIXING = "/v1/workbench/mixtures"
ALWAYS = {
    401: "The token is missing or wrong.",
    403: "The request comes from a page or under a name that is not this server's.",
    421: "The request is for the server of another registry.",
    500: "The server failed; its log says why.",
    503: "There is no registry, or the server stops.",
}
GIVEN = {
    400: "A field cannot be used.",
    404: "What is named does not exist.",
    409: "The state or a name is in the way.",
}
SENT = {413: "The body is too large.", 415: "The body is not JSON.", 507: "The disk is full."}
WAITED = {429: "Too many requests wait; Retry-After says when to come back.", 504: "The answer took too long."}


def add_schema(app: FastAPI) -> None:
    """Completes the schema of an application, and shows it at /docs."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(get_openapi(title=app.title, version=app.version, routes=app.routes))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    app.mount(ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))

    @app.get("/docs", include_in_schema=False)
    def show_schema() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title=app.title,
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url="/favicon.ico",
        )


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every refusal, and without FastAPI's own 422, which no route answers."""
    schemas = schema["components"]["schemas"]
    errors = ErrorAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= errors.pop("$defs")
    schemas["ErrorAnswer"] = errors
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop("422", None)
            for status, sentence in _refusals(path, method, operation):
                responses.setdefault(str(status), _refusal(sentence))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return schema


def _refusals(path: str, method: str, operation: dict[str, Any]) -> Iterator[tuple[int, str]]:
    yield from ALWAYS.items()
    if "requestBody" in operation or "parameters" in operation:
        yield from GIVEN.items()
    if "requestBody" in operation:
        yield from SENT.items()
    if path in GENERATING or path.endswith(("/metrics", "/verify")):
        yield from WAITED.items()
    if method == "post" and path in (SUBMITTING, f"{SUBMITTING}/forecast"):
        yield 422, "The spec cannot work; the message has every reason."
    if any(one["name"] == "If-Match" for one in operation.get("parameters", ())):
        yield 412, "The mixture is not the one that If-Match names: it was changed since."
    if method in ("put", "patch") or (method == "post" and path.startswith(MIXING)):
        yield 422, "A name or a value cannot be used; the message has the reason."


def _refusal(sentence: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    return {"description": sentence, "content": content}
