"""The process group of a training whose experts are in other processes: what it sends them, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch

from engine.config import TrainingConfig
from engine.methods.mode.sharding.backbone import Shard, ShardedProcessGroup
from engine.methods.mode.sharding.messages import Peer
from engine.methods.parts.parts_model import ActiveParts


class RecordingPeer:
    """A peer that answers whatever it is sent."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def send(self, command: str, **_: object) -> None:
        self.calls.append(command)

    def receive(self) -> dict[str, Any]:
        self.calls.append("received")
        return {}


def test_only_the_command_to_save_makes_the_processes_of_experts_save() -> None:
    peer, active = RecordingPeer(), SimpleNamespace(active=["law"], learning="experts")
    team = ShardedProcessGroup(
        [Shard(cast(Peer, peer), ["law"])], cast(ActiveParts, active), TrainingConfig(learning_rate=1e-3)
    )
    state = {"parameters/law:0": torch.zeros(1)}
    assert team.own_state(state) is state
    assert peer.calls == ["learn"]
    team.save_others()
    assert peer.calls == ["learn", "save", "received"]
