"""Mixtures and mixture-of-experts models leave the workbench: plain transformers computes what their cards say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from torch import nn
from transformers import AutoModelForCausalLM

from engine.methods.registry import method_of
from jobs.kinds.training import averages, exports
from jobs.queue.submit import run_now, submit
from tests.journeys.conftest import Do, done, work
from tests.journeys.test_export import LORA, logits_of, our_logits
from tests.journeys.test_import_expert import fine_tune
from ui.cli.app import main
from workbench.errors import BadSpecError
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

SUM_TOLERANCE = 1e-5  # of a sum of the same numbers in another order
MOE = {**LORA, "name": "sparse", "domains": ["court", "kitchen"], "method": "moe", "moe": {"num_experts": 3}}


def full_model(name: str) -> Any:
    with reading() as session:
        row, storage = experts.expert_row(session, name), get_storage()
        return method_of(row.method).load_full_model(storage.kept(row.base), storage.kept(row.artifact))


def reloaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def with_fixed_weights() -> None:
    assert main(["mixture", "gate", "small", "--gate", "fixed"]) in (0, None)
    assert main(["mixture", "weights", "small", "court=3", "kitchen=1"]) in (0, None)


@pytest.mark.usefixtures("trained")
def test_the_average_of_a_mixture_is_one_model_for_transformers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mixture", "weights", "small", "court=3", "kitchen=1"]) in (0, None)
    assert main(["mixture", "export", "small", str(tmp_path / "mean"), "--here"]) == 0
    assert "weights small/court 0.75, small/kitchen 0.25" in capsys.readouterr().out
    done(work({"kind": "average-experts", "name": "m", "experts": ["small/court", "small/kitchen"], "weights": [3, 1]}))
    assert torch.equal(logits_of(reloaded(tmp_path / "mean")), our_logits("m/average"))


@pytest.mark.usefixtures("trained")
def test_experts_of_a_mixture_are_one_mixture_of_experts_model(tmp_path: Path) -> None:
    with_fixed_weights()
    card = done(work({"kind": "export-mixture", "mixture": "small", "folder": str(tmp_path / "moe"), "format": "moe"}))
    assert card.result["weights"] == {"small/court": 0.75, "small/kitchen": 0.25}
    court, kitchen = full_model("small/court"), full_model("small/kitchen")
    for layer, other in zip(court.model.layers, kitchen.model.layers, strict=True):
        layer.mlp = _Both(layer.mlp, other.mlp)
    exported = reloaded(tmp_path / "moe")
    assert exported.config.model_type == "mixtral"
    torch.testing.assert_close(logits_of(exported), logits_of(court), atol=SUM_TOLERANCE, rtol=0)
    text = (tmp_path / "moe" / "README.md").read_text()
    assert "not the mixture of probabilities" in text.replace("\n", " ")
    assert ModelCard(text).data.library_name == "transformers"


class _Both(nn.Module):
    def __init__(self, court: nn.Module, kitchen: nn.Module) -> None:
        super().__init__()
        self.court, self.kitchen = court, kitchen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = 0.75 * self.court(x) + 0.25 * self.kitchen(x)
        return out


def test_a_trained_router_leaves_as_it_is(trained: Do, tmp_path: Path) -> None:
    done(trained(MOE))
    done(trained({"kind": "export-expert", "expert": "sparse/moe", "folder": str(tmp_path / "sparse")}))
    exported = reloaded(tmp_path / "sparse")
    assert exported.config.model_type == "mixtral"
    assert exported.model.layers[0].mlp.gate.weight.abs().sum() > 0
    assert torch.equal(logits_of(exported), our_logits("sparse/moe"))


def test_what_a_checkpoint_cannot_express_is_refused_with_a_next_step(trained: Do, tmp_path: Path) -> None:
    job_spec = {"kind": "export-mixture", "mixture": "small", "folder": str(tmp_path / "out"), "format": "moe"}
    with pytest.raises(BadSpecError, match="--gate fixed"):  # a posterior follows the text
        submit(job_spec)
    with_fixed_weights()
    with pytest.raises(BadSpecError, match="exists already"):
        submit({**job_spec, "folder": str(tmp_path)})
    done(trained(LORA))
    assert main(["mixture", "add", "small", "thin/court"]) in (0, None)
    card = trained(job_spec)  # an adapter changes attention, too
    assert card.state == "failed"
    assert "differ in" in card.error
    assert "average" in card.next_step
    assert not list(tmp_path.glob("*out*"))


def seed_and(do: Do, name: str, spec: dict[str, Any]) -> None:
    """Makes an expert, and the mixture “pair” of it and the bare seed with weights 3 and 1."""
    done(do(spec))
    mixture = ["mixture", "create", "pair", "--experts", f"{name},seed:seed", "--weights", "3,1", "--gate", "fixed"]
    assert main(mixture) == 0


@pytest.mark.parametrize("kind", ["networks", "adapter"])
def test_a_seed_and_experts_that_change_only_networks_are_one_mixture_of_experts_model(
    trained: Do, tmp_path: Path, kind: str
) -> None:
    if kind == "networks":
        fine_tune(tmp_path / "tuned", ".mlp.")
        job_spec = {
            "kind": "import-expert",
            "source": str(tmp_path / "tuned"),
            "seed_model": "seed",
            "name": "own/court",
        }
    else:
        job_spec = {**LORA, "name": "own", "lora": {**LORA["lora"], "targets": "ffn"}}
    seed_and(trained, "own/court", job_spec)
    export = {"kind": "export-mixture", "mixture": "pair", "folder": str(tmp_path / "moe"), "format": "moe"}
    assert done(trained(export)).result["weights"] == {"own/court": 0.75, "seed:seed": 0.25}
    own, seed = full_model("own/court"), full_model("seed:seed")
    for layer, other in zip(own.model.layers, seed.model.layers, strict=True):
        layer.mlp = _Both(layer.mlp, other.mlp)
    torch.testing.assert_close(logits_of(reloaded(tmp_path / "moe")), logits_of(own), atol=SUM_TOLERANCE, rtol=0)


def test_a_seed_and_an_adapter_of_attention_are_an_average_but_no_mixture_of_experts_model(
    trained: Do, tmp_path: Path
) -> None:
    seed_and(trained, "thin/court", LORA)
    export = {"kind": "export-mixture", "mixture": "pair", "folder": str(tmp_path / "moe"), "format": "moe"}
    card = trained(export)
    assert (card.state, "self_attn" in card.error, "average" in card.next_step) == ("failed", True, True)
    done(trained({**export, "folder": str(tmp_path / "mean"), "format": "hf"}))
    mean, own, seed = (one.state_dict() for one in map(_model, (tmp_path / "mean", "thin/court", "seed:seed")))
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, 0.75 * own[name] + 0.25 * seed[name], atol=1e-6, rtol=0)


def _model(place: Path | str) -> Any:
    return full_model(place) if isinstance(place, str) else reloaded(place)


@pytest.mark.parametrize("format", ["hf", "moe"])
def test_experts_with_different_chat_templates_do_not_become_one_model(
    trained: Do, tmp_path: Path, format: str
) -> None:
    fine_tune(tmp_path / "chat", ".mlp.")
    (tmp_path / "chat/chat_template.jinja").write_text("{{ messages }}")
    source = {"source": str(tmp_path / "chat"), "seed_model": "seed", "name": "chat", "method": "dense"}
    done(trained({"kind": "import-expert", **source}))
    assert main(["mixture", "create", "odd", "--experts", "seed:seed,chat", "--gate", "fixed"]) == 0
    export = {"kind": "export-mixture", "mixture": "odd", "folder": str(tmp_path / "out"), "format": format}
    average = {"kind": "average-experts", "name": "m", "experts": ["seed:seed", "chat"]}
    for job_spec in (export, average):
        card = trained(job_spec)
        assert (card.state, "“seed:seed” and “chat” have different chat templates" in card.error) == ("failed", True)
    assert not (tmp_path / "out").exists()


# bad ends ----------------------------------------------------------------------------------------


def test_a_folder_that_appears_meanwhile_is_not_written_over(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, write_card = tmp_path / "late", exports.write_card

    def and_another_writes_there(card: Any, folder: Path) -> None:
        write_card(card, folder)
        target.mkdir()
        (target / "mine.txt").write_text("mine")

    monkeypatch.setattr(exports, "write_card", and_another_writes_there)
    card = trained({"kind": "export-expert", "expert": "small/court", "folder": str(target)})
    assert (card.state, card.error) == ("failed", f"{target} exists already.")
    assert [file.name for file in target.iterdir()] == ["mine.txt"]
    assert not list(tmp_path.glob(".late*"))


@pytest.mark.parametrize(
    ("kind", "reader", "of"),
    [("export-expert", exports, "read_expert"), ("export-mixture", averages, "merge_experts")],
)
def test_errors_of_reading_an_expert_do_not_name_the_export_target(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reader: Any, of: str
) -> None:
    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", "expert.safetensors")

    monkeypatch.setattr(reader, of, refuse)
    name = {"export-expert": {"expert": "small/court"}, "export-mixture": {"mixture": "small", "format": "hf"}}[kind]
    card = trained({"kind": kind, "folder": str(tmp_path / "out"), **name})
    assert card.state == "failed"
    assert "cannot be written" not in card.error
    assert "expert.safetensors" in card.error


def test_a_full_disk_leaves_nothing_and_pauses_the_job(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_card: Any, folder: Path) -> None:
        assert (folder / "model.safetensors").exists()  # the weights were written by then
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exports, "write_card", full)
    card = trained({"kind": "export-expert", "expert": "small/court", "folder": str(tmp_path / "full")})
    assert card.state == "paused"
    assert "is full" in card.error
    assert "Nothing was exported" in card.error
    assert not list(tmp_path.glob("*full*"))


def test_an_attempt_removes_what_a_killed_one_left(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, events = run_now({"kind": "export-expert", "expert": "small/court", "folder": str(tmp_path / "out")})
    left = tmp_path / f".out.{job_id}.new"
    left.mkdir()
    (left / "half.safetensors").write_bytes(b"half")
    list(events)
    assert not left.exists()
    assert not (tmp_path / "out" / "half.safetensors").exists()
    assert (tmp_path / "out" / "config.json").exists()


# GGUF --------------------------------------------------------------------------------------------

CONVERTER = """
import json, pathlib, sys
model, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
assert arguments[0] == "--outfile" and arguments[2:] == ["--outtype", "f32"], arguments
assert (model / "config.json").exists() and (model / "tokenizer.json").exists()
print("INFO: converting")
{end}
"""
WRITES = 'pathlib.Path(arguments[1]).write_bytes(b"GGUF" + (model / "model.safetensors").read_bytes()[:8])'


def converter(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A program that is called as llama.cpp's is; its folder's name would end a command of a shell."""
    path = folder / "llama; exit 1" / "convert_hf_to_gguf.py"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\n" + CONVERTER.replace("{end}", end))
    path.chmod(0o755)
    monkeypatch.setenv("WORKBENCH_GGUF_CONVERTER", str(path))
    get_settings.cache_clear()


