"""A GGUF file becomes the model that transformers reads from it, with its tokenizer, template and stops."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.errors import DamagedFileError, ModelError
from engine.models import gguf_model
from engine.models.gguf_header import read_header
from engine.models.gguf_model import ORIGIN, GgufOrigin, convert_gguf, merge_longest_runs_first, require_space
from engine.models.imported_model import import_model
from engine.text.chat.template import load_chat_template
from engine.text.tokenizer import load_tokenizer

sys.path.insert(0, str(Path(__file__).parent))  # for gguf_files

from gguf_files import TEMPLATE, TOKENS, write_gguf

pytestmark = pytest.mark.filterwarnings("ignore")  # of gguf and transformers, on zero blocks


def convert(path: Path) -> tuple[Path, GgufOrigin, str]:
    folder = path.parent / "out"
    folder.mkdir()
    origin, changes = convert_gguf(read_header(path), folder)
    return folder, origin, " ".join(changes)


@pytest.mark.parametrize("quantization", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_the_weights_are_those_of_transformers_to_the_bit(tmp_path: Path, quantization: str) -> None:
    folder, origin, changes = convert(write_gguf(tmp_path / "m.gguf", quantization))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    ours = import_model(folder).lm
    for name, weight in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weight), name
    ids = torch.arange(40)[None]
    assert torch.equal(ours(input_ids=ids).logits, theirs(input_ids=ids).logits)
    assert (origin.quantization, origin.precision) == (quantization, "float32")
    assert f"Converted from GGUF ({quantization}: " in changes


@pytest.mark.parametrize(("quantization", "dtype"), [("BF16", torch.bfloat16), ("F16", torch.float16)])
def test_a_file_of_sixteen_bits_stays_so_where_they_hold_every_number(
    tmp_path: Path, quantization: str, dtype: torch.dtype
) -> None:
    folder, origin, _ = convert(write_gguf(tmp_path / "m.gguf", quantization, round_to=dtype))
    stored = {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()}
    assert stored == {getattr(torch, origin.precision)} == {dtype}


def test_in_bf16_each_weight_is_rounded_and_the_sentence_says_so(tmp_path: Path) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf", "Q8_0"))
    (tmp_path / "half").mkdir()
    origin, changes = convert_gguf(header, tmp_path / "half", in_bf16=True)
    exact, _, _ = convert(header.path)
    halves, floats = (load_file(folder / "model.safetensors") for folder in (tmp_path / "half", exact))
    assert origin.precision == "bfloat16"
    assert "to bfloat16, rounded as asked." in changes[0]
    assert all(torch.equal(halves[name], floats[name].bfloat16()) for name in floats)


def test_a_damaged_origin_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    assert GgufOrigin.read(tmp_path) is None
    for content, cause in (('{"file": "m.gguf"}', "it lacks 'quantization'"), ("[]", "not a JSON object"), ("{", "")):
        (tmp_path / ORIGIN).write_text(content)
        with pytest.raises(DamagedFileError, match=rf"origin\.json cannot be read \(.*{cause}") as caught:
            GgufOrigin.read(tmp_path)
        assert "import the model again" in caught.value.next_step


def test_the_tokenizer_has_the_ids_of_transformers_and_each_digit_is_apart_as_smollm_has_it(tmp_path: Path) -> None:
    folder, _, changes = convert(write_gguf(tmp_path / "m.gguf"))
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    sentence = "the other: näher 😀\n"
    assert ours.encode(sentence) == theirs(sentence).input_ids
    assert ours.decode(ours.encode(sentence)) == sentence
    assert [ours.written(id) for id in ours.encode("12")] == ["1", "2"]
    assert "splits text" not in changes


def test_runs_of_blanks_are_cut_into_the_longest_tokens_as_sentencepiece_does(tmp_path: Path) -> None:
    runs = [blank * size for size in range(1, 6) for blank in "▁\t"]
    vocabulary = {token: id for id, token in enumerate([*runs, "a", "▁a"])}
    merges = [(run[:cut], run[cut:]) for run in [*runs, "▁a"] for cut in range(1, len(run))]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    merge_longest_runs_first(tmp_path / "tokenizer.json")
    ordered = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ordered.encode("▁" * 8 + "a" + "\t" * 9).tokens == ["▁" * 5, "▁" * 3, "a", "\t" * 5, "\t" * 4]
    assert tokenizer.encode("▁" * 8).tokens == ["▁" * 4, "▁" * 4]  # with the shortest first


def test_an_unknown_rule_of_splitting_is_reported(tmp_path: Path) -> None:
    _, _, changes = convert(write_gguf(tmp_path / "m.gguf", split="something-new"))
    assert "splits text as “something-new” does" in changes


def test_template_and_stops_come_from_the_file(tmp_path: Path) -> None:
    folder, _, changes = convert(write_gguf(tmp_path / "m.gguf", change=lambda writer: writer.add_eot_token_id(0)))
    template = load_chat_template(folder, "this model")
    assert template is not None
    assert template.source == TEMPLATE
    assert load_tokenizer(folder).eos_ids == (2, 0)
    assert "chat template" not in changes


def test_a_file_without_a_template_gives_a_model_without_one(tmp_path: Path) -> None:
    folder, *_ = convert(write_gguf(tmp_path / "m.gguf", template=""))
    assert load_chat_template(folder, "this model") is None


def test_an_architecture_that_transformers_does_not_read_is_named_and_safetensors_are_proposed(tmp_path: Path) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf", architecture="rwkv7"))
    with pytest.raises(ModelError, match=r"architecture “rwkv7”, which .* Give the model in safetensors format"):
        convert_gguf(header, tmp_path)


def test_a_type_that_cannot_be_dequantized_is_named(tmp_path: Path) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.extra", np.zeros((2, 32), np.int32))

    with pytest.raises(ModelError, match="holds tensors in I32, which the library gguf does not dequantize"):
        convert_gguf(read_header(write_gguf(tmp_path / "m.gguf", change=add)), tmp_path)


def test_a_special_token_outside_the_vocabulary_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", change=lambda writer: writer.add_pad_token_id(99_999))
    with pytest.raises(ModelError, match=r"has 262 tokens, but tokenizer\.ggml\.padding_token_id is 99,999\."):
        convert(path)


def test_a_file_whose_tensors_are_missing_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", change=lambda writer: writer.tensors[0].pop("blk.1.ffn_up.weight"))
    with pytest.raises(ModelError, match=r"“model\.layers\.1\.mlp\.up_proj\.weight” is missing"):
        convert(path)


def test_a_tensor_of_scaled_positions_that_transformers_leaves_out_is_reported(tmp_path: Path) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("rope_freqs.weight", np.ones(16, np.float32))

    assert "does not read them from GGUF: rope_freqs.weight." in convert(write_gguf(tmp_path / "m.gguf", change=add))[2]


def test_what_the_model_takes_is_compared_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf"))
    weights, file = 4 * header.num_parameters, header.path.stat().st_size
    (tmp_path / "aside").mkdir()
    assert require_space(header, tmp_path / "aside").disk == 2 * weights
    assert require_space(header, tmp_path / "aside", in_bf16=True).disk == weights
    assert require_space(header, tmp_path).disk == 2 * weights + file  # joined of parts, in the same folder
    monkeypatch.setattr(gguf_model, "most_main_memory", lambda: 1000)
    with pytest.raises(ModelError, match=r"its import takes about .* of memory"):
        require_space(header, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(ModelError, match=r"can have 0\.0 MB of disk"):
        require_space(header, tmp_path / "aside")


def test_files_next_to_it_are_not_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    for name in ("adapter_config.json", "config.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_text(json.dumps({"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}))
    folder, _, _ = convert(path)
    assert json.loads((folder / "config.json").read_text())["vocab_size"] == len(TOKENS)
