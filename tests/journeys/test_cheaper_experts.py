"""LoRA experts on their seed, an upcycled mixture of experts, the average of several experts: from spec to use."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.errors import Problem
from engine.events import Step, Token
from engine.loading.host import Host
from engine.methods.multi_expert_files import load_multi_expert
from engine.models.flops import forward_flops
from engine.models.rows import Rows
from jobs.attempt.attempt import run_here
from jobs.queue.submit import run_now, submit
from tests.journeys.conftest import SHAPE, card_of
from ui.cli.app import main
from workbench.analysis import perplexity_tables
from workbench.analysis.changes.retrained_baselines import candidates
from workbench.errors import BadSpecError, InUseError
from workbench.job_records import jobs
from workbench.questions.costs import CostRequest
from workbench.questions.perplexities import mix_scores
from workbench.registry import experts, mixtures, priors, seeds
from workbench.registry.database import reading, transaction
from workbench.requests import planning
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

TRAINING = {
    "num_steps": 30,
    "block_size": 32,
    "learning_rate": 2e-2,
    "clip": 1.0,
    "evaluate_every": 15,
    "checkpoint_every": 10,
}
LORA: dict[str, Any] = {
    "kind": "train-joint",
    "name": "thin",
    "seed_model": "seed",
    "domains": ["court"],
    "method": "lora",
    "training": TRAINING,
    "lora": {"rank": 4, "targets": "all"},
}
MOE = {**LORA, "name": "sparse", "domains": ["court", "kitchen"], "method": "moe", "moe": {"num_experts": 3}}
SCORE = {"kind": "evaluate", "block_size": 32, "max_tokens": 400}
MEAN: dict[str, Any] = {"kind": "average-experts", "name": "mean", "experts": ["small/court", "small/kitchen"]}


def perplexities(mixture: str) -> dict[str, dict[str, float]]:
    """By expert and domain, from stored scores."""
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, mixture)
    rows = zip(table.experts, table.perplexity, strict=True)
    return {expert: dict(zip(table.domains, row, strict=True)) for expert, row in rows}


def test_one_adapter_of_all_domains_is_one_expert_on_the_seed(trained) -> None:
    card = trained({**LORA, "name": "thin both", "domains": ["court", "kitchen"], "method": "lora-mixed"})
    assert card.state == "done", (card.error, card.next_step)
    mixed = card_of("thin both/mixed")
    with reading() as session:
        seed_artifact = seeds.seed_row(session, "seed").artifact_id
    assert (mixed.method, mixed.base_id, mixed.config["lora"]["rank"]) == ("lora-mixed", seed_artifact, 4)
    assert trained({**SCORE, "mixture": "thin both", "domains": ["court", "kitchen"]}).state == "done"
    assert set(perplexities("thin both")) == {"thin both/mixed"}


def message_of(model: str) -> list[Token]:
    with reading() as session:
        plan = planning.plan(session, get_storage(), model)
    shown = Host(device="cpu").stream(plan, "the court", SamplingConfig(max_tokens=3, seed=1))
    return [event for event in shown if isinstance(event, Token)]


def test_by_default_only_attention_is_adapted_as_the_row_that_modes_table_2_chose(trained) -> None:
    assert trained({**LORA, "name": "default", "domains": ["court"], "lora": {"rank": 4}}).state == "done"
    court = card_of("default/court")
    assert court.config["lora"]["targets"] == "attention"
    assert court.num_parameters == 2 * 4 * 4 * (32 + 32)  # layers, rank, maps of attention


def test_adapters_of_one_seed_are_small_mix_and_make_another_one(trained) -> None:
    for name in ("court", "kitchen"):
        card = trained({**LORA, "name": f"thin {name}", "domains": [name]})
        assert card.state == "done", (card.error, card.next_step)
    court = card_of("thin court/court")
    with reading() as session:
        seed, dense = seeds.get_seed(session, "seed"), experts.get_expert(session, "small/court")
        seed_artifact = seeds.seed_row(session, "seed").artifact_id
    assert (court.method, court.base_id, court.config["lora"]["rank"]) == ("lora", seed_artifact, 4)
    assert court.num_parameters == 2 * 4 * (4 * (32 + 32) + 3 * (32 + 64))  # layers, rank, maps of attention and FFN
    assert court.size_bytes < dense.size_bytes / 1.2 < seed.size_bytes
    with transaction() as session:
        mixtures.add_member(session, "thin court", "thin kitchen/kitchen")
    assert trained({**SCORE, "mixture": "thin court"}).result["scored"] == 6
    at = perplexities("thin court")
    assert at["thin court/court"]["court"] < at["thin kitchen/kitchen"]["court"]
    assert at["thin kitchen/kitchen"]["kitchen"] < at["thin court/court"]["kitchen"]
    with reading() as session:
        assert len(mix_scores(session, get_storage(), "thin court").domains) == 3
        cost = CostRequest(mixture="thin court", context=32).answer(session, get_storage())
    assert cost.mixture == 2 * cost.forward
    assert cost.forward - 2 * court.num_parameters == forward_flops(cost.shape, 32)
    assert cost.adapting < cost.training
    assert {len(token.weights) for token in message_of("thin court")} == {2}
    job_spec = {
        "kind": "train-expert",
        "name": "sailor",
        "domain": "sea",
        "mixture": "thin court",
        "training": TRAINING,
    }
    card = trained({**job_spec, "parent": "thin court/court"})
    assert card.state == "done", (card.error, card.next_step)
    sailor = card_of("sailor")
    assert (sailor.method, sailor.num_parameters, sailor.base_id) == ("lora", court.num_parameters, seed_artifact)
    certificate = trained({"kind": "certify-addition", "expert": "sailor", "mixture": "thin court", "block_size": 32})
    assert certificate.state == "done", certificate.error
    assert "NOT" not in certificate.result["sentence"]


def test_adapters_of_upper_layers_are_scored_together_as_each_is_by_itself(trained) -> None:
    card = trained({**LORA, "name": "upper", "domains": ["court", "kitchen"], "lora": {"rank": 4, "first_layer": 1}})
    assert card.state == "done", (card.error, card.next_step)
    assert card_of("upper/court").num_parameters == 4 * 4 * (32 + 32)  # one layer of two
    assert trained({**SCORE, "mixture": "upper"}).result["scored"] == 6
    together = perplexities("upper")
    assert together["upper/court"]["court"] < together["upper/kitchen"]["court"]
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="single", experts=["upper/court"]))
    assert trained({**SCORE, "mixture": "single", "again": True}).result["scored"] == 3
    assert perplexities("single")["upper/court"] == pytest.approx(together["upper/court"], rel=1e-6)
    assert {len(token.weights) for token in message_of("upper")} == {2}


def test_a_full_model_that_started_as_an_adapted_one_has_a_base_of_its_own(trained) -> None:
    trained(LORA)
    job_spec = {"kind": "train-expert", "name": "moved", "domain": "sea", "mixture": "thin", "full_model": True}
    card = trained({**job_spec, "training": {**TRAINING, "learning_rate": 2e-3}})
    assert card.state == "done", (card.error, card.next_step)
    moved, before = card_of("moved/sea"), card_of("thin/court")
    assert moved.base_id != before.base_id
    trained({**SCORE, "mixture": "moved"})
    trained({**SCORE, "mixture": "thin"})
    assert perplexities("moved")["moved/sea"]["sea"] < perplexities("thin")["thin/court"]["sea"]


def test_an_adapter_does_not_take_its_seed_along_when_it_goes(trained) -> None:
    trained(LORA)
    with pytest.raises(InUseError, match="needed by expert"), transaction() as session:
        seeds.delete_seed(session, "seed")
    with transaction() as session:
        mixtures.delete_mixture(session, "thin")
        experts.delete_expert(session, "thin/court")
    with reading() as session:
        seed = get_storage().kept(seeds.seed_row(session, "seed").artifact)
    assert seed.check()


def test_a_model_trained_without_a_domain_may_have_its_tokenizer_from_it(trained) -> None:
    trained(LORA)  # on the court alone, with the tokenizer of court and kitchen
    with reading() as session:
        assert candidates(session, "small/kitchen") == ["thin"]
        assert candidates(session, "small/court") == []


def test_an_adapter_trained_after_a_stop_is_the_one_that_was_never_stopped(trained) -> None:  # L17
    trained({**LORA, "name": "whole"})
    job_id, events = run_now({**LORA, "name": "cut"})
    with suppress(Problem):
        for event in events:
            if isinstance(event, Step) and event.step == 17:
                with transaction() as session:
                    jobs.request_stop(session, job_id, "pause")
    with transaction() as session:
        jobs.resume(session, job_id)
    for _ in run_here(job_id):
        pass
    one, two = (get_storage().path(card_of(f"{name}/court").id) / "expert.safetensors" for name in ("whole", "cut"))
    assert one.read_bytes() == two.read_bytes()


def test_a_mixture_of_experts_is_trained_scored_and_used_like_a_dense_model(trained) -> None:
    card = trained(MOE)
    assert card.state == "done", (card.error, card.next_step)
    outcome = card_of("sparse/moe")
    assert (outcome.method, outcome.domains, outcome.config["moe"]["num_experts"]) == ("moe", ["court", "kitchen"], 3)
    assert outcome.num_parameters == 2 * (3 * 32 + 3 * 3 * 32 * 64)  # layers of routers and networks
    assert trained({**SCORE, "mixture": "sparse"}).result["scored"] == 3
    assert 1 < perplexities("sparse")["sparse/moe"]["court"] < 320
    assert len(message_of("sparse")) == 3


def test_a_seed_without_a_counterpart_says_so_and_leaves_nothing(trained) -> None:
    shape = {"family": "gpt2", "num_layers": 1, "width": 16, "num_heads": 2, "ffn_width": 32, "max_positions": 64}
    trained({"kind": "make-seed", "name": "gpt", "domains": ["court"], "vocab_size": 320, "shape": shape})
    card = trained({**MOE, "seed_model": "gpt"})
    assert card.state == "failed"
    assert "llama, mistral" in card.error
    assert "dense" in card.next_step


@torch.no_grad()
def test_the_average_of_two_experts_is_a_model_of_its_own_that_knows_where_it_comes_from(trained) -> None:
    card = trained(MEAN)
    assert card.state == "done", (card.error, card.next_step)
    assert card.result["weights"] == {"small/court": 0.5, "small/kitchen": 0.5}
    mean, court, kitchen = (card_of(f"{name}") for name in ("mean/average", "small/court", "small/kitchen"))
    assert (mean.method, mean.seed, sorted(mean.domains)) == ("average", "seed", ["court", "kitchen"])
    with reading() as session:
        line = experts.lineage(session, "mean/average")
        later = experts.lineage(session, "small/court")
        plans = {name: planning.plan(session, get_storage(), name) for name in ("mean", "small")}
    assert {(edge["source"], edge["target"]) for edge in line["edges"]} >= {(court.id, mean.id), (kitchen.id, mean.id)}
    assert {"source": court.id, "target": mean.id} in later["edges"]
    parts = [load_multi_expert(plan.base, {e.id: e.kept for e in plan.experts}) for plan in plans.values()]
    own = parts[0].expert_state(mean.id)
    for name, tensor in own.items():
        both = [parts[1].expert_state(one.id)[name] for one in (court, kitchen)]
        torch.testing.assert_close(tensor, (both[0] + both[1]) / 2)
    assert parts[0](torch.ones(1, 4, dtype=torch.long), Rows.all_to(mean.id, 1)).isfinite().all()
    assert trained({**SCORE, "mixture": "mean"}).result["scored"] == 3
    assert len(message_of("mean")) == 3
    with pytest.raises(InUseError, match="mean/average"), transaction() as session:
        mixtures.delete_mixture(session, "small")
        experts.delete_expert(session, "small/court")


def test_a_prior_weighs_the_average(trained, capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        priors.give_prior(session, "belief", {"small/court": 3.0, "small/kitchen": 1.0})
        priors.give_prior(session, "half", {"small/court": 1.0})
    both = "small/court,small/kitchen"
    assert main(["mixture", "average", "mean", "--experts", both, "--prior", "belief", "--here"]) == 0
    weights = [part["weight"] for part in card_of("mean/average").config["averaged"]]
    assert weights == pytest.approx([0.75, 0.25])
    assert "weights small/court 0.75, small/kitchen 0.25" in capsys.readouterr().out
    failed = trained({**MEAN, "name": "other", "prior": "half"})
    assert "has no share for the expert “small/kitchen”" in failed.error


def test_an_average_of_what_does_not_go_together_is_refused_and_of_one_seed_by_two_names_made(trained) -> None:
    trained(MOE)
    failed = trained({**MEAN, "experts": ["small/court", "sparse/moe"]})
    assert (failed.state, "of one architecture" in failed.error) == ("failed", True)
    trained({"kind": "make-seed", "name": "other", "domains": ["sea"], "vocab_size": 310, "shape": {"num_layers": 1}})
    trained({**LORA, "name": "strange", "seed_model": "other"})
    failed = trained({**MEAN, "experts": ["small/court", "strange/court"]})
    assert "has another tokenizer than" in failed.error
    # The same tokenizer, other parameters; and the same again under another name.
    for name, number in (("twin", 7), ("again", 0)):
        fresh = {"domains": ["court", "kitchen"], "vocab_size": 320, "shape": SHAPE, "seed": number}
        assert trained({"kind": "make-seed", "name": name, **fresh}).state == "done"
        dense = {**LORA, "name": name, "seed_model": name, "method": "dense"}
        assert trained({key: value for key, value in dense.items() if key != "lora"}).state == "done"
    failed = trained({**MEAN, "experts": ["small/court", "twin/dense"]})
    assert failed.state == "failed"
    assert "“twin/dense” started from “twin”, “small/court” from “seed”" in failed.error
    assert "or mix them instead" in failed.next_step
    card = trained({**MEAN, "experts": ["small/court", "again/dense"]})
    assert card.state == "done", card.error
    for wrong in (
        {"weights": [1.0]},
        {"weights": [0.0, 0.0]},
        {"weights": [1.0, math.nan]},
        {"experts": ["small/court"]},
    ):
        with pytest.raises(BadSpecError):
            submit({**MEAN, **wrong})
    with pytest.raises(BadSpecError, match="prior"):
        submit({**MEAN, "prior": "nobody's"})
