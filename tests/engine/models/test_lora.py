"""Adapters: begun by peft, carried by rows, merged into maps; nothing of the seed ever moves."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.config import LoraConfig
from engine.errors import ModelError
from engine.files import ArtifactRef, new_folder, verify_folder, write_manifest
from engine.loading.loaded_base import ModelCache
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.lora.peft_files import save_adapter
from engine.methods.lora.peft_import import read_adapter
from engine.methods.multi_expert_files import load_multi_expert, new_placement, save_expert
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.decoders import decoder
from tests.engine.models.tiny_families import COMMON

FAMILIES = sorted(set(COMMON) - {"mixtral"})
IDS = torch.randint(0, 300, (2, 10), generator=torch.Generator().manual_seed(1))


def disturbed(model: MultiExpertModel) -> MultiExpertModel:
    """The model with experts that differ plainly."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for key in model.keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def attributes_of(lm: nn.Module) -> dict[str, set[str]]:
    """The names of what each module holds."""
    return {name: {*vars(module)} for name, module in lm.named_modules()}


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_an_adapted_model_begins_as_its_seed_and_leaves_it_as_it_was(family: str) -> None:
    lm = decoder(family)
    before, state, attributes = lm(input_ids=IDS).logits, copy.deepcopy(lm.state_dict()), attributes_of(lm)
    adapter = fresh_adapter(lm, LoraConfig(rank=3))
    assert attributes_of(lm) == attributes
    assert all(parameter.requires_grad for parameter in lm.parameters())
    assert all(torch.equal(tensor, state[name]) for name, tensor in lm.state_dict().items())
    model = MultiExpertModel(lm, [], new_placement("adapter")).eval()
    model.add_expert("a", state=adapter)
    assert torch.equal(model(IDS, Rows.all_to("a", 2)), before)
    assert not torch.equal(disturbed(model)(IDS, Rows.all_to("a", 2)), before)


