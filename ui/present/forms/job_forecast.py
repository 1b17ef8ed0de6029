"""The forecast of a job as text, and the job as a command line and as an HTTP call."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Generator, Iterator
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

from ui.addresses import public_api_address
from ui.present.forms.options import option_of
from ui.present.forms.questions import Answers, assemble, changed_answers, questions_of
from ui.present.jobs.throughput import operations
from ui.present.model_use import shell_header
from ui.present.text.formatting import duration, parameters_text, size
from workbench.errors import BadSpecError
from workbench.formatting.number_format import pluralize
from workbench.kinds.kind import parse_spec
from workbench.settings import get_settings
from workbench.specs.base import Spec

if TYPE_CHECKING:
    from workbench.answers.forecasts import BatchRow, Forecast, Measured
    from workbench.settings import Settings

Command = Callable[[Answers], str]  # the command line of a kind with these options


def describe_missing_forecast(bad: BadSpecError) -> str:
    """Why there is no forecast of a form: the first complaint."""
    complaint = bad.complaints[0]
    return f"Not measured yet. {complaint[:1].upper()}{complaint[1:]}"


def forecast_of(
    spec: Spec, command: Command | None, settings: Settings | None = None, *, beside: Answers | None = None
) -> Generator[str, None, Forecast]:
    """Yields what the probe is at, and returns the forecast with command line and HTTP call.

    `beside` are options of the command that are not in the spec. Raises BadSpecError.
    """
    from jobs.probe.forecast import forecast

    measured = yield from forecast(spec, settings)
    return measured.model_copy(
        update={"command": command_of(spec, command, beside), "request": request_of(spec, settings or get_settings())}
    )


def command_of(spec: Spec, command: Command | None, beside: Answers | None = None) -> str:
    """The command line that submits this spec; empty where its kind has none."""
    return command({**_changes(spec), **(beside or {})}) if command else ""


def request_of(spec: Any, settings: Settings) -> str:
    """The call of curl that submits this spec; the token is named, not shown."""
    words = ["curl", "-X", "POST", f"{public_api_address(settings)}/v1/workbench/jobs"]
    words += ["-H", "content-type: application/json", "-d", json.dumps({"spec": spec_json(spec)})]
    return shlex.join(words) + shell_header(settings)


def spec_json(spec: Any) -> dict[str, Any]:
    """The JSON of a spec, as short as says the same."""
    short = {"kind": spec.kind, **assemble(_changes(spec))}
    try:
        is_same = parse_spec(short) == spec
    except BadSpecError:
        is_same = False
    return short if is_same else dict(spec.model_dump(mode="json"))


def _changes(spec: Any) -> dict[tuple[str, ...], Any]:
    """The values that differ from their defaults, by their places in the spec."""
    content, questions = spec.model_dump(mode="json"), questions_of(type(spec), {})
    return changed_answers(
        questions, {question.path: reduce(getitem, question.path, content) for question in questions}
    )


def rows_of(forecast: Forecast) -> Iterator[tuple[str, str]]:
    """The forecast of a job, as rows of a table."""
    measured = forecast.measured
    if measured is None:
        return
    bound = "at least " if measured.not_measured else ""
    if measured.num_tokens:
        yield "Time", f"{bound}{duration(measured.seconds)}, measured: {measured.tokens_per_second:,.0f} tokens/s"
    else:
        yield "Time", duration(measured.seconds)
    if (update := measured.update) is not None and update.num_measured:
        interval = "" if update.low is None else f"95% interval {max(0.0, update.low):.3g} to {update.high:.3g}, "
        yield "An update", f"{update.seconds:.3g} s ({interval}n = {update.num_measured})"
    several = measured.num_processes > 1
    yield from _memory(forecast, measured)
    yield "Disk", f"{bound}{_disk(measured)} of {size(forecast.disk_free_bytes)} free"
    if measured.num_flops:
        yield "FLOPs", f"{operations(measured.num_flops)} for {measured.num_tokens:,} tokens"
    if measured.num_trained:
        in_each = " in each process" if several else ""
        yield "Trainable", f"{parameters_text(measured.num_trained)} parameters{in_each}"


def _memory(forecast: Forecast, measured: Measured) -> Iterator[tuple[str, str]]:
    several, on_node = measured.num_processes > 1, measured.num_on_node
    where = " on this machine" if on_node else f", for {measured.num_processes} processes" if several else ""
    yield "Memory", f"{size(measured.peak_bytes)} of {size(forecast.memory_free_bytes)} free{where}"
    if on_node:
        yield (
            "Each node",
            f"needs {size(measured.node_bytes)} of memory, for {pluralize(on_node, 'process', 'processes')}",
        )
    if measured.gpu_peak_bytes:
        yield "GPU memory", f"{_gpu_memory(measured)}{' on each GPU' if several or on_node else ''}"


def _gpu_memory(measured: Measured) -> str:
    taken = size(measured.gpu_peak_bytes)
    if measured.num_on_node:
        return taken
    if 0 < measured.gpu_share_bytes < measured.gpu_free_bytes:
        return f"{taken} of its share of {size(measured.gpu_share_bytes)}"
    return f"{taken} of {size(measured.gpu_free_bytes)} free"


def _disk(measured: Measured) -> str:
    passing = f", and {size(measured.checkpoint_bytes)} while it trains," if measured.checkpoint_bytes else ""
    return f"{size(measured.artifact_bytes)}{passing}"


def describe_row(row: BatchRow, number: int) -> str:
    """The description of a sequence of the first batch, and how `row_text` marks it."""
    counted = "all but the first" if row.num_in_loss == row.num_tokens - 1 else f"{row.num_in_loss:,}"
    return (
        f"Sequence {number}, of {row.domain}: {row.num_tokens:,} tokens; {counted} count in the loss. "
        "A thin bar stands between two tokens, and ‹ › around one that does not count."
    )


def row_text(row: BatchRow) -> str:
    """Its listed tokens, with a thin bar between two; those that do not count in the loss stand in ‹ ›."""
    parts = [token.text if token.in_loss else f"‹{token.text}›" for token in row.tokens]
    before = "… " if row.num_before else ""
    after = " …" if row.num_tokens > row.num_before + len(row.tokens) else ""
    return before + "|".join(parts).replace("\n", "⏎\n") + after


def nearest_options_text(forecast: Forecast, spec: type[Spec]) -> str:
    """The options with which it fits, as on the command line; empty where there are none."""
    flags = [
        f"--{option_of(spec, 'training', name).removeprefix('num_').replace('_', '-')}"
        + ("" if value is True else f" {value}")
        for name, value in forecast.nearest.items()
    ]
    return f"It fits with {' '.join(flags)}." if flags else forecast.next_step
