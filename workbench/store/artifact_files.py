"""Reconstructs the rows of an artifact without a record from its files, with generated names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from engine.files import EXPERT_CARD, MANIFEST
from engine.methods.registry import method_of_card
from engine.methods.rows import SHARED_FILE
from workbench.schema.base import new_id
from workbench.store import artifact_kinds
from workbench.store.row_records import Rows

_SUMMARY, _MODEL = "summary.json", "config.json"
_SOURCE = "rebuilt from its files"
UNKNOWN_OWNER = "its files do not say what it belongs to: run the job that made it again"


def rows_of_files(folder: Path, by_sha256: Mapping[str, str]) -> tuple[str, Rows]:
    """The kind of an artifact and its rows, as far as its files determine them; else raises ValueError.

    `by_sha256` maps the SHA-256 of manifests to ids of artifacts in the same store.
    """
    try:
        if (folder / _SUMMARY).is_file():
            return artifact_kinds.DOCUMENTS, _corpus(folder)
        if (folder / EXPERT_CARD).is_file():
            return _expert(folder, by_sha256)
        if (folder / SHARED_FILE).is_file():
            return artifact_kinds.BASE, {}
        if (folder / _MODEL).is_file() and (folder / "tokenizer.json").is_file():
            return artifact_kinds.SEED, _seed(folder)
    except (OSError, KeyError, TypeError) as error:
        raise ValueError(f"its files cannot be read ({error})") from error
    raise ValueError(UNKNOWN_OWNER)


def _corpus(folder: Path) -> Rows:
    domains, short = _read(folder / _SUMMARY)["domains"], folder.name[:8]
    name = domains[0]["name"] if len(domains) == 1 else None
    common = {"created_at": _made_at(folder)}
    corpus = {"id": new_id(), "name": name or f"corpus-{short}", "source": _SOURCE, **common}
    same = ("folder", "splits", "num_documents", "num_words", "num_bytes", "data_sha256")
    return {
        "corpora": [{**corpus, "licence": "", "report": {}}],
        "domains": [
            {
                "id": new_id(),
                "corpus_id": corpus["id"],
                "name": domain["name"] or corpus["name"],
                "role": "train",
                "format": domain.get("format", "text"),
                "artifact_id": folder.name,
                **{key: domain[key] for key in same},
                **common,
            }
            for domain in domains
        ],
    }


def _seed(folder: Path) -> Rows:
    from engine.text.tokenizer import load_tokenizer  # imported late: rarely needed

    config = _read(folder / _MODEL)
    return {
        "seed_models": [
            {
                "id": new_id(),
                "name": f"seed-{folder.name[:8]}",
                "source": _SOURCE,
                "family": config["model_type"],
                "config": config,
                "num_parameters": _num_parameters(folder),
                "artifact_id": folder.name,
                "tokenizer_sha256": load_tokenizer(folder).sha256,
                "created_at": _made_at(folder),
            }
        ]
    }


def _expert(folder: Path, by_sha256: Mapping[str, str]) -> tuple[str, Rows]:
    card = _read(folder / EXPERT_CARD)
    base_id = by_sha256.get(card["base_sha256"])
    if base_id is None:
        raise ValueError("its base model is missing")
    row = {
        "id": folder.name,
        "name": f"expert-{folder.name[:8]}",
        "method": method_of_card(card, folder.parent / base_id).name,
        "base_id": base_id,
        "artifact_id": folder.name,
        "tokenizer_sha256": card["tokenizer_sha256"],
        "data_sha256": "",
        "num_parameters": _num_parameters(folder),
        "config": config_of_card(card),
        "metrics": {},
        "tags": [],
        "notes": _SOURCE,
        "enabled": True,
        "code_version": "",
        "created_at": _made_at(folder),
    }
    return f"{card['method']}-expert", {"experts": [row]}


def config_of_card(card: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the card in an expert's files says of the config of its row."""
    parts = [{**part, "domain": None, "domains": [], "of": None} for part in card.get("parts", ())]
    return {"domains": [], **({"shape": parts[0]["shape"], "parts": parts, "learning": "experts"} if parts else {})}


def _num_parameters(folder: Path) -> int:
    from safetensors import SafetensorError, safe_open

    try:
        total = 0
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="numpy") as tensors:
                total += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        return total
    except SafetensorError as error:
        raise OSError(str(error)) from error


def _made_at(folder: Path) -> float:
    return (folder / MANIFEST).stat().st_mtime


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
