"""Reads a model's folder: the special tokens that begin and end a text, and tokenizers in older formats."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import TokenizerError
from engine.files import MANIFEST
from engine.foreign_files import read_bytes, read_object, read_text, short

FRESH = "Give the folder of a tokenizer saved by transformers, with its tokenizer.json."
MAX_FILE_BYTES = 128 << 20
_CONFIG, _TOKENS, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_NAMED_BY = (_CONFIG, _TOKENS)
_MODEL, _GENERATION = "config.json", "generation_config.json"
SEPARATORS = "separators.json"  # of a stored folder; its BOS token begins turns and nothing else
_ROLE = r"""[\s'"{}()+~-]*(?:\w+\s*[\[.(]\s*['"]?(?:get\(\s*['"])?)?(?:role|system|user|assistant)\b"""
_USUAL = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|startoftext|>", "<|begin_of_text|>", "<s>", "<bos>")
_MAX_BYTES = 16 << 20
_LONGEST_PREFIX = 16  # tokens; known tokenizers put one or two before a text
_VOCABULARY = ("vocab.json", "merges.txt", "tokenizer.model")
_SWITCHES = ("add_prefix_space", "add_bos_token", "add_eos_token", "legacy")  # the settings that change ids
_FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "gpt2", "opt", "gpt_neox")  # model types whose tokenizer is known
_NEED_BOS = ("gemma",)  # decision 63: twice the perplexity without it; lm-evaluation-harness has the same rule
_CLASSES = ("LlamaTokenizer", "CodeLlamaTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer")
_ANY_CLASS = ("PreTrainedTokenizer", "TokenizersBackend")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of a token


@dataclass(frozen=True)
class SpecialTokens:
    """`bos_id` separates documents in training, `prefix` comes before a prompt, `eos_ids` end an answer.

    `turn_start` is a BOS token that is none of these, as the chat template begins every turn with it. `begins_blocks`:
    the model always saw the BOS token first, and cannot read a block that begins within a document without it.
    """

    bos_id: int
    prefix: tuple[int, ...]
    eos_ids: tuple[int, ...] = ()
    turn_start: int | None = None
    begins_blocks: bool = False


def read_special_tokens(folder: Path, inner: tokenizers.Tokenizer, *, is_older: bool | None = None) -> SpecialTokens:
    """The special tokens of a model's folder; raises TokenizerError when no token can begin a document.

    A BOS token that begins turns begins no document, unless the tokenizer itself adds it: that is what separated the
    documents of its pretraining. A folder of the store without a file `separators.json` `is_older`: its experts learned
    with the BOS token.
    """
    bos_id, eos_ids = _bos_id(folder, inner), _eos_ids(folder, inner)
    before = _prefix_of_tokenizer(folder, inner)
    is_older = (folder / MANIFEST).exists() and not (folder / SEPARATORS).exists() if is_older is None else is_older
    if is_older or before or not _begins_turns(folder, inner, bos_id):
        prefix = before or _prefix(folder, inner, bos_id)
        needs_bos = str(_read(folder, _MODEL).get("model_type")).startswith(_NEED_BOS) and bos_id in prefix
        return SpecialTokens(bos_id, prefix, eos_ids, begins_blocks=needs_bos)
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
    of_model = list(_in_vocabulary(_ids(model.get("bos_token_id")), inner))
    bos_id = _first(
        [
            *(_id_of(config.get("bos_token"), inner) for config in named),
            *(id for id in of_model if _is_special(id, inner)),
            *_not_in_turns(folder, inner),
            *(_id_of(config.get("eos_token"), inner) for config in named),
            *of_model,
            *_in_vocabulary(_ids(model.get("eos_token_id")), inner),
        ]
    )
    if bos_id is None:
        problem = f"The tokenizer in {folder} names no BOS or EOS token."
        raise TokenizerError(problem, "Add bos_token to its tokenizer_config.json.")
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
    known = _in_vocabulary(next(filter(None, _eos_ids_by_file(folder, inner)), ()), inner)
    yield from (id for id in known if _is_special(id, inner) and str(inner.id_to_token(id)) not in template)


def _template(folder: Path) -> str | None:
    """The chat template, unread: only which tokens it names counts."""
    text = read_text(folder, "chat_template.jinja", _MAX_BYTES, TokenizerError)
    value = _read(folder, _CONFIG).get("chat_template") if text is None else text
    return None if value is None else str(value)


def _eos_ids(folder: Path, inner: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The EOS ids of the first file that names any which the tokenizer has."""
    return next((ids for named in _eos_ids_by_file(folder, inner) if (ids := tuple(_in_vocabulary(named, inner)))), ())


def _eos_ids_by_file(folder: Path, inner: tokenizers.Tokenizer) -> Iterator[tuple[int, ...]]:
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


def _prefix_of_tokenizer(folder: Path, inner: tokenizers.Tokenizer) -> tuple[int, ...]:
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
    if foreign := set(before).difference(_in_vocabulary(before, inner)):
        problem = f"The tokenizer in {folder} puts the id {min(foreign)} before a text, which is not in its vocabulary."
        raise TokenizerError(problem, FRESH)
    return before


