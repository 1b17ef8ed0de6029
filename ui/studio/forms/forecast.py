"""What a training will take, before it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.present.text.formatting import duration, millions, plain, size
from ui.present.throughput import operations
from workbench.job_records.forecasts import forecast
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.database import reading


def show_forecast(spec: TrainMode | ComposeMode) -> None:
    """Parameters, memory, disk and time of a training of MoDE; nothing while it cannot be known."""
    with reading() as session:
        found = forecast(session, spec)
    if found is None:
        return
    with st.container(border=True):
        numbers = {
            "Learned parameters": millions(found["num_learning"]) if found["num_learning"] else "nothing",
            "Memory, at least": size(found["memory"]),
            "Disk": size(found["disk"]),
            "Time, about": _time(found),
        }
        with st.container(horizontal=True, gap="large"):  # in columns of one width a long time would be cut off
            for label, value in numbers.items():
                st.metric(label, value, width="content")
        st.caption(plain(forecast_words(found)))


def _time(found: Mapping[str, Any]) -> str:
    if not found["seconds"]:
        return "not known yet" if found["num_flops"] else "moments"
    least, most = map(duration, found["seconds_between"] or (found["seconds"], found["seconds"]))
    return least if least == most else f"{least} to {most}"


def forecast_words(found: Mapping[str, Any]) -> str:
    """How the numbers come about. Pure."""
    frozen = f"{millions(found['num_frozen'])} parameters of the backbone stay as they are and are not saved again."
    if not found["num_flops"]:
        return f"Nothing is trained: the experts' parts are copied. {frozen}"
    told = (
        f"{frozen} Memory is that of weights, gradients and moments; activations come on top. While it trains, "
        f"checkpoints take {size(found['checkpoints'])}. {found['num_tokens']:,} tokens cost "
        f"{operations(found['num_flops'])}"
    )
    if found["measured_by"] is None:
        return f"{told}: how long that takes is known after the first training on this machine."
    if not found["is_alike"]:
        return f"{told}. The time is a guess from another kind of training or backbone, “{found['measured_by']}”."
    return f"{told}, at the speeds of such trainings here, “{found['measured_by']}” last; evaluations are not counted."
