"""Storing the base of a training: what its experts share, with their tokenizer."""

from __future__ import annotations

from engine.methods.base import Method
from engine.models.trainable_model import TrainableModel
from engine.text.tokenizer import Tokenizer
from jobs.attempt.work import Work
from jobs.kinds.shared.stable_ids import made_by


def store_base(work: Work, method: Method, model: TrainableModel, tokenizer: Tokenizer) -> str:
    """Stores the base as an artifact of the job; gives its id."""
    base_id = made_by(work.job_id, "base")
    with work.storage.new(base_id) as folder:
        method.save_base(model, folder)
        tokenizer.save(folder)
    return base_id
