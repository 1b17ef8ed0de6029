"""Claim: many streams at the same time, some of them cut, while experts are renamed and mixtures come and go, give
each client only the tokens of its answer, lose none, and leave memory steady; a full queue refuses the rest with 429.

A server of its own (`python -m ui.api`) in a temporary home serves three kinds of models, trained for a few steps: a
mixture of DEMix experts of width 256 on one base, a mixture over several bases (C-BTM), and an expert of MoDE. First
each of some requests (mixture, prompt, seed, gate) is answered without the others. Then `--streams` clients send them
in random order for `--minutes`; each fifth is cut at a random token. Meanwhile an expert is renamed and back, and a
mixture is created, answers, and is deleted while it answers. At the end, 64 requests more than slots and queue hold are
sent at once. Exit code 1 when a token differs, a request fails, the queue miscounts, or memory grows: the median of its
last quarter may be at most 5 % and 16 MB above that of the second.
Run: python benchmarks/load.py --minutes 10
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterator, Mapping, Sequence  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from threading import Event, Lock  # noqa: E402
from typing import Any  # noqa: E402

import httpx  # noqa: E402

from harness.benchmark import Figure, Options, report, resident_bytes, run_all  # noqa: E402

SIZES = {
    "minutes": (1.0, 0.1),
    "streams": (32, 8),
    "layers": (4, 2),
    "width": (256, 32),
    "ffn_width": (1024, 64),
    "steps": (40, 4, "updates of each training"),
    "tokens": (64, 16, "of each answer"),
}
DOMAINS = {
    "law": "court statute appeal justice plaintiff ruling",
    "cook": "flour oven butter salt simmer bake",
    "sea": "wave harbour gull sail anchor tide",
}
MIXTURE = (
    "migrate",
    "corpus add texts {corpus} --domain-field domain --here",
    "seed make tiny --domains law,cook,sea --layers {layers} --width {width} --heads 4 --ffn-width {ffn_width}"
    " --vocab-size 512 --max-positions 512 --here",
    "train joint duo --seed-model tiny --domains law,cook,sea --steps {steps} --block-size 64 --here",
    "evaluate run duo --block-size 64 --here",
)
COMMANDS = (
    *MIXTURE[:-1],
    "mixture create pair --experts duo/law,duo/cook",
    "cluster find topics --domains law,cook,sea --clusters 3 --dimension 5 --map-size 0 --here",
    "train clusters topics bases --seed-model tiny --steps {steps} --block-size 64 --here",
    "train mode layers --seed-model tiny --domains law --blocks 2 --expert-layers 1 --steps {steps} --block-size 64"
    " --here",
)
MODELS = ("duo", "pair", "duo/sea", "bases", "layers/law")
RENAMED, ANOTHER_NAME = "duo/sea", "duo/ocean"
MORE_THAN_HELD = 64
MOST_GROWTH, MOST_GROWTH_MB = 0.05, 16.0  # of resident memory, from the second quarter to the last
TIMEOUT_SECONDS = 300.0
PATIENCE = 120.0  # seconds for a server to start


@dataclass
class Tally:
    """What the clients saw."""

    complete: int = 0
    cut: int = 0
    tokens: int = 0
    refused: int = 0  # a mixture that was deleted before the request came
    by_model: Counter[str] = field(default_factory=Counter)  # answers, cut ones included
    wrong: list[str] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    between_seconds: list[float] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)


def main() -> None:
    given = Options(__doc__, SIZES).parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), vars(given)) as (url, process):
        requests = _requests(given.tokens)
        separate = [_ids(_answer(url, request)) for request in requests]
        print(f"{len(requests)} requests answered one by one.", flush=True)
        tally, memory, changes = _load(url, process, requests, separate, given.streams, given.minutes * 60)
        _wait_until_idle(url)
        overflow = _overflow(url, requests[0], separate[0])
    second, last = quarters(memory)
    print(*tally.wrong[:5], sep="\n", file=sys.stderr)
    figures = [
        Figure("wrong or lost answers", [len(tally.wrong)], "answers", at_most=0),
        Figure("whole answers", [tally.complete], "answers", at_least=1),
        growth(memory),
        Figure("time to the first token", tally.first_seconds, "s"),
        Figure("time between tokens", tally.between_seconds, "s"),
    ]
    report(
        given,
        figures,
        cut=tally.cut,
        of_a_deleted_mixture=tally.refused,
        num_tokens=tally.tokens,
        renames_and_deletions=changes,
        first_token_seconds=_quantiles(tally.first_seconds),
        between_tokens_seconds=_quantiles(tally.between_seconds),
        answers_by_model=tally.by_model,
        resident_mb={"second_quarter": second, "last_quarter": last, "most": max(memory)},
        queue=overflow,
    )
    if tally.wrong or not overflow["as_promised"] or not set(MODELS) <= set(tally.by_model):
        sys.exit("An answer was wrong, the queue miscounted, or a kind of model gave no answer.")


def quarters(memory: Sequence[float]) -> tuple[float, float]:
    """The medians of the second and of the last quarter of a run; the first quarter warms up."""
    quarter = max(1, len(memory) // 4)
    return statistics.median(memory[quarter : 2 * quarter] or memory), statistics.median(memory[-quarter:])


def growth(memory: Sequence[float]) -> Figure:
    """Resident memory (MB) at the end of a run, with the most that it may have grown to."""
    second, last = quarters(memory)
    return Figure("memory of the last quarter", [last], "MB", at_most=second * (1 + MOST_GROWTH) + MOST_GROWTH_MB)


def _requests(num_tokens: int) -> list[dict[str, Any]]:
    prompts = ("the court", "bake the flour", "a gull over the harbour " * 12)
    gates: tuple[dict[str, Any], ...] = ({}, {"top_k_experts": 1}, {"gate": "fixed"})
    return [
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "seed": number,
            "temperature": 0.9 * (number % 2),
            "return_token_ids": True,
        }
        | gate
        for number, (model, prompt, gate) in enumerate(
            (model, prompt, gate)
            for model in MODELS
            for prompt in prompts
            for gate in (gates if model in ("duo", "pair") else gates[:1])
        )
    ]


# the server ---------------------------------------------------------------------------------------------------


@contextmanager
def _server(folder: Path, sizes: Mapping[str, int]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Address and process of a server with trained experts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    os.environ |= {"WORKBENCH_API_PORT": str(port), "WORKBENCH_TOKEN": "", "WORKBENCH_NO_AUTH": "1"}
    os.environ["WORKBENCH_HOME"] = str(make_home(folder, COMMANDS, sizes))
    with running([sys.executable, "-P", "-m", "ui.api"], dict(os.environ)) as process:
        wait_for(f"{url}/ready")
        yield url, process


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is ended at the end."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx.get(address, trust_env=False).status_code < 500:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{address} did not answer in {PATIENCE:.0f} s")


def make_home(folder: Path, commands: Sequence[str], sizes: Mapping[str, int]) -> Path:
    """A home in which the commands were run with models of these sizes."""
    home = folder / "home"
    corpus = _corpus(folder / "texts.jsonl")
    run_all(
        [command.format(corpus=corpus, **sizes) for command in commands], os.environ | {"WORKBENCH_HOME": str(home)}
    )
    return home


def _corpus(path: Path) -> Path:
    generator = random.Random(0)
    lines = [
        json.dumps({"text": " ".join(generator.choices(words.split(), k=60)) + f" {number}.", "domain": domain})
        for domain, words in DOMAINS.items()
        for number in range(120)
    ]
    path.write_text("\n".join(lines))
    return path


# the load ------------------------------------------------------------------------------------------------------


def _load(
    url: str,
    process: subprocess.Popen[bytes],
    requests: list[dict[str, Any]],
    separate: list[list[int]],
    num_streams: int,
    seconds: float,
) -> tuple[Tally, list[float], int]:
    """What the clients saw, the server's resident memory (MB) from time to time, and the number of changes."""
    tally, ended, memory, changes = Tally(), Event(), list[float](), 0

    def client(number: int) -> None:
        generator = random.Random(number)
        with httpx.Client(trust_env=False, timeout=TIMEOUT_SECONDS) as connection:
            while not ended.is_set():
                place = generator.randrange(len(requests))
                request = dict(requests[place])
                cut_after = generator.randrange(1, request["max_tokens"]) if generator.random() < 0.2 else None
                if request["model"] == RENAMED and generator.random() < 0.5:
                    request["model"] = ANOTHER_NAME
                elif request["model"] == "pair" and generator.random() < 0.3:
                    request["model"] = "spare"
                try:
                    _stream(connection, url, request, separate[place], cut_after, tally)
                except (httpx.HTTPError, ValueError, KeyError) as error:
                    with tally.lock:
                        tally.wrong.append(f"{request}: {type(error).__name__}: {error}")

    with ThreadPoolExecutor(num_streams) as clients:
        running = [clients.submit(client, number) for number in range(num_streams)]
        stop = time.monotonic() + seconds
        try:
            while time.monotonic() < stop:
                changes += _change(changes)
                memory.append(resident_bytes("VmRSS", process.pid) / 2**20)
                time.sleep(1)
        finally:
            ended.set()
        for one in running:
            one.result()
    if changes % 2:
        _change(changes)
    return tally, memory, changes


