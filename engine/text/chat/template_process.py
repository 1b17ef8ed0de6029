"""Renders chat templates in a process of its own, which is killed when a template takes too long.

A template is a program of whoever published the model. Jinja's sandbox keeps it from files and objects, but not from
`{% for %}` in `{% for %}` or `'a' * 10 ** 10`; only a process can be stopped in time and has a memory of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.device import python_command, python_environment

MAX_SECONDS = 10.0  # of one conversation, which takes about a millisecond
MAX_CHARACTERS = 1 << 22  # of what a template writes
_START_SECONDS = 120.0
_EXTRA_BYTES = 1 << 30  # of memory beyond what the libraries take


class NotRenderedError(Exception):
    """A template that raised, took too long or wrote too much; the message says which."""


@dataclass(frozen=True)
class Rendered:
    """The text of a conversation, and where (start, end) in it `{% generation %}` marks an answer."""

    text: str
    answers: tuple[tuple[int, int], ...]


class _Renderer:
    """A process that renders one conversation after the other; started when first needed, again after it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def render(
        self,
        template: str,
        messages: Sequence[Mapping[str, Any]],
        special_tokens: Mapping[str, Any],
        *,
        opens_answer: bool,
    ) -> Rendered:
        """The text of a conversation, as transformers renders it. Raises NotRenderedError, in bounded time.

        `opens_answer` is transformers' `add_generation_prompt`.
        """
        request = [template, list(messages), special_tokens, opens_answer]
        with self._lock:
            answer = self._ask(self._running(), json.dumps(request), MAX_SECONDS)
        if answer is None:
            raise NotRenderedError(f"it was stopped: it took more than {MAX_SECONDS:g} seconds or too much memory")
        if "error" in answer:
            raise NotRenderedError(answer["error"])
        return Rendered(answer["text"], tuple((start, end) for start, end in answer["answers"]))

    def _running(self) -> subprocess.Popen[str]:
        """The process; another one in a fork, which would share the pipes of its parent's."""
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                python_command("engine.text.chat.template_process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="ascii",
                env={**os.environ, **python_environment(), "OPENBLAS_NUM_THREADS": "1"},
            )
            self._owner = os.getpid()  # not before: a fork that cannot start one must not take its parent's for its own
            if self._ask(self._process, "null", _START_SECONDS) is None:
                raise NotRenderedError("the process that renders templates did not start")
        return self._process

    def _ask(self, process: subprocess.Popen[str], line: str, max_seconds: float) -> dict[str, Any] | None:
        """The answer to a line; None, and no process any more, when there was none in time."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(max_seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                return answer if isinstance(answer, dict) else None
        finally:
            timer.cancel()
        with contextlib.suppress(OSError), process:
            process.kill()
        self._process = None
        return None


render = _Renderer().render


def _answer(request: list[Any] | None) -> dict[str, Any]:
    """The answer to a request, in the process that renders."""
    from transformers.utils.chat_template_utils import render_jinja_template

    if request is None:  # only the imports
        return {}
    template, messages, special_tokens, opens_answer = request
    try:
        rendered: Any = render_jinja_template(
            [messages],
            chat_template=template,
            return_assistant_tokens_mask="endgeneration" in template,
            add_generation_prompt=opens_answer,
            **special_tokens,
        )
    except MemoryError:
        return {"error": "it needs too much memory"}
    except Exception as error:  # whatever a template raises
        return {"error": str(error)[:1000] or type(error).__name__}
    [text], spans = rendered
    if len(text) > MAX_CHARACTERS:
        return {"error": f"it writes more than {MAX_CHARACTERS:,} characters"}
    return {"text": text, "answers": spans[0] if spans else []}


def _limit_memory() -> None:
    """Lets this process take no more than so much memory from now on, where the system says how much it has."""
    with contextlib.suppress(OSError, ValueError, ImportError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + _EXTRA_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Answers each line of the standard input with one line."""
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_answer(request)), flush=True)
        if request is None:
            _limit_memory()


if __name__ == "__main__":
    main()
