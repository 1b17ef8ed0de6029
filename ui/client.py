"""A client of the API server, for the CLI and the studio."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from ui.addresses import REGISTRY_HEADER, api_address, registry_id
from ui.errors import ServerDownError, ServerRefusedError, ServerSlowError
from ui.server_proof import ELSEWHERE, ProvingTransport
from workbench.answers.cards import PriorCard
from workbench.answers.posteriors import PosteriorAnswer
from workbench.answers.server import ChatCompletionChunk, Completion, CompletionChunk, Health, Model, ModelList
from workbench.kinds.kind import parse_as
from workbench.questions.posteriors import PriorRequest
from workbench.questions.question import AnswerType, Question

if TYPE_CHECKING:
    from workbench.settings import Settings

CONNECT_SECONDS = 2.0
# A first request loads weights, and waits its turn behind other generations.
ANSWER_SECONDS = 600.0
Result = TypeVar("Result", bound=BaseModel)


class Client:
    """A client of the API server of one registry.

    Raises ServerDownError when it does not answer, ServerRefusedError with the server's message when it refuses.
    """

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        self._registry = registry_id(settings)
        self._http = httpx.Client(
            base_url=api_address(settings),
            headers={REGISTRY_HEADER: self._registry},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            transport=ProvingTransport(settings, api_address(settings), transport),
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def health(self) -> Health:
        """Version, registry, device and loaded models of this workbench's server; refuses answers of other servers."""
        try:
            body = self._send("GET", "/healthz", timeout=CONNECT_SECONDS)
        except ServerRefusedError as refusal:
            if refusal.code:  # a message of a workbench
                raise
            body = {}
        if body.get("registry") != self._registry:
            raise ServerRefusedError(f"Another program listens at {self._http.base_url}.", ELSEWHERE)
        return _parse(Health, body)

    def models(self) -> list[Model]:
        """Every mixture and every enabled expert."""
        return _parse(ModelList, self._send("GET", "/v1/models")).data

    def complete(self, **request: Any) -> Completion:
        """A full completion; the fields are those of the API's request."""
        return self._post(Completion, "/v1/completions", {**request, "stream": False})

    def stream(self, **request: Any) -> Generator[CompletionChunk, None, None]:
        """The chunks of a completion as they come; closing the iterator ends the answer within one step."""
        return self._stream(CompletionChunk, "/v1/completions", request)

    def converse(self, **request: Any) -> Generator[ChatCompletionChunk, None, None]:
        """The chunks of an answer to a conversation, as those of `stream`."""
        return self._stream(ChatCompletionChunk, "/v1/chat/completions", request)

    def _stream(self, chunk: type[Result], path: str, request: Mapping[str, Any]) -> Generator[Result, None, None]:
        with (
            _explain_failures(self._http),
            self._http.stream("POST", path, json={**request, "stream": True}) as response,
        ):
            _check(response)
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    body = json.loads(line.removeprefix("data: "))
                    if "error" in body:
                        raise _refusal(body["error"], response.status_code)
                    yield _parse(chunk, body)

    def posterior(self, **request: Any) -> PosteriorAnswer:
        """The weight of every expert at every token of a text, and of every part inside experts."""
        return self._post(PosteriorAnswer, "/v1/workbench/posterior", request)

    def ask(self, question: Question[AnswerType]) -> AnswerType:
        """The answer to a question about stored scores."""
        return self._post(question.answer_type(), f"/v1/workbench/{question.path}", _fields_of(question))

    def estimate_prior(self, **request: Any) -> PriorCard:
        """A new prior, estimated on stored scores of held-out text; the fields are those of PriorRequest."""
        return self._post(PriorCard, "/v1/workbench/priors", _fields_of(parse_as(PriorRequest, request)))

    def _post(self, result: type[Result], path: str, request: Mapping[str, Any]) -> Result:
        return _parse(result, self._send("POST", path, json=request))

    def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with _explain_failures(self._http):
            response = self._http.request(method, path, **options)
            _check(response)
            return _body(response)


def _fields_of(question: Question[Any]) -> dict[str, Any]:
    """The fields that were given, as JSON."""
    return question.model_dump(mode="json", exclude_unset=True)


@contextmanager
def _explain_failures(http: httpx.Client) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException:
        raise ServerSlowError(
            f"The API server at {http.base_url} did not answer in time.",
            "It may be busy; try again in a moment.",
        ) from None
    except httpx.TransportError as error:
        raise ServerDownError(
            f"The API server at {http.base_url} does not answer ({error}).", "Start it with `workbench up`."
        ) from None


def _check(response: httpx.Response) -> None:
    if response.is_error:
        response.read()
        raise _refusal(_body(response).get("error"), response.status_code)


def _parse(result: type[Result], body: dict[str, Any]) -> Result:
    try:
        return result.model_validate(body)
    except ValidationError:
        raise ServerRefusedError(
            "The API server's answer does not match this version.",
            "It may run another version: restart it with `workbench up`.",
        ) from None


def _refusal(error: Any, status: int) -> ServerRefusedError:
    if not isinstance(error, dict):
        return ServerRefusedError(f"The API server answered with status {status} and no reason.", status=status)
    code = str(error.get("code") or "")
    next_step = ELSEWHERE if code == "foreign_registry" else ""
    return ServerRefusedError(str(error.get("message", "")), next_step, status=status, code=code)


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = {}
    return body if isinstance(body, dict) else {}