def _change(number: int) -> int:
    """Renames an expert, and creates a mixture; the next time both are undone, whoever uses them. Gives 1."""
    from workbench.registry import experts, mixtures
    from workbench.registry.database import transaction
    from workbench.specs.requests import MixtureSpec

    with transaction() as session:
        experts.rename(session, *((RENAMED, ANOTHER_NAME) if number % 2 == 0 else (ANOTHER_NAME, RENAMED)))
        if number % 2 == 0:
            mixtures.create_mixture(session, MixtureSpec(name="spare", experts=["duo/law", "duo/cook"]))
        else:
            mixtures.delete_mixture(session, "spare")
    return 1


def _stream(
    connection: httpx.Client,
    url: str,
    request: dict[str, Any],
    expected: list[int],
    cut_after: int | None,
    tally: Tally,
) -> None:
    ids, began, before = list[int](), time.monotonic(), 0.0
    first, between, ended = 0.0, list[float](), False
    with connection.stream("POST", f"{url}/v1/completions", json={**request, "stream": True}) as answer:
        if answer.status_code == 404 and request["model"] in (RENAMED, ANOTHER_NAME, "spare"):
            with tally.lock:
                tally.refused += 1
            return
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise ValueError(event["error"])
                now = time.monotonic()
                if new := [id for choice in event["choices"] for id in choice.get("token_ids") or []]:
                    if ids:
                        between.append(now - before)
                    else:
                        first = now - began
                    before = now
                    ids += new
            if cut_after is not None and len(ids) >= cut_after:
                break
    is_right = ids == expected[: len(ids)] if cut_after is not None else ended and ids == expected
    with tally.lock:
        tally.cut += cut_after is not None
        tally.complete += cut_after is None
        tally.tokens += len(ids)
        tally.by_model[request["model"]] += 1
        tally.first_seconds.append(first)
        tally.between_seconds += between
        if not is_right:
            tally.wrong.append(f"{request}: {ids} instead of {expected}")


