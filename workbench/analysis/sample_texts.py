"""Held-out text to try a mixture on."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy.orm import Session

from workbench.registry.corpora import preview_documents
from workbench.registry.experts import domains_of
from workbench.registry.mixtures import mixture_row, taking_part
from workbench.store.storage import Storage

CHARACTERS = (150, 600)  # of each domain: the second must outweigh the evidence for the first
_OF_ITS_OWN = 2  # positions: of the beginning of a document, and of a domain's token
_SHORTER = 0.95  # of what would fit if all characters took as many tokens


def example(session: Session, storage: Storage, mixture: str) -> str:
    """The beginnings of held-out documents of two of a mixture's domains, as long as all its experts can read."""
    row = mixture_row(session, mixture)
    experts = taking_part(row) or tuple(member.expert for member in row.members)
    domains = dict.fromkeys(name for expert in experts for name in domains_of(expert))
    previews = [preview_documents(session, storage, name, "test", 1, 0) for name in [*domains][:2]]
    texts = [document.text.strip() for documents in previews for document in documents]
    bases = {storage.path(expert.base_id) for expert in experts}
    share = 1.0
    while (text := _beginnings(texts, share)) and (fits := min(_fitting(base, text) for base in bases)) < 1:
        share *= _SHORTER * fits
    return text


def _beginnings(texts: list[str], share: float) -> str:
    return "\n\n".join(text[: int(share * length)] for text, length in zip(texts, CHARACTERS, strict=False)).strip()


def _fitting(base: Path, text: str) -> float:
    """The context length over the text's length in tokens, for the models on a base; above 1 if the text fits."""
    from engine.text.tokenizer import load_tokenizer

    config = base / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    longest = settings.get("max_position_embeddings") or settings.get("n_positions")
    return 1.0 if longest is None else (longest - _OF_ITS_OWN) / max(1, len(load_tokenizer(base).encode(text)))