@pytest.mark.parametrize("kind", [{"kind": "export-expert", "expert": "small/court"}, {"mixture": "small"}])
def test_a_converter_of_llama_cpp_writes_the_gguf(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, str]
) -> None:
    converter(tmp_path, monkeypatch, WRITES)
    folder = tmp_path / "out $(touch x)"
    done(trained({"kind": "export-mixture", **kind, "folder": str(folder), "format": "gguf"}))
    assert {file.name for file in folder.iterdir()} == {"model.gguf", "README.md", "manifest.json"}
    assert (folder / "model.gguf").read_bytes()[:4] == b"GGUF"
    assert ModelCard.load(folder / "README.md").data.library_name == "gguf"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ('sys.exit("ERROR: Model LlamaForCausalLM is not supported")', "is not supported"),
        ("pass", "INFO: converting"),
        ('pathlib.Path(arguments[1]).write_bytes(b"half")', "INFO: converting"),
    ],
)
def test_a_converter_that_fails_leaves_nothing(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, words: str
) -> None:
    converter(tmp_path, monkeypatch, end)
    job_spec = {"kind": "export-expert", "expert": "small/court", "folder": str(tmp_path / "out"), "format": "gguf"}
    card = trained(job_spec)
    assert card.state == "failed"
    assert words in card.error
    assert not list(tmp_path.glob("*out*"))


def test_without_a_converter_one_sentence_says_what_to_install(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    job_spec = {"kind": "export-expert", "expert": "small/court", "folder": str(tmp_path / "out"), "format": "gguf"}
    card = trained(job_spec)
    assert (card.state, "convert_hf_to_gguf.py is not in the PATH" in card.error) == ("failed", True)
    assert "WORKBENCH_GGUF_CONVERTER" in card.next_step
