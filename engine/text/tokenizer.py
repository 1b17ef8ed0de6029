"""Text to token ids and back, exactly: byte-level BPE trained here, or the tokenizer of any model folder."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from engine.errors import TokenizerError
from engine.foreign_files import read_bytes, read_object, read_text, short

BOUNDARY = "<s>"  # begins and ends a document; id 0
NUM_BYTES = 256
MAX_PIECE = 1 << 18  # characters tokenized in one go: that takes a hundred times their memory
MAX_BATCH = 1 << 20  # characters handed over at once, to be spread over the cores
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json", "vocab.json", "merges.txt", "tokenizer.model",
)  # fmt: skip
_VOCABULARY, _ADDED = ("vocab.json", "merges.txt", "tokenizer.model"), ("added_tokens.json", "special_tokens_map.json")
_SETTINGS = ("tokenizer_class", "add_prefix_space", "add_bos_token", "add_eos_token", "legacy", "added_tokens_decoder")
_FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "gpt2", "opt", "gpt_neox")  # whose tokenizer a model type means
_MAX_BYTES, _MAX_CONFIG_BYTES = 128 << 20, 16 << 20
FRESH = "Give the folder of a tokenizer saved by transformers, with its tokenizer.json."


class Tokenizer:
    """Text to ids and back. `bos_id` begins every document and ends the one before.

    No text can spell a special token: `<s>` inside a document is four ordinary characters.
    """

    def __init__(self, inner: tokenizers.Tokenizer, bos_id: int) -> None:
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        if hasattr(inner.model, "dropout"):
            inner.model.dropout = None  # a training device of some tokenizers: draws ids at random
        self._inner = inner
        self.bos_id = bos_id
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values()) + 1
        self.sha256 = _fingerprint(inner, bos_id)

    @property
    def bos_token(self) -> str:
        """How the beginning token is written."""
        return str(self._inner.id_to_token(self.bos_id))

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        found: list[list[int]] = [[] for _ in texts]
        for batch in _batches(texts):
            encodings = self._inner.encode_batch_fast([piece for _, piece in batch], add_special_tokens=False)
            for (i, _), encoding in zip(batch, encodings, strict=True):
                found[i].extend(encoding.ids)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special tokens have none."""
        return str(self._inner.decode(list(ids), skip_special_tokens=True))

    def stream(self) -> TextStream:
        """Turns ids into text one by one; the parts joined are the text of all."""
        return TextStream(self)

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json, which transformers reads too."""
        folder.mkdir(parents=True, exist_ok=True)
        self._inner.save(str(folder / "tokenizer.json"))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos_token,
            "eos_token": self.bos_token,
            "clean_up_tokenization_spaces": False,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


class TextStream:
    """Text out of ids that come one by one; a character is held back until its last byte is there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shown: list[int] = []  # context that decides on leading spaces
        self._held: list[int] = []

    def push(self, id: int) -> str:
        """The text that is certain now; empty while a character is incomplete."""
        self._held.append(id)
        text = self._text()
        if not text or text.endswith(INCOMPLETE):
            return ""
        self._shown, self._held = self._held, []
        return text

    def rest(self) -> str:
        """The text still held back at the end."""
        text = self._text()
        self._shown, self._held = [], []
        return text

    def _text(self) -> str:
        before = self._tokenizer.decode(self._shown)
        return self._tokenizer.decode(self._shown + self._held)[len(before) :]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of at most `vocab_size` entries; the order of the texts does not matter."""
    if vocab_size <= NUM_BYTES:
        raise TokenizerError(
            f"vocab_size must be above {NUM_BYTES}, one for each byte, but is {vocab_size} instead.",
            "Choose 300 or more.",
        )
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOUNDARY],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator((piece for text in texts for piece in _pieces(text)), trainer)
    return Tokenizer(inner, bos_id=0)  # special tokens come first


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder saved by us or by transformers. Runs no code from the folder and opens nothing else."""
    text = read_text(folder, "tokenizer.json", _MAX_BYTES, TokenizerError)
    inner = _convert(folder) if text is None else _read(folder / "tokenizer.json", text)
    return Tokenizer(inner, _boundary_id(folder, inner))


