"""Model folders of all families load as transformers would load them; what leads out of a folder does not."""

from __future__ import annotations

import inspect
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import models
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from engine.config import ModelConfig
from engine.errors import EngineError, ModelError, TokenizerError
from engine.models import families, model_files
from engine.models.families import fresh_model, load_model
from engine.models.imported_model import download_model, import_model
from engine.text.tokenizer import load_tokenizer
from tests.engine.models.tiny_families import COMMON, FAMILIES, is_size, tiny_model

SHAPE = ModelConfig(num_layers=2, width=32, num_heads=4, ffn_width=64, max_positions=64)
IDS = torch.arange(40)[None]
SHARD = "model-00001-of-00001.safetensors"


def write_model(folder: Path, family: str = "llama") -> Path:
    """A small model of the family in bfloat16, in several files."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 64, "num_hidden_layers": 2}
    inner = {"opt": "ffn_dim", "gpt2": "n_inner"}.get(family, "intermediate_size")
    groups = {"num_key_value_heads": 2} if family in ("mistral", "mixtral", "qwen2") else {}
    config = CONFIG_MAPPING[family](vocab_size=300, **{inner: 64}, **sizes, **groups)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(folder, max_shard_size="20KB")
    return folder


@pytest.mark.parametrize("family", COMMON)
def test_every_family_loads_as_transformers_loads_it(family: str, tmp_path: Path) -> None:
    write_model(tmp_path, family)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours, theirs = load_model(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert torch.equal(ours(input_ids=IDS).logits, theirs(input_ids=IDS).logits)
    assert torch.equal(import_model(tmp_path).lm(input_ids=IDS).logits, theirs(input_ids=IDS).logits)
    assert ours.config.to_json_string() == theirs.config.to_json_string()
    assert not ours.training


def test_names_without_the_model_in_front_are_understood(tmp_path: Path) -> None:
    """GPT-2 is published so."""
    lm = fresh_model(replace(SHAPE, family="gpt2"), 300)
    lm.config.save_pretrained(tmp_path)
    save_file(lm.transformer.state_dict(), tmp_path / "model.safetensors")
    assert torch.equal(load_model(tmp_path)(input_ids=IDS).logits, lm.eval()(input_ids=IDS).logits)


def test_the_ending_tokens_of_generation_are_kept(tmp_path: Path) -> None:
    write_model(tmp_path)
    shown = {"eos_token_id": [2, 5], "pad_token_id": 300, "bos_token_id": "<s>", "temperature": 0.3, "do_sample": False}
    (tmp_path / "generation_config.json").write_text(json.dumps(shown))
    lm = load_model(tmp_path)
    assert (lm.generation_config.eos_token_id, lm.generation_config.pad_token_id) == ([2, 5], None)
    lm.save_pretrained(tmp_path / "again")


def snapshot(cache: Path, folder: Path) -> Path:
    """The folder's files as the Hugging Face cache keeps them: links to blobs."""
    place, blobs = cache / "models--one--two/snapshots/abc", cache / "models--one--two/blobs"
    place.mkdir(parents=True, exist_ok=True)
    blobs.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.rename(blobs / f"hash-of-{file.name}")
        (place / file.name).symlink_to(f"../../blobs/hash-of-{file.name}")
    return place


def test_a_snapshot_of_the_hubs_cache_loads_through_its_links(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "cache", write_model(tmp_path / "model"))
    assert load_model(folder).config.vocab_size == 300


