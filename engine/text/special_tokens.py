"""Reads the special tokens that begin and end a text from the files of a model's folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import TokenizerError
from engine.files import MANIFEST
from engine.foreign_files import read_object, read_text, short

FRESH = "Give the folder of a tokenizer saved by transformers, with its tokenizer.json."
_NAMED_BY = ("tokenizer_config.json", "special_tokens_map.json")
_MODEL, _GENERATION = "config.json", "generation_config.json"
SEPARATORS = "separators.json"  # of a stored folder; its BOS token begins turns and nothing else
_ROLE = r"""[\s'"{}()+~-]*(?:\w+\s*[\[.(]\s*['"]?(?:get\(\s*['"])?)?(?:role|system|user|assistant)\b"""
_USUAL = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|startoftext|>", "<|begin_of_text|>", "<s>", "<bos>")
_MAX_BYTES = 16 << 20
_LONGEST_PREFIX = 16  # tokens; known tokenizers put one or two before a text


@dataclass(frozen=True)
class SpecialTokens:
    """`bos_id` separates documents in training, `prefix` comes before a prompt, `eos_ids` end an answer.

    `turn_start` is a BOS token that is none of these, as the chat template begins every turn with it.
    """

    bos_id: int
    prefix: tuple[int, ...]
    eos_ids: tuple[int, ...] = ()
    turn_start: int | None = None


def read_special_tokens(folder: Path, inner: tokenizers.Tokenizer, *, is_older: bool | None = None) -> SpecialTokens:
    """The special tokens of a model's folder; raises TokenizerError when no token can begin a document.

    A BOS token that begins turns begins no document, unless the tokenizer itself adds it: that is what separated the
    documents of its pretraining. A folder of the store without a file `separators.json` `is_older`: its experts learned
    with the BOS token.
    """
    bos_id, eos_ids = _bos_id(folder, inner), _eos_ids(folder, inner)
    before = _added_before(folder, inner)
    is_older = (folder / MANIFEST).exists() and not (folder / SEPARATORS).exists() if is_older is None else is_older
    if is_older or before or not _begins_turns(folder, inner, bos_id):
        return SpecialTokens(bos_id, before or _prefix(folder, inner, bos_id), eos_ids)
    recorded = _id_of(_read(folder, SEPARATORS).get("between_documents"), inner)
    separator = _separator(folder, inner, bos_id) if recorded is None else recorded
    ends_turns = str(inner.id_to_token(separator)) in str(_template(folder))
    return SpecialTokens(separator, () if ends_turns else (separator,), eos_ids, bos_id)


@contextmanager
def refused_as(sentence: str) -> Iterator[None]:
    """Turns whatever the library tokenizers raises (bare Exception, Rust panics) into a TokenizerError."""
    try:
        yield
    except (TokenizerError, MemoryError):
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):  # a BaseException
            raise
        raise TokenizerError(f"{sentence} ({short(error)}).", FRESH) from None


def _bos_id(folder: Path, inner: tokenizers.Tokenizer) -> int:
    """The BOS token that the tokenizer names, else the one of the model's config; else an EOS token.

    If a chat model's tokenizer has no BOS token (Qwen), the model's BOS token separated its training texts, while
    the tokenizer's EOS token ends turns. The model's counts only if it is a special token: transformers invents ids.
    Where neither names one, it is an EOS token that the chat template does not write: `<|endoftext|>`.
    """
    named, model = [_read(folder, name) for name in _NAMED_BY], _read(folder, _MODEL)
    of_model = list(_known(_ids(model.get("bos_token_id")), inner))
    bos_id = _first(
        [
            *(_id_of(config.get("bos_token"), inner) for config in named),
            *(id for id in of_model if _is_special(id, inner)),
            *_not_in_turns(folder, inner),
            *(_id_of(config.get("eos_token"), inner) for config in named),
            *of_model,
            *_known(_ids(model.get("eos_token_id")), inner),
        ]
    )
    if bos_id is None:
        raise TokenizerError(
            f"The tokenizer in {folder} names no BOS or EOS token.",
            "Add bos_token to its tokenizer_config.json.",
        )
    return bos_id


def _begins_turns(folder: Path, inner: tokenizers.Tokenizer, bos_id: int) -> bool:
    """Whether the chat template writes this token directly before a role, such as `<|im_start|>user`."""
    template = _template(folder)
    if template is None or not _is_special(bos_id, inner):
        return False
    token = f"(?:{re.escape(str(inner.id_to_token(bos_id)))}|\\bbos_token\\b)"
    return re.search(token + _ROLE, template) is not None


def _separator(folder: Path, inner: tokenizers.Tokenizer, bos_id: int) -> int:
    """The token between documents of a model whose BOS token begins turns: one that the template does not write."""
    template = str(_template(folder))
    usual = (id for id in map(inner.token_to_id, _USUAL) if id is not None and _is_special(id, inner))
    free = (id for id in usual if id != bos_id and str(inner.id_to_token(id)) not in template)
    return next((id for id in (*_not_in_turns(folder, inner), *free, *_eos_ids(folder, inner))), bos_id)


def _not_in_turns(folder: Path, inner: tokenizers.Tokenizer) -> Iterator[int]:
    """The EOS ids that a chat template does not write; none without a template."""
    template = _template(folder)
    if template is None or "eos_token" in template:  # the EOS token itself ends turns
        return
    known = _known(next(filter(None, _eos_ids_by_file(folder, inner)), ()), inner)
    yield from (id for id in known if _is_special(id, inner) and str(inner.id_to_token(id)) not in template)


def _template(folder: Path) -> str | None:
    """The chat template, unread: only which tokens it names counts."""
    text = read_text(folder, "chat_template.jinja", _MAX_BYTES, TokenizerError)
    value = _read(folder, "tokenizer_config.json").get("chat_template") if text is None else text
    return None if value is None else str(value)


def _eos_ids(folder: Path, inner: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The EOS ids of the first file that names any which the tokenizer has."""
    return next((ids for named in _eos_ids_by_file(folder, inner) if (ids := tuple(_known(named, inner)))), ())


