"""The help of the options of gates and of sampling, as their configs define it."""

from __future__ import annotations

from dataclasses import fields

from engine.config import SamplingConfig
from engine.mixing.gates.updating import UpdatingGateConfig

SAMPLING_HELP = {one.name: one.metadata["description"] for one in fields(SamplingConfig)}
OPTION_HELP = {
    **SAMPLING_HELP,
    **{one.name: one.metadata.get("description", "") for one in fields(UpdatingGateConfig)},
}