def test_a_snapshots_link_to_anything_but_its_blobs_is_refused(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "cache", write_model(tmp_path / "model"))
    (folder.parents[1] / "blobs/hash-of-config.json").rename(tmp_path / "config.json")
    (folder.parents[1] / "blobs/hash-of-config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(ModelError, match="leads out of its folder"):
        load_model(folder)


class Hub:
    """`snapshot_download` of a folder on this machine: gives what the patterns allow, and writes it down."""

    def __init__(self, repository: Path, cache: Path) -> None:
        self.repository, self.cache, self.given = repository, cache, list[set[str]]()

    def __call__(self, _name: str, *, allow_patterns: list[str], revision: str | None = None) -> str:
        from huggingface_hub.utils import filter_repo_objects

        files = [str(file.relative_to(self.repository)) for file in self.repository.rglob("*") if file.is_file()]
        self.given.append(set(filter_repo_objects(files, allow_patterns=allow_patterns)))
        passing = self.cache / "passing"
        passing.mkdir(parents=True)
        for file in self.given[-1]:
            shutil.copy(self.repository / file, passing / Path(file).name)
        place = snapshot(self.cache, passing)
        passing.rmdir()
        assert revision in (None, place.name)
        return str(place)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A repository of two shards, a tokenizer's settings, and much that nobody reads."""
    write_model(tmp_path / "repository")
    for name in (
        "weights.txt",
        "pytorch_model.bin",
        "extra.json",
        "evil.py",
        "adapter_model.safetensors",
        "onnx/model.safetensors",
    ):
        (tmp_path / "repository" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "repository" / name).write_text("evil")
    (tmp_path / "repository/tokenizer_config.json").write_text("{}")
    result = Hub(tmp_path / "repository", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.snapshot_download", result)
    return result


def test_a_download_takes_what_is_opened_and_no_more(hub: Hub) -> None:
    assert load_model(download_model("one/two")).config.vocab_size == 300
    small = {"config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer_config.json"}
    shards = {file.name for file in hub.repository.glob("model-*.safetensors")}
    assert hub.given == [small, shards]


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", '{"model_type": "llama", "num_hidden_layers": 1000000}', "whole number from 1 to 1,000"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "weights.txt"}}', "names weights.txt"),
    ],
)
def test_no_weights_of_a_hostile_repository_are_downloaded(hub: Hub, file: str, content: str, words: str) -> None:
    (hub.repository / file).write_text(content)
    with pytest.raises(ModelError, match=words):
        download_model("one/two")
    assert len(hub.given) == 1


def test_missing_weights_are_refused_and_not_made_up(tmp_path: Path) -> None:
    lm = fresh_model(SHAPE, 300)
    lm.config.tie_word_embeddings = False
    lm.config.save_pretrained(tmp_path)
    state = {name: tensor for name, tensor in lm.state_dict().items() if name != "lm_head.weight"}
    save_file({**state, "another": torch.zeros(300, 32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"“lm_head\.weight” is missing"):
        load_model(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path)

    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError, match=r"config\.json cannot be read: Permission denied\."):
        load_model(tmp_path)


@pytest.mark.parametrize("field", ["width", "num_heads", "ffn_width", "max_positions"])
def test_a_fresh_model_of_any_size_is_refused(field: str) -> None:
    with pytest.raises(EngineError, match=f"{field} must be at most"):
        replace(SHAPE, **{field: 1 << 30})


def test_a_fresh_model_larger_than_the_memory_is_refused_before_it_is_built() -> None:
    shape = ModelConfig(num_layers=200, width=65_536, num_heads=64, ffn_width=262_144)
    with pytest.raises(ModelError, match=r"takes [\d,]+ GB, but this machine has [\d,]+ GB of memory"):
        fresh_model(shape, 300)


@pytest.mark.parametrize(
    "config", [{"bos_token": "\ud800"}, {"bos_token_id": -1}, {"bos_token_id": 1 << 70}, {"eos_token_id": True}]
)
def test_a_token_that_cannot_be_is_no_boundary(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(TokenizerError, match="no BOS or EOS token"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_an_older_tokenizer_reads_no_file_that_its_settings_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for place, vocabulary in ((folder, {"<s>": 0, "a": 1}), (tmp_path, {"<s>": 0, "b": 1})):
        (place / "vocab.json").write_text(json.dumps(vocabulary))
        (place / "merges.txt").write_text("#version: 0.2\n")
    tokenizers.Tokenizer(models.BPE({"<s>": 0, "b": 1}, [])).save(str(tmp_path / "tokenizer.json"))
    files = {"vocab_file": "vocab.json", "merges_file": "merges.txt", "tokenizer_file": "tokenizer.json"}
    outside = {key: str(tmp_path / file) for key, file in files.items()}
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / name).write_text(json.dumps({**settings, **outside}))
    assert load_tokenizer(folder).decode([1]) == "a"


def test_an_older_tokenizer_keeps_its_special_and_added_tokens(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"<s>": 0, "a": 1}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    begin = {"content": "<s>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": True}
    special = {"bos_token": begin, "pad_token": None, "extra_special_tokens": ["<x>"]}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<x>": 2, "<y>": 3}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2TokenizerFast"}))
    tokenizer = load_tokenizer(tmp_path)
    assert [tokenizer.written(id) for id in (tokenizer.bos_id, 2, 3)] == ["<s>", "<x>", "<y>"]
    assert {0, 2} <= tokenizer.special_ids
    assert 3 not in tokenizer.special_ids


