"""Prints the forecast of a job."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

import typer

from ui.cli.output import print_json, say
from ui.cli.progress_bar import progress_bar

if TYPE_CHECKING:
    from workbench.answers.forecasts import Forecast
    from workbench.specs.base import Spec


def print_forecast(stages: Generator[str, None, Forecast], spec: type[Spec], as_json: bool) -> None:
    """Runs the probe with a progress line and prints what the job will take; exits with 1 unless it fits."""
    forecast = _finished(stages, as_json)
    if as_json:
        print_json(forecast)
    else:
        _print(forecast, spec)
    if not forecast.fits:
        raise typer.Exit(1)


def _finished(stages: Generator[str, None, Forecast], quiet: bool) -> Forecast:
    with progress_bar(quiet) as draw, closing(stages):
        while True:
            try:
                draw(f"Probe: {next(stages)}", 0.0)
            except StopIteration as end:
                forecast: Forecast = end.value
                return forecast


def _print(forecast: Forecast, spec: type[Spec]) -> None:
    from ui.present.forms.job_forecast import describe_row, nearest_options_text, row_text, rows_of
    from ui.present.text.formatting import duration

    rows = list(rows_of(forecast))
    say(f"{forecast.title}, by a probe of {duration(forecast.probe_seconds)}:")
    for name, value in rows:
        say(f"  {name:<12}{value}")
    if forecast.problem:
        say(f"  {forecast.problem} {nearest_options_text(forecast, spec)}")
    if forecast.measured:
        for number, row in enumerate(forecast.measured.first_batch[:1], 1):
            say(f"{describe_row(row, number)} Its beginning, as the model reads it:\n{row_text(row)}")
    if forecast.command:
        say(f"The same job: {forecast.command}")
    if forecast.request:
        say(f"And over HTTP: {forecast.request}")
