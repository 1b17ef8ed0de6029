"""Experts joined into one sparse model with routers in closed form: from the command to the exported folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from engine.files import sha256_of
from jobs.kinds.training import join_experts
from tests.journeys.conftest import Do, card_of, done
from tests.journeys.test_cheaper_experts import LORA, perplexities
from tests.journeys.test_export import logits_of, our_logits
from ui.cli.app import main
from workbench.analysis.routers import RouterFacts, facts_of
from workbench.errors import BadSpecError
from workbench.kinds.training.mixtures import JoinExperts, join_complaints
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.schema.tables import Artifact
from workbench.settings import get_settings
from workbench.store import artifact_kinds
from workbench.store.storage import get_storage

JOIN: dict[str, Any] = {
    "kind": "join-experts",
    "name": "joined",
    "experts": ["small/court", "small/kitchen"],
    "tokens": 1000,
    "block_size": 32,
}


def facts(name: str) -> RouterFacts:
    stored = facts_of(card_of(name))
    assert stored is not None
    return stored


def all_files() -> dict[str, str]:
    folder = get_settings().home / "artifacts"
    return {str(path.relative_to(folder)): sha256_of(path) for path in folder.rglob("*") if path.is_file()}


def sums_of() -> list[str]:
    with reading() as session:
        return sorted(row.id for row in session.query(Artifact).filter_by(kind=artifact_kinds.ROUTER_SUMS))


def test_a_joined_model_sends_each_text_to_its_expert_and_is_one_folder_for_transformers(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["--experts", "small/court,small/kitchen", "--tokens", "1000", "--block-size", "32"]
    assert main(["mixture", "join", "joined", *names, "--here"]) == 0
    assert "2 experts joined as joined/joined. Each token goes through one network of 2" in capsys.readouterr().out
    measured = facts("joined/joined")
    assert (measured.experts, measured.top_k, measured.width) == (["small/court", "small/kitchen"], 1, 32)
    assert [len(layers) for layers in measured.accuracy if layers] == [2, 2]
    assert all(share > 0.8 for layers in measured.accuracy if layers for share in layers)
    assert all(sum(shares) == pytest.approx(1) for shares in measured.chosen if shares)
    assert min(measured.condition) > 1
    card, one = card_of("joined/joined"), card_of("small/court")
    assert card.domains == ["court", "kitchen"]
    assert card.total_parameters > one.total_parameters
    assert card.active_parameters - one.total_parameters == 2 * 2 * 32  # the routers of two layers
    done(trained({"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 400}))
    done(trained({"kind": "evaluate", "mixture": "joined", "block_size": 32, "max_tokens": 400}))
    apart, joined = perplexities("small"), perplexities("joined")["joined/joined"]
    for domain in ("court", "kitchen"):
        own, other = apart[f"small/{domain}"], apart["small/kitchen" if domain == "court" else "small/court"]
        assert joined[domain] < (own[domain] * other[domain]) ** 0.5  # nearer to its own expert than to the other
    assert main(["expert", "show", "joined/joined"]) == 0
    assert "The first choice is the text's own expert for" in capsys.readouterr().out
    assert main(["expert", "export", "joined/joined", str(tmp_path / "out"), "--here"]) == 0
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert (again.config.model_type, again.config.num_experts_per_tok) == ("mixtral", 1)
    assert torch.equal(logits_of(again), our_logits("joined/joined"))


def test_an_expert_is_added_and_left_out_without_a_change_of_any_other_file(trained: Do) -> None:
    training = {"num_steps": 10, "block_size": 32, "learning_rate": 5e-3}
    spec = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small", "training": training}
    done(trained({**spec, "parent": "small/court"}))
    done(trained(JOIN))
    two, first = sums_of(), all_files()
    done(trained({**JOIN, "name": "three", "experts": [*JOIN["experts"], "sailor"]}))
    three = sums_of()
    assert len(three) == 3
    assert set(two) < set(three)
    assert len(facts("three/joined").experts) == 3
    done(trained({**JOIN, "name": "again"}))
    assert sums_of() == three
    later = all_files()
    assert {name: later.get(name) for name in first} == first
    with reading() as session:
        shas = {name: experts.get_expert(session, name).sha256 for name in ("joined/joined", "again/joined")}
    assert len(set(shas.values())) == 1


def test_two_experts_of_one_text_are_named_as_hard_to_distinguish(trained: Do) -> None:
    training = {"num_steps": 2, "block_size": 32, "learning_rate": 1e-5}
    spec = {"kind": "train-expert", "name": "twin", "domain": "court", "mixture": "small", "training": training}
    done(trained({**spec, "parent": "small/court"}))
    result = done(trained({**JOIN, "experts": ["small/court", "twin"]})).result
    assert "A router hardly tells small/court and twin apart: the cosine of their columns is" in result["sentence"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experts": ["small/court"]}, "two experts or more"),
        ({"experts": ["small/court", "small/court"]}, "Name each expert once"),
        ({"top_k": 3}, "at most 2 networks"),
        ({"experts": ["small/court", "seed:seed"]}, "no training text here"),
    ],
)
def test_what_cannot_be_joined_is_refused_at_once(trained: Do, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSpecError, match=words):
        trained({**JOIN, **changes})


def test_too_little_text_is_refused_and_leaves_no_expert(trained: Do) -> None:
    card = trained({**JOIN, "tokens": 16, "block_size": 8})
    assert card.state == "failed"
    assert "“small/court” has 16 tokens to read, fewer than the 32 dimensions of the model" in str(card.error)
    with reading() as session:
        assert "joined/joined" not in [one.name for one in experts.list_experts(session)]


def test_experts_of_sixteen_bits_are_widened_only_while_they_read(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_experts, "computes_in", lambda *_: False)
    folder = tmp_path / "out"
    assert main(["expert", "export", "small/court", str(folder), "--here"]) == 0
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    assert main(["seed", "add", "half", str(folder), "--here"]) == 0
    training = {"num_steps": 2, "block_size": 32, "learning_rate": 1e-3}
    spec = {"kind": "train-joint", "name": "half", "seed_model": "half", "domains": ["court", "kitchen"]}
    done(trained({**spec, "training": training}))
    done(trained({**JOIN, "experts": ["half/court", "half/kitchen"]}))
    with reading() as session:
        folder = get_storage().kept(experts.expert_row(session, "joined/joined").artifact).folder
    tensors = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    assert tensors
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}


def test_adapters_of_attention_are_refused_before_any_text_is_read(trained: Do) -> None:
    for name in ("court", "kitchen"):
        done(trained({**LORA, "name": f"thin {name}", "domains": [name]}))
    card = trained({**JOIN, "experts": ["thin court/court", "thin kitchen/kitchen"]})
    assert card.state == "failed"
    assert "differ in “model.layers.0.self_attn" in str(card.error)
    assert sums_of() == []


def test_anchored_experts_are_joined_with_their_seed_by_the_rows_of_their_training(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is trained by itself, as by different owners; joined, their weights say whose a text is."""
    training = {"num_steps": 60, "block_size": 32, "learning_rate": 5e-3}
    spec = {"kind": "train-joint", "seed_model": "seed", "method": "anchored", "training": training}
    for name in ("court", "kitchen"):
        done(trained({**spec, "name": f"of {name}", "domains": [name]}))
    names = ["of court/court", "of kitchen/kitchen"]
    joined = {**JOIN, "experts": names}
    first = all_files()
    done(trained(joined))
    measured = facts("joined/joined")
    assert (measured.experts, measured.top_k, measured.num_read) == (["seed:seed", *names], 3, [])
    assert measured.accuracy[0] is None
    own_and_other = [[chosen[1], chosen[2]] for chosen in measured.chosen[1:] if chosen]
    assert own_and_other[0][0] > own_and_other[0][1]
    assert own_and_other[1][1] > own_and_other[1][0]
    card, one = card_of("joined/joined"), card_of(names[0])
    assert card.method == "anchored-joined"
    assert card.total_parameters - one.total_parameters == one.num_parameters + 2 * 32  # and the row of the seed
    for mixture in ("of court", "of kitchen", "joined"):
        done(trained({"kind": "evaluate", "mixture": mixture, "block_size": 32, "max_tokens": 400}))
    together = perplexities("joined")["joined/joined"]
    for domain, other in (("court", "kitchen"), ("kitchen", "court")):
        own = perplexities(f"of {domain}")[f"of {domain}/{domain}"][domain]
        others = perplexities(f"of {other}")[f"of {other}/{other}"][domain]
        assert together[domain] < (own * others) ** 0.5
    later = all_files()
    assert {name: later.get(name) for name in first} == first
    assert main(["expert", "export", "joined/joined", str(tmp_path / "out"), "--here"]) == 0
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits_of(again), our_logits("joined/joined"))
    assert main(["expert", "show", "joined/joined"]) == 0
    assert "The condition number of the rows is at most" in capsys.readouterr().out
    for changes, words in (
        ({"top_k": 4}, "at most 3 networks"),
        ({"experts": [names[0], "small/court"]}, "others have none"),
    ):
        with pytest.raises(BadSpecError, match=words):
            trained({**joined, "name": "again", **changes})
    assert main(["expert", "export", names[0], str(tmp_path / "one"), "--here"]) != 0
    assert "has two networks in each layer" in capsys.readouterr().err
    done(trained({**joined, "name": "one", "experts": names[:1]}))
    assert len(facts("one/joined").experts) == 2


