"""A seed that is a copy of an expert: the same model, which others start from, and which knows where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.methods.multi_expert_files import load_multi_expert
from engine.models.families import load_model
from engine.models.rows import Rows
from engine.text.tokenizer import load_tokenizer
from tests.journeys.conftest import done
from workbench.analysis.changes.retrained_baselines import candidates
from workbench.errors import BadSpecError, InUseError
from workbench.registry import experts, mixtures, seeds
from workbench.registry.database import reading, transaction
from workbench.store.storage import get_storage

COPY: dict[str, Any] = {"kind": "make-seed", "name": "jurist", "source": "expert", "expert": "small/court"}
TRAINING = {"num_steps": 2, "block_size": 32}


def folder_of(seed: str) -> Path:
    with reading() as session:
        return get_storage().path(seeds.seed_row(session, seed).artifact_id)


@torch.no_grad()
def test_the_seed_is_the_model_that_the_expert_was(trained) -> None:
    done(trained(COPY))
    with reading() as session:
        row = experts.expert_row(session, "small/court")
        model = load_multi_expert(get_storage().kept(row.base), {row.id: get_storage().kept(row.artifact)})
        card, key = seeds.get_seed(session, "jurist"), row.id
        assert card.tokenizer_sha256 == row.tokenizer_sha256 == load_tokenizer(folder_of("jurist")).sha256
    ids = torch.arange(24).view(1, 24)
    assert torch.equal(load_model(folder_of("jurist"))(ids).logits, model(ids, Rows.all_to(key, 1)))
    assert card.source == "expert:small/court"


def test_what_starts_from_it_comes_of_the_expert_which_therefore_stays(trained) -> None:
    done(trained(COPY))
    job_spec = {"kind": "train-joint", "name": "later", "seed_model": "jurist", "domains": ["kitchen"]}
    done(trained({**job_spec, "method": "moe", "moe": {"num_experts": 2}, "training": TRAINING}))
    with reading() as session:
        line = experts.lineage(session, "later/moe")
        after = experts.lineage(session, "small/court")
        assert [one.name for one in experts.origins(session, experts.expert_row(session, "later/moe"))] == [
            "small/court"
        ]
        assert candidates(session, "small/court") == []  # it has seen the court, by way of its seed
    assert [node["name"] for node in line["nodes"]] == ["small/court", "jurist", "later/moe", "later"]
    assert ("seed", "jurist") in {(node["kind"], node["name"]) for node in after["nodes"]}
    with pytest.raises(InUseError, match="seed model “jurist”"), transaction() as session:
        mixtures.delete_mixture(session, "small")
        experts.delete_expert(session, "small/court")


def test_an_unknown_expert_is_refused_immediately_and_a_vector_makes_no_model(trained) -> None:
    with pytest.raises(BadSpecError, match="nobody"):
        trained({**COPY, "expert": "nobody"})
    job_spec = {"kind": "train-joint", "name": "token", "seed_model": "seed", "domains": ["court"]}
    done(trained({**job_spec, "method": "domain-token", "training": TRAINING}))
    failed = trained({**COPY, "expert": "token/court"})
    assert failed.state == "failed"
    assert "is a vector before the text" in failed.error


def test_an_expert_beside_its_backbone_is_no_plain_decoder(trained) -> None:
    with transaction() as session:
        experts.expert_row(session, "small/court").method = "mode"
    failed = trained(COPY)
    assert failed.state == "failed"
    assert "not a plain decoder: it stands next to one" in failed.error
