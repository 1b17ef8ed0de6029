"""Experts of MoDE in a registry, made through the services alone; their tensors are real and hold zeros."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from sqlalchemy.orm import Session

from engine.files import EXPERT_CARD
from engine.methods.parts.method import part_file
from workbench.answers.cards import ExpertCard
from workbench.registry import experts, mixtures, seeds
from workbench.registry.corpora import domain_row
from workbench.registry.seeds import seed_row
from workbench.schema.base import new_id
from workbench.schema.tables import Artifact
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts
from workbench.store.storage import get_storage

SHAPE = {"num_blocks": 2, "expert_layers": 1, "init": "copy", "start": "backbone", "seed": 0}


def add_mode_expert(session: Session, name: str, domain: str, **other: Any) -> ExpertCard:
    """An expert of one part beside the seed “tiny”, in a mixture of its own."""
    part = {"name": domain, "domain": domain, "domains": [domain], "of": None, "shape": SHAPE}
    return _add(session, f"{name}/{domain}", name, [part], domain_id=domain_row(session, domain).id, **other)


def add_composition(session: Session, name: str, *made_of: ExpertCard, **other: Any) -> ExpertCard:
    """These experts side by side."""
    parts = [{**part, "of": part["of"] or one.id} for one in made_of for part in one.config["parts"]]
    config = {
        "composed_of": [{"id": one.id, "name": one.name} for one in made_of],
        "domains": [part["domain"] for part in parts],
    }
    job_spec = {"parent_id": made_of[0].id, "domain_id": None, **other}
    return _add(session, f"{name}/composed", name, parts, config, **job_spec)


def _add(
    session: Session,
    name: str,
    mixture: str,
    parts: list[dict[str, Any]],
    config: Mapping[str, Any] | None = None,
    **other: Any,
) -> ExpertCard:
    id, seed, storage = new_id(), seed_row(session, "tiny"), get_storage()
    with storage.new(id) as folder:
        (folder / EXPERT_CARD).write_text(
            json.dumps({"method": "mode", "parts": [{"name": part["name"]} for part in parts]})
        )
        for number in range(len(parts)):
            save_file({"gate": np.zeros((number + 1) * 1000, dtype=np.float32)}, folder / part_file(number))
    facts: dict[str, Any] = {"parent_id": None, "base": session.get_one(Artifact, seed.artifact_id), **other}
    experts.register_expert(
        session,
        id=id,
        name=name,
        method="mode",
        seed_id=seed.id,
        artifact=artifacts.register_artifact(session, storage, id, "mode-expert"),
        tokenizer_sha256=seeds.get_seed(session, "tiny").tokenizer_sha256,
        data_sha256="d" * 64,
        num_parameters=9,
        config={"shape": SHAPE, "parts": parts, "learning": "experts", **(config or {})},
        metrics={},
        **facts,
    )
    mixtures.create_mixture(session, MixtureSpec(name=mixture, experts=[name]))
    return experts.get_expert(session, name)