def _eos_ids_by_file(folder: Path, inner: tokenizers.Tokenizer) -> Iterator[tuple[int, ...]]:
    """The EOS ids of generation_config.json, those of config.json, and that of the tokenizer."""
    for name in (_GENERATION, _MODEL):
        yield _ids(_read(folder, name).get("eos_token_id"))
    id = _first(_id_of(_read(folder, name).get("eos_token"), inner) for name in _NAMED_BY)
    yield () if id is None else (id,)


def _prefix(folder: Path, inner: tokenizers.Tokenizer, bos_id: int) -> tuple[int, ...]:
    """The BOS token that the tokenizer names, to put before a text where the tokenizer itself puts nothing there.

    Empty if its configuration turns BOS off or names only an EOS token, which separates documents but begins none.
    """
    named = [_read(folder, name) for name in _NAMED_BY]
    bos, eos = (_first(_id_of(config.get(role), inner) for config in named) for role in ("bos_token", "eos_token"))
    has_bos = bos is not None or eos is None
    return (bos_id,) if has_bos and named[0].get("add_bos_token") is not False else ()


def _added_before(folder: Path, inner: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The tokens that the tokenizer puts before a text, found by encoding one letter."""
    with refused_as(f"The tokenizer in {folder} cannot read a text"):
        try:
            encoding = inner.encode("a", add_special_tokens=True)
        except Exception:  # the library raises bare Exception for a letter that the vocabulary does not have
            return ()
    is_added = [bool(flag) for flag in encoding.special_tokens_mask]
    before = () if all(is_added) else tuple(encoding.ids[: is_added.index(False)])
    if len(before) > _LONGEST_PREFIX:
        raise TokenizerError(
            f"The tokenizer in {folder} puts {len(before):,} tokens before a text; at most {_LONGEST_PREFIX} are "
            "supported.",
            FRESH,
        )
    if foreign := set(before).difference(_known(before, inner)):
        raise TokenizerError(
            f"The tokenizer in {folder} puts the id {min(foreign)} before a text, which is not in its vocabulary.",
            FRESH,
        )
    return before


def _first(ids: Iterable[int | None]) -> int | None:
    return next((id for id in ids if id is not None), None)


def _id_of(token: Any, inner: tokenizers.Tokenizer) -> int | None:
    """The id of a token given as text or as an object with its text."""
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str) or any("\ud800" <= sign <= "\udfff" for sign in token):
        return None
    return inner.token_to_id(token)


def _ids(value: Any) -> tuple[int, ...]:
    """The valid ids of one id or a list of ids."""
    ids = value if isinstance(value, list) else [value]
    return tuple(
        dict.fromkeys(id for id in ids if isinstance(id, int) and not isinstance(id, bool) and 0 <= id < 1 << 32)
    )


def _known(ids: Iterable[int], inner: tokenizers.Tokenizer) -> Iterator[int]:
    return (id for id in ids if inner.id_to_token(id) is not None)


def _is_special(id: int, inner: tokenizers.Tokenizer) -> bool:
    token = inner.get_added_tokens_decoder().get(id)
    return token is not None and token.special


def _read(folder: Path, name: str) -> dict[str, Any]:
    return read_object(folder, name, _MAX_BYTES, TokenizerError) or {}
