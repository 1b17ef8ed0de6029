"""The forecast of a training's costs, before it is submitted."""

from __future__ import annotations

import streamlit as st

from ui.present.text.formatting import duration, millions, plain, size
from ui.present.throughput import operations
from workbench.job_records.forecasts import Forecast, forecast
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.database import reading


def show_forecast(spec: TrainMode | ComposeMode) -> None:
    """Parameters, memory, disk and time of a training of MoDE; nothing while it cannot be known."""
    with reading() as session:
        expected = forecast(session, spec)
    if expected is None:
        return
    with st.container(border=True):
        numbers = {
            "Trainable parameters": millions(expected.num_trained) if expected.num_trained else "nothing",
            "Memory, at least": size(expected.memory_bytes),
            "Disk": size(expected.disk_bytes),
            "Time, about": _time(expected),
        }
        with st.container(horizontal=True, gap="large"):  # in columns of one width a long time would be cut off
            for label, value in numbers.items():
                st.metric(label, value, width="content")
        st.caption(plain(forecast_words(expected)))


def _time(expected: Forecast) -> str:
    if not expected.seconds:
        return "not known yet" if expected.num_flops else "moments"
    shortest, longest = map(duration, expected.seconds_between or (expected.seconds, expected.seconds))
    return shortest if shortest == longest else f"{shortest} to {longest}"


def forecast_words(expected: Forecast) -> str:
    """How the numbers come about."""
    frozen = f"{millions(expected.num_frozen)} parameters of the backbone stay as they are and are not saved again."
    if not expected.num_flops:
        return f"Nothing is trained: the experts' parts are copied. {frozen}"
    costs = (
        f"{frozen} Memory is that of weights, gradients and moments; activations come on top. While it trains, "
        f"checkpoints take {size(expected.checkpoint_bytes)}. {expected.num_tokens:,} tokens cost "
        f"{operations(expected.num_flops)}"
    )
    if expected.measured_by is None:
        return f"{costs}: how long that takes is known after the first training on this machine."
    if not expected.is_alike:
        return f"{costs}. The time is a guess from another kind of training or backbone, “{expected.measured_by}”."
    return f"{costs}, at the speeds of such trainings here, “{expected.measured_by}” last; evaluations are not counted."
