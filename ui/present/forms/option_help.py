"""The help of the options of gates, of sampling and of the number of updates, as their configs define it."""

from __future__ import annotations

from dataclasses import fields

from engine.config import AdaptingConfig, SamplingConfig
from engine.mixing.gates.updating import UpdatingGateConfig

SAMPLING_HELP = {field.name: field.metadata["description"] for field in fields(SamplingConfig)}
STEPS_HELP = next(field.metadata["description"] for field in fields(AdaptingConfig) if field.name == "num_steps")
OPTION_HELP = {
    **SAMPLING_HELP,
    **{field.name: field.metadata.get("description", "") for field in fields(UpdatingGateConfig)},
}
