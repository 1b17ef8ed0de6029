"""How texts begin and end is what a model's folder says, and stays so wherever its tokenizer is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, processors

from engine.errors import TokenizerError
from engine.files import write_manifest
from engine.text.special_tokens import SpecialTokens, read_special_tokens
from engine.text.tokenizer import load_tokenizer, train_tokenizer
from tests.engine.tokenizer_shapes import byte_level, llama_like

END, TURN, START = "<|endoftext|>", "<|im_end|>", "<|im_start|>"  # 256, 257, 258 of most tokenizers below
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write(folder: Path, inner: tokenizers.Tokenizer, **files: Any) -> Path:
    """A model's folder: its tokenizer, and JSON files by their names without an ending."""
    folder.mkdir(exist_ok=True)
    inner.save(str(folder / "tokenizer.json"), pretty=False)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=3), encoding="utf-8")
    return folder


def llama_3() -> tokenizers.Tokenizer:
    inner = byte_level("<|begin|>", END, TURN)
    inner.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 256)])
    return inner


LLAMA = {"tokenizer_config": {"bos_token": "<s>", "eos_token": {"content": "</s>"}}}
QWEN = {"tokenizer_config": {"bos_token": None, "eos_token": TURN, "add_bos_token": False}}
MESSAGES: dict[str, tuple[tokenizers.Tokenizer, dict[str, Any], SpecialTokens]] = {
    "Llama 2": (llama_like(), {**LLAMA, "config": {"eos_token_id": 2}}, SpecialTokens(1, (1,), (2,))),
    "Llama 2 of a tokenizer alone": (llama_like(), LLAMA, SpecialTokens(1, (1,), (2,))),
    "Llama 3 that chats": (
        llama_3(),
        {
            "tokenizer_config": {"bos_token": "<|begin|>", "eos_token": TURN},
            "config": {"eos_token_id": 257},
            "generation_config": {"eos_token_id": [257, 258]},
        },
        SpecialTokens(256, (256,), (257, 258)),
    ),
    "GPT-2": (
        byte_level(END),
        {"tokenizer_config": {"bos_token": END, "eos_token": END}},
        SpecialTokens(256, (256,), (256,)),
    ),
    "Pythia": (
        byte_level(END),
        {"tokenizer_config": {"bos_token": END, "eos_token": END, "add_bos_token": False}},
        SpecialTokens(256, (), (256,)),
    ),
    "Qwen": (
        byte_level(END, TURN),
        {"tokenizer_config": {"bos_token": None, "eos_token": END}},
        SpecialTokens(256, (), (256,)),
    ),
    "Qwen that chats": (
        byte_level(END, TURN),
        {
            **QWEN,
            "config": {"bos_token_id": 256, "eos_token_id": 257},
            "generation_config": {"eos_token_id": [257, 256]},
        },
        SpecialTokens(256, (), (257, 256)),
    ),
    "Qwen that chats, of a config that names no BOS": (
        byte_level(END, TURN),
        {
            "tokenizer_config": {
                "bos_token": None,
                "eos_token": TURN,
                "chat_template": "{{ '<|im_start|>' + messages[0].content + '<|im_end|>' }}",
            },
            "config": {"bos_token_id": None, "eos_token_id": 257},
            "generation_config": {"eos_token_id": [257, 256]},
        },
        SpecialTokens(256, (), (257, 256)),
    ),
    "SmolLM2 that chats, whose BOS token begins turns": (
        byte_level(END, TURN, START),
        {"tokenizer_config": {"bos_token": START, "eos_token": TURN, "unk_token": END, "chat_template": CHATML}},
        SpecialTokens(256, (256,), (257,), 258),
    ),
    "a chat model whose tokenizer adds its BOS token itself": (
        llama_3(),
        {
            "tokenizer_config": {
                "bos_token": "<|begin|>",
                "eos_token": TURN,
                "chat_template": "{{ '<|begin|>user' + messages[0].content }}",
            }
        },
        SpecialTokens(256, (256,), (258,)),
    ),
    "a chat model whose BOS token begins the conversation alone": (
        byte_level(END, TURN, START),
        {
            "tokenizer_config": {
                "bos_token": END,
                "eos_token": TURN,
                "chat_template": "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role }}{% endfor %}",
            }
        },
        SpecialTokens(256, (256,), (257,)),
    ),
    "a vocabulary without another separator than the turn's end": (
        byte_level(TURN, START),
        {"tokenizer_config": {"bos_token": START, "eos_token": TURN, "chat_template": CHATML}},
        SpecialTokens(256, (), (256,), 257),
    ),
    "an id that is no special token": (
        byte_level(END, TURN),
        {**QWEN, "config": {"bos_token_id": 1}},
        SpecialTokens(257, (), (257,)),
    ),
    "a vocabulary without letters": (
        tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "court": 1})),
        {"tokenizer_config": {"bos_token": "<s>"}},
        SpecialTokens(0, (0,)),
    ),
    "what is no id": (
        byte_level(END),
        {
            "tokenizer_config": {"bos_token": END},
            "config": {"eos_token_id": [256]},
            "generation_config": {"eos_token_id": [None, True, -1, "2"]},
        },
        SpecialTokens(256, (256,), (256,)),
    ),
    "a home of the version before": (
        llama_like(),
        {"tokenizer_config": {"bos_token": "<s>", "eos_token": "<s>"}, "config": {"eos_token_id": 2}},
        SpecialTokens(1, (1,), (2,)),
    ),
}


