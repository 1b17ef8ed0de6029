"""The chat template of an expert that was trained with another one than its base's: kept in the expert's own folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import ChatTemplateError
from engine.files import EXPERT_CARD
from engine.text.chat.template import ChatTemplate, load_chat_template, turn_ends_of
from engine.text.tokenizer import Tokenizer, load_tokenizer

TEMPLATE, _CONFIG, _GENERATION = "chat_template.jinja", "tokenizer_config.json", "generation_config.json"


def template_folder(base: Path, expert: Path) -> Path:
    """The folder of an expert's chat template: its own where it has one, else its base's."""
    return expert if (expert / EXPERT_CARD).is_file() and (expert / TEMPLATE).is_file() else base


def own_template(seed: Path, folder: Path) -> ChatTemplate | None:
    """The chat template of another tool's folder; None where it has none, or one that writes as the seed's does."""
    own, of_seed = load_chat_template(folder), load_chat_template(seed)
    if own is None:
        return None
    tokens = {**(of_seed.special_tokens if of_seed else {}), **own.special_tokens}
    template = ChatTemplate(own.source, tokens, str(folder))
    return None if of_seed is not None and of_seed.sha256 == template.sha256 else template


def save_template(template: ChatTemplate, expert: Path) -> None:
    """Writes a template, with the special tokens that it names, into an expert's folder."""
    (expert / TEMPLATE).write_text(template.source, encoding="utf-8")
    _write(expert / _CONFIG, dict(sorted(template.special_tokens.items())))


def stop_ids(tokenizer: Tokenizer, base: Path, template: Path) -> frozenset[int]:
    """The tokens that end an answer: those of a base, and those of the folder of its expert's chat template.

    `template` is that of `template_folder`. An expert's own folder need not name a token.
    """
    of_base = tokenizer.stop_ids_of(base) | turn_ends_of(base, tokenizer)
    return of_base if template == base else of_base | _own_stop_ids(tokenizer, template)


def _own_stop_ids(tokenizer: Tokenizer, folder: Path) -> frozenset[int]:
    """The end of a turn by the template in a folder, and the EOS token that the template is given."""
    try:
        template = load_chat_template(folder)
    except ChatTemplateError:  # texts can be continued nevertheless
        return turn_ends_of(folder, tokenizer)
    named = template.special_tokens.get("eos_token", "") if template else ""
    ids = tokenizer.encode(named, control_tokens=True) if named else []
    return turn_ends_of(folder, tokenizer) | frozenset(ids if len(ids) == 1 else ())


def copy_template(expert: Path, target: Path) -> None:
    """Puts an expert's own chat template, if it has one, into the folder of what is made of it.

    A tokenizer there gets the special tokens that go with it, a model the end of its turns.
    """
    template = load_chat_template(expert) if template_folder(target, expert) == expert else None
    if template is None:
        return
    (target / TEMPLATE).write_text(template.source, encoding="utf-8")
    config = _read(target / _CONFIG)
    written = {name: one.get("content") if isinstance(one, dict) else one for name, one in config.items()}
    changed = {name: text for name, text in template.special_tokens.items() if written.get(name) != text}
    changed |= {"chat_template": template.source} if "chat_template" in config else {}
    _write(target / _CONFIG, config | changed)
    add_turn_ends(target)


def add_turn_ends(folder: Path) -> None:
    """Adds what ends a turn of a model's chat template, and its EOS token, to the tokens at which other tools stop."""
    if not (folder / _GENERATION).is_file():
        return
    config = _read(folder / _GENERATION)
    named = config.get("eos_token_id")
    ids = named if isinstance(named, list) else [] if named is None else [named]
    more = sorted(_own_stop_ids(load_tokenizer(folder), folder) - {*ids})
    if more:
        _write(folder / _GENERATION, config | {"eos_token_id": [*ids, *more]})


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