@pytest.mark.parametrize("targets", ["all", "attention", "ffn"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_rows_merged_maps_and_peft_answer_alike(family: str, targets: Any) -> None:
    import peft

    lm, config = decoder(family), LoraConfig(rank=3, alpha=5.0, targets=targets)
    model = disturbed(new_placement("adapter").build(copy.deepcopy(lm), ["a", "b"], config))
    by_rows = model(IDS, Rows(("b", "a"), (1, 1)))
    state = model.expert_state("b")
    places = [name.removesuffix(".down") for name in state if name.endswith(".down")]
    job_spec = peft.LoraConfig(r=3, lora_alpha=5, target_modules=places, fan_in_fan_out=family == "gpt2")
    peft.inject_adapter_in_model(job_spec, lm, adapter_name="b")
    for place in places:
        layer = lm.get_submodule(place)
        layer.lora_A["b"].weight.copy_(state[f"{place}.down"])
        layer.lora_B["b"].weight.copy_(state[f"{place}.up"])
    merged = model.full_model("b")
    torch.testing.assert_close(by_rows[:1], lm(input_ids=IDS[:1]).logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(by_rows[:1], merged(input_ids=IDS[:1]).logits, atol=1e-5, rtol=1e-4)
    assert set(merged.state_dict()) == set(decoder(family).state_dict())


def test_the_same_seed_gives_the_same_adapter() -> None:
    one, two, other = (fresh_adapter(decoder("llama"), LoraConfig(rank=3), seed) for seed in (5, 5, 6))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def kept(
    tmp_path: Path, model: MultiExpertModel, lm: Any, name: str = "seed"
) -> tuple[ArtifactRef, dict[str, ArtifactRef]]:
    """A seed's folder, and the adapters on it in theirs."""
    seed = tmp_path / name
    lm.save_pretrained(seed)
    write_manifest(seed)
    sha256 = verify_folder(seed)
    for key in model.keys:
        with new_folder(tmp_path / name / ".." / key) as folder:
            save_expert(model, key, folder, base_sha256=sha256, tokenizer_sha256="t")
    return ArtifactRef(seed, sha256), {
        key: ArtifactRef(tmp_path / key, verify_folder(tmp_path / key)) for key in model.keys
    }


@torch.no_grad()
def test_only_the_adapter_is_stored_and_it_comes_back_on_its_seed_to_the_last_bit(tmp_path: Path) -> None:
    lm = decoder("gpt2")
    model = disturbed(new_placement("adapter").build(copy.deepcopy(lm), ["a", "b"], LoraConfig(rank=2)))
    seed, experts = kept(tmp_path, model, lm)
    rows = Rows.one_each(["a", "b"])
    assert torch.equal(load_multi_expert(seed, experts)(IDS, rows), model(IDS, rows))
    cache = ModelCache(1 << 30)
    cache.get(seed, {"a": experts["a"]})
    assert torch.equal(cache.get(seed, experts).view(["a", "b"])(IDS, rows), model(IDS, rows))
    stored = sum(file.stat().st_size for file in experts["a"].folder.glob("*.safetensors"))
    assert stored < 0.3 * sum(file.stat().st_size for file in seed.folder.glob("*.safetensors"))


@torch.no_grad()
def test_adapters_of_other_ranks_and_maps_mix_on_one_seed(tmp_path: Path) -> None:
    lm = decoder("llama")
    thin = disturbed(new_placement("adapter").build(copy.deepcopy(lm), ["a"], LoraConfig(rank=2, targets="attention")))
    thick = disturbed(new_placement("adapter").build(copy.deepcopy(lm), ["b"], LoraConfig(rank=5)))
    seed, first = kept(tmp_path, thin, lm)
    _, second = kept(tmp_path, thick, lm)
    together = load_multi_expert(seed, first | second)(IDS, Rows.one_each(["a", "b"]))
    by_itself = [thin(IDS[:1], Rows.all_to("a", 1)), thick(IDS[1:], Rows.all_to("b", 1))]
    torch.testing.assert_close(together, torch.cat(by_itself), atol=1e-6, rtol=1e-5)


def test_an_adapter_of_another_seed_is_refused_and_so_is_one_that_only_claims_this_one(tmp_path: Path) -> None:
    lm, other = decoder("llama"), decoder("gpt2")
    seed, _ = kept(tmp_path, new_placement("adapter").build(copy.deepcopy(lm), ["a"], LoraConfig(rank=2)), lm)
    strange, _ = kept(
        tmp_path, new_placement("adapter").build(copy.deepcopy(other), ["b"], LoraConfig(rank=2)), other, "strange"
    )
    with pytest.raises(ModelError, match="another base"):
        load_multi_expert(seed, {"b": ArtifactRef(tmp_path / "b")})
    card = tmp_path / "b" / "expert.json"
    card.write_text(card.read_text().replace(str(strange.sha256), str(seed.sha256)))
    write_manifest(tmp_path / "b")
    with pytest.raises(ModelError, match=r"does not fit its base.*Load it on the seed"):
        load_multi_expert(seed, {"b": ArtifactRef(tmp_path / "b")})


def test_a_mixture_of_experts_has_adapters_beside_attention_only() -> None:
    assert all("self_attn" in name for name in fresh_adapter(decoder("mixtral"), LoraConfig(rank=2)))
    with pytest.raises(ModelError, match="no linear maps for LoRA's targets “ffn”"):
        fresh_adapter(decoder("mixtral"), LoraConfig(rank=2, targets="ffn"))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
@torch.no_grad()
def test_an_adapter_of_upper_layers_is_what_peft_makes_with_layers_to_transform(tmp_path: Path) -> None:
    import peft

    lm, config = decoder("llama", 3), LoraConfig(rank=2, targets="attention", first_layer=1)
    model = disturbed(new_placement("adapter").build(copy.deepcopy(lm), ["a"], config))
    state = model.expert_state("a")
    assert {name.split(".")[2] for name in state} == {"1", "2"}
    save_adapter(lm, state, tmp_path, base_model="seed")
    exported = peft.PeftModel.from_pretrained(copy.deepcopy(lm), tmp_path)
    assert torch.equal(exported(input_ids=IDS).logits, model(IDS, Rows.all_to("a", 2)))
    maps = [*{name.split(".")[-2] for name in state}]
    theirs = peft.get_peft_model(lm, peft.LoraConfig(r=2, target_modules=maps, layers_to_transform=[1, 2]))
    theirs.save_pretrained(tmp_path / "theirs")
    assert set(read_adapter(decoder("llama", 3), tmp_path / "theirs", [])) == set(state)


def test_a_first_layer_above_the_last_one_is_refused() -> None:
    with pytest.raises(ModelError, match="first_layer is 2, but the model has 2 layers, counted from 0"):
        fresh_adapter(decoder("llama", 2), LoraConfig(first_layer=2))


def test_without_peft_training_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"needs the package peft\. Run: pip install peft"):
        fresh_adapter(decoder("llama"), LoraConfig())
