"""A seed model is a member of a mixture as it is, beside its experts, and computes what it computes alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.loading.loaded_base import load_base
from engine.methods.registry import method_of
from engine.models.rows import Rows
from jobs.queue.submit import submit
from tests.journeys.conftest import Do, done
from tests.journeys.test_export import IDS, LORA, logits_of, our_logits
from ui.cli.app import main
from workbench.errors import BadSpecError, InUseError, NotFoundError
from workbench.registry import experts, mixtures, seeds
from workbench.registry.database import reading, transaction
from workbench.requests import planning
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage


def test_it_computes_what_it_computes_by_itself(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    done(trained(LORA))
    members = "seed:seed,thin/court,small/kitchen"
    assert main(["mixture", "create", "all", "--experts", members]) == 0
    with reading() as session:
        storage = get_storage()
        folder = storage.path(seeds.seed_row(session, "seed").artifact_id)
        plan = planning.plan(session, storage, "all")
        card = experts.get_expert(session, "seed:seed")
    single = logits_of(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    bare, thin = (expert.id for expert in plan.experts[:2])
    files = plan.files()[plan.experts[0].base]
    assert list(files) == [bare, thin]  # of one base, which is in memory one time
    for keys in ([bare, thin], [thin, bare]):
        loaded = load_base(plan.experts[0].base, {key: files[key] for key in keys})
        view = loaded.view(keys)
        with torch.no_grad():
            assert torch.equal(view(IDS, Rows.all_to(bare, 1)), single)
            assert torch.equal(view(IDS, Rows.all_to(thin, 1)), our_logits("thin/court"))
        assert sum("embed_tokens." in name and name.endswith("weight") for name in loaded.tensors()) == 1
        assert loaded.coming_bytes({"again": files[bare]}) == 0
    assert torch.equal(our_logits("seed:seed"), single)
    assert (card.seed, card.num_parameters, card.mixtures) == ("seed", 0, ["all"])
    done(trained({"kind": "evaluate", "mixture": "all", "domains": ["court"], "block_size": 32, "max_tokens": 200}))
    assert main(["generate", "all", "the court", "--max-tokens", "3"]) == 0
    assert main(["mixture", "show", "all"]) == 0
    assert "seed:seed" in capsys.readouterr().out


def test_it_is_one_expert_that_is_deleted_with_the_seed(trained: Do) -> None:
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="one", experts=["seed:seed"]))
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="two", experts=["small/court", "small/kitchen"]))
        mixtures.add_member(session, "two", "seed:seed")
    with reading() as session:
        assert [expert.name for expert in experts.list_experts(session)].count("seed:seed") == 1
    with pytest.raises(InUseError, match="mixture “one”, “two”"), transaction() as session:
        seeds.delete_seed(session, "seed")
    with pytest.raises(NotFoundError, match="no seed model called “other”"), transaction() as session:
        mixtures.add_member(session, "two", "seed:other")
    with transaction() as session:
        mixtures.delete_mixture(session, "one")
        mixtures.delete_mixture(session, "two")
        with pytest.raises(BadSpecError, match=r"is the seed model “seed” as it is.*workbench seed delete seed"):
            experts.delete_expert(session, "seed:seed")
        mixtures.delete_mixture(session, "small")
        for name in ("small/court", "small/kitchen"):
            experts.delete_expert(session, name)
        seeds.delete_seed(session, "seed")
        assert experts.list_experts(session) == []


def test_it_is_exported_but_no_parent_and_not_packed(trained: Do, tmp_path: Path) -> None:
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="one", experts=["seed:seed"]))
        assert not method_of(experts.expert_row(session, "seed:seed").method).can_be_copied
    done(trained({"kind": "export-expert", "expert": "seed:seed", "folder": str(tmp_path / "seed")}))
    lm = AutoModelForCausalLM.from_pretrained(str(tmp_path / "seed"), dtype=torch.float32)
    assert torch.equal(logits_of(lm), our_logits("seed:seed"))
    with pytest.raises(BadSpecError, match="pack one of its experts"):
        submit({"kind": "pack-expert", "expert": "seed:seed", "file": str(tmp_path / "file")})
