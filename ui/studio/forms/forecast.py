"""What a training will take, before it is asked for."""

from __future__ import annotations

import streamlit as st

from ui.present.text.formatting import duration, millions, plain, size
from ui.present.throughput import operations
from workbench.answers.forecasts import Forecast
from workbench.job_records.forecasts import forecast
from workbench.mode_specs import ComposeMode, TrainMode
from workbench.registry.database import reading


def show_forecast(spec: TrainMode | ComposeMode) -> None:
    """Parameters, memory, disk and time of a training of MoDE; nothing while it cannot be known."""
    with reading() as session:
        result = forecast(session, spec)
    if result is None:
        return
    with st.container(border=True):
        numbers = {
            "Learned parameters": millions(result.num_learning) if result.num_learning else "nothing",
            "Memory, at least": size(result.memory),
            "Disk": size(result.disk),
            "Time, about": _time(result),
        }
        with st.container(horizontal=True, gap="large"):  # in columns of one width a long time would be cut off
            for label, value in numbers.items():
                st.metric(label, value, width="content")
        st.caption(plain(forecast_words(result)))


def _time(forecast: Forecast) -> str:
    if not forecast.seconds:
        return "not known yet" if forecast.num_flops else "moments"
    least, most = map(duration, forecast.seconds_between or (forecast.seconds, forecast.seconds))
    return least if least == most else f"{least} to {most}"


def forecast_words(forecast: Forecast) -> str:
    """How the numbers come about. Pure."""
    frozen = f"{millions(forecast.num_frozen)} parameters of the backbone stay as they are and are not saved again."
    if not forecast.num_flops:
        return f"Nothing is trained: the experts' parts are copied. {frozen}"
    words = (
        f"{frozen} Memory is that of weights, gradients and moments; activations come on top. While it trains, "
        f"checkpoints take {size(forecast.checkpoints)}. {forecast.num_tokens:,} tokens cost "
        f"{operations(forecast.num_flops)}"
    )
    if forecast.measured_by is None:
        return f"{words}: how long that takes is known after the first training on this machine."
    if not forecast.is_alike:
        return f"{words}. The time is a guess from another kind of training or backbone, “{forecast.measured_by}”."
    return f"{words}, at the speeds of such trainings here, “{forecast.measured_by}” last; evaluations are not counted."
