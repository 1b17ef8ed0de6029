"""Seeds made to harm: each is refused with a sentence, opens nothing outside its folder, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tests.journeys.conftest import Do
from ui.cli.app import PROBLEM, main
from workbench.answers.cards import JobCard
from workbench.registry import seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage

Make = Callable[[Path], None]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
WATCHED: list[
    tuple[str, str]
] = []  # what was opened or unpickled while a seed was taken; an audit hook cannot be removed
is_watching = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if is_watching and event in ("open", "pickle.find_class"):
        WATCHED.append((event, str(arguments[0])))


@pytest.fixture(scope="module", autouse=True)
def _audit() -> None:
    sys.addaudithook(watch)


@pytest.fixture
def folder(trained: Do, tmp_path: Path) -> Path:
    """A good model's folder; what lies beside it is outside."""
    with reading() as session:
        source = get_storage().path(seeds.seed_row(session, "seed").artifact_id)
    shutil.copytree(source, tmp_path / "theirs/model")
    return tmp_path / "theirs/model"


class Evil:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def config(**changes: Any) -> Make:
    """Other values in config.json."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def content(name: str, data: bytes | str) -> Make:
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode()) and None


def index(*names: Any, **weight_map: Any) -> Make:
    """An index whose tensors lie in these files, in turn, in place of the one file."""

    def change(folder: Path) -> None:
        tensors = sorted(load_file(folder / WEIGHTS))
        (folder / WEIGHTS).unlink()
        shown = weight_map or {"weight_map": {name: names[i % len(names)] for i, name in enumerate(tensors)}}
        (folder / INDEX).write_text(json.dumps(shown))

    return change


def pickled(place: str, weights: Any = None) -> Make:
    """A torch pickle of the right weights, or of something that runs, as the file that the index names."""

    def change(folder: Path) -> None:
        state = {name: torch.from_numpy(array) for name, array in load_file(folder / WEIGHTS).items()}
        torch.save(weights or state, folder / place)
        index(place)(folder)

    return change


def linked(name: str) -> Make:
    """The file itself outside, and a link to it."""

    def change(folder: Path) -> None:
        (folder / name).rename(folder.parent / f"outside-{name}")
        (folder / name).symlink_to(f"../outside-{name}")

    return change


def tensors(change: Callable[[dict[str, Any]], Any]) -> Make:
    def rewrite(folder: Path) -> None:
        state = load_file(folder / WEIGHTS)
        change(state)
        save_file(state, folder / WEIGHTS)

    return rewrite


def all_of(*changes: Make) -> Make:
    return lambda folder: [change(folder) for change in changes] and None


def shards_twice(folder: Path) -> None:
    shutil.copy(folder / WEIGHTS, folder / "a.safetensors")
    shutil.copy(folder / WEIGHTS, folder / "b.safetensors")
    index("a.safetensors", "b.safetensors")(folder)


def older_tokenizer(**settings: Any) -> Make:
    """A vocabulary outside, which the tokenizer's settings name in place of the folder's own."""

    def change(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder.parent / "vocab.json").write_text(json.dumps({"<s>": 0, "a": 1}))
        (folder.parent / "merges.txt").write_text("#version: 0.2\n")
        shown = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", **settings}
        (folder / "tokenizer_config.json").write_text(json.dumps(shown))

    return change


def tokenizer(**parts: Any) -> Make:
    """Other parts in tokenizer.json."""

    def change(folder: Path) -> None:
        file = folder / "tokenizer.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **parts}))

    return change


def template(*pieces: dict[str, Any], **special: list[int]) -> Make:
    """Puts tokens before a text, with these ids."""
    tokens = {name: {"id": name, "ids": ids, "tokens": [name] * len(ids)} for name, ids in special.items()}
    pair = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return tokenizer(
        post_processor={"type": "TemplateProcessing", "single": pieces, "pair": pair, "special_tokens": tokens}
    )


def sparse(folder: Path) -> None:
    """The weights, and one of a terabyte that takes no space on the disk."""
    content = (folder / WEIGHTS).read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + header_length]), content[8 + header_length :]
    size = 1 << 40
    header["x"] = {"dtype": "I8", "shape": [size], "data_offsets": [len(data), len(data) + size]}
    written = json.dumps(header).encode()
    with (folder / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", len(written)) + written + data)
        file.truncate(file.tell() + size)


def parts_of(name: str, **settings: Any) -> Make:
    """An older tokenizer with a vocabulary of its own, and these values in one of its files."""
    vocabulary = content("vocab.json", json.dumps({"<s>": 0, "a": 1}))
    return all_of(
        older_tokenizer(), vocabulary, content("merges.txt", "#version: 0.2\n"), content(name, json.dumps(settings))
    )


TEXT, BEGIN = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}
LARGE_HEADER = struct.pack("<Q", 40 << 20) + b"{" + b" " * (40 << 20)
TENSOR = "model.layers.0.mlp.up_proj.weight"
OUTSIDE, NOT_HERE = "leads out of its folder", r"not a \.safetensors file of this folder"
HOSTILE: dict[str, tuple[Make, str]] = {
    "an index names a pickle": (pickled("weights.txt"), NOT_HERE),
    "an index names a pickle that runs": (pickled("weights.txt", Evil()), NOT_HERE),
    "an index names a file outside": (pickled("../evil.bin"), NOT_HERE),
    "an index names safetensors outside": (index("../model.safetensors"), NOT_HERE),
    "an index names a path": (index("/etc/model.safetensors"), NOT_HERE),
    "an index names a path of Windows": (index("..\\model.safetensors"), NOT_HERE),
    "an index names a hidden file": (index(".safetensors"), NOT_HERE),
    "an index names no text": (index(3), NOT_HERE),
    "an index names a file that is missing": (index("model-00001-of-00002.safetensors"), "is missing"),
    "an index names a pickle called safetensors": (
        pickled("evil.safetensors", Evil()),
        "not a complete safetensors file",
    ),
    "an index without a map": (index(weight_map=[]), "does not say which file holds which weight"),
    "an index that is a list": (all_of(index("a"), content(INDEX, "[]")), "is not a JSON object"),
    "two files hold the same tensor": (shards_twice, "Several files in .* hold the tensor"),
    "a pickle called model.safetensors": (content(WEIGHTS, pickle.dumps(Evil())), "not a complete safetensors file"),
    "weights cut short": (content(WEIGHTS, b"\x00\x01"), "not a complete safetensors file"),
    "a header that is too large": (content(WEIGHTS, LARGE_HEADER), "too large"),
    "weights behind a link": (linked(WEIGHTS), OUTSIDE),
    "a configuration behind a link": (linked("config.json"), OUTSIDE),
    "a tokenizer behind a link": (linked("tokenizer.json"), OUTSIDE),
    "a pickle alone": (lambda one: (one / WEIGHTS).rename(one / "pytorch_model.bin") and None, "a pickle"),
    "a folder in place of a file": (lambda one: (one / WEIGHTS).unlink() or (one / WEIGHTS).mkdir(), "is not a file"),
    "a weight is missing": (tensors(lambda state: state.pop(TENSOR)), "asks for .* parameters, but the weights hold"),
    "a weight under another name": (tensors(lambda state: state.update(x=state.pop(TENSOR))), "is missing"),
    "a weight of another shape": (
        tensors(lambda state: state.update({TENSOR: np.ascontiguousarray(state[TENSOR].T)})),
        "is of another shape",
    ),
    "weights that are not numbers": (tensors(lambda state: state[TENSOR].fill(np.nan)), "infinite numbers or NaN"),
    "weights of whole numbers": (
        tensors(lambda state: state.update({TENSOR: state[TENSOR].astype(np.int8)})),
        f"“{TENSOR}” holds whole numbers",
    ),
    "a million layers": (config(num_hidden_layers=1_000_000), "must be a whole number from 1 to 1,000"),
    "more layers than the weights hold": (config(num_hidden_layers=900), "asks for 900 layers, but the weights hold 2"),
    "a width beyond the weights": (config(hidden_size=1 << 20), "parameters, but the weights hold"),
    "heads beyond the weights": (config(head_dim=1 << 14), "parameters, but the weights hold"),
    "a vocabulary beyond the weights": (config(vocab_size=1 << 22), "parameters, but the weights hold"),
    "a width without end": (config(hidden_size=10**30), "“hidden_size” .* must be a whole number"),
    "a context without end": (config(max_position_embeddings=10**12), "must be a whole number"),
    "experts without end": (config(model_type="mixtral", num_local_experts=10**9), "must be a whole number"),
    "a negative number of heads": (config(num_attention_heads=-2), "must be a whole number"),
    "no heads": (config(num_attention_heads=0), "must be a whole number"),
    "a width in words": (config(hidden_size="wide"), "must be a whole number"),
    "half a layer": (config(num_hidden_layers=1.5), "must be a whole number"),
    "layers that are true": (config(num_hidden_layers=True), "must be a whole number"),
    "a list of widths": (config(intermediate_size=[64]), "must be a whole number"),
    "a norm that is not a number": (config(rms_norm_eps=float("nan")), "no usable value for “rms_norm_eps”"),
    "a dropout of more than all": (config(attention_dropout=2), "no usable value for “attention_dropout”"),
    "an activation that nobody knows": (config(hidden_act="evil"), "cannot be loaded"),
    "an activation that is a list": (config(hidden_act=["silu"]), "does not describe a model"),
    "a rotary embedding of any size": (
        config(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1e12}),
        "rotary",
    ),
    "a rotary embedding nobody knows": (config(rope_parameters={"rope_type": "evil"}), "cannot be loaded|describe"),
    "keys that do not divide heads": (config(num_key_value_heads=1, head_dim=32), "parameters|shape|cannot be used"),
    "a family that is a list": (config(model_type=["llama"]), "is not supported"),
    "a family of another kind": (
        config(model_type="llava", text_config={"num_hidden_layers": 10**9}),
        "is not supported",
    ),
    "code of its own": (config(auto_map={"AutoModelForCausalLM": "evil.Evil"}), "never run"),
    "quantized weights": (config(quantization_config={"quant_method": "awq"}), "are quantized"),
    "other weights": (config(transformers_weights="../evil.safetensors"), "names ../evil.safetensors as its weights"),
    "an adapter of another model": (
        content("adapter_config.json", '{"base_model_name_or_path": "../other", "peft_type": "LORA"}'),
        "adapter",
    ),
    "a configuration that is deep": (content("config.json", '{"a":' * 100_000), "nested too deeply"),
    "a configuration that is large": (content("config.json", '{"a": "' + "a" * (2 << 20) + '"}'), "larger than 1 MB"),
    "a key twice": (content("config.json", '{"model_type": "gpt2", "model_type": "llama"}'), "key “model_type” twice"),
    "no UTF-8": (content("config.json", b'{"model_type": "\xff"}'), "is not UTF-8 text"),
    "no JSON": (content("config.json", "evil"), "is not valid JSON"),
    "no object": (content("config.json", "[1]"), "is not a JSON object"),
    "an index that is deep": (all_of(index("a"), content(INDEX, "[" * 100_000)), "nested too deeply"),
    "generation settings that are deep": (content("generation_config.json", "[" * 100_000), "nested too deeply"),
    "a tokenizer that is deep": (content("tokenizer.json", '{"model":' * 100_000), "cannot be read"),
    "tokenizer settings that are deep": (content("tokenizer_config.json", "[" * 100_000), "nested too deeply"),
    "half a character as a token": (
        all_of(content("tokenizer_config.json", '{"bos_token": "\\ud800"}'), config(bos_token_id=-1, eos_token_id=1.5)),
        "BOS or EOS",
    ),
    "a vocabulary outside": (
        older_tokenizer(vocab_file="../vocab.json", merges_file="../merges.txt"),
        "has no tokenizer|BOS",
    ),
    "a tokenizer with code of its own": (
        older_tokenizer(auto_map={"AutoTokenizer": ["evil.Evil", None]}),
        "code of its own",
    ),
    "a tokenizer of another family": (parts_of("tokenizer_config.json", tokenizer_class="T5Tokenizer"), "must be one"),
    "an added token without an id": (parts_of("added_tokens.json", evil="../vocab.json"), "does not map tokens to ids"),
    "added tokens that are none": (
        parts_of("tokenizer_config.json", added_tokens_decoder={"1": {"content": "a", "evil": 1}}),
        "does not map ids to tokens",
    ),
    "a terabyte without space on the disk": (sparse, r"takes 4,096 GB, but this machine has [\d,]+ GB of memory"),
    "a template of a token that it does not define": (template(BEGIN, TEXT), "cannot read a text"),
    "a template of a second text": (template({"Sequence": {"id": "B", "type_id": 0}}), "cannot read a text"),
    "a template of an id outside the vocabulary": (template(BEGIN, TEXT, x=[999_999]), "puts the id 999999 before"),
    "a template of many ids": (template(*[BEGIN] * 17, TEXT, x=[0]), "puts 17 tokens before a text; at most 16"),
    "pieces of no length": (tokenizer(pre_tokenizer={"type": "FixedLength", "length": 0}), "cannot read a text"),
    "a pattern that takes forever": (
        tokenizer(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "(z+)+$"}, "behavior": "Isolated", "invert": False}
        ),
        "which may take hours",
    ),
    "a decoder that strips what is not there": (
        tokenizer(decoder={"type": "Strip", "content": "a", "start": 9, "stop": 9}),
        "cannot write a text",
    ),
    "an unknown token that is absent": (
        tokenizer(model={"type": "BPE", "vocab": {"<s>": 0}, "merges": [], "unk_token": "<unk>"}),
        "cannot read a text",
    ),
    "pieces of words without an unknown token": (
        tokenizer(
            model={
                "type": "WordPiece",
                "vocab": {"<s>": 0},
                "unk_token": "<unk>",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 9,
            }
        ),
        "cannot read a text",
    ),
}


@pytest.fixture
def watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, while what is opened is written down and torch reads no pickle."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle reached torch.load")

    monkeypatch.setattr(torch, "load", never)
    monkeypatch.chdir(folder.parent)  # where a relative path would lead
    WATCHED.clear()
    return folder


def take(do: Do, folder: Path) -> JobCard:
    global is_watching
    is_watching = True
    try:
        return do({"kind": "make-seed", "name": "taken", "source": "folder", "location": str(folder)})
    finally:
        is_watching = False


def left_behind() -> tuple[list[str], list[str]]:
    with reading() as session:
        return [seed.name for seed in seeds.list_seeds(session)], sorted(os.listdir(get_storage().folder))


def opened(folder: Path) -> set[str]:
    """The files directly in a folder that were opened."""
    paths = [Path(os.path.realpath(path)) for event, path in WATCHED if event == "open"]
    return {path.name for path in paths if path.parent == folder}


@pytest.mark.parametrize(("change", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_seed_is_refused_with_a_sentence(trained: Do, watched: Path, change: Make, words: str) -> None:
    change(watched)
    before, started = left_behind(), time.monotonic()
    card = take(trained, watched)
    assert time.monotonic() - started < 20  # minutes where a million layers are built
    assert card.state == "failed"
    assert card.next_step
    assert re.search(words, card.error or "")
    for never in ("unexpected error", "weights_only", "will likely succeed"):
        assert never not in f"{card.error} {card.next_step}"
    assert left_behind() == before
    assert not opened(watched.parent), "a file outside the folder was opened"
    assert "pickle.find_class" not in {event for event, _ in WATCHED}
    assert not (watched.parent / "ran").exists()


def test_a_good_seed_is_taken_and_opens_no_more_than_it_needs(trained: Do, watched: Path) -> None:
    (watched / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    (watched / "chat_template.jinja").write_text("{{ evil }}")  # kept with the tokenizer, and never run
    assert take(trained, watched).state == "done"
    kept_files = {"chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert opened(watched) == {"config.json", WEIGHTS, "manifest.json", *kept_files}
    with reading() as session:
        kept = get_storage().path(seeds.seed_row(session, "taken").artifact_id)
    assert all((kept / name).read_bytes() == (watched / name).read_bytes() for name in kept_files)
    assert "pickle.find_class" not in {event for event, _ in WATCHED}


def test_the_command_says_why_a_seed_is_refused(trained: Do, watched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pickled("weights.txt", Evil())(watched)
    assert main(["seed", "add", "taken", str(watched), "--here"]) == PROBLEM
    assert "names weights.txt, which is not a .safetensors file" in " ".join(capsys.readouterr().err.split())
