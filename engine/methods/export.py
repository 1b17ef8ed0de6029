"""Experts as folders that plain transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.files import ArtifactRef
from engine.methods.base import Method
from engine.text.tokenizer import Tokenizer, load_tokenizer


def export_model(method: Method, base: ArtifactRef, expert: ArtifactRef, folder: Path) -> None:
    """Writes an expert with its base as one model: config, safetensors in their stored precision, and tokenizer.

    Raises ModelError for an expert that with its base is not a plain decoder, DamagedFileError before a damaged byte is
    used.
    """
    save_model(method.load_full_model(base, expert), base.folder, folder)


def save_model(lm: Any, tokenizer_folder: Path, folder: Path) -> None:
    """Writes a decoder with the tokenizer of another folder."""
    tokenizer = load_tokenizer(tokenizer_folder)
    set_special_tokens(lm, tokenizer)
    lm.save_pretrained(folder, safe_serialization=True)
    tokenizer.save(folder)


def set_special_tokens(lm: object, tokenizer: Tokenizer) -> None:
    """Writes the tokenizer's BOS and EOS ids into a model's configurations."""
    for config in (lm.config, lm.generation_config):  # type: ignore[attr-defined]
        config.bos_token_id = tokenizer.bos_id if tokenizer.turn_start is None else tokenizer.turn_start
        ids = tokenizer.eos_ids
        config.eos_token_id = ids[0] if len(ids) == 1 else list(ids) or None  # transformers would choose one for none
