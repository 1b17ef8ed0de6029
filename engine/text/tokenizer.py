"""Exact conversion of text to token ids and back: a byte-level BPE trained here, or any model folder's tokenizer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path
from typing import TypeVar

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from engine.errors import TokenizerError
from engine.foreign_files import is_linear, patterns_in, read_bytes, read_text, short
from engine.text.special_tokens import MAX_FILE_BYTES, SEPARATORS, convert_tokenizer, read_special_tokens, refused_as

BOUNDARY = "<s>"  # begins and ends a document; id 0
NUM_BYTES = 256
MAX_PIECE = 1 << 18  # characters tokenized at once, which takes a hundred times their memory
MAX_BATCH = 1 << 20  # characters per call, tokenized in parallel
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")  # how a vocabulary writes a byte (byte fallback)
MAX_CHARACTER = 4  # bytes of a character in UTF-8
TEMPLATES = "additional_chat_templates/*.jinja"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "vocab.txt",
    "vocab.bpe",
    "merges.txt",
    "tekken.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
Item = TypeVar("Item")
_SAMPLE_TEXT = "The court held 1,234 things (and “näher” 😀).\n\n\tx = 'y';  " + "a" * 40 + "b" + " " * 40 + "!"


class Tokenizer:
    """Converts text to ids and back. In training `bos_id` begins every document and ends the one before.

    `prefix` comes before a prompt, `eos_ids` are named by the model's files; any of `stop_ids` ends an answer.
    Text never encodes to a special token: `<s>` inside a document is ordinary characters.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        bos_id: int,
        *,
        prefix: Sequence[int] | None = None,
        eos_ids: Sequence[int] | None = None,
        turn_start: int | None = None,
        begins_blocks: bool = False,
        folder: Path | None = None,
    ) -> None:
        """Without `prefix` and `eos_ids` both are `bos_id`. `folder` holds the tokenizer's own files."""
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        if hasattr(inner.model, "dropout"):
            inner.model.dropout = None  # BPE dropout, for training only: it samples ids at random
        self._inner, self.folder = inner, folder
        self.bos_id = bos_id
        self.prefix = (bos_id,) if prefix is None else tuple(prefix)
        self.eos_ids = (bos_id,) if eos_ids is None else tuple(eos_ids)
        self.turn_start = turn_start
        self.begins_blocks = begins_blocks  # whether the BOS token is read first in every block, see `SpecialTokens`
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values()) + 1
        self._unused: dict[int, tuple[int, ...]] = {}  # rows that no token has, by the number of a model's rows
        added = inner.get_added_tokens_decoder()
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        self.control_ids = frozenset(id for id, token in added.items() if token.special or not token.content.isspace())
        state = json.loads(inner.to_str())
        deciding = {name: state.get(name) for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")}
        canonical = json.dumps({**deciding, "bos_id": bos_id}, sort_keys=True, ensure_ascii=True)
        self.sha256 = hashlib.sha256(canonical.encode()).hexdigest()  # of what decides the ids, in any file format
        token = state["model"].get("unk_token")
        unknown = state["model"].get("unk_id") if token is None else inner.token_to_id(token)
        self._never_of_text = frozenset(  # one character, such as a line end, is a text whatever it is called
            id for id in self.special_ids if id != unknown and len(added[id].content) > 1
        )
        self._falls_back = inner.decoder is not None and b'"ByteFallback"' in inner.decoder.__getstate__()

    @property
    def bos_token(self) -> str:
        """The text of the BOS token."""
        return self.written(self.bos_id)

    @cached_property
    def longest_token(self) -> int:
        """The number of characters of the longest vocabulary entry."""
        return max(map(len, self._inner.get_vocab(with_added_tokens=True)))

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end an answer: the EOS ids, the BOS id, which begins another document, and a turn's start."""
        return self._with_starts(self.eos_ids)

    def stop_ids_of(self, folder: Path) -> frozenset[int]:
        """The stop ids of a model in another folder that has this same tokenizer."""
        return self._with_starts(read_special_tokens(folder, self._inner).eos_ids)

    def _with_starts(self, eos_ids: Iterable[int]) -> frozenset[int]:
        starts = () if self.turn_start is None else (self.turn_start,)
        return frozenset({*eos_ids, self.bos_id, *starts})

    def written(self, id: int) -> str:
        """The vocabulary entry of an id, special tokens included; empty for an unknown id."""
        return str(self._inner.id_to_token(id) or "")

    def unused_rows(self, num_rows: int) -> tuple[int, ...]:
        """The rows of a model's vocabulary that no token has; they pad it to a round number, and are never sampled."""
        if num_rows not in self._unused:
            known = set(self._inner.get_vocab(with_added_tokens=True).values())
            self._unused[num_rows] = tuple(id for id in range(num_rows) if id not in known)
        return self._unused[num_rows]

    def as_prompt(self, ids: Sequence[int]) -> list[int]:
        """The ids of a prompt: `prefix` and the ids of its text; the BOS id if both are empty."""
        return [*self.prefix, *ids] or [self.bos_id]

    def encode(self, text: str, *, control_tokens: bool = False) -> list[int]:
        """The ids of a text without special tokens; with `control_tokens` those that it spells, as AutoTokenizer does.

        Never ask for control tokens in a text that somebody else wrote: it could end a turn or begin one.
        """
        return self.encode_with_offsets(text, control_tokens=True)[0] if control_tokens else self.encode_many([text])[0]

    def encode_with_offsets(
        self, text: str, *, control_tokens: bool, continues: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text and the characters (start, end) of each.

        A text that `continues` another gets no blank before its first word, which some tokenizers put there.
        """
        inner = self._with_control_tokens if control_tokens else self._inner
        with refused_as("The tokenizer cannot read a text"):
            if continues:  # as transformers does: after a line end, whose own tokens are taken away again
                before = inner.encode("\n", add_special_tokens=False).ids
                encoding = inner.encode("\n" + text, add_special_tokens=False)
                if encoding.ids[: len(before)] == before:
                    size = len(before)
                    return encoding.ids[size:], [(max(a - 1, 0), b - 1) for a, b in encoding.offsets[size:]]
            encoding = inner.encode(text, add_special_tokens=False)
            return encoding.ids, encoding.offsets

    @cached_property
    def _with_control_tokens(self) -> tokenizers.Tokenizer:
        """A copy that reads special tokens in texts; the original never does, not even for a moment."""
        copy = tokenizers.Tokenizer.from_str(self._inner.to_str())
        copy.encode_special_tokens = False
        return copy

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them."""
        ids_by_text: list[list[int]] = [[] for _ in texts]
        pieces = ((i, piece) for i, text in enumerate(texts) for piece in _pieces(text))
        for batch in batches(pieces, lambda item: len(item[1])):
            with refused_as("The tokenizer cannot read a text"):
                encodings = self._inner.encode_batch_fast([piece for _, piece in batch], add_special_tokens=False)
            for (i, piece), encoding in zip(batch, encodings, strict=True):
                ids = encoding.ids
                ids_by_text[i].extend(ids if self._never_of_text.isdisjoint(ids) else self._by_characters(piece))
        return ids_by_text

    def _by_characters(self, text: str) -> list[int]:
        """The ids of a text in which the model found special tokens, as Unigram does: those are read by character."""
        texts = sorted((self.written(id) for id in self._never_of_text), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, filter(None, texts)))})", text)
        pieces = [piece for i, part in enumerate(parts) for piece in (part if i % 2 else [part]) if piece]
        with refused_as("The tokenizer cannot read a text"):
            encodings = self._inner.encode_batch(pieces, add_special_tokens=False)
        return [id for encoding in encodings for id in encoding.ids if id not in self._never_of_text]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids without special tokens; each invalid byte is a `�`."""
        with refused_as("The tokenizer cannot write a text"):
            text = str(self._inner.decode(list(ids), skip_special_tokens=True))
            if INCOMPLETE not in text or not self._falls_back:
                return text
            # as SentencePiece does: the library replaces a full run of bytes for one invalid byte
            tokens = (self._inner.id_to_token(id) for id in ids if id not in self.special_ids)
            return str(self._inner.decoder.decode(list(_valid_bytes(token for token in tokens if token is not None))))

    def try_out(self) -> None:
        """Raises TokenizerError unless a sample text can be encoded and decoded, and no text takes too long.

        Call it for the tokenizer of a foreign folder before it is stored.
        """
        state = json.loads(self._inner.to_str())
        for pattern in patterns_in([state.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]):
            if not is_linear(pattern):
                raise TokenizerError(
                    f"The tokenizer uses the regular expression “{short(pattern)}”, which may take hours for a text.",
                    "Give a tokenizer whose expressions repeat one character or class at a time, such as “ ?\\p{L}+”.",
                )
        self.decode(self.as_prompt(self.encode(_SAMPLE_TEXT)))

    def stream(self, before: Sequence[int] = ()) -> TextStream:
        """A stream that turns ids into text one by one; the joined text continues that of the ids `before`."""
        return TextStream(self, before)

    def save(self, folder: Path) -> None:
        """Writes a folder for transformers: unchanged copies of the tokenizer's own files, else new files."""
        folder.mkdir(parents=True, exist_ok=True)
        own_files = []
        if own := self.folder:
            for name in (*TOKENIZER_FILES, *(str(file.relative_to(own)) for file in sorted(own.glob(TEMPLATES)))):
                if (content := read_bytes(own, name, MAX_FILE_BYTES, TokenizerError)) is not None:
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).write_bytes(content)
                    own_files.append(name)
        if self.turn_start is not None:
            separators = {"between_documents": self.bos_token, "begins_turns": self.written(self.turn_start)}
            (folder / SEPARATORS).write_text(json.dumps(separators, indent=1), encoding="utf-8")
        if "tokenizer.json" not in own_files:
            self._inner.save(str(folder / "tokenizer.json"))
        if "tokenizer_config.json" not in own_files:
            config = {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": self.bos_token if self.prefix else None,
                "eos_token": self.written(self.eos_ids[0]) if self.eos_ids else self.bos_token,
                "clean_up_tokenization_spaces": False,
            }
            (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


class TextStream:
    """Turns ids into text one by one; a character is held back until its last byte has come.

    The text of a token depends on whether a token precedes it (the first loses its space) and on the bytes before it.
    So each token is decoded together with some tokens whose text is already out.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._shown = self._tail(before)
        self._shown_text = tokenizer.decode(self._shown)
        self._held: list[int] = []

    def push(self, id: int) -> str:
        """Adds an id and returns the text that is final now; empty while a character is incomplete."""
        self._held.append(id)
        text = self._text(self._held)
        if not text or text.endswith(INCOMPLETE):
            return ""
        self._show()
        return text

    def rest(self) -> str:
        """The text that is still held back at the end."""
        text = self._text(self._held)
        self._show()
        return text

    def peek(self, id: int) -> str:
        """The text that an id would add; changes nothing."""
        extended, held = self._text([*self._held, id]), self._text(self._held)
        return text_after(held, extended)

    def _show(self) -> None:
        self._shown, self._held = self._tail(self._shown + self._held), []
        self._shown_text = self._tokenizer.decode(self._shown)

    def _text(self, held: Sequence[int]) -> str:
        return text_after(self._shown_text, self._tokenizer.decode([*self._shown, *held]))

    def _tail(self, ids: Sequence[int]) -> list[int]:
        """The last ids with text, as many as influence the text of later ids.

        An incomplete character has at most three bytes, at worst each in its own token; one more token, or as many
        as are needed to have any text, represents everything before.
        """
        known = self._tokenizer
        written = [id for id in ids if id not in known.special_ids and known.written(id)]  # no token has unused rows
        size = MAX_CHARACTER
        while size < len(written) and not self._tokenizer.decode(written[-size:]):
            size *= 2
        return written[-size:]


def text_after(before: str, text: str) -> str:
    """The part of a text after what it shares with `before`, whose last bytes may have become a character."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(before, text, strict=False))
    return text[sum(1 for _ in same) :]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of at most `vocab_size` entries; the order of the texts does not matter."""
    if vocab_size <= NUM_BYTES:
        problem = f"vocab_size must be above {NUM_BYTES} (one entry for each byte), got {vocab_size}."
        raise TokenizerError(problem, "Choose 300 or more.")
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
    # Programs that read the tokenizer also put it before a prompt; special tokens come first in the vocabulary.
    inner.post_processor = processors.TemplateProcessing(single=f"{BOUNDARY} $A", special_tokens=[(BOUNDARY, 0)])
    return Tokenizer(inner, bos_id=0)


def load_tokenizer(folder: Path, *, like: Tokenizer | None = None) -> Tokenizer:
    """The tokenizer of a folder. Runs no code from the folder and opens no file outside it.

    It is read by the rule of an older version if `like`, a stored one to compare it with, was.
    """
    text = read_text(folder, "tokenizer.json", MAX_FILE_BYTES, TokenizerError)
    if text is None:
        inner = convert_tokenizer(folder)
    else:
        with refused_as(f"The tokenizer {folder / 'tokenizer.json'} cannot be read"):
            inner = tokenizers.Tokenizer.from_str(text)
    special = read_special_tokens(folder, inner, is_older=None if like is None else like.turn_start is None)
    return Tokenizer(
        inner,
        special.bos_id,
        prefix=special.prefix,
        eos_ids=special.eos_ids,
        turn_start=special.turn_start,
        begins_blocks=special.begins_blocks,
        folder=folder,
    )


def _valid_bytes(tokens: Iterable[str]) -> Iterator[str]:
    """The tokens, with `�` for each byte that belongs to no character."""
    for is_bytes, run in groupby(tokens, lambda token: BYTE.fullmatch(token) is not None):
        if not is_bytes:
            yield from run
            continue
        run_bytes = bytes(int(token[3:5], 16) for token in run)
        for character in run_bytes.decode("utf-8", "surrogateescape"):
            is_lost = "\udc80" <= character <= "\udcff"
            yield from [INCOMPLETE] if is_lost else [f"<0x{byte:02X}>" for byte in character.encode()]


def batches(items: Iterable[Item], length: Callable[[Item], int], least: int = MAX_BATCH) -> Iterator[list[Item]]:
    """The items in order, in batches that together have at least this length (except the last)."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += length(item)
        if size >= least:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _pieces(text: str) -> Iterator[str]:
    """The text; a very long text is cut at line ends (else anywhere) to bound memory."""
    start = 0
    while len(text) - start > MAX_PIECE:
        cut = text.rfind("\n", start + 1, start + MAX_PIECE)
        cut = start + MAX_PIECE if cut < 0 else cut
        yield text[start:cut]
        start = cut
    yield text[start:]
