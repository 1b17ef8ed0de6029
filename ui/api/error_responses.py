"""Problems as HTTP: a status, and the error object that OpenAI's clients know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Mount

from engine.errors import DamagedFileError, Problem
from engine.foreign_files import short
from ui.api.deps import GoneError
from ui.api.schemas.generation import MEANT
from ui.errors import AnswerTimeoutError, RateLimitExceededError, ServiceUnavailableError, ServingEngineError
from ui.present.next_step_text import problem_text
from workbench.errors import (
    BadSpecError,
    ChangedMeanwhileError,
    DiskFullError,
    ForbiddenError,
    InUseError,
    JobError,
    NameTakenError,
    NoModelError,
    NoRegistryError,
    NotFoundError,
    validation_message,
)
from workbench.requests.body import FieldError

STATUS: dict[type[Problem], int] = {
    NotFoundError: 404,
    NameTakenError: 409,
    InUseError: 409,
    ForbiddenError: 403,
    JobError: 409,
    ChangedMeanwhileError: 412,
    BadSpecError: 422,
    NoRegistryError: 503,
    DamagedFileError: 500,
    DiskFullError: 507,
    RateLimitExceededError: 429,
    ServiceUnavailableError: 503,
    ServingEngineError: 503,
    AnswerTimeoutError: 504,
}

NOT_SERVED = {  # routes of OpenAI's that clients ask for, with what to do
    "/v1/embeddings": "These models write text and give no embeddings: send this to a server of an embedding model.",
    "/v1/responses": "Send the conversation to /v1/chat/completions.",
}
CLIENT_LEFT = 499  # nginx's code for a client that has disconnected
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
FORMER = {  # routes of other servers, by the ones of this one
    "/api/chat": "/v1/chat/completions",
    "/api/generate": "/v1/completions",
    "/api/tags": "/v1/models",
    "/completion": "/v1/completions",
    "/v1/messages": "/v1/chat/completions",
    "/v1/completion": "/v1/completions",
    "/v1/chat": "/v1/chat/completions",
    "/v1/chat/completion": "/v1/chat/completions",
}
MOST_FAULTS = 5  # of a body that are named
MOST_LETTERS = 2000  # of a message, which may repeat what was sent
_MOST_PARTS = 8  # of a path
_LONGEST_NAME = 80  # of a field
_AROUND = 20  # characters on each side of a fault in JSON
NO_OBJECT = "The body is not a JSON object. Send one, with the header Content-Type: application/json."


def status_of(problem: Exception) -> int:
    """The HTTP status of a problem, 400 unless its cause says otherwise; 500 of an unexpected error."""
    usual = 400 if isinstance(problem, Problem) else 500
    return next((status for cause, status in STATUS.items() if isinstance(problem, cause)), usual)


def error_body(problem: Exception) -> dict[str, Any]:
    """The error object of a problem. An unexpected error shows no details."""
    if not isinstance(problem, Problem):
        return _body("The server raised an unexpected error. See its log.", "server_error", "internal_error")
    kind, code = "invalid_request_error" if status_of(problem) < 500 else "server_error", problem.error_code
    if isinstance(problem, RateLimitExceededError):
        kind = "rate_limit_error"
    if isinstance(problem, NotFoundError):  # `model_not_found`, as OpenAI's clients know it, or `part_not_found`, …
        what = "model" if isinstance(problem, NoModelError) else problem.what
        code = f"{what.replace(' ', '_')}_not_found"
    return _body(problem_text(problem), kind, code)


def add_handlers(app: FastAPI) -> None:
    """Registers the handlers that answer errors in that shape."""
    app.add_exception_handler(Problem, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(GoneError, lambda *_: Response(status_code=CLIENT_LEFT))
    app.add_exception_handler(Exception, _answer_error)


async def _answer_error(_: Request, problem: Exception) -> Response:
    wait = {"retry-after": str(problem.retry_after)} if isinstance(problem, RateLimitExceededError) else None
    return JSONResponse(error_body(problem), status_of(problem), wait)


async def _answer_validation(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    if faults[0]["type"] == "json_invalid":
        sentences = [_json_fault(str(error.body), faults[0])]
    else:
        sentences = [_sentence(fault) for fault in faults[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        sentences.append(f"{len(faults) - MOST_FAULTS:,} other faults are not listed.")
    field = None if _is_of_body(faults[0]) else _where(faults[0]) or None
    return JSONResponse(_body(" ".join(sentences), "invalid_request_error", "bad_request", field), 400)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        message = f"There is no {request.method} {short(request.url.path)} here. {_suggest(request)}"
        body = _body(message, "invalid_request_error", "not_found")
        return JSONResponse(body, error.status_code, _allow(request) if error.status_code == 405 else None)
    message = _unread(error.__cause__) if error.status_code == 400 else error.detail
    code = "too_large" if error.status_code == 413 else "bad_request"
    return JSONResponse(_body(message, "invalid_request_error", code), error.status_code)


def _suggest(request: Request) -> str:
    """What to do in place of a request for a route that is not there: the same under the path that was meant."""
    path = request.url.path
    if path in NOT_SERVED:
        return NOT_SERVED[path]
    if methods := _allow(request)["allow"]:
        return f"Send {methods.replace(', ', ' or ')}."
    parts = [part for part in path.split("/") if part]
    for end in ["/" + "/".join(parts[start:]) for start in range(min(len(parts), _MOST_PARTS))]:
        for known in (FORMER.get(end, end), f"/v1{end}", end.lower(), f"/v1{end.lower()}"):
            if methods := _allow(request, known)["allow"]:
                return f"Send {methods.replace(', ', ' or ')} {short(known)}."
    return "The page /docs lists every route."


def _unread(cause: BaseException | None) -> str:
    """A body that FastAPI's JSON reader gave up on."""
    if isinstance(cause, UnicodeDecodeError):
        return f"The body is not UTF-8 text: byte {cause.start} is part of no character. Send JSON in UTF-8."
    if isinstance(cause, RecursionError):
        return "The body is nested too deeply. Send a flat JSON object, with the header Content-Type: application/json."
    return NO_OBJECT


