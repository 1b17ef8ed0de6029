"""A client of the API server, for the CLI and the studio."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import httpx
from pydantic import BaseModel, ValidationError

from ui.addresses import REGISTRY_HEADER, api_address, registry_id
from ui.errors import ServerDown, ServerRefused, ServerSlow
from ui.server_proof import ELSEWHERE, ProvingTransport
from workbench.answers.calibrations import EvidenceCalibration
from workbench.answers.changes import Forgetting, RemovalTable
from workbench.answers.perplexities import ClusterGrid, InferenceModeComparison, MixedScores
from workbench.answers.posteriors import ParentProposal, PosteriorAnswer, PosteriorMap, TokenComparison
from workbench.answers.server import Completion, CompletionChunk, Health, Model, ModelList
from workbench.registry.cards import PriorCard

if TYPE_CHECKING:
    from ui.request_fields import (
        CalibrationFields,
        ClusterGridFields,
        CompletionFields,
        ContrastFields,
        ForgettingFields,
        InferenceModesFields,
        MixFields,
        NearestFields,
        PosteriorFields,
        PosteriorMapFields,
        PriorFields,
        RemovalFields,
    )
    from workbench.settings import Settings

CONNECT_SECONDS = 2.0
# A first request loads weights, and waits its turn behind other generations.
ANSWER_SECONDS = 600.0
Result = TypeVar("Result", bound=BaseModel)


class Client:
    """A client of the API server of one registry.

    Raises ServerDown when it does not answer, ServerRefused with the server's message when it refuses.
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
        except ServerRefused as refusal:
            if refusal.code:  # a message of a workbench
                raise
            body = {}
        if body.get("registry") != self._registry:
            raise ServerRefused(f"Another program listens at {self._http.base_url}.", ELSEWHERE)
        return _parsed(Health, body)

    def models(self) -> list[Model]:
        """Every mixture and every enabled expert."""
        return _parsed(ModelList, self._send("GET", "/v1/models")).data

    def complete(self, **request: Unpack[CompletionFields]) -> Completion:
        """A full completion."""
        return self._post(Completion, "/v1/completions", {**request, "stream": False})

    def stream(self, **request: Unpack[CompletionFields]) -> Generator[CompletionChunk, None, None]:
        """The chunks of a completion as they come; closing the iterator ends the answer within one step."""
        with (
            _explained(self._http),
            self._http.stream("POST", "/v1/completions", json={**request, "stream": True}) as response,
        ):
            _check(response)
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield _chunk(json.loads(line.removeprefix("data: ")), response.status_code)

    def posterior(self, **request: Unpack[PosteriorFields]) -> PosteriorAnswer:
        """The weight of every expert at every token of a text, and of every part inside those of MoDE."""
        return self._post(PosteriorAnswer, "/v1/workbench/posterior", request)

    def mix(self, **request: Unpack[MixFields]) -> MixedScores:
        """A mixture's perplexity on every domain, from stored scores."""
        return self._post(MixedScores, "/v1/workbench/mix", request)

    def removal(self, **request: Unpack[RemovalFields]) -> RemovalTable:
        """What removing each expert of a mixture costs, from stored scores."""
        return self._post(RemovalTable, "/v1/workbench/removal", request)

    def forgetting(self, **request: Unpack[ForgettingFields]) -> Forgetting:
        """How the perplexities of two models differ on the same text, from stored scores."""
        return self._post(Forgetting, "/v1/workbench/forgetting", request)

    def nearest(self, **request: Unpack[NearestFields]) -> ParentProposal:
        """The parent that a new expert of a domain would have, from stored scores."""
        return self._post(ParentProposal, "/v1/workbench/nearest", request)

    def inference_modes(self, **request: Unpack[InferenceModesFields]) -> InferenceModeComparison:
        """A mixture's perplexity on every domain under each inference mode, from stored scores."""
        return self._post(InferenceModeComparison, "/v1/workbench/inference-modes", request)

    def calibration(self, **request: Unpack[CalibrationFields]) -> EvidenceCalibration:
        """The evidence that fits dev text of a mixture's training domains best, from stored scores."""
        return self._post(EvidenceCalibration, "/v1/workbench/calibration", request)

    def cluster_grid(self, **request: Unpack[ClusterGridFields]) -> ClusterGrid:
        """A cluster gate's perplexity at every temperature and top-k, from stored scores."""
        return self._post(ClusterGrid, "/v1/workbench/cluster-grid", request)

    def posteriors(self, **request: Unpack[PosteriorMapFields]) -> PosteriorMap:
        """Which expert each domain's text is taken for, from stored scores."""
        return self._post(PosteriorMap, "/v1/workbench/posteriors", request)

    def contrast(self, **request: Unpack[ContrastFields]) -> TokenComparison:
        """Where two experts differ on a domain, from stored scores."""
        return self._post(TokenComparison, "/v1/workbench/contrast", request)

    def estimate_prior(self, **request: Unpack[PriorFields]) -> PriorCard:
        """A new prior, estimated on stored scores of held-out text."""
        return self._post(PriorCard, "/v1/workbench/priors", request)

    def _post(self, result: type[Result], path: str, request: Mapping[str, Any]) -> Result:
        return _parsed(result, self._send("POST", path, json=request))

    def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with _explained(self._http):
            response = self._http.request(method, path, **options)
            _check(response)
            return _body(response)


@contextmanager
def _explained(http: httpx.Client) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException:
        raise ServerSlow(
            f"The API server at {http.base_url} did not answer in time.",
            "It may be busy; try again in a moment.",
        ) from None
    except httpx.TransportError as error:
        raise ServerDown(
            f"The API server at {http.base_url} does not answer ({error}).", "Start it with `workbench up`."
        ) from None


def _check(response: httpx.Response) -> None:
    if response.is_error:
        response.read()
        raise _refusal(_body(response).get("error"), response.status_code)


def _chunk(body: dict[str, Any], status: int) -> CompletionChunk:
    if "error" in body:
        raise _refusal(body["error"], status)
    return _parsed(CompletionChunk, body)


def _parsed(result: type[Result], body: dict[str, Any]) -> Result:
    try:
        return result.model_validate(body)
    except ValidationError:
        raise ServerRefused(
            "The API server's answer does not match this version.",
            "It may run another version: restart it with `workbench up`.",
        ) from None


def _refusal(error: Any, status: int) -> ServerRefused:
    if not isinstance(error, dict):
        return ServerRefused(f"The API server answered with status {status} and no reason.", status=status)
    code = str(error.get("code") or "")
    next_step = ELSEWHERE if code == "foreign_registry" else ""
    return ServerRefused(str(error.get("message", "")), next_step, status=status, code=code)


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = {}
    return body if isinstance(body, dict) else {}
