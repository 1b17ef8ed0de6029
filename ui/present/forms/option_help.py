"""The help of the options of gates and of sampling, as their configs define it."""

from __future__ import annotations

from dataclasses import fields

from engine.config import SamplingConfig
from engine.mixing.gates.updating import UpdatingGateConfig

SAMPLING_HELP = {field.name: field.metadata["description"] for field in fields(SamplingConfig)}
OPTION_HELP = {
    **SAMPLING_HELP,
    **{field.name: field.metadata.get("description", "") for field in fields(UpdatingGateConfig)},
}
