"""MoDE experts on disk: what is loaded is what was saved, only what was added is saved, other models are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.config import LoraConfig
from engine.errors import DamagedFileError, ModelError
from engine.files import ArtifactRef, new_folder, verify_folder
from engine.loading.loaded_base import HostedBase, load_base
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import new_placement
from engine.methods.multi_expert_files import save_expert as save_demix_expert
from engine.methods.parts.files import read_parts, save_parts
from engine.models.expert_model import CompositeModel, ExpertModel
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.methods.mode.backbones import FAMILIES, SHAPE, backbone, mode_model, some_ids


def kept(folder: Path) -> ArtifactRef:
    return ArtifactRef(folder, verify_folder(folder))


def save(
    root: Path, experts: Mapping[str, Sequence[str]], family: str = "llama"
) -> tuple[ArtifactRef, dict[str, ArtifactRef]]:
    """A backbone's folder, and those of the experts, each with its parts."""
    with new_folder(root / "backbone") as folder:
        backbone(family).save_pretrained(folder)
    base = kept(root / "backbone")
    for key, parts in experts.items():
        with new_folder(root / key) as folder:
            save_parts(
                mode_model(parts, family),
                {part: part for part in parts},
                folder,
                base_sha256=str(base.sha256),
                tokenizer_sha256="t",
            )
    return base, {key: kept(root / key) for key in experts}


ONE_EACH = {"law": ["law"], "code": ["code"]}
BOTH = {"both": ["law", "code"]}


def ask(model: ExpertModel, *keys: str) -> torch.Tensor:
    return model(some_ids()[:1].expand(len(keys), -1), Rows.one_each(keys))


def by_itself(*parts: str, family: str = "llama") -> torch.Tensor:
    """Logits of a model that never was on disk."""
    return mode_model(parts, family)(some_ids()[:1], parts)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_what_was_saved_answers_as_before_to_the_last_bit(tmp_path: Path, family: str) -> None:
    hosted = load_base(*save(tmp_path, ONE_EACH | BOTH, family=family))
    for key, parts in (ONE_EACH | BOTH).items():
        assert torch.equal(ask(hosted.view([key]), key), by_itself(*parts, family=family))


@torch.no_grad()
def test_experts_of_one_backbone_share_it_and_answer_side_by_side(tmp_path: Path) -> None:
    hosted = load_base(*save(tmp_path, ONE_EACH | BOTH))
    together = hosted.view(["law", "both", "code"])
    assert isinstance(together, CompositeModel)
    assert together.keys == ["law", "both", "code"]
    rows = ask(together, "law", "both", "code")
    for row, (key, parts) in zip(rows, [("law", ["law"]), *BOTH.items(), ("code", ["code"])], strict=True):
        torch.testing.assert_close(row[None], by_itself(*parts), atol=1e-6, rtol=1e-5, msg=key)
    backbone_bytes = sum(parameter.nbytes for parameter in backbone().parameters())
    assert hosted.num_bytes() < 2 * backbone_bytes + sum(
        tensor.nbytes
        for key in (ONE_EACH | BOTH)
        for file in (tmp_path / key).glob("*.safetensors")
        for tensor in load_file(file).values()
    )


@torch.no_grad()
def test_parts_of_an_expert_are_switched_off_per_request(tmp_path: Path) -> None:
    hosted = load_base(*save(tmp_path, BOTH))
    assert torch.equal(ask(hosted.view(["both"], {"both": ["code"]}), "both"), by_itself("code"))
    assert torch.equal(ask(hosted.view(["both"], {"both": []}), "both"), backbone()(some_ids()[:1]).logits)
    assert torch.equal(ask(hosted.view(["both"]), "both"), by_itself("law", "code"))
    with pytest.raises(ModelError, match=r"no part “news” in this expert\."):
        hosted.view(["both"], {"both": ["news"]})


