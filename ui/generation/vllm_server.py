"""A vLLM server that holds seed models and adapters, as its OpenAI API shows it. Its names are hashes of artifacts.

Sources: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html (`vllm_xargs`, `return_token_ids`,
`prompt_logprobs`), https://docs.vllm.ai/en/latest/features/lora.html (adapters at run time).
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import httpx

from engine.inference.cancellation import CHECK_SECONDS, check_cancelled
from engine.inference.remote_rows import RowToken
from ui.errors import ServingEngineError

CONNECT_SECONDS, START_SECONDS, LOAD_SECONDS = 5.0, 30.0, 120.0
ROW = "mixture"  # the argument of a request that is a row of a group
MOST_CONNECTIONS = 1024  # one for each row
_START = "Start it again, or start the API server without WORKBENCH_VLLM_URL."


class VllmServer:
    """A client of one server. Raises ServingEngineError when it is away, refuses, or stays silent for too long."""

    def __init__(
        self, url: str, silent_seconds: float, key: str = "", transport: httpx.BaseTransport | None = None
    ) -> None:
        """`silent_seconds` bounds every wait for the next bytes; `key` is what the server requires, if anything."""
        self.url = url.rstrip("/")
        # A connection that vLLM closes while a request is written on it would end that request.
        limits = httpx.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=0)
        timeout = httpx.Timeout(silent_seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=timeout,
            limits=limits,
            transport=transport,
            trust_env=False,
        )
        self._models: dict[str, int] | None = None
        self._knows_mixtures = False
        self._lock = Lock()

    def models(self) -> dict[str, int]:
        """The names that it answers to, as of the last look, with the most positions of each; 0 of adapters."""
        with self._lock:
            models = self._models
            if models is None:
                data = self._send("GET", "/v1/models", timeout=CONNECT_SECONDS)
                models = {one["id"]: one.get("max_model_len") or 0 for one in data.get("data", ())}
                if not self._knows_mixtures:
                    self._require_plug_in(next(iter(models), ""))
                self._models, self._knows_mixtures = models, True
            return models

    def _require_plug_in(self, model: str) -> None:
        """Raises ServingEngineError where a row of a mixture would be answered as if it were no row."""
        body = {"model": model, "prompt": [1], "max_tokens": 1, "vllm_xargs": {ROW: "?"}}
        with self._explaining():
            response = self._http.post("/v1/completions", json=body, timeout=START_SECONDS)
        if response.status_code != 400 or ROW not in response.text:
            raise ServingEngineError(
                f"The vLLM server at {self.url} does not know mixtures ({response.status_code}).",
                "Install serving/vllm_mixtures where it runs: see docs/how_to/serve_on_vllm.md.",
            )

    def forget(self, *, is_same: bool = False) -> None:
        """Looks again at the next question; whether it knows mixtures only where it may be another server by then."""
        self._models, self._knows_mixtures = None, self._knows_mixtures and is_same

    def load(self, name: str, folder: Path) -> None:
        """Has it load an adapter, which it reads from this folder."""
        body = {"lora_name": name, "lora_path": str(folder)}
        try:
            self._send("POST", "/v1/load_lora_adapter", json=body, timeout=LOAD_SECONDS)
        except ServingEngineError:
            self.forget(is_same=True)
            if name not in self.models():  # another client may have been faster
                raise
        self.models()[name] = 0

    def unload(self, name: str) -> None:
        """Has it forget an adapter."""
        self._send("POST", "/v1/unload_lora_adapter", json={"lora_name": name}, timeout=LOAD_SECONDS)
        self.models().pop(name, None)

    def read(self, names: Sequence[str], ids: Sequence[int]) -> list[list[float]]:
        """The log-probability (nats) of every token but the first, token x model."""
        body = {"prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        with ThreadPoolExecutor(len(names)) as pool:
            answers = list(
                pool.map(lambda name: self._send("POST", "/v1/completions", json={**body, "model": name}), names)
            )
        columns = []
        for answer in answers:
            rows = answer["choices"][0]["prompt_logprobs"]
            columns.append([row[str(id)]["logprob"] for id, row in zip(ids[1:], rows[1:], strict=True)])
        return [list(row) for row in zip(*columns, strict=True)]

    def stream(self, bodies: Sequence[Mapping[str, Any]]) -> Generator[list[RowToken], None, None]:
        """The next token of each row of a group, row by row; closing this ends all rows.

        Raises CancelledError once nobody waits for the answer.
        """
        arrived: SimpleQueue[tuple[int, RowToken | Exception | None]] = SimpleQueue()
        responses: list[httpx.Response] = []
        closed: list[bool] = []

        def follow(number: int) -> None:
            try:
                with self._http.stream("POST", "/v1/completions", json=dict(bodies[number])) as response:
                    responses.append(response)
                    if closed:
                        return
                    _require_success(response)
                    for token in _tokens(response.iter_lines()):
                        arrived.put((number, token))
                arrived.put((number, None))
            except Exception as error:  # raised where the tokens are awaited
                arrived.put((number, error))

        pool = ThreadPoolExecutor(len(bodies), thread_name_prefix="vllm")
        rows: list[deque[RowToken | None]] = [deque() for _ in bodies]
        try:
            for number in range(len(bodies)):
                pool.submit(follow, number)
            while True:
                while not all(rows):
                    self._take(arrived, rows)
                present = [token for row in rows if (token := row.popleft()) is not None]
                if not present:
                    return
                if len(present) < len(rows):
                    raise ServingEngineError("vLLM ended some rows of a mixture before the others.", "Ask again.")
                yield present
        finally:
            closed.append(True)
            for response in responses:
                _end(response)
            pool.shutdown(wait=False, cancel_futures=True)

    def _take(
        self, arrived: SimpleQueue[tuple[int, RowToken | Exception | None]], rows: Sequence[deque[RowToken | None]]
    ) -> None:
        """Adds the next thing that arrives to its row; raises at once what ends any of them."""
        check_cancelled()
        try:
            number, item = arrived.get(timeout=CHECK_SECONDS)
        except Empty:
            return  # each connection has a bound of its own
        if isinstance(item, Exception):
            with self._explaining():
                raise item
        rows[number].append(item)

    def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with self._explaining():
            response = self._http.request(method, path, **options)
            _require_success(response)
            try:
                data: dict[str, Any] = response.json()
            except ValueError:
                data = {}
            return data

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except ServingEngineError:
            raise
        except httpx.ConnectError as error:
            self.forget()
            raise ServingEngineError(f"vLLM does not answer at {self.url}.", _START) from error
        except httpx.PoolTimeout as error:
            problem = f"{MOST_CONNECTIONS} requests to vLLM at {self.url} are under way already."
            raise ServingEngineError(problem, "Ask again.") from error
        except httpx.TimeoutException as error:
            problem = f"vLLM at {self.url} was silent for too long."
            next_step = "Ask again, or look at its log. WORKBENCH_VLLM_SECONDS is how long it may be."
            raise ServingEngineError(problem, next_step) from error
        except httpx.HTTPError as error:
            self.forget()
            cause = str(error).rstrip(".") or type(error).__name__
            raise ServingEngineError(f"vLLM at {self.url} broke the connection: {cause}.", _START) from error


def _end(response: httpx.Response) -> None:
    """Ends a response that another thread may be reading: closing alone does not wake that thread."""
    with suppress(Exception):
        response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    with suppress(Exception):  # the thread closes it as well
        response.close()


def _require_success(response: httpx.Response) -> None:
    if response.is_success:
        return
    response.read()
    raise ServingEngineError(f"vLLM refused the request ({response.status_code}): {_message(response.text)}")


def _message(text: str) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    error = data.get("error", data) if isinstance(data, dict) else data
    return str(error.get("message", error) if isinstance(error, dict) else error)[:600]


def _tokens(lines: Iterator[str]) -> Iterator[RowToken]:
    """The tokens of a stream of server-sent events."""
    for line in lines:
        text = line.removeprefix("data: ")
        if text == line or text == "[DONE]":
            continue
        data = json.loads(text)
        if "error" in data:
            raise ServingEngineError(f"vLLM ended the answer: {_message(text)}", "Ask again, or look at its log.")
        for choice in data["choices"]:
            logprobs = (choice.get("logprobs") or {}).get("token_logprobs") or ()
            for id, logprob in zip(choice.get("token_ids") or (), logprobs, strict=True):
                yield RowToken(id, logprob)
