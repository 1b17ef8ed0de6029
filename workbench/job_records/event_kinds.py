"""The kinds of job events that the code reads. Every other event is only a message."""

from __future__ import annotations

CHECKPOINT = "checkpoint"  # a new checkpoint was written
PARTS = "parts"  # data: {"parts": [names]}, in the order of the gates of a MoDE training
SAMPLES = "samples"  # data: {"step": int, "samples": [{"domain", "prompt", "text"}]}
UPLOAD = "upload"  # data: {"host": the machine that received the uploaded files which the job reads}
PARENT = "parent"  # data: {"parent": id of the expert whose copy is trained}
REQUIREMENTS = "requirements"  # data: the fields of engine.events.Requirements: the least that a training takes