@torch.no_grad()
def test_an_adapter_and_an_expert_of_one_seed_answer_side_by_side(tmp_path: Path) -> None:
    base, experts = save(tmp_path, {"law": ["law"]})
    adapters = new_placement("adapter").build(backbone(), ["lora"], LoraConfig(rank=2))
    for parameter in adapters.expert_parameters("lora").values():
        parameter.add_(0.1)
    with new_folder(tmp_path / "lora") as folder:
        save_demix_expert(adapters, "lora", folder, base_sha256=str(base.sha256), tokenizer_sha256="t")
    model = load_base(base, experts | {"lora": kept(tmp_path / "lora")}).view(["law", "lora"])
    logits, cache = ask(model, "lora", "law"), model.new_cache()
    torch.testing.assert_close(logits[:1], adapters(some_ids()[:1], Rows.one_each(["lora"])), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(logits[1:], by_itself("law"), atol=1e-6, rtol=1e-5)
    rows, ids = Rows.one_each(["lora", "law"]), some_ids()[:1].expand(2, -1)
    pieces = [model(ids[:, :5], rows, cache), model(ids[:, 5:], rows, cache)]
    torch.testing.assert_close(torch.cat(pieces, 1), logits, atol=1e-5, rtol=1e-5)
    most_probable, targets = logits.argmax(-1), ids.clone()
    targets[:, ::2] = most_probable[:, ::2]
    likelihoods, hits = model.token_scores(ids, targets, rows)
    expected = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(likelihoods, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(hits, most_probable == targets)


def test_only_what_was_added_is_saved(tmp_path: Path) -> None:
    save(tmp_path, ONE_EACH)
    names = set(load_file(tmp_path / "law/part-0.safetensors"))
    assert {name.split(".")[1] for name in names} == {"0", "1"}
    assert {name.split(".")[2] for name in names} == {"layers", "slope", "odds"}
    per_layer = sum(parameter.numel() for parameter in backbone().model.layers[0].parameters())
    stored = sum(tensor.numel() for tensor in load_file(tmp_path / "law/part-0.safetensors").values())
    assert stored == mode_model(["law"]).num_added("law") == 2 * (2 * per_layer + 32 + 1)


@torch.no_grad()
def test_switching_domain_reads_a_single_expert(tmp_path: Path) -> None:
    base, experts = save(tmp_path, ONE_EACH)
    hosted = load_base(base, {"law": experts["law"]})
    (tmp_path / "backbone/model.safetensors").unlink()
    hosted.add({"code": experts["code"]})
    assert torch.equal(ask(hosted.view(["code"]), "code"), by_itself("code"))


@pytest.mark.parametrize("victim", ["backbone/model.safetensors", "law/part-0.safetensors", "law/expert.json"])
def test_a_truncated_folder_is_detected_before_use(tmp_path: Path, victim: str) -> None:
    base, experts = save(tmp_path, ONE_EACH)
    file = tmp_path / victim
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DamagedFileError, match="bytes changed"):
        load_base(base, experts)


@pytest.mark.parametrize("card", ["", "{}", '{"method": "mode", "parts": [{"name": "a"}]}', '{"method": "mode"}'])
def test_an_expert_without_a_card_that_can_be_read_is_damaged(tmp_path: Path, card: str) -> None:
    base, _ = save(tmp_path, ONE_EACH)
    with new_folder(tmp_path / "odd") as folder:
        (folder / "expert.json").write_text(card)
    with pytest.raises(DamagedFileError, match=r"no valid expert\.json"):
        read_parts(kept(tmp_path / "odd"), str(base.sha256))


def test_an_expert_whose_card_lists_no_part_is_refused_before_its_model_is_chosen(tmp_path: Path) -> None:
    base, experts = save(tmp_path, {"law": ["law"]})
    with new_folder(tmp_path / "empty") as folder:
        (folder / "expert.json").write_text('{"method": "mode", "parts": []}')
    hosted = load_base(base, experts)
    with pytest.raises(ModelError, match="has no parts"):
        hosted.add({"empty": kept(tmp_path / "empty")})
    assert hosted.keys == ["law"]


def test_an_expert_of_another_backbone_is_refused_and_nothing_is_added(tmp_path: Path) -> None:
    base, experts = save(tmp_path / "one", ONE_EACH)
    _, others = save(tmp_path / "two", {"news": ["news"]}, "gpt2")
    hosted = load_base(base, experts)
    with pytest.raises(ModelError, match="another backbone"):
        hosted.add(others)
    assert hosted.keys == ["law", "code"]


def test_an_expert_of_another_method_is_refused(tmp_path: Path) -> None:
    base, _ = save(tmp_path, ONE_EACH)
    with new_folder(tmp_path / "ffn") as folder:
        model = MultiExpertModel(backbone(), ["a"], new_placement())
        save_demix_expert(model, "a", folder, base_sha256=str(base.sha256), tokenizer_sha256="t")
    with pytest.raises(ModelError, match="has no parts: its method is “demix”"):
        read_parts(kept(tmp_path / "ffn"), str(base.sha256))


@torch.no_grad()
def test_experts_of_other_numbers_of_blocks_have_a_backbone_of_their_own(tmp_path: Path) -> None:
    base, experts = save(tmp_path, {"law": ["law"]})
    model = ModeModel(backbone(), 3)
    model.add_expert("three", ModeConfig(3, 1))
    with new_folder(tmp_path / "three") as folder:
        save_parts(model, {"three": "three"}, folder, base_sha256=str(base.sha256), tokenizer_sha256="t")
    both = load_base(base, experts | {"three": kept(tmp_path / "three")}).view(["law", "three"])
    logits = ask(both, "law", "three")
    torch.testing.assert_close(logits[:1], by_itself("law"), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(logits[1:], backbone()(some_ids()[:1]).logits, atol=1e-5, rtol=1e-5)


def test_no_expert_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No expert was given"):
        load_base(save(tmp_path, {})[0], {})


def test_an_expert_remembers_what_it_was_made_with(tmp_path: Path) -> None:
    base, _ = save(tmp_path, {})
    model, config = ModeModel(backbone(), 2), replace(SHAPE, init="random", start="even", seed=4)
    model.add_expert("fresh", config)
    with new_folder(tmp_path / "fresh") as folder:
        save_parts(model, {"fresh": "fresh"}, folder, base_sha256=str(base.sha256), tokenizer_sha256="t")
    assert json.loads((tmp_path / "fresh/expert.json").read_text())["base_sha256"] == base.sha256
    [part] = read_parts(kept(tmp_path / "fresh"), str(base.sha256))
    assert (part.name, part.shape) == ("fresh", config)


def test_of_an_expert_that_cannot_be_added_completely_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, experts = save(tmp_path, BOTH)
    hosted, add, calls = HostedBase(base), ModeModel.add_expert, []

    def second_fails(self: ModeModel, key: str, *given: object) -> None:
        calls.append(key)
        if len(calls) == 2:
            raise MemoryError
        add(self, key, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ModeModel, "add_expert", second_fails)
    with pytest.raises(MemoryError):
        hosted.add(experts)
    assert hosted.keys == []
    hosted.add(experts)
    with torch.no_grad():
        assert torch.equal(ask(hosted.view(["both"]), "both"), by_itself("law", "code"))


def test_loading_an_expert_leaves_the_random_generators_of_others_unchanged(tmp_path: Path) -> None:
    base, experts = save(tmp_path, BOTH)
    before = torch.random.get_rng_state()
    seen = []
    original = torch.random.set_rng_state
    torch.random.set_rng_state = lambda state: (seen.append(1), original(state))  # type: ignore[assignment]
    try:
        load_base(base, experts)
    finally:
        torch.random.set_rng_state = original
    assert seen == []
    assert torch.equal(torch.random.get_rng_state(), before)
