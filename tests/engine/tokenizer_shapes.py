"""Tokenizers of the kinds that models come with, each with a handful of entries."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def llama_like() -> tokenizers.Tokenizer:
    """As Llama's: spaces written as ▁, unknown characters as bytes, the beginning token put in front."""
    words = [*SPECIAL, *BYTES, "▁", *"abcdefghij", "ab", "▁ab"]
    vocab = {word: id for id, word in enumerate(words)}
    merges = [("a", "b"), ("▁", "ab")]
    inner = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return inner


def unigram() -> tokenizers.Tokenizer:
    """As T5's: SentencePiece's pieces, and a decoder that takes the blanks of the first."""
    pieces = [*SPECIAL, "▁", "▁▁", "▁the", "▁co", "urt", "▁ab", *"abcdefghijklmnopqrstuvwxyz"]
    inner = tokenizers.Tokenizer(models.Unigram([(piece, -1.0 - len(piece) / 100) for piece in pieces], 0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Metaspace(prepend_scheme="first")
    inner.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    return inner


def byte_level(*special: str) -> tokenizers.Tokenizer:
    """As GPT-2's and Llama-3's: every byte is an entry."""
    entries = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *special]
    inner = tokenizers.Tokenizer(models.BPE({sign: id for id, sign in enumerate(entries)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(word, special=True) for word in special])
    return inner


def word_pieces() -> tokenizers.Tokenizer:
    """As BERT's: every word has a blank before it, but the first; a piece that goes on has ##."""
    entries = [*SPECIAL, "the", "court", "##s", "##ly", ".", ",", "'", "s", "a", "##b"]
    inner = tokenizers.Tokenizer(models.WordPiece({entry: id for id, entry in enumerate(entries)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    inner.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    return inner


def suffixed() -> tokenizers.Tokenizer:
    """As GPT-1's: a word's last entry has </w>, which is a blank when another word follows."""
    entries = [*SPECIAL, *(letter + end for letter in "abc" for end in ("", "</w>"))]
    inner = tokenizers.Tokenizer(
        models.BPE({entry: id for id, entry in enumerate(entries)}, [], end_of_word_suffix="</w>")
    )
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.decoder = decoders.BPEDecoder(suffix="</w>")
    inner.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    return inner