def _answer(url: str, request: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=request, trust_env=False, timeout=TIMEOUT_SECONDS)


def _ids(answer: httpx.Response) -> list[int]:
    answer.raise_for_status()
    ids: list[int] = answer.json()["choices"][0]["token_ids"]
    return ids


def _wait_until_idle(url: str) -> None:
    """Until the cut streams have left; a minute at most."""
    deadline = time.monotonic() + 60
    while (health := httpx.get(f"{url}/health", trust_env=False).json())["busy"] or health["waiting"]:
        if time.monotonic() > deadline:
            raise SystemExit(f"{health['busy']} slots are busy a minute after the last client left.")
        time.sleep(0.2)


def _overflow(url: str, request: dict[str, Any], expected: list[int]) -> dict[str, Any]:
    """The answers to 64 requests more than are held at once: that many refusals, and nobody else fails."""
    from workbench.settings import get_settings

    settings = get_settings()
    held = settings.max_streams + settings.max_waiting
    with ThreadPoolExecutor(held + MORE_THAN_HELD) as clients:
        answers = list(clients.map(lambda _: _answer(url, request), range(held + MORE_THAN_HELD)))
    codes = Counter(answer.status_code for answer in answers)
    inside = [answer for answer in answers if answer.status_code == 200]
    return {
        "held": held,
        "answered": codes[200],
        "refused": codes[429],
        "as_promised": codes[200] >= held
        and codes[200] + codes[429] == len(answers)
        and all(_ids(answer) == expected for answer in inside)
        and all("retry-after" in answer.headers for answer in answers if answer.status_code == 429),
    }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"median": cuts[49], "p95": cuts[94], "most": max(seconds)}


if __name__ == "__main__":
    main()
