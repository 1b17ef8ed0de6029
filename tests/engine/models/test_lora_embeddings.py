"""Adapters of token vectors: what is added is what PEFT adds, and tied output embeddings stay as they are."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import nn

from engine.config import LoraConfig
from engine.errors import ModelError
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.lora.peft_files import save_adapter
from engine.methods.lora.peft_import import read_adapter
from engine.methods.multi_expert_files import new_placement
from engine.models.families import embedding_place, load_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.decoders import decoder
from tests.engine.models.test_lora import IDS, disturbed
from tests.engine.models.tiny_families import COMMON

FAMILIES = sorted(set(COMMON) - {"mixtral"})
CONFIG = LoraConfig(rank=3, alpha=5.0, targets="attention", embeddings=True)
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # of peft
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),  # of peft
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers` to `True`:UserWarning"),  # of peft
]


def adapted(lm: nn.Module, *keys: str) -> MultiExpertModel:
    return disturbed(new_placement("adapter").build(copy.deepcopy(lm), keys or ["a"], CONFIG))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_change_of_the_token_vectors_is_added_to_those_that_the_text_reads(family: str) -> None:
    lm = decoder(family)
    adapter = fresh_adapter(lm, CONFIG)
    place = embedding_place(lm)
    assert place is not None
    assert f"{place[0]}.down" in adapter
    model = MultiExpertModel(copy.deepcopy(lm), [], new_placement("adapter")).eval()
    model.add_expert("a", state=adapter)
    assert torch.equal(model(IDS, Rows.all_to("a", 2)), lm(input_ids=IDS).logits)
    adapter[f"{place[0]}.down"].normal_(generator=torch.Generator().manual_seed(1))
    model.add_expert("b", state=adapter)
    table: Any = getattr(place[1], place[2])
    change_VD = (adapter[f"{place[0]}.up"] @ adapter[f"{place[0]}.down"]).T * 5 / 3
    changed = nn.Embedding.from_pretrained(table.weight + change_VD, padding_idx=table.padding_idx)
    setattr(place[1], place[2], changed)  # and the output embeddings stay
    logits = model(IDS, Rows(("a", "b"), (1, 1)))
    torch.testing.assert_close(logits[1:], lm(input_ids=IDS[1:]).logits, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits[1:], model(IDS[1:], Rows.all_to("a", 1)), atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@torch.no_grad()
def test_peft_computes_the_same_with_what_is_exported(family: str, tmp_path: Path) -> None:
    lm = decoder(family)
    lm.save_pretrained(tmp_path / "seed")
    model = adapted(lm, "a", "b")
    (tmp_path / "adapter").mkdir()
    save_adapter(lm, model.expert_state("a"), tmp_path / "adapter", base_model=str(tmp_path / "seed"))
    there = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    assert torch.equal(there(input_ids=IDS).logits, model(IDS, Rows.all_to("a", 2)))
    again = read_adapter(lm, tmp_path / "adapter", [])
    assert all(torch.equal(tensor, again[name]) for name, tensor in model.expert_state("a").items())


@torch.no_grad()
def test_an_adapter_that_peft_saved_comes_in_unless_it_brings_other_vectors(tmp_path: Path) -> None:
    lm = decoder("llama")
    config = peft.LoraConfig(r=3, target_modules=["q_proj", "embed_tokens"])
    theirs: Any = peft.get_peft_model(copy.deepcopy(lm), config)
    for name, parameter in theirs.named_parameters():
        if "lora_" in name:
            parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    theirs.save_pretrained(tmp_path / "ours")  # the table of vectors, too
    model = MultiExpertModel(copy.deepcopy(lm), [], new_placement("adapter")).eval()
    model.add_expert("a", state=read_adapter(lm, tmp_path / "ours", []))
    ours = model(IDS, Rows.all_to("a", 2))
    torch.testing.assert_close(ours, theirs(input_ids=IDS).logits, atol=1e-5, rtol=1e-4)
    theirs.get_input_embeddings().base_layer.weight[7, 7] += 1
    theirs.save_pretrained(tmp_path / "others")
    with pytest.raises(ModelError, match=r"embed_tokens\.base_layer\.weight” as a whole, and it has other numbers"):
        read_adapter(lm, tmp_path / "others", [])


@torch.no_grad()
def test_a_merged_model_writes_with_the_vectors_that_it_had(tmp_path: Path) -> None:
    lm = decoder("llama")
    assert lm.config.tie_word_embeddings
    output = lm.get_output_embeddings().weight.clone()
    model = adapted(lm)
    logits = model(IDS, Rows.all_to("a", 2))
    model.full_model("a").save_pretrained(tmp_path)
    merged = load_model(tmp_path)
    assert not merged.config.tie_word_embeddings  # for those who believe it and tie what differs
    assert torch.equal(merged.get_output_embeddings().weight, output)
    assert not torch.equal(merged.get_input_embeddings().weight, output)
    torch.testing.assert_close(merged(input_ids=IDS).logits, logits, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_without_such_an_adapter_the_embeddings_stay_tied(tmp_path: Path) -> None:
    model = disturbed(new_placement("adapter").build(decoder("llama"), ["a"], LoraConfig(rank=3)))
    merged = model.full_model("a")
    assert merged.config.tie_word_embeddings
    assert merged.get_output_embeddings().weight is merged.get_input_embeddings().weight


def test_vectors_of_a_familys_own_kind_get_no_adapter() -> None:
    class Scaled(nn.Embedding):
        """As Gemma 3 has it."""

    lm = decoder("llama")
    lm.model.embed_tokens = Scaled(320, 32)
    with pytest.raises(ModelError, match="are not a plain table"):
        fresh_adapter(lm, CONFIG)
