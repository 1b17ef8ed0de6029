"""C-BTM's plan divides the text, trains and mixes every arm as the paper does, and scores it where it is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from workbench.kinds.analysis import Classify, Evaluate
from workbench.kinds.clusters import FindClusters, MakeClusterDomains
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mixtures import AverageExperts, MakeMixture
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench_studies.cbtm.names import SIZES, ReplicateCbtm
from workbench_studies.papers.cbtm_plan import steps

KNOWN, NOVEL = ["law", "sea", "wiki"], ["tweets"]
BUDGET = replace(  # one shape, all divisions at the full budget
    SIZES["smoke"],
    clusters_at_less=(1, 2),
    moe_seeds=None,
    ablations_at_less=False,
    also_ablated=(),
    smaller=None,
)
SPEC = ReplicateCbtm(name="rep", size="smoke", budget=BUDGET, seeds=2, domains=KNOWN, novel=NOVEL, tasks="/tasks")
EVERYWHERE = [*KNOWN, *NOVEL]
CLUSTERINGS = {  # how many clusters, how they are found, how features are scaled
    "k1": (1, "balanced", "unit_rows"),
    "k2": (2, "balanced", "unit_rows"),
    "k3": (3, "balanced", "unit_rows"),
    "random2": (2, "random", "unit_rows"),
    "unbalanced2": (2, "unbalanced", "unit_rows"),
    "k2-standardise": (2, "balanced", "standardise"),
}
ARMS = {  # the domains of its models, the clustering that weighs them; steps and sequences of a batch of each
    "k1": (["R-k1/0"], "R-k1", 8, 4),
    "k2": (["R-k2/0", "R-k2/1"], "R-k2", 8, 2),
    "k3": (["R-k3/0", "R-k3/1", "R-k3/2"], "R-k3", 11, 1),
    "metadata3": (KNOWN, None, 11, 1),
    "random2": (["R-random2/0", "R-random2/1"], "R-random2", 8, 2),
    "unbalanced2": (["R-unbalanced2/0", "R-unbalanced2/1"], "R-unbalanced2", 8, 2),
    "k2-standardise": (["R-k2-standardise/0", "R-k2-standardise/1"], "R-k2-standardise", 8, 2),
    "k1-less": (["R-k1/0"], "R-k1", 4, 4),
    "k2-less": (["R-k2/0", "R-k2/1"], "R-k2", 4, 2),
}
SCORED = {  # mixture, domains, split
    "test seed model": ("R-seed", EVERYWHERE, "test"),
    **{f"test {arm}": (f"R-{arm}", EVERYWHERE, "test") for arm in ARMS},
    "test k2 at home": ("R-k2", ["R-k2/0", "R-k2/1"], "test"),
    "dev k2": ("R-k2", EVERYWHERE, "dev"),
    "dev metadata3": ("R-metadata3", EVERYWHERE, "dev"),
    "test k2 average": ("R-k2-average", EVERYWHERE, "test"),
    "test moe": ("R-moe", EVERYWHERE, "test"),
    "test moe less": ("R-moe-less", EVERYWHERE, "test"),
}


def within(run: str, name: str) -> str:
    """What something is called whatever the seed: “R” is the run."""
    return name.replace(f"rep-{run}", "R")


def in_every_run(table: dict[str, Any]) -> dict[str, Any]:
    return {f"s{seed} {key}": row for seed in range(2) for key, row in table.items()}


def test_every_clustering_is_of_all_training_text_and_its_arms_own() -> None:
    result, domains = {}, {}
    for step in steps(SPEC):
        run = step.key[:2]
        match step.spec:
            case FindClusters(num_clusters=number, method=method, scaling=scaling, name=name):
                assert (step.spec.domains, step.spec.seed) == (KNOWN, int(run[1]))
                result[f"{run} {within(run, name).removeprefix('R-')}"] = (number, method, scaling)
            case MakeClusterDomains(clustering=name):
                domains[f"{run} {within(run, name).removeprefix('R-')}"] = step.spec.domains
    assert result == in_every_run(CLUSTERINGS)
    assert {key: len(made) for key, made in domains.items()} == {key: row[0] for key, row in result.items()}


def test_every_arm_has_a_model_of_each_domain_and_mixes_them_by_its_clustering() -> None:
    result = {}
    domain_of = {}
    for step in steps(SPEC):
        run = step.key[:2]
        match step.spec:
            case TrainExpert(training=training, domain=domain, mixture=mixture, parent=parent):
                assert (within(run, mixture), within(run, str(parent))) == ("R-seed", "R-seed/dense")
                assert (step.spec.full_model, step.spec.join) == (True, False)
                sizes = {"num_steps": training.num_steps, "sequences_per_domain": training.sequences_per_domain}
                assert training == replace(SPEC.budget.training, seed=int(run[1]), **sizes)
                domain_of[step.spec.expert] = (within(run, domain), *sizes.values())
            case MakeMixture(experts=experts, clustering=clustering):
                domains, num_steps, sequences = zip(*(domain_of[expert] for expert in experts), strict=True)
                (num_steps,), (sequences,) = set(num_steps), set(sequences)
                result[step.key] = (list(domains), clustering and within(run, clustering), num_steps, sequences)
    assert result == in_every_run(ARMS)


def test_what_is_no_cluster_model_is_made_of_the_full_text_and_the_main_arm() -> None:
    result = {}
    for step in steps(SPEC):
        run, seed = step.key[:2], int(step.key[1])
        match step.spec:
            case MakeSeed(source="fresh"):
                result[step.key] = (step.spec.seed, step.spec.domains)
            case MakeSeed(source="expert", expert=expert):
                result[step.key] = (within(run, str(expert)),)
            case TrainJoint(method="dense", seed_model=of, domains=domains, training=training):
                assert training == replace(SPEC.budget.seeding, seed=seed)
                result[step.key] = (within(run, of), domains)
            case TrainJoint(method="moe", seed_model=of, domains=domains, training=training, moe=moe):
                assert (training, moe) == (
                    replace(SPEC.budget.training, seed=seed, num_steps=training.num_steps),
                    SPEC.budget.moe,
                )
                assert list(step.spec.experts) == [f"{step.spec.name}/moe"]
                result[step.key] = (within(run, of), [within(run, domain) for domain in domains], training.num_steps)
            case AverageExperts(experts=experts) | Classify(experts=experts):
                result[step.key] = tuple(within(run, one) for one in experts)
                if isinstance(step.spec, AverageExperts):
                    assert (step.spec.expert, step.spec.weights) == (f"{step.spec.name}/average", None)
                else:
                    assert (within(run, step.spec.mixture), step.spec.path) == ("R-k2", "/tasks")
    wanted = in_every_run(
        {
            "seed model": ("R", KNOWN),
            "copied seed": ("R-seed/dense",),
            "k2 average": ("R-k2.0/R-k2/0", "R-k2.1/R-k2/1"),
            "moe": ("R-seed", ["R-k1/0"], 8),
            "moe less": ("R-seed", ["R-k1/0"], 4),
            "tasks": ("R-k1.0/R-k1/0", "R-seed/dense"),
        }
    )
    assert result == wanted | {f"s{seed} seed": (seed, KNOWN) for seed in range(2)}


def test_every_mixture_is_scored_where_it_is_judged() -> None:
    result = {}
    for step in steps(SPEC):
        if isinstance(step.spec, Evaluate):
            run, one = step.key[:2], step.spec
            assert (one.max_tokens, one.block_size, one.experts) == ({"test": 512, "dev": 128}[one.split], 32, [])
            result[step.key] = (within(run, one.mixture), [within(run, name) for name in one.domains], one.split)
    assert result == in_every_run(SCORED)


def test_what_costs_most_is_of_fewer_seeds_and_divisions_of_the_smaller_budget() -> None:
    spec = ReplicateCbtm(name="rep", size="smoke", seeds=3, domains=KNOWN, novel=NOVEL)
    made = {step.key: step.spec for step in steps(spec)}
    mixtures = {key for key, one in made.items() if isinstance(one, MakeMixture)}
    everywhere = {"k1", "k2", "k3", "k1-less", "k2-less", "k3-less", "metadata3", "k2-standardise"}
    everywhere |= {"random2", "unbalanced2"}
    extra = {"random3", "unbalanced3", "small k1-less", "small k2-less"}
    assert mixtures == {f"s{seed} {key}" for seed in range(3) for key in everywhere} | {f"s0 {key}" for key in extra}
    assert {key for key in made if "moe" in key} == {"s0 moe", "s0 moe less", "s0 test moe", "s0 test moe less"}
    assert {key for key in made if "dev" in key} == {
        f"s{seed} dev {key}" for seed in range(3) for key in ("k2", "k2-less", "metadata3")
    }
    clusterings = [one.name for one in made.values() if isinstance(one, FindClusters)]
    assert (
        len(clusterings) == len(set(clusterings)) == 3 * 6 + 2
    )  # each clustering once, whichever of its arms came first


def test_smaller_experts_are_of_the_same_clusters_and_of_a_seed_of_their_own() -> None:
    spec = ReplicateCbtm(name="rep", size="smoke", seeds=1, domains=KNOWN, novel=NOVEL)
    made = {step.key: step for step in steps(spec)}
    seed, large = made["s0 small seed"].spec, made["s0 seed"].spec
    assert isinstance(seed, MakeSeed)
    assert isinstance(large, MakeSeed)
    assert (seed.shape, large.shape) == (spec.budget.smaller, spec.budget.shape)
    assert replace_shape(seed, large) == large  # the same tokenizer
    for number in range(2):
        small, other = made[f"s0 small k2-less {number}"], made[f"s0 k2-less {number}"]
        assert isinstance(small.spec, TrainExpert)
        assert isinstance(other.spec, TrainExpert)
        assert (small.spec.domain, small.spec.training) == (other.spec.domain, other.spec.training)
        assert small.spec.parent == "rep-s0-small-seed/dense"
    mixture = made["s0 small k2-less"].spec
    assert isinstance(mixture, MakeMixture)
    assert mixture.clustering == "rep-s0-k2"


def replace_shape(seed: MakeSeed, other: MakeSeed) -> MakeSeed:
    return seed.model_copy(update={"shape": other.shape, "name": other.name})


def test_a_replication_of_an_older_size_has_the_jobs_it_had() -> None:
    """Its stored spec knows nothing of smaller budgets for other divisions, of other numbers or of other shapes."""
    stored = SPEC.model_dump(mode="json")
    later = ("ablations_at_less", "also_ablated", "scaled_otherwise", "smaller", "extra_seeds")
    for field in ("moe", "moe_seeds", *later):
        del stored["budget"][field]
    again = ReplicateCbtm.model_validate(stored)
    assert [(step.key, step.spec) for step in steps(again)] == [(step.key, step.spec) for step in steps(SPEC)]
    assert again.names() == SPEC.names()