def test_full_models_of_one_seed_are_joined_where_their_rest_is_averaged(trained: Do) -> None:
    """As DUME has it: experts of C-BTM and dense ones differ in everything."""
    training = {"num_steps": 10, "block_size": 32, "learning_rate": 2e-3}
    spec = {"kind": "train-joint", "seed_model": "seed", "method": "dense", "training": training}
    for name in ("court", "kitchen"):
        done(trained({**spec, "name": f"whole {name}", "domains": [name]}))
    names = ["whole court/dense", "whole kitchen/dense"]
    card = trained({**JOIN, "experts": names})
    assert card.state == "failed"
    assert "differ in “lm_head.weight”" in str(card.error)
    done(trained({**JOIN, "experts": names, "average_rest": True}))
    measured = facts("joined/joined")
    assert all(share > 0.6 for layers in measured.accuracy if layers for share in layers)
    result = done(
        trained({**JOIN, "name": "start", "experts": names, "average_rest": True, "routers": "random"})
    ).result
    assert "The routers are at random: train the whole model on" in result["sentence"]
    done(trained({"kind": "make-seed", "name": "btx", "source": "expert", "expert": "start/joined"}))
    done(trained({**spec, "name": "btx", "seed_model": "btx", "domains": ["court", "kitchen"]}))
    for mixture in ("start", "btx"):
        done(trained({"kind": "evaluate", "mixture": mixture, "block_size": 32, "max_tokens": 400}))
    before, after = perplexities("start")["start/joined"], perplexities("btx")["btx/dense"]
    assert all(after[domain] < before[domain] for domain in ("court", "kitchen"))


@pytest.mark.usefixtures("home")
def test_experts_that_a_job_still_makes_are_judged_when_they_exist() -> None:
    spec = JoinExperts(name="later", experts=["coming/court"], top_k=2)  # anchored, it has a network beside the seed's
    with reading() as session:
        assert join_complaints(session, spec) == []
