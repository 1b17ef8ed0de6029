"""What the one holder of weights keeps in memory beside models."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path

from engine.files import ArtifactRef, write_manifest
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from tests.engine.clustered import tiny_clustering
from tests.engine.tokenizer_shapes import llama_like
from workbench.registry.clusters.cluster_routing import Route
from workbench.requests.generation import GenerationPlan, Host, PlannedExpert


def planned(folder: Path) -> GenerationPlan:
    """A plan that is weighed by nearness to the clusters in a folder."""
    route = Route(folder.name, ArtifactRef(folder), None, (0,))
    return GenerationPlan("mix", (), (), "", ClusterGateConfig(clustering=folder.name), route)


def test_of_many_clusterings_only_the_last_used_stay_in_memory(tmp_path: Path) -> None:
    plans = []
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        tiny_clustering().save(folder)
        write_manifest(folder)
        plans.append(planned(folder))
    host = Host(device="cpu")
    loaded = [weakref.ref(host._clustering(plans[place])) for place in (0, 1, 2, 3, 0, 4)]
    gc.collect()
    assert [one() is not None for one in loaded] == [True, False, True, True, True, True]
    assert host._clustering(plans[0]) is loaded[0]()


def test_a_manifest_says_the_precision_of_the_weights() -> None:
    plan = GenerationPlan("mix", (), (), "", PosteriorGateConfig())
    assert plan.manifest().precision == "stored"
    assert replace(plan, precision="bf16").manifest().precision == "bf16"


def test_a_mixture_ends_where_a_model_on_any_of_its_bases_would(tmp_path: Path) -> None:
    experts = []
    for name, ends in (("one", [2]), ("other", [2, 260]), ("before", None)):
        base = tmp_path / name
        base.mkdir()
        llama_like().save(str(base / "tokenizer.json"))
        (base / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
        (base / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        experts.append(PlannedExpert(name, name, "", base, 1.0, ArtifactRef(base)))
    for order in (experts, experts[::-1]):
        plan = GenerationPlan("mix", tuple(order), (), "", PosteriorGateConfig())
        assert Host(device="cpu")._stop_ids(plan) == {1, 2, 260}