def _read(file: Path, text: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as error:  # the library raises bare Exception for whatever is wrong with the file
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        raise TokenizerError(f"{file} must be a tokenizer, but cannot be read ({short(error)}).", FRESH) from None


def _convert(folder: Path) -> tokenizers.Tokenizer:
    from transformers import AutoTokenizer

    try:
        with tempfile.TemporaryDirectory() as copy:  # a tokenizer_config.json may name files anywhere
            _copy_vocabulary(folder, Path(copy))
            loaded = AutoTokenizer.from_pretrained(copy, local_files_only=True, trust_remote_code=False)
    except TokenizerError:
        raise
    except Exception as error:  # each tokenizer class fails in its own way on a file that is not there
        raise TokenizerError(f"{folder} must hold a tokenizer, but does not ({short(error)}).", FRESH) from None
    inner = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(inner, tokenizers.Tokenizer):
        raise TokenizerError(f"{folder} must hold a tokenizer of the fast kind, but does not.", FRESH)
    return inner


def _copy_vocabulary(folder: Path, copy: Path) -> None:
    """Copies the files that older tokenizers consist of, with the settings that change ids; nothing leads elsewhere."""
    told = _json(folder / "tokenizer_config.json")
    if told.get("auto_map"):
        raise TokenizerError(f"{folder} must hold a tokenizer without code of its own (auto_map).", FRESH)
    for name in (*_VOCABULARY, *_ADDED):
        if (content := read_bytes(folder, name, _MAX_BYTES, TokenizerError)) is not None:
            (copy / name).write_bytes(content)
    if not any((copy / name).exists() for name in _VOCABULARY):  # transformers would make an empty tokenizer
        raise TokenizerError(f"{folder} must hold a tokenizer, but does not.", FRESH)
    kept = {name: value for name, value in told.items() if name in _SETTINGS or name.endswith("_token")}
    (copy / "tokenizer_config.json").write_text(json.dumps(kept), encoding="utf-8")
    kind = _json(folder / "config.json").get("model_type")
    if isinstance(kind, str) and kind in _FAMILIES:
        (copy / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")


def _boundary_id(folder: Path, inner: tokenizers.Tokenizer) -> int:
    """The id of the beginning token, else of the ending one, as the folder's configuration names them."""
    for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json"):
        config = _json(folder / name)
        for role in ("bos_token", "eos_token"):
            id = _id_of(config.get(role), config.get(f"{role}_id"), inner)
            if id is not None:
                return id
    raise TokenizerError(
        f"The tokenizer in {folder} must name a beginning or ending token, but names none.",
        "Add bos_token to its tokenizer_config.json.",
    )


def _id_of(token: Any, id: Any, inner: tokenizers.Tokenizer) -> int | None:
    if isinstance(token, dict):
        token = token.get("content")
    if isinstance(token, str):
        return None if any("\ud800" <= sign <= "\udfff" for sign in token) else inner.token_to_id(token)
    if type(id) is int and 0 <= id < 1 << 32 and inner.id_to_token(id) is not None:
        return id
    return None


def _json(file: Path) -> dict[str, Any]:
    return read_object(file.parent, file.name, _MAX_CONFIG_BYTES, TokenizerError) or {}


def _fingerprint(inner: tokenizers.Tokenizer, bos_id: int) -> str:
    """The hash of what decides the ids: not of the file's format, nor of how ids become text."""
    whole = json.loads(inner.to_str())
    parts = {name: whole.get(name) for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")}
    canonical = json.dumps({**parts, "bos_id": bos_id}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _batches(texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Pieces with the numbers of their texts, some `MAX_BATCH` characters at a time."""
    batch: list[tuple[int, str]] = []
    size = 0
    for i, text in enumerate(texts):
        for piece in _pieces(text):
            batch.append((i, piece))
            size += len(piece)
            if size >= MAX_BATCH:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _pieces(text: str) -> Iterator[str]:
    """The text itself; a very long one cut at line ends (else anywhere), so that memory stays bounded."""
    start = 0
    while len(text) - start > MAX_PIECE:
        cut = text.rfind("\n", start + 1, start + MAX_PIECE)
        cut = start + MAX_PIECE if cut < 0 else cut
        yield text[start:cut]
        start = cut
    yield text[start:]
