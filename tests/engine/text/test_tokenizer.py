from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, normalizers, pre_tokenizers

from engine.errors import TokenizerError
from engine.text import tokenizer as module
from engine.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from tests.engine.tokenizer_shapes import byte_level, llama_like

TEXTS = [
    f"The {noun} of the {thing} number {i} was näher than expected.\n\n  def f(x):\n\treturn x + {i}\n"
    for i, (noun, thing) in enumerate([("cat", "house"), ("judge", "court"), ("größe", "straße")] * 20)
]
TRAINED = train_tokenizer(TEXTS, 400)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


LLAMA = Tokenizer(llama_like(), 1)
BOTH = pytest.mark.parametrize("tokenizer", [TRAINED, LLAMA], ids=["trained", "llama-like"])


@BOTH
@settings(max_examples=150)
@given(text=ANY_TEXT)
def test_decoding_what_was_encoded_gives_the_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_character_is_held_back_until_it_is_complete() -> None:
    ids = TRAINED.encode("😀")
    stream = TRAINED.stream()
    assert [stream.push(id) for id in ids] == ["", "", "", "😀"]


def test_the_bos_token_is_id_zero_and_has_no_text() -> None:
    assert (TRAINED.bos_id, TRAINED.bos_token, TRAINED.decode([0])) == (0, "<s>", "")


@BOTH
@given(st.sampled_from(["<s>", "</s>", "a <s> b", "<s><s>"]))
def test_no_text_can_spell_a_special_token(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.bos_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_many_texts_are_encoded_as_each_by_itself() -> None:
    assert TRAINED.encode_many(TEXTS) == [TRAINED.encode(text) for text in TEXTS]
    assert TRAINED.encode_many([]) == []
    assert TRAINED.encode_many(["", "a", ""]) == [[], TRAINED.encode("a"), []]


def test_a_very_long_text_comes_back_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PIECE", 50)
    monkeypatch.setattr(module, "MAX_BATCH", 100)
    text = "\n".join(TEXTS) + "x" * 500
    assert TRAINED.decode(TRAINED.encode(text)) == text


def test_training_gives_at_most_the_requested_vocabulary() -> None:
    assert 257 < TRAINED.vocab_size <= 400
    assert train_tokenizer(["a"], 500).vocab_size == 257


def test_training_does_not_depend_on_the_order_of_the_texts() -> None:
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    assert train_tokenizer(shuffled, 400).sha256 == TRAINED.sha256


@pytest.mark.parametrize("parallelism", ["true", "false"])
def test_training_in_another_process_gives_the_same_tokenizer(parallelism: str) -> None:
    code = (
        "import sys, json; from engine.text.tokenizer import train_tokenizer;"
        "print(train_tokenizer(json.load(sys.stdin), 400).sha256)"
    )
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": parallelism, "RAYON_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(TEXTS),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == TRAINED.sha256


def test_other_texts_give_another_tokenizer() -> None:
    assert train_tokenizer(["entirely other words, many times over"] * 9, 400).sha256 != TRAINED.sha256


@pytest.mark.parametrize("vocab_size", [0, 256])
def test_a_vocabulary_smaller_than_the_bytes_is_refused(vocab_size: int) -> None:
    with pytest.raises(TokenizerError, match="above 256"):
        train_tokenizer(TEXTS, vocab_size)


def test_a_saved_tokenizer_comes_back_the_same(tmp_path: Path) -> None:
    TRAINED.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert (again.sha256, again.bos_id, again.vocab_size) == (TRAINED.sha256, 0, TRAINED.vocab_size)
    assert again.encode_many(TEXTS) == TRAINED.encode_many(TEXTS)


def test_the_hash_does_not_depend_on_formatting_or_folder(tmp_path: Path) -> None:
    TRAINED.save(tmp_path / "a")
    TRAINED.save(tmp_path / "b")
    file = tmp_path / "b" / "tokenizer.json"
    content = json.loads(file.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(content, indent=7, sort_keys=True))
    assert load_tokenizer(tmp_path / "b").sha256 == TRAINED.sha256
    assert load_tokenizer(tmp_path / "b").encode(TEXTS[0]) == TRAINED.encode(TEXTS[0])


def test_transformers_reads_what_is_saved(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    TRAINED.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(str(tmp_path))
    assert theirs(TEXTS[0])["input_ids"] == TRAINED.as_prompt(TRAINED.encode(TEXTS[0]))
    assert (theirs.bos_token_id, theirs.eos_token_id) == (0, 0)


def write_folder(folder: Path, inner: tokenizers.Tokenizer, name: str, config: dict[str, object]) -> Path:
    folder.mkdir(exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    (folder / name).write_text(json.dumps(config))
    return folder


FOLDERS = {
    "GPT-2": (["<|endoftext|>"], "tokenizer_config.json", {"bos_token": "<|endoftext|>"}, 256),
    "OPT": (["<pad>", "</s>"], "tokenizer_config.json", {"bos_token": {"content": "</s>"}, "eos_token": "</s>"}, 257),
    "an end alone": (["</s>"], "tokenizer_config.json", {"bos_token": None, "eos_token": "</s>"}, 256),
    "a map of special tokens": (["<s>"], "special_tokens_map.json", {"bos_token": "<s>"}, 256),
    "ids in config.json": (["<x>", "<y>"], "config.json", {"bos_token_id": 257}, 257),
}


@pytest.mark.parametrize(("special", "name", "config", "bos_id"), FOLDERS.values(), ids=FOLDERS)
def test_the_bos_token_is_read_as_the_folder_names_it(special, name, config, bos_id, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, byte_level(*special), name, config))
    assert tokenizer.bos_id == bos_id
    assert tokenizer.decode(tokenizer.encode("Wörter 😀")) == "Wörter 😀"


def test_a_folder_without_tokenizer_json_is_converted(tmp_path: Path) -> None:
    vocab = {sign: id for id, sign in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_id, tokenizer.decode(tokenizer.encode("Wörter"))) == (256, "Wörter")


def test_a_folder_that_wants_its_own_code_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')")
    config = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(TokenizerError, match="code of its own"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_a_boundary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no BOS or EOS token"):
        load_tokenizer(write_folder(tmp_path, byte_level("<s>"), "tokenizer_config.json", {}))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": 3}', "\ud7ff", '{"model": {"type": "BPE"}}'])
def test_a_broken_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError) as refusal:
        load_tokenizer(tmp_path)
    assert refusal.value.next_step


def test_a_text_that_breaks_the_tokenizer_is_refused() -> None:
    inner = byte_level("<s>")
    inner.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(c+)+$"), "isolated")
    broken = Tokenizer(inner, 256)
    with pytest.raises(TokenizerError, match="cannot read a text"):
        broken.encode("c" * 40 + "b")


@pytest.mark.parametrize("where", ["pre_tokenizer", "normalizer", "decoder"])
def test_a_regular_expression_that_may_take_hours_is_refused_before_a_tokenizer_is_stored(where: str) -> None:
    inner = byte_level("<s>")
    parts = {
        "pre_tokenizer": pre_tokenizers.Split(tokenizers.Regex("(z+)+$"), "isolated"),
        "normalizer": normalizers.Sequence([normalizers.Replace(tokenizers.Regex("(z+)+$"), "")]),
        "decoder": decoders.Replace(tokenizers.Regex("(z+)+$"), ""),
    }
    setattr(inner, where, parts[where])
    with pytest.raises(TokenizerError, match=r"“\(z\+\)\+\$”, which may take hours"):
        Tokenizer(inner, 256).try_out()


def test_a_folder_without_anything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no (fast )?tokenizer"):
        load_tokenizer(tmp_path)