def convert_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a folder without a tokenizer.json, from its older files."""
    from transformers import AutoTokenizer

    sentence = f"{folder} has no tokenizer that can be read"  # each class fails differently on a missing file
    with refused_as(sentence), tempfile.TemporaryDirectory() as copy:  # the settings may name files anywhere
        _copy_vocabulary(folder, Path(copy))
        loaded = AutoTokenizer.from_pretrained(copy, local_files_only=True, trust_remote_code=False)
    inner = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(inner, tokenizers.Tokenizer):
        raise TokenizerError(f"{folder} has no fast tokenizer.", FRESH)
    return inner


def _copy_vocabulary(folder: Path, copy: Path) -> None:
    """Copies the files of an older tokenizer with only the settings that change ids, and no references to other files.

    Settings that transformers passes on as arguments of a class are filtered: they may name files to open.
    """
    config = _read(folder, _CONFIG)
    if config.get("auto_map"):
        raise TokenizerError(f"The tokenizer in {folder} needs code of its own (auto_map), which is not run.", FRESH)
    for name in _VOCABULARY:
        if (content := read_bytes(folder, name, MAX_FILE_BYTES, TokenizerError)) is not None:
            (copy / name).write_bytes(content)
    if not any((copy / name).exists() for name in _VOCABULARY):  # transformers would make an empty tokenizer
        raise TokenizerError(f"{folder} has no tokenizer.", FRESH)
    added, kind = _read(folder, _ADDED), _read(folder, _MODEL).get("model_type")
    fresh = {
        _CONFIG: _settings(folder, config),
        _TOKENS: _special(_read(folder, _TOKENS)),
        _ADDED: added,
        _MODEL: {"model_type": kind} if isinstance(kind, str) and kind in _FAMILIES else {},
    }
    if not all(type(id) is int and 0 <= id < 1 << 32 for id in added.values()):
        raise TokenizerError(f"{folder / _ADDED} does not map tokens to ids.", FRESH)
    for name, values in fresh.items():
        if values or name == _CONFIG:
            (copy / name).write_text(json.dumps(values), encoding="utf-8")


def _settings(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The settings that change ids. Raises TokenizerError for an unknown class, or for added tokens without ids."""
    name, tokens = config.get("tokenizer_class"), config.get("added_tokens_decoder")
    if name is not None and not (isinstance(name, str) and name.removesuffix("Fast") in (*_CLASSES, *_ANY_CLASS)):
        problem = f"The tokenizer_class in {folder / _CONFIG} must be one of {', '.join(_CLASSES)}, got {short(name)}."
        raise TokenizerError(problem, FRESH)
    if tokens is not None and not (
        isinstance(tokens, dict)
        and all(id.isdecimal() and isinstance(token, dict) and _is_token(token) for id, token in tokens.items())
    ):
        raise TokenizerError(f"added_tokens_decoder in {folder / _CONFIG} does not map ids to tokens.", FRESH)
    switches = {name: config[name] for name in _SWITCHES if isinstance(config.get(name), bool)}
    named = {"tokenizer_class": name, **switches, **_special(config), "added_tokens_decoder": tokens}
    return {name: value for name, value in named.items() if value is not None}


def _special(config: dict[str, Any]) -> dict[str, Any]:
    tokens_by_name = {name: value for name, value in config.items() if name.endswith("_token") and _is_token(value)}
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = config.get(name)
        if isinstance(tokens, list) and all(map(_is_token, tokens)):
            tokens_by_name[name] = tokens
    return tokens_by_name


def _is_token(value: Any) -> bool:
    """True for a token as configurations write it: its text, or the fields of an AddedToken."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    flags = {name: flag for name, flag in value.items() if name not in ("content", "__type")}
    is_plain = all(name in _FLAGS and isinstance(flag, bool) for name, flag in flags.items())
    return is_plain and isinstance(value.get("content"), str) and value.get("__type", "AddedToken") == "AddedToken"


def _first(ids: Iterable[int | None]) -> int | None:
    return next((id for id in ids if id is not None), None)


def _id_of(token: Any, inner: tokenizers.Tokenizer) -> int | None:
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str) or any("\ud800" <= sign <= "\udfff" for sign in token):
        return None
    return inner.token_to_id(token)


def _ids(value: Any) -> tuple[int, ...]:
    ids = value if isinstance(value, list) else [value]
    return tuple(
        dict.fromkeys(id for id in ids if isinstance(id, int) and not isinstance(id, bool) and 0 <= id < 1 << 32)
    )


def _in_vocabulary(ids: Iterable[int], inner: tokenizers.Tokenizer) -> Iterator[int]:
    return (id for id in ids if inner.id_to_token(id) is not None)


def _is_special(id: int, inner: tokenizers.Tokenizer) -> bool:
    token = inner.get_added_tokens_decoder().get(id)
    return token is not None and token.special


def _read(folder: Path, name: str) -> dict[str, Any]:
    return read_object(folder, name, _MAX_BYTES, TokenizerError) or {}
