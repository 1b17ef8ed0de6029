"""Experts of other tools enter the workbench: they compute the same logits, or are refused with a sentence."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.config import ModelConfig
from engine.errors import ScoresError
from engine.files import verify_folder
from engine.models.families import fresh_model
from jobs.attempt.attempt import run_here
from jobs.queue.submit import resume, submit
from tests.journeys.conftest import SHAPE, Do, done
from tests.journeys.test_export import IDS, LORA, logits_of, our_logits
from ui.cli.app import main
from workbench.answers.cards import JobCard
from workbench.errors import BadSpecError
from workbench.questions.calibration import calibrate_evidence
from workbench.registry import experts, seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
Change = Callable[[dict[str, Any]], None]


def seed_folder() -> Path:
    with reading() as session:
        return get_storage().path(seeds.seed_row(session, "seed").artifact_id)


def fresh_lm() -> Any:
    return AutoModelForCausalLM.from_pretrained(seed_folder(), dtype=torch.float32)


def make_adapter(folder: Path, **options: Any) -> torch.Tensor:
    """Saves an adapter that peft made of the seed, as if trained; gives its logits after it was loaded by peft."""
    torch.manual_seed(0)
    given = {"r": 4, "lora_alpha": 6, "init_lora_weights": False, "target_modules": ["q_proj", "down_proj"]}
    peft.get_peft_model(fresh_lm(), peft.LoraConfig(task_type="CAUSAL_LM", **{**given, **options})).save_pretrained(
        folder
    )
    return logits_of(peft.PeftModel.from_pretrained(fresh_lm(), folder))


def fine_tune(folder: Path, *names: str) -> torch.Tensor:
    """Saves the seed with other tensors, those whose name holds one of these words; gives its logits."""
    lm = fresh_lm()
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if any(one in name for one in names):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    lm.save_pretrained(folder)
    AutoTokenizer.from_pretrained(seed_folder()).save_pretrained(folder)
    return logits_of(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def take(do: Do, folder: Path, name: str = "new", **options: Any) -> JobCard:
    return do({"kind": "import-expert", "source": str(folder), "seed_model": "seed", "name": name, **options})


def artifacts() -> set[str]:
    return get_storage().ids()


def names() -> list[str]:
    with reading() as session:
        return [card.name for card in experts.list_experts(session)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_rslora": True, "r": 3},
        {"target_modules": "all-linear", "lora_dropout": 0.3},
        {
            "rank_pattern": {"layers.0.self_attn.q_proj": 2, "down_proj": 7},
            "alpha_pattern": {"^model.layers.1.mlp.down_proj": 5},
        },
        {"rank_pattern": {"down_proj": 5}, "alpha_pattern": {"1.mlp.down_proj": 9}, "layers_to_transform": [1]},
    ],
)
def test_an_adapter_of_peft_computes_the_same_logits(trained: Do, tmp_path: Path, options: dict[str, Any]) -> None:
    expected = make_adapter(tmp_path / "adapter", **options)
    done(take(trained, tmp_path / "adapter"))
    assert not torch.equal(expected, logits_of(fresh_lm()))
    assert torch.equal(our_logits("new"), expected)


def test_an_exported_adapter_comes_back_with_equal_tensors(trained: Do, tmp_path: Path) -> None:
    done(trained(LORA))
    export = {"kind": "export-expert", "expert": "thin/court", "folder": str(tmp_path / "adapter"), "format": "peft"}
    done(trained(export))
    done(take(trained, tmp_path / "adapter"))
    assert torch.equal(our_logits("new"), our_logits("thin/court"))
    with reading() as session:
        first, back = (experts.get_expert(session, name) for name in ("thin/court", "new"))
    assert (back.sha256, back.base_id, back.method) == (first.sha256, first.base_id, first.method)


@pytest.mark.usefixtures("trained")
def test_networks_lie_on_the_seed_and_other_changes_need_a_base(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_networks = fine_tune(tmp_path / "networks", ".mlp.")
    of_all = fine_tune(tmp_path / "all", "layers", "embed")
    for name in ("networks", "all"):
        assert main(["expert", "import", str(tmp_path / name), "--seed", "seed", "--here"]) == 0
    done(take(trained, tmp_path / "networks", "full", method="dense"))
    for name, expected in (("networks", of_networks), ("all", of_all), ("full", of_networks)):
        assert torch.equal(our_logits(name), expected), name
    assert "expert networks, reason DEMix, since only its feed-forward networks may differ" in capsys.readouterr().out
    with reading() as session:
        cards = {name: experts.get_expert(session, name) for name in ("networks", "all", "full")}
        seed_id = seeds.seed_row(session, "seed").artifact_id
    assert {name: card.method for name, card in cards.items()} == {"networks": "demix", "all": "dense", "full": "dense"}
    assert {name for name, card in cards.items() if card.base_id == seed_id} == {"networks"}
    assert cards["all"].config["imported"]["source"] == f"folder:{tmp_path / 'all'}"
    assert "embed_tokens" in cards["all"].config["imported"]["reason"]


def test_an_exported_model_comes_back_and_is_mixed_and_trained_on(trained: Do, tmp_path: Path) -> None:
    folder = tmp_path / "court"
    done(trained({"kind": "export-expert", "expert": "small/court", "folder": str(folder)}))
    done(take(trained, folder))
    assert torch.equal(our_logits("new"), our_logits("small/court"))
    make_adapter(tmp_path / "adapter")
    fine_tune(tmp_path / "networks", ".mlp.")
    done(take(trained, tmp_path / "adapter", "thin"))
    done(take(trained, tmp_path / "networks", "wide"))
    members = "new,thin,wide,small/kitchen"
    assert main(["mixture", "create", "all", "--experts", members]) == 0
    done(trained({"kind": "evaluate", "mixture": "all", "domains": ["court"], "block_size": 32, "max_tokens": 200}))
    assert main(["generate", "all", "the court", "--max-tokens", "3"]) == 0
    training = {"num_steps": 2, "block_size": 32, "learning_rate": 1e-3}
    for parent in ("thin", "wide", "new"):
        spec = {"kind": "train-expert", "name": f"{parent}-sea", "domain": "sea", "mixture": "all", "parent": parent}
        done(trained({**spec, "training": training}))


def edit_config(**changes: Any) -> Change:
    return lambda config: config.update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit_config(use_dora=True), "uses use_dora"),
        (edit_config(peft_type="IA3"), "of the type “IA3”"),
        (edit_config(bias="all"), "uses bias"),
        (edit_config(modules_to_save=["lm_head"]), "uses modules_to_save"),
        (edit_config(target_parameters=["experts.up"]), "uses target_parameters"),
        (edit_config(init_lora_weights="pissa"), "changes the model beneath"),
        (edit_config(auto_map={"AutoModel": "evil.Evil"}), "code of its own"),
        (edit_config(r=5), "gives “model.layers.0.mlp.down_proj” the rank 5"),
        (edit_config(rank_pattern={"(a+)+b": 3}), "not a plain name"),
        (edit_config(lora_alpha=float("1e300")), "must be a number above 0"),
        (edit_config(brand_new="x"), "uses brand_new"),
    ],
)
def test_what_an_expert_cannot_hold_exactly_is_refused_by_name(
    trained: Do, tmp_path: Path, change: Change, words: str
) -> None:
    make_adapter(tmp_path / "adapter")
    file = tmp_path / "adapter/adapter_config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))
    before, there = artifacts(), names()
    card = take(trained, tmp_path / "adapter")
    assert card.state == "failed"
    assert words in card.error
    assert (artifacts(), names()) == (before, there)


Tensors = dict[str, torch.Tensor]


def with_tensors(change: Callable[[Tensors], Any]) -> Callable[[Path], None]:
    """Makes an adapter with other tensors, whose first is NaN, which shows only when it is read."""
    from safetensors.torch import load_file, save_file

    def make(folder: Path) -> None:
        make_adapter(folder)
        tensors = load_file(folder / "adapter_model.safetensors")
        tensors[min(tensors)].fill_(float("nan"))
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})

    return make


def change_last(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    return with_tensors(lambda tensors: tensors.update({max(tensors): change(tensors[max(tensors)])}))


def of_a_huge_rank(folder: Path) -> None:
    make_adapter(folder, target_modules=["q_proj"], r=65)


def another_seed(folder: Path, vocab_size: int = 320, **shape: Any) -> None:
    fresh_model(ModelConfig(**{**SHAPE, **shape}), vocab_size).save_pretrained(folder)


def pickle_only(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    make_adapter(folder)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def linked_elsewhere(folder: Path) -> None:
    make_adapter(folder)
    (folder / "adapter_model.safetensors").rename(folder.parent / "elsewhere")
    (folder / "adapter_model.safetensors").symlink_to(folder.parent / "elsewhere")


def on_the_head(folder: Path) -> None:
    make_adapter(folder, target_modules=["q_proj", "lm_head"], ensure_weight_tying=True)


def of_a_wider_model(folder: Path) -> None:
    lm = fresh_model(ModelConfig(**{**SHAPE, "width": 64}), 320)
    peft.get_peft_model(lm, peft.LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(folder)


def quantized(folder: Path) -> None:
    fine_tune(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"bits": 4}}))


def of_another_vocabulary(folder: Path) -> None:
    fine_tune(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["merges"] = content["model"]["merges"][:-3]
    (folder / "tokenizer.json").write_text(json.dumps(content))


def of_other_weights(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    make_adapter(folder)
    file = folder / "adapter_model.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt", "base_weights_sha256": "0" * 64})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (pickle_only, "adapter_model.bin, a pickle"),
        (linked_elsewhere, "a link that leads out of its folder"),
        (on_the_head, "lm_head.lora_A.weight”, where a LoRA expert of this seed has no map"),
        (of_a_wider_model, "does not fit its base"),
        (with_tensors(dict), "holds infinite numbers or NaN"),
        (change_last(lambda last: torch.zeros(len(last) + 1, 4)), "does not fit its base"),
        (change_last(lambda last: last.int()), "hold I32 and no floats"),
        (with_tensors(lambda tensors: tensors.pop(max(tensors))), "is missing"),
        (with_tensors(lambda tensors: tensors.update(zzz=torch.zeros(1))), "“zzz”, which is a tensor of its own"),
        (of_a_huge_rank, "is 65, more than the map has inputs or outputs"),
        (of_other_weights, "names other weights than the seed's"),
        (lambda folder: another_seed(folder, family="gpt2"), "family of the model"),
        (lambda folder: another_seed(folder, vocab_size=400), "size of the vocabulary"),
        (lambda folder: another_seed(folder, ffn_width=96), "another shape than the seed"),
        (quantized, "are quantized"),
        (of_another_vocabulary, "has another vocabulary"),
        (lambda folder: folder.mkdir(), "has no config.json"),
    ],
)
def test_what_is_of_another_base_is_refused(
    trained: Do, tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "from")
    before, there = artifacts(), names()
    card = take(trained, tmp_path / "from")
    assert (card.state, artifacts(), names()) == ("failed", before, there)
    assert words in card.error


@pytest.mark.parametrize("kind", ["adapter", "model", "packed"])
def test_a_full_disk_in_the_middle_leaves_no_row_and_no_half_of_an_artifact(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    job_spec = {"kind": "import-expert", "source": str(tmp_path / "from"), "seed_model": "seed", "name": "new"}
    if kind == "packed":
        file = str(tmp_path / "file")
        done(trained({"kind": "pack-expert", "expert": "small/court", "file": file}))
        job_spec = {"kind": "unpack-expert", "file": file, "name": "new"}
    elif kind == "adapter":
        make_adapter(tmp_path / "from")
    else:
        fine_tune(tmp_path / "from", "embed")
    before, there = artifacts(), names()

    def is_full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("engine.methods.multi_expert_files.save_tensors", is_full)  # after a card and a tokenizer
        patch.setattr("engine.packed_file.hashlib.sha256", is_full)  # as a member is written
        card = trained(job_spec)
    assert (card.state, "is full" in card.error) == ("paused", True)
    assert (artifacts(), names()) == (before, there)
    left = {path.name for folder in (get_storage().folder, tmp_path) for path in folder.glob(".*.new")}
    assert not left
    resume(card.id)
    list(run_here(card.id))
    assert our_logits("new").isfinite().all()


def test_a_method_that_does_not_fit_is_refused(trained: Do, tmp_path: Path) -> None:
    fine_tune(tmp_path / "all", "embed")
    assert "embed_tokens.weight” differs" in take(trained, tmp_path / "all", method="demix").error
    make_adapter(tmp_path / "adapter")
    assert "the folder holds an adapter" in take(trained, tmp_path / "adapter", method="dense").error


@pytest.mark.usefixtures("trained")
def test_names_and_places_are_checked_immediately(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    there = {"source": str(tmp_path), "seed_model": "seed", "name": "new"}
    for change, words in (
        ({"name": "small/court"}, "small/court"),
        ({"seed_model": "other"}, "other"),
        ({"source": str(tmp_path / "nowhere")}, "no file or folder"),
        ({"source": str(tmp_path / "file")}, "is text. Give the folder of an adapter"),
        ({"source": "hub:../evil"}, "is not a name on the hub"),
        ({"source": "hub:a/b@"}, "must follow the @"),
        ({"name": "a,b"}, "comma"),
    ):
        with pytest.raises(BadSpecError, match=words):
            submit({"kind": "import-expert", **there, **change})


def test_the_expert_is_stored_with_its_hash(trained: Do, tmp_path: Path) -> None:
    make_adapter(tmp_path / "a name")
    card = done(trained({"kind": "import-expert", "source": str(tmp_path / "a name"), "seed_model": "seed"}))
    assert card.result["expert"] == "a name"
    with reading() as session:
        row = experts.expert_row(session, "a name")
        assert verify_folder(get_storage().path(row.artifact_id)) == row.artifact.sha256
        assert row.num_parameters == 4 * sum(32 + 32 + 64 + 32 for _ in range(2))
    assert our_logits("a name").shape == (*IDS.shape, 320)


def test_an_imported_expert_has_the_domains_that_were_named_and_without_them_the_remedy_is(
    trained: Do, tmp_path: Path
) -> None:
    make_adapter(tmp_path / "adapter")
    for name, domains in (("strange", []), ("alien", []), ("judge", ["court"]), ("both", ["court", "kitchen"])):
        done(take(trained, tmp_path / "adapter", name, domains=domains))
    with reading() as session:
        known = {name: experts.get_expert(session, name).domains for name in ("strange", "judge", "both")}
    assert known == {"strange": [], "judge": ["court"], "both": ["court", "kitchen"]}
    assert main(["mixture", "create", "guests", "--experts", "strange,alien"]) == 0
    with reading() as session, pytest.raises(ScoresError, match="knows no domain") as refused:
        calibrate_evidence(session, get_storage(), "guests")
    assert "--domains" in refused.value.next_step
