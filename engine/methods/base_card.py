"""What the files of a base say of where its experts lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import DamagedFileError

CARD_METHOD = "demix"  # in the cards of all of them
SHARED_FILE, BASE_CARD = "shared.safetensors", "base.json"
_OLDEST = "ffn"  # where experts are if nothing says so: such files are older than the choice
_ON_A_SEED = "adapter"


def is_seed(base: Path) -> bool:
    """Whether a base is an unchanged seed model."""
    return not (base / SHARED_FILE).exists()


def stored_placement(card: Mapping[str, Any], base: Path) -> str:
    """The stored placement of experts: from the base's card, or on a seed from the expert's ({}: unknown)."""
    of_base = base_card(base)
    if not of_base:
        return str(card.get("experts_in", _ON_A_SEED)) if is_seed(base) else _OLDEST
    return str(of_base["experts_in"])


def base_card(base: Path) -> dict[str, Any]:
    """The card of a base on its experts; empty where it has none: a seed, or files older than the card."""
    path = base / BASE_CARD
    if not path.exists():
        return {}
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = card["experts_in"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DamagedFileError(f"{path} does not name the placement of experts.", "Restore it.") from error
    return card
