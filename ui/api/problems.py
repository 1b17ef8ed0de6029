"""Problems as HTTP: a status, and the error object that OpenAI's clients know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from engine.errors import DamagedFile, Problem
from ui.errors import code_of
from workbench.errors import BadSpec, DiskFull, InUse, NameTaken, NoRegistry, NotFound

STATUS: dict[type[Problem], int] = {
    NotFound: 404,
    NameTaken: 409,
    InUse: 409,
    BadSpec: 422,
    NoRegistry: 503,
    DamagedFile: 500,
    DiskFull: 507,
}


def status_of(problem: Problem) -> int:
    """The HTTP status of a problem; 400 unless its cause says otherwise."""
    return next((status for cause, status in STATUS.items() if isinstance(problem, cause)), 400)


def error_body(problem: Exception) -> dict[str, Any]:
    """The error object of a problem. A mistake of ours shows no inner parts."""
    if not isinstance(problem, Problem):
        return _body("The server made a mistake; its log says more.", "server_error", "internal_error")
    kind = "invalid_request_error" if status_of(problem) < 500 else "server_error"
    code = "model_not_found" if isinstance(problem, NotFound) else code_of(problem)
    return _body(str(problem), kind, code)


def add_handlers(app: FastAPI) -> None:
    """Teaches an application to answer problems in that shape."""
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_mistake)


async def _answer_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return JSONResponse(error_body(problem), status_of(problem))


async def _answer_validation(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    sentences = [_sentence(one) for one in error.errors()]
    return JSONResponse(_body(" ".join(sentences), "invalid_request_error", "bad_request", _field(error)), 400)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = (
        f"There is no {request.method} {request.url.path} here." if error.status_code in (404, 405) else error.detail
    )
    return JSONResponse(_body(message, "invalid_request_error", "not_found"), error.status_code)


async def _answer_mistake(_: Request, error: Exception) -> Response:
    return JSONResponse(error_body(error), 500)


def _body(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _sentence(one: Any) -> str:
    where = ".".join(str(part) for part in one["loc"] if part != "body") or "The body"
    if one["type"] == "extra_forbidden":
        return f"{where} is not a field this server knows."
    return f"{where}: {one['msg'].removeprefix('Value error, ')}."


def _field(error: RequestValidationError) -> str | None:
    place = [str(part) for part in error.errors()[0]["loc"] if part != "body"]
    return ".".join(place) or None
