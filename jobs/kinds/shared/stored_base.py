"""Stores the base of a training: the shared parameters and the tokenizer."""

from __future__ import annotations

from engine.methods.base import Method
from engine.models.trainable_model import TrainableModel
from engine.text.tokenizer import Tokenizer
from jobs.attempt.work import Work
from jobs.kinds.shared.stable_ids import stable_id


def store_base(work: Work, method: Method, model: TrainableModel, tokenizer: Tokenizer) -> str:
    """Stores the base as an artifact of the job and returns its id."""
    base_id = stable_id(work.job_id, "base")
    with work.storage.new(base_id) as folder:
        method.save_base(model, folder)
        tokenizer.save(folder)
    return base_id