@pytest.mark.parametrize(("inner", "files", "message"), MESSAGES.values(), ids=MESSAGES)
def test_a_folder_says_how_texts_begin_and_end(inner, files, message: SpecialTokens, tmp_path: Path) -> None:
    assert read_special_tokens(write(tmp_path, inner, **files), inner) == message
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_id, tokenizer.prefix, tokenizer.eos_ids) == (message.bos_id, message.prefix, message.eos_ids)
    starts = set() if message.turn_start is None else {message.turn_start}
    assert tokenizer.stop_ids == {message.bos_id, *message.eos_ids, *starts} == tokenizer.stop_ids_of(tmp_path)
    assert tokenizer.as_prompt([7]) == [*message.prefix, 7]
    assert tokenizer.as_prompt([]) == list(message.prefix or (message.bos_id,))


SMOLLM2 = {"tokenizer_config": {"bos_token": START, "eos_token": TURN, "chat_template": CHATML}}
ROLES = [
    "{{ '<|im_start|>' ~ m.role }}",
    "<|im_start|>{{ m['role'] }}",
    "<|im_start|>user\n",
    "{{- bos_token + m.role }}",
    '{{ "<|im_start|>" + ( m.get("role") ) }}',
]


@pytest.mark.parametrize("turn", ROLES)
def test_a_bos_token_before_a_role_begins_turns_however_the_template_is_written(turn: str, tmp_path: Path) -> None:
    config = {**SMOLLM2["tokenizer_config"], "chat_template": f"{{% for m in messages %}}{turn}{{% endfor %}}"}
    inner = byte_level(END, TURN, START)
    assert read_special_tokens(write(tmp_path, inner, tokenizer_config=config), inner).turn_start == 258


@pytest.mark.parametrize(("family", "begins_blocks"), [("gemma3_text", True), ("llama", False)])
def test_a_gemma_reads_its_bos_token_first_in_every_block(family: str, begins_blocks: bool, tmp_path: Path) -> None:
    named = {"tokenizer_config": {"bos_token": "<|begin|>"}, "config": {"model_type": family}}
    assert load_tokenizer(write(tmp_path, llama_3(), **named)).begins_blocks == begins_blocks


def test_a_new_seed_records_its_separators_and_one_stored_before_keeps_its_own(tmp_path: Path) -> None:
    inner = byte_level(END, TURN, START)
    load_tokenizer(write(tmp_path / "given", inner, **SMOLLM2)).save(tmp_path / "new")
    write(tmp_path / "old", inner, **SMOLLM2)
    for name in ("new", "old"):
        write_manifest(tmp_path / name)  # as the store does
    new, old = load_tokenizer(tmp_path / "new"), load_tokenizer(tmp_path / "old")
    assert (new.bos_id, new.as_prompt([7])) == (256, [256, 7])
    assert (old.bos_id, old.as_prompt([7])) == (258, [258, 7])
    assert load_tokenizer(tmp_path / "given", like=old).sha256 == old.sha256 != new.sha256


def test_a_tokenizer_made_here_begins_and_ends_texts_with_one_token(tmp_path: Path) -> None:
    made = train_tokenizer(["the court held"], 300)
    made.save(tmp_path)
    for tokenizer in (made, load_tokenizer(tmp_path)):
        assert (tokenizer.prefix, tokenizer.eos_ids, tokenizer.stop_ids) == ((0,), (0,), {0})


@pytest.mark.parametrize(("inner", "files", "message"), MESSAGES.values(), ids=MESSAGES)
def test_a_tokenizers_own_files_are_kept_byte_for_byte(inner, files, message: SpecialTokens, tmp_path: Path) -> None:
    source = write(tmp_path / "model", inner, special_tokens_map={}, added_tokens={TURN: 257}, **files)
    (source / "tokenizer.model").write_bytes(b"\0pieces\xff")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tool.jinja").write_text("{{ tools }}")
    (source / "model.safetensors").write_bytes(b"weights")
    (source / "code.py").write_text("raise SystemExit")
    first = load_tokenizer(source)
    for before, copy in (("model", "seed"), ("seed", "base")):
        load_tokenizer(tmp_path / before).save(tmp_path / copy)
        (tmp_path / copy / "config.json").write_text(json.dumps(files.get("config", {}), indent=3))  # the model's part
        left_out = {"model.safetensors", "code.py"}
        expected = {name: data for name, data in bytes_of(source).items() if name not in left_out}
        assert bytes_of(tmp_path / copy) == {"config.json": b"{}", **expected}
        again = load_tokenizer(tmp_path / copy)
        assert (again.sha256, again.prefix, again.eos_ids) == (first.sha256, first.prefix, first.eos_ids)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_tokenizer_without_tokenizer_json_is_kept_with_one_beside_its_own_files(tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.mkdir()
    inner = byte_level("<|endoftext|>")
    (source / "vocab.json").write_text(json.dumps(inner.get_vocab()))
    (source / "merges.txt").write_text("#version: 0.2\n")
    (source / "config.json").write_text(json.dumps({"model_type": "gpt2", "eos_token_id": 256}))
    first = load_tokenizer(source)
    first.save(tmp_path / "seed")
    own = {name: data for name, data in bytes_of(source).items() if name != "config.json"}
    assert bytes_of(tmp_path / "seed").items() > own.items()
    again = load_tokenizer(tmp_path / "seed")
    assert (again.sha256, again.prefix, again.stop_ids) == (first.sha256, first.prefix, first.stop_ids)


@pytest.mark.parametrize("name", ["generation_config.json", "config.json", "special_tokens_map.json"])
def test_a_file_that_is_no_json_is_named(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, llama_like(), **LLAMA)
    (folder / name).write_text("{")
    with pytest.raises(TokenizerError, match=name):
        load_tokenizer(folder)
