"""Errors of the front ends (CLI, API, studio) that a user can act on.

UiError
├── BadUsageError            a command line or a form that cannot be read
├── UnsafeAddressError       listening beyond this machine without a token
├── PortTakenError           another program listens on a port that is needed
├── GpuTakenError            another API server uses the GPU
├── ServerDownError          the API server does not answer
│   └── ServerSlowError      it did not answer in time
├── ServerRefusedError       the API server answered with a refusal (status, code)
├── RateLimitExceededError   more generations than the server lets wait (retry_after)
├── AnswerTimeoutError       an answer took longer than the server lets one take
├── ServiceUnavailableError  the server stops, and takes no more work
├── ServingEngineError       the vLLM server behind the API server is away, or refuses
└── JobFailedError           a job that was waited for did not end well
"""

from __future__ import annotations

from engine.errors import Problem

RETRY_SECONDS = 2  # Retry-After for a client that found the queue full


class UiError(Problem):
    """Base class of the front ends' errors."""


class BadUsageError(UiError, code="bad_usage"):
    """A command line or a form that cannot be read."""


class UnsafeAddressError(UiError, code="unsafe_address"):
    """Listening beyond this machine without a token."""


class PortTakenError(UiError, code="port_taken"):
    """Another program listens on a port that is needed."""


class GpuTakenError(UiError, code="gpu_taken"):
    """Another API server uses the GPU."""

    def __init__(self, uuid: str, holder: str) -> None:
        by = f" ({holder})" if holder else ""
        super().__init__(
            f"Another API server of yours uses the GPU {uuid} already{by}.",
            "Stop that server, set WORKBENCH_DEVICE to another device, or allow both with WORKBENCH_SHARE_GPU=true.",
        )


class ServerDownError(UiError, code="server_down"):
    """The API server does not answer."""


class ServerSlowError(ServerDownError, code="server_slow"):
    """The API server did not answer in time."""


class ServerRefusedError(UiError, code="server_refused"):
    """The API server answered with a refusal."""

    def __init__(self, problem: str, next_step: str = "", *, status: int = 400, code: str = "") -> None:
        super().__init__(problem, next_step)
        self.status = status
        self.code = code


class RateLimitExceededError(UiError, code="rate_limit_exceeded"):
    """More generations wait than the server lets wait."""

    def __init__(self, num_waiting: int) -> None:
        waiting = f" and {num_waiting} more wait{'s' if num_waiting == 1 else ''}" if num_waiting else ""
        super().__init__(f"The server is busy: every slot is taken{waiting}.", "Try again in a moment.")
        self.retry_after = RETRY_SECONDS


class AnswerTimeoutError(UiError, code="answer_timeout"):
    """An answer took longer than the server lets one take."""

    def __init__(self, seconds: float) -> None:
        problem = f"The answer took longer than the {seconds:g} seconds that this server allows."
        super().__init__(problem, "Ask for fewer tokens, or set WORKBENCH_ANSWER_SECONDS.")


class ServiceUnavailableError(UiError, code="service_unavailable"):
    """The server is shutting down and takes no more work."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down.", "Retry after it has restarted.")


class ServingEngineError(UiError, code="serving_engine"):
    """The vLLM server behind the API server is away, is silent for too long, or refuses a request."""


class JobFailedError(UiError, code="job_failed"):
    """A job that was waited for did not end well."""