def _json_fault(body: str, fault: Any) -> str:
    """What is wrong with a body that is not JSON, and where."""
    at = int(fault["loc"][-1])
    before = body[:at]
    line, column = before.count("\n") + 1, at - before.rfind("\n")
    around = short(body[max(0, at - _AROUND) : at + _AROUND])
    if not body.strip():
        return NO_OBJECT
    reason = str(fault["ctx"]["error"])
    return f"The body is not valid JSON: line {line}, column {column}: {reason}, near “{around}”."


def _allow(request: Request, path: str = "") -> dict[str, str]:
    """The header with every method of a path: each has a route of its own, and Starlette names one of them."""
    request_path = {"path": path or request.url.path, "root_path": ""}
    scopes = {method: {**request.scope, **request_path, "method": method} for method in METHODS}
    routes = [route for route in request.app.routes if not isinstance(route, Mount)]
    known = (name for name, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes))
    return {"allow": ", ".join(known)}


def _body(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    if len(message) > MOST_LETTERS:
        message = f"{message[:MOST_LETTERS]}…"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _sentence(fault: Any) -> str:
    if _is_of_body(fault):
        return NO_OBJECT
    where = _where(fault) or "The body"
    if fault["type"] == "extra_forbidden":
        meant = MEANT.get(str(fault["loc"][-1]), "")
        return f"{where} is not a field this server knows.{f' Use {meant}.' if meant else ''}"
    if fault["type"] == "string_unicode":
        return f"{where}: the text is not valid Unicode: it contains an unpaired surrogate."
    return f"{where}: {validation_message(fault)}."


def _is_of_body(fault: Any) -> bool:
    """Whether the body as a whole cannot be read, and not one of its fields."""
    is_object_wanted = fault["type"] in ("missing", "model_attributes_type", "dict_type", "model_type")
    return fault["type"] == "json_invalid" or (tuple(fault["loc"]) == ("body",) and is_object_wanted)


def _where(fault: Any) -> str:
    """The field that a fault is in, or that is wrong only with others."""
    cause = fault.get("ctx", {}).get("error")
    field = [cause.field] if isinstance(cause, FieldError) else []
    return ".".join([*(short(part)[:_LONGEST_NAME] for part in fault["loc"] if part != "body"), *field])