def test_a_model_larger_than_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path)
    monkeypatch.setattr(families, "memory_bytes", lambda: 50_000)
    with pytest.raises(ModelError, match="this machine has 0 GB of memory"):
        load_model(tmp_path)


def test_a_number_that_no_trial_reaches_is_seen(tmp_path: Path) -> None:
    lm = fresh_model(replace(SHAPE, family="gpt2"), 300)
    with torch.no_grad():
        lm.transformer.wpe.weight[40, 3] = float("nan")
    lm.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"“transformer\.wpe\.weight” .* holds 1 infinite number or NaN"):
        import_model(tmp_path)


@pytest.mark.parametrize(("field", "smallest"), [("sliding_window", 0), ("vocab_size", 1)])
def test_a_size_below_the_smallest_is_refused_with_the_smallest(field: str, smallest: int, tmp_path: Path) -> None:
    write_model(tmp_path, "mistral")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, field: -1}))
    with pytest.raises(ModelError, match=f"“{field}” .* from {smallest} to"):
        load_model(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_size_of_any_family_is_without_a_bound(family: str, tmp_path: Path) -> None:
    values = CONFIG_MAPPING[family]().to_dict()
    sizes = {name for name in values if is_size(name, values[name])} & {
        *inspect.get_annotations(CONFIG_MAPPING[family])
    }
    for name in sizes:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family, name: 1 << 40}))
        with pytest.raises(ModelError, match=rf"“{name}” in .* must be a whole number"):
            model_files.read_config(tmp_path)


def test_a_list_of_layers_to_repeat_has_a_bound(tmp_path: Path) -> None:
    repeated = {"model_type": "gpt_neo", "attention_types": [[["global", "local"], 1 << 40]]}
    (tmp_path / "config.json").write_text(json.dumps(repeated))
    with pytest.raises(ModelError, match=r"“attention_types” .* at most 1,000"):
        model_files.read_config(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_reads_ahead_is_refused(tmp_path: Path) -> None:
    lm = tiny_model("bert")
    lm.save_pretrained(tmp_path)
    import_model(tmp_path)
    lm.config.is_decoder = False
    lm.config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="reads ahead"):
        import_model(tmp_path)


def test_two_loads_at_once_leave_tied_weights_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreTrainedModel, "tie_weights", tie_weights := PreTrainedModel.tie_weights)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
    tensors = {name: torch.zeros(one.shape) for name, one in families.empty_model(config).named_parameters()}
    is_built = {"first": threading.Event(), "second": threading.Event()}

    class Slow(GPT2LMHeadModel):
        """The first of two models takes until the second is built as well, or a second; the second longer."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            name = threading.current_thread().name
            is_built[name].set()
            is_built["second"].wait(1.0)
            if name == "second":
                threads[0].join(5.0)

    monkeypatch.setattr(families, "_model_class", lambda _: Slow)
    arguments = (Path("x"), config, tensors, torch.float32)
    threads = [threading.Thread(target=families.load_weights, args=arguments, name=name) for name in is_built]
    threads[0].start()
    is_built["first"].wait(60.0)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert PreTrainedModel.tie_weights is tie_weights
