"""Embeds documents as the mean last hidden state of a language model; nothing is fitted.

Shapes: N documents, T positions, D the model's width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from engine.clusters.embedders.base import Embedder, Embedding, Vectors
from engine.device import choose_device
from engine.errors import DamagedFileError, ModelError
from engine.files import reading_own
from engine.models.families import load_model, max_positions
from engine.text.tokenizer import Tokenizer, load_tokenizer

DEFAULT_TOKENS = 512
BATCH = 8  # texts read at once


class HiddenStateEmbedder(Embedder[str]):
    """Embeds the first `max_tokens` tokens of a text, BOS token included.

    A growing text is read again for each vector: its tokens may change with every piece.
    """

    kind = "hidden_states"

    def __init__(self, lm: Any, tokenizer: Tokenizer, max_tokens: int = DEFAULT_TOKENS) -> None:
        self._lm, self._tokenizer = lm.eval(), tokenizer
        self.max_tokens = min(max_tokens, max_positions(lm.config))

    @property
    def dimension(self) -> int:
        return int(self._lm.config.hidden_size)

    @property
    def rounding(self) -> float:
        """A text in a batch with longer ones is padded, which changes the last bits of its states."""
        return max(super().rounding, float(torch.finfo(self._lm.dtype).eps))

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256(f"{self.kind} {self._tokenizer.sha256} {self.max_tokens}".encode())
        for name, tensor in sorted(self._lm.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def embed(self, texts: Sequence[str]) -> Embedding:
        ids = self._tokenizer.encode_many(texts)
        rows = [[self._tokenizer.bos_id, *text_ids][: self.max_tokens] for text_ids in ids]
        is_blank_N = np.array([not text_ids for text_ids in ids], dtype=np.bool_)
        return Embedding(np.concatenate([np.empty((0, self.dimension)), *self._read(rows)]), is_blank_N)

    def start(self) -> str:
        return ""

    def extend(self, state: str, piece: str) -> str:
        return state + piece

    def vector(self, state: str) -> Vectors:
        vector_D: Vectors = self.embed([state]).vectors_ND[0]
        return vector_D

    def save(self, folder: Path) -> None:
        """Writes the identity of the model; its weights stay in the seed's folder."""
        card = {"kind": self.kind, "max_tokens": self.max_tokens, "sha256": self.sha256}
        (folder / "embedder.json").write_text(json.dumps(card, indent=1), encoding="utf-8")

    @torch.inference_mode()
    def _read(self, rows: Sequence[list[int]]) -> Iterator[Vectors]:
        for start in range(0, len(rows), BATCH):
            some = [torch.tensor(row) for row in rows[start : start + BATCH]]
            ids_NT = pad_sequence(some, batch_first=True, padding_value=self._tokenizer.bos_id)
            mask_NT = pad_sequence([torch.ones_like(row) for row in some], batch_first=True)
            device = self._lm.device
            inner = self._lm.base_model(input_ids=ids_NT.to(device), attention_mask=mask_NT.to(device), use_cache=False)
            states_NTD = inner.last_hidden_state.cpu().double() * mask_NT[:, :, None]
            yield (states_NTD.sum(1) / mask_NT.sum(1, keepdim=True)).numpy()


def embedder_of(seed: Path, max_tokens: int, device: str = "cpu") -> HiddenStateEmbedder:
    """The embedder that reads with the model in `seed`, on the device of this name."""
    return HiddenStateEmbedder(load_model(seed).to(choose_device(device)), load_tokenizer(seed), max_tokens)


def load_hidden_states(folder: Path, seed: Path | None, device: str = "cpu") -> HiddenStateEmbedder:
    """Loads the embedder with its model from `seed`; raises ModelError without a seed."""
    with reading_own(f"The embedder in {folder}", "Cluster again."):
        card = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))
        max_tokens, sha256 = int(card["max_tokens"]), str(card["sha256"])
    if seed is None:
        raise ModelError(
            "The clustering needs the seed model whose hidden states embed its documents.",
            "Name the seed that the clustering was made with.",
        )
    embedder = embedder_of(seed, max_tokens, device)
    if embedder.sha256 != sha256:
        raise DamagedFileError(
            f"The model in {seed} is not the one that the clusters in {folder} were fitted with.",
            "Name the seed that the clustering was made with.",
        )
    return embedder
