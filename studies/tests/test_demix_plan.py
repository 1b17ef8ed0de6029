"""DEMix's plan trains every model as the paper does, each seed from a seed model of its own, and scores it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.methods.registry import method_of
from engine.methods.rows import RowMethod
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench_studies.demix.names import METHODS, SIZES, ReplicateDemix
from workbench_studies.papers.demix_plan import steps
from workbench_studies.papers.todays_rule import PAPER_SHARE, adapting_rate

KNOWN, NOVEL = ["law", "sea", "wiki"], ["tweets", "verse"]
SPEC = ReplicateDemix(name="rep", size="smoke", seeds=2, domains=KNOWN, novel=NOVEL, removed=["sea"])
EVERYWHERE = [*KNOWN, *NOVEL]
RETRAINED = 1  # seeds in which a domain is left out
TRAINED: dict[str, tuple[str, list[str], str]] = {  # how, on which domains, from what, in the run “R”
    "demix": ("demix", KNOWN, "R"),
    "dense": ("dense", KNOWN, "R"),
    "dense-balanced": ("dense-balanced", KNOWN, "R"),
    "domain-token": ("domain-token", KNOWN, "R"),
    "add tweets": ("its expert", ["tweets"], "R"),
    "add verse": ("its expert", ["verse"], "R"),
    "adapt tweets": ("all of it", ["tweets"], "R-dense"),
    "adapt verse": ("all of it", ["verse"], "R-dense"),
}
SCORED: dict[str, tuple[str, list[str], list[str], str]] = {  # mixture, experts beside it, domains, split
    "test demix": ("R", [], EVERYWHERE, "test"),
    "dev demix": ("R", [], EVERYWHERE, "dev"),
    "test dense": ("R-dense", [], EVERYWHERE, "test"),
    "test dense-balanced": ("R-dense-balanced", [], EVERYWHERE, "test"),
    "test domain-token": ("R-domain-token", [], EVERYWHERE, "test"),
    "test add verse": ("R", ["R-tweets", "R-verse"], EVERYWHERE, "test"),
    "dev add verse": ("R", ["R-tweets", "R-verse"], EVERYWHERE, "dev"),
    "test adapt tweets": ("R-dense-tweets", [], [*KNOWN, "tweets"], "test"),
    "test adapt verse": ("R-dense-verse", [], [*KNOWN, "verse"], "test"),
}


def test_every_model_is_trained_as_its_table_says_in_every_seed() -> None:
    result: dict[str, tuple[str, list[str], str]] = {}
    for step in steps(SPEC):
        run = int(step.key[1]) if step.key[0] == "s" else None
        match step.spec:
            case MakeSeed():
                assert (step.spec.seed, step.spec.domains) == (run, KNOWN)
            case TrainJoint(method=method, domains=domains, seed_model=seed, training=training):
                assert training == replace(SPEC.budget.training, seed=run)
                result[step.key] = (method, domains, seed)
            case TrainExpert(full_model=full, domain=domain, mixture=mixture, training=training):
                assert training == replace(SPEC.budget.adapting, seed=run)
                assert (step.spec.join, step.spec.parent, step.spec.watch) == (False, None, KNOWN)
                result[step.key] = ("all of it" if full else "its expert", [domain], mixture)
    wanted = {
        f"s{seed} {key}": (how, domains, start.replace("R", f"rep-s{seed}"))
        for seed in range(2)
        for key, (how, domains, start) in TRAINED.items()
    }
    removed = {f"s{seed} no sea": ("demix", ["law", "wiki"], f"rep-s{seed}") for seed in range(RETRAINED)}
    assert result == wanted | removed


@pytest.mark.parametrize("size", SIZES)
def test_the_context_holds_a_block_and_what_an_expert_puts_before_it(size: str) -> None:
    plan = SIZES[size]
    extra = [method.extra_positions for name in METHODS if isinstance(method := method_of(name), RowMethod)]
    assert max(extra) == 1
    assert max(plan.training.block_size, plan.adapting.block_size) + max(extra) <= plan.shape.max_positions


def test_every_model_is_scored_where_it_is_judged() -> None:
    result = {}
    for step in steps(SPEC):
        if isinstance(step.spec, Evaluate):
            one = step.spec
            assert (one.max_tokens, one.block_size) == ({"test": 1024, "dev": 128}[one.split], 32)
            shown = [name.replace(f"rep-{step.key[:2]}", "R") for name in (one.mixture, *one.experts)]
            result[step.key] = (shown[0], shown[1:], one.domains, one.split)
    removed = {f"{split} no sea": ("R-no-sea", [], ["sea"], split) for split in ("test", "dev")}
    wanted = {f"s{seed} {key}": row for seed in range(2) for key, row in SCORED.items()}
    wanted |= {f"s{seed} {key}": row for seed in range(RETRAINED) for key, row in removed.items()}
    assert result == wanted


def test_experts_in_some_layers_are_trained_in_one_seed_where_the_size_says_so() -> None:
    assert not [step for step in steps(SPEC) if "interleaved" in step.key]
    budget = replace(SPEC.budget, interleaved_every=2)
    spec = SPEC.model_copy(update={"budget": budget})
    training, scores = [step for step in steps(spec) if "interleaved" in step.key]
    assert isinstance(training.spec, TrainJoint)
    assert (training.spec.name, training.spec.method, training.spec.options) == (
        "rep-s0-interleaved",
        "demix",
        {"expert_every": 2},
    )
    assert training.spec.training == replace(budget.training, seed=0)
    assert isinstance(scores.spec, Evaluate)
    assert (scores.spec.mixture, scores.spec.domains, scores.spec.split) == ("rep-s0-interleaved", KNOWN, "test")
    assert "rep-s0-interleaved" in spec.names()
    assert "rep-s0-interleaved" not in SPEC.names()


@pytest.mark.parametrize("size", ["tiny", "quick"])
def test_sizes_for_results_interleave_and_stored_budgets_of_before_do_not(size: str) -> None:
    assert SIZES[size].interleaved_every == 2
    stored = SPEC.model_dump()
    del stored["budget"]["interleaved_every"], stored["budget"]["interleaved_seeds"]
    assert ReplicateDemix.model_validate(stored).budget.interleaved_every is None


@pytest.mark.parametrize("size", SIZES)
def test_a_new_replication_adapts_at_a_tenth_of_the_rate_as_the_paper_does(size: str) -> None:
    plan = SIZES[size]
    assert plan.adapting.learning_rate == pytest.approx(PAPER_SHARE * plan.training.learning_rate)
    budget = {name: {"learning_rate": getattr(plan, name).learning_rate} for name in ("training", "adapting")}
    assert adapting_rate(budget) == ""


def test_a_stored_replication_keeps_the_rate_it_was_started_with() -> None:
    before = replace(SPEC.budget, adapting=replace(SPEC.budget.adapting, learning_rate=3e-3))
    stored = SPEC.model_copy(update={"budget": before}).model_dump(mode="json")
    assert stored["budget"]["adapting"]["learning_rate"] == 3e-3
    again = ReplicateDemix.model_validate(stored)
    rates = {step.spec.training.learning_rate for step in steps(again) if isinstance(step.spec, TrainExpert)}
    assert rates == {3e-3}
    assert adapting_rate(stored["budget"]) == "adapted at 0.6 of the training's learning rate (§6.1: 0.1)"
