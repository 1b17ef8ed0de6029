"""A domain's token is read like any token before the text, is never scored, and is all that its expert has."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from engine.errors import ModelError
from engine.files import ArtifactRef, new_folder, verify_folder
from engine.methods.multi_expert_files import load_multi_expert, new_placement, save_base, save_expert
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.decoders import decoder
from tests.engine.models.test_demix_files import save
from tests.engine.models.tiny_families import COMMON

FAMILIES = sorted(COMMON)
KEYS = ["a", "b", "c"]


def token_model(family: str) -> MultiExpertModel:
    """A model whose vectors differ plainly."""
    model = MultiExpertModel(decoder(family), KEYS, new_placement("token")).eval()
    with torch.no_grad():
        for number, key in enumerate(KEYS):
            (vector_1D,) = model.expert_parameters(key).values()
            vector_1D.copy_(model.lm.get_input_embeddings().weight[10 + number] * 2)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_vector_that_is_a_tokens_embedding_is_that_token_before_the_text(family: str) -> None:
    lm = decoder(family)
    model = MultiExpertModel(copy.deepcopy(lm), ["a"], new_placement("token")).eval()
    (vector_1D,) = model.expert_parameters("a").values()
    vector_1D.copy_(lm.get_input_embeddings().weight[5])
    ids = torch.randint(0, 300, (3, 10))
    with_five = lm(input_ids=torch.cat([torch.full((3, 1), 5), ids], 1)).logits[:, 1:]
    torch.testing.assert_close(model(ids, Rows.all_to("a", 3)), with_five, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_one_batch_carries_the_tokens_of_many_domains(family: str) -> None:
    model, ids = token_model(family), torch.randint(0, 300, (4, 10))
    together = model(ids, Rows(("b", "c", "a"), (1, 2, 1)))
    by_itself = torch.cat([model(ids[i : i + 1], Rows.all_to(key, 1)) for i, key in enumerate("bcca")])
    torch.testing.assert_close(together, by_itself, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(together[1], model(ids[1:2], Rows.all_to("a", 1))[0], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_cached_decoding_is_plain_decoding_and_the_token_comes_once(family: str) -> None:  # L18
    model, ids = token_model(family), torch.randint(0, 300, (1, 9)).expand(3, -1)
    rows, cache = Rows.one_each(KEYS), DynamicCache()
    cached = torch.cat([model(part, rows, cache) for part in ids.split([4, 1, 1, 3], 1)], 1)
    torch.testing.assert_close(cached, model(ids, rows), atol=1e-5, rtol=1e-5)
    assert cache.get_seq_length() == 1 + ids.shape[1]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_longest_text_leaves_space_for_the_token(family: str) -> None:
    model = token_model(family)
    assert model.max_positions == MultiExpertModel(decoder(family), KEYS, new_placement()).max_positions - 1
    ids = torch.randint(0, 300, (1, min(model.max_positions, 100)))
    assert model(ids, Rows.all_to("a", 1)).shape == (1, ids.shape[1], 300)


@torch.no_grad()
def test_experts_start_alike_whichever_others_there_are_and_share_every_weight_but_the_vector() -> None:
    many, one = (
        MultiExpertModel(decoder("llama"), KEYS, new_placement("token")),
        MultiExpertModel(decoder("llama"), ["c"], new_placement("token")),
    )
    states = [model.expert_state(key) for model, key in ((many, "a"), (many, "c"), (one, "c"))]
    assert all(torch.equal(state["domain_token.weight"], states[0]["domain_token.weight"]) for state in states)
    assert set(many.shared_state()) == set(decoder("llama").state_dict()) - {"lm_head.weight"}
    scale = float(states[0]["domain_token.weight"].std() / many.lm.get_input_embeddings().weight.std())
    assert 0.6 < scale < 1.5


@torch.no_grad()
@pytest.mark.parametrize("experts_in", ["ffn", "token"])
def test_a_base_remembers_where_its_experts_are(tmp_path: Path, experts_in: Any) -> None:
    loaded = load_multi_expert(*save(MultiExpertModel(decoder("gpt2"), KEYS, new_placement(experts_in)), tmp_path))
    assert (loaded.experts_in, len(loaded.beside)) == (experts_in, int(experts_in == "token"))


def test_a_base_that_is_older_than_the_choice_has_its_experts_in_its_networks(tmp_path: Path) -> None:
    model = MultiExpertModel(decoder("llama"), KEYS, new_placement())
    with new_folder(tmp_path / "base") as folder:
        save_base(model, folder)
        (folder / "base.json").unlink()
    with new_folder(tmp_path / "a") as folder:
        save_expert(model, "a", folder, base_sha256=verify_folder(tmp_path / "base"), tokenizer_sha256="t")
    assert load_multi_expert(ArtifactRef(tmp_path / "base"), {"a": ArtifactRef(tmp_path / "a")}).experts_in == "ffn"


@pytest.mark.parametrize(("base_of", "expert_of"), [("ffn", "token"), ("token", "ffn")])
def test_an_expert_of_the_other_kind_is_refused(tmp_path: Path, base_of: Any, expert_of: Any) -> None:
    base, own = save(MultiExpertModel(decoder("llama"), ["a"], new_placement(base_of)), tmp_path / "one")
    _, others = save(MultiExpertModel(decoder("llama"), ["a"], new_placement(expert_of)), tmp_path / "two")
    other = others["a"]
    with pytest.raises(ModelError, match="another base"):
        load_multi_expert(base, {"a": other})
    card = other.folder / "expert.json"  # even one that claims to be of this base
    card.write_text(json.dumps(json.loads(card.read_text()) | {"base_sha256": base.sha256}))
    with new_folder(tmp_path / "forged") as folder:
        for file in ("expert.json", "expert.safetensors"):
            (folder / file).write_bytes((other.folder / file).read_bytes())
    forged = ArtifactRef(tmp_path / "forged")
    with pytest.raises(ModelError, match="do not form a full model"):
        load_multi_expert(base, {"a": forged})
    with pytest.raises(ModelError, match="do not fit its base"):
        load_multi_expert(base, own | {"b": forged})
