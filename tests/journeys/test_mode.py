"""MoDE from spec to use: experts trained beside a frozen seed, composed, taken apart, scored and used."""

from __future__ import annotations

import hashlib
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.errors import ScoresError
from engine.events import Step, Token
from engine.loading.host import Host
from engine.loading.loaded_base import load_base
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.flops import training_flops
from engine.models.families import load_model
from engine.models.flops import Shape, forward_flops
from engine.models.rows import Rows
from jobs.queue.submit import run_now, submit
from tests.journeys.conftest import card_of, done, paused_at, resumed, work
from workbench.analysis import perplexity_tables
from workbench.analysis import training_curves as training_history
from workbench.errors import BadSpecError, InUseError
from workbench.job_records import jobs
from workbench.questions.costs import CostRequest
from workbench.questions.parent_proposal import NearestRequest
from workbench.registry import corpora, experts, mixtures, seeds
from workbench.registry.database import close_engines, reading, transaction
from workbench.requests import planning
from workbench.schema.job_tables import Metric
from workbench.schema.tables import SeedModel
from workbench.settings import Settings, get_settings
from workbench.store.storage import get_storage

TRAINING = {
    "num_steps": 30,
    "block_size": 32,
    "learning_rate": 1e-2,
    "clip": 1.0,
    "evaluate_every": 15,
    "checkpoint_every": 10,
}
SHAPE = {"num_blocks": 2, "expert_layers": 1}
STAGE_ONE: dict[str, Any] = {
    "kind": "train-mode",
    "name": "law",
    "seed_model": "seed",
    "domains": ["court"],
    "training": TRAINING,
    "shape": SHAPE,
    "retain": ["sea"],
}
FOOD = {**STAGE_ONE, "name": "food", "domains": ["kitchen"], "retain": []}
BOTH: dict[str, Any] = {"kind": "compose-mode", "name": "both", "experts": ["law/court", "food/kitchen"]}
STAGE_TWO = {**BOTH, "name": "tuned", "domains": ["court", "kitchen"], "training": TRAINING, "retain": ["sea"]}
TWO = ["court", "kitchen"]


@pytest.fixture(scope="module")
def mode_home(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained home with two experts of MoDE, put together without training (“both”). Made once."""
    home = tmp_path_factory.mktemp("mode") / "home"
    shutil.copytree(trained_home, home)
    for job_spec in (STAGE_ONE, FOOD, BOTH):
        done(work(job_spec, Settings(home=home)))
    close_engines()
    return home


@pytest.fixture
def moded(do, home: Path, mode_home: Path):
    shutil.copytree(mode_home, home, dirs_exist_ok=True)
    return do


def hosted(*names: str):
    """Experts of one backbone in memory, and their ids."""
    with reading() as session:
        rows = [experts.expert_row(session, name) for name in names]
        storage = get_storage()
        base = storage.kept(rows[0].base)
        return load_base(base, {row.id: storage.kept(row.artifact) for row in rows}), [row.id for row in rows]


IDS = torch.arange(24)[None] % 300


@torch.no_grad()
def logits(name: str, parts: list[str] | None = None) -> torch.Tensor:
    """What an expert says, or some parts of it."""
    models, (id,) = hosted(name)
    return models.view([id], None if parts is None else {id: parts})(IDS, Rows.all_to(id, 1))


@torch.no_grad()
def backbone_logits() -> torch.Tensor:
    with reading() as session:
        folder = get_storage().path(session.query(SeedModel).filter_by(name="seed").one().artifact_id)
    return load_model(folder)(input_ids=IDS).logits  # type: ignore[no-any-return]


def part_hashes(name: str) -> list[str]:
    """The SHA-256 of the files of an expert's parts, in their order."""
    folder = get_storage().path(card_of(name).id)
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("part-*.safetensors"))]


def test_an_expert_says_where_it_comes_from_and_its_curve_what_was_retained(moded) -> None:
    law, seed = card_of("law/court"), None
    with reading() as session:
        seed = seeds.get_seed(session, "seed")
        row = experts.expert_row(session, "law/court")
        (job,) = [one for one in jobs.list_jobs(session) if one.title == "Train MoDE expert law"]
        curve = jobs.metrics(session, job.id)
        kind, base_id, seed_artifact = row.artifact.kind, row.base_id, row.seed.artifact_id
    assert (law.method, law.domain, law.seed, law.parent) == ("mode", "court", "seed", None)
    assert (kind, base_id) == ("mode-expert", seed_artifact)
    shape = {"num_blocks": 2, "expert_layers": 1, "init": "copy", "start": "backbone", "seed": 0}
    assert law.config["shape"] == shape
    assert law.config["parts"] == [
        {"name": "court", "domain": "court", "domains": ["court"], "of": None, "shape": shape}
    ]
    assert law.config["learning"] == "experts"
    assert 0 < law.num_parameters < seed.num_parameters
    held_out = {p.name: p.value for p in curve}  # the last one of each
    assert law.metrics["dev_perplexity"] == pytest.approx(math.exp(held_out["dev_loss/court"]))
    assert held_out["dev_loss/court"] < held_out["dev_loss/sea"]  # which it only looks at
    assert job.result["throughput"]["flops_per_token"] > 0
    steps = {name: [p.step for p in curve if p.name == name] for name in ("dev_loss/court", "dev_loss/sea")}
    assert steps == {"dev_loss/court": [0, 15, 30], "dev_loss/sea": [0, 15, 30]}


def test_before_its_first_update_a_model_is_its_backbone(moded) -> None:  # L12
    """A step of no size to speak of is none."""
    still = {**TRAINING, "num_steps": 1, "learning_rate": 1e-30}
    done(moded({**STAGE_ONE, "name": "still", "training": still}))
    assert torch.equal(logits("still/court"), backbone_logits())
    assert not torch.equal(logits("law/court"), backbone_logits())


def test_a_composition_with_one_part_is_that_expert_and_without_any_the_backbone(moded) -> None:  # L12
    assert [part["name"] for part in card_of("both/composed").config["parts"]] == TWO
    for name, part in (("law/court", "court"), ("food/kitchen", "kitchen")):
        assert torch.equal(logits("both/composed", [part]), logits(name))
    assert torch.equal(logits("both/composed", []), backbone_logits())
    assert not torch.equal(logits("both/composed"), logits("law/court"))


def test_adding_and_leaving_out_change_no_tensor_of_the_others(moded) -> None:  # L8, L12
    law, food = part_hashes("law/court"), part_hashes("food/kitchen")
    assert part_hashes("both/composed") == law + food
    done(moded({**FOOD, "name": "again"}))
    done(moded({**BOTH, "name": "three", "experts": ["both/composed", "again/kitchen"]}))
    three = card_of("three/composed")
    assert [part["name"] for part in three.config["parts"]] == [*TWO, "kitchen-2"]
    ids = [card_of(name).id for name in ("law/court", "food/kitchen", "again/kitchen")]
    assert [part["of"] for part in three.config["parts"]] == ids
    assert three.parent == "both/composed"
    assert [one["name"] for one in three.config["composed_of"]] == ["both/composed", "again/kitchen"]
    assert part_hashes("three/composed") == law + food + part_hashes("again/kitchen")
    done(moded({**BOTH, "name": "fewer", "experts": ["three/composed"], "without": ["court", "kitchen-2"]}))
    fewer = card_of("fewer/composed")
    assert (fewer.domains, part_hashes("fewer/composed")) == (["kitchen"], food)
    assert torch.equal(logits("fewer/composed"), logits("food/kitchen"))


def test_a_composition_on_other_text_knows_that_of_its_parts_and_text_cannot_go_from_under_it(moded) -> None:
    card = done(moded({**STAGE_TWO, "domains": ["sea"], "retain": ["court"]}))
    assert card_of("tuned/composed").domains == [*TWO, "sea"]
    for name in (*TWO, "sea"):
        with transaction() as session, pytest.raises(InUseError, match=r"is needed by expert .*“tuned/composed”"):
            corpora.delete_corpus(session, name)
    with reading() as session:
        held_out = {point.name: point.value for point in jobs.metrics(session, card.id)}
    outcome = card_of("tuned/composed").metrics["dev_perplexity"]
    assert outcome == pytest.approx(math.exp(held_out["dev_loss/sea"]))  # on what it was trained on now


@pytest.mark.parametrize("frozen", [True, False])
def test_stage_two_trains_gates_or_all_and_leaves_what_it_is_made_of(moded, frozen: bool) -> None:
    before = part_hashes("law/court"), part_hashes("food/kitchen")
    card = done(moded({**STAGE_TWO, "frozen": frozen}))
    assert (card.result["expert"], card.result["parts"]) == ("tuned/composed", TWO)
    assert (part_hashes("law/court"), part_hashes("food/kitchen")) == before
    tuned = card_of("tuned/composed")
    assert tuned.config["learning"] == ("gates" if frozen else "experts")
    assert (tuned.domain, tuned.domains, tuned.config["block_size"]) == ("", TWO, 32)
    assert tuned.num_parameters == 2 * card_of("law/court").num_parameters
    (older, _), (newer, _) = hosted("both/composed"), hosted("tuned/composed")
    states = [one.tensors() for one in (older, newer)]
    names = [list(state) for state in states]
    assert [name.split(".experts.")[0] for name in names[0]] == [name.split(".experts.")[0] for name in names[1]]
    changed = [
        name
        for name, one, two in zip(names[0], *(state.values() for state in states), strict=True)
        if not torch.equal(one, two)
    ]
    assert any(name.endswith("odds") for name in changed)
    assert any(".layers." in name.rpartition(".experts.")[2] for name in changed) is not frozen
    assert all(".experts." in name for name in changed)
    with reading() as session:
        curve = {point.name for point in jobs.metrics(session, card.id)}
    assert curve >= {"loss/court", "loss/kitchen", "dev_loss/court", "dev_loss/kitchen", "dev_loss/sea"}


def test_it_is_scored_and_used_like_any_mixture(moded) -> None:
    for name in ("law", "food", "both"):
        card = done(moded({"kind": "evaluate", "mixture": name, "block_size": 32, "max_tokens": 400}))
        assert card.result["scored"] == 3
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, None)
        planned = planning.plan(session, get_storage(), "both")
    cells = {
        name: dict(zip(table.domains, row, strict=True))
        for name, row in zip(table.experts, table.perplexity, strict=True)
    }
    assert cells["law/court"]["court"] < cells["food/kitchen"]["court"]
    assert cells["food/kitchen"]["kitchen"] < cells["law/court"]["kitchen"]
    shown = list(Host(device="cpu").stream(planned, "the court", SamplingConfig(max_tokens=3, seed=1)))
    assert [set(event.weights) for event in shown if isinstance(event, Token)] == [{"both/composed"}] * 3


def test_several_experts_on_mixed_text_begin_apart_and_are_one(moded) -> None:
    job_spec = {
        **STAGE_ONE,
        "name": "wide",
        "domains": TWO,
        "num_parts": 2,
        "shape": {**SHAPE, "init": "random"},
        "retain": [],
    }
    card = done(moded(job_spec))
    wide = card_of("wide/mixed")
    assert card.result["parts"] == ["mixed-1", "mixed-2"]
    assert (wide.domains, [part["shape"]["seed"] for part in wide.config["parts"]]) == (TWO, [0, 1])
    assert len(set(part_hashes("wide/mixed"))) == 2
    with pytest.raises(BadSpecError, match="copies would learn the same"):
        submit({**job_spec, "name": "twins", "shape": SHAPE})


@pytest.mark.parametrize("job_spec", [STAGE_ONE, STAGE_TWO], ids=["alone", "together"])
def test_a_training_that_was_cut_ends_as_one_that_was_not(moded, job_spec) -> None:  # L17
    done(moded({**job_spec, "name": "whole"}))
    job_id = paused_at({**job_spec, "name": "cut"}, 17)
    assert (get_settings().jobs_folder / job_id / "work" / "versions.json").exists()
    done(resumed(job_id))
    suffix = "court" if job_spec is STAGE_ONE else "composed"
    assert part_hashes(f"cut/{suffix}") == part_hashes(f"whole/{suffix}")
    assert math.isclose(*(card_of(f"{name}/{suffix}").metrics["dev_perplexity"] for name in ("whole", "cut")))


def test_a_composition_goes_on_with_the_experts_that_it_began_with_or_not_at_all(moded) -> None:
    done(moded({**STAGE_ONE, "name": "other"}))
    job_id = paused_at(STAGE_TWO, 17)
    with pytest.raises(InUseError, match="“law/court” cannot be renamed"), transaction() as session:
        experts.rename(session, "law/court", "law/old")
    with transaction() as session:  # as an older registry allowed
        law, other = (experts.expert_row(session, name) for name in ("law/court", "other/court"))
        law.name = "law/old"
        session.flush()
        other.name = "law/court"
    card = resumed(job_id)
    assert (card.state, card.error) == (
        "failed",
        "The expert “law/court” was renamed “law/old” since this composition started.",
    )
    with transaction() as session:
        mixtures.delete_mixture(session, "law")
        experts.delete_expert(session, "law/old")
    card = resumed(job_id)
    assert (card.state, "“law/court” was deleted since this composition started" in card.error) == (
        "failed",
        True,
    )
    with reading() as session:
        assert "tuned/composed" not in [expert.name for expert in experts.list_experts(session)]


ELSEWHERE: list[dict[str, Any]] = [
    {"kind": "train-joint", "name": "again", "seed_model": "seed", "domains": TWO, "training": TRAINING},
    {"kind": "train-expert", "name": "more", "mixture": "small", "domain": "court", "training": TRAINING},
]


@pytest.mark.parametrize("job_spec", [STAGE_ONE, STAGE_TWO, *ELSEWHERE], ids=lambda job_spec: job_spec["kind"])
def test_no_training_goes_on_over_other_text_under_the_same_name(moded, job_spec) -> None:
    job_id = paused_at({**job_spec, "name": "cut"}, 17)
    with transaction() as session:
        corpora.domain_row(session, "court").data_sha256 = "0" * 64  # deleted, and imported anew, while it had failed
    card = resumed(job_id)
    shown = "The domain “court” has changed since this training started."
    assert (card.state, card.error) == ("failed", shown)


def test_a_parent_that_is_gone_when_its_composition_is_registered_is_not_named(moded) -> None:
    job_id, events = run_now(STAGE_TWO)
    for event in events:
        if isinstance(event, Step) and event.step == 1:
            with transaction() as session:  # as an older registry allowed
                mixtures.delete_mixture(session, "law")
                experts.expert_row(session, "law/court").name = "law/old"
                session.flush()
                experts.delete_expert(session, "law/old")
    with reading() as session:
        done(jobs.get_job(session, job_id))
    tuned = card_of("tuned/composed")
    assert (tuned.parent, [one["name"] for one in tuned.config["composed_of"]]) == (None, BOTH["experts"])


def test_what_cannot_be_is_refused_with_its_reason_before_any_work(moded) -> None:
    done(moded({**FOOD, "name": "other", "shape": {**SHAPE, "num_blocks": 1}}))
    for job_spec, words in (
        ({**STAGE_ONE, "name": "x", "shape": {"num_blocks": 3}}, "at most the 2 layers of “seed”, not 3"),
        ({**BOTH, "name": "x", "experts": ["law/court"]}, "only one part, “court”"),
        ({**BOTH, "name": "x", "experts": ["law/court"], "domains": TWO}, "only one part"),
        ({**BOTH, "name": "x", "experts": ["both/composed"]}, "composed already"),
        ({**BOTH, "name": "x", "without": ["sea"]}, "no part “sea” to leave out; there is: court, kitchen"),
        ({**BOTH, "name": "x", "without": TWO}, "All parts are left out"),
        ({**BOTH, "name": "x", "experts": ["law/court", "small/court"]}, "experts of the method “demix” have no parts"),
        ({**BOTH, "name": "x", "experts": ["law/court", "other/kitchen"]}, "has 1 block, “law/court” has 2 blocks"),
        ({**STAGE_TWO, "name": "x", "retain": ["court"]}, "no training domain"),
        ({**BOTH, "name": "x", "retain": ["sea"]}, "give domains to train on"),
        ({**BOTH, "name": "x", "frozen": True}, "which needs text: name domains"),
    ):
        with pytest.raises(BadSpecError, match=words):
            submit(job_spec)
    with reading() as session:
        assert "x" not in [mixture.name for mixture in mixtures.list_mixtures(session)]


def test_experts_of_another_backbone_or_tokenizer_are_refused(moded) -> None:
    twin = {"domains": TWO, "vocab_size": 320, "shape": {"num_layers": 2, "width": 32, "num_heads": 2, "ffn_width": 64}}
    moded({"kind": "make-seed", "name": "twin", **twin, "seed": 7})
    moded({"kind": "make-seed", "name": "foreign", **twin, "vocab_size": 310})
    for name, words in (
        ("twin", "must be trained on the backbone of “law/court”"),
        ("foreign", "has another tokenizer than “law/court”"),
    ):
        done(moded({**FOOD, "name": name, "seed_model": name}))
        with pytest.raises(BadSpecError, match=words):
            submit({**BOTH, "name": "x", "experts": ["law/court", f"{name}/kitchen"]})


def test_a_part_cut_short_is_named_and_nothing_changes(moded) -> None:
    part = get_storage().path(card_of("food/kitchen").id) / "part-0.safetensors"
    part.write_bytes(part.read_bytes()[:-100])
    with reading() as session:
        before = [expert.name for expert in experts.list_experts(session)]
    card = moded({**BOTH, "name": "x"})
    assert card.state == "failed"
    assert "part-0.safetensors is not the file that was written" in card.error
    with reading() as session:
        assert [expert.name for expert in experts.list_experts(session)] == before


def test_a_composition_outlives_what_it_was_made_of(moded) -> None:
    messages = logits("both/composed")
    with transaction() as session:
        for name in ("law", "food"):
            mixtures.delete_mixture(session, name)
        for name in BOTH["experts"]:
            experts.delete_expert(session, name)
    both = card_of("both/composed")
    assert (both.parent, [one["name"] for one in both.config["composed_of"]]) == (None, BOTH["experts"])
    assert torch.equal(logits("both/composed"), messages)


def test_a_domain_that_was_renamed_is_known_to_what_is_composed_of_its_experts(moded) -> None:
    for number, new in enumerate(["court.2", "court.3"]):
        with transaction() as session:
            corpora.domain_row(session, f"court.{number + 1}" if number else "court").name = new
        done(moded({**BOTH, "name": f"on {new}"}))
    done(moded({**BOTH, "name": "again", "experts": ["on court.2/composed", "food/kitchen"]}))
    again = card_of("again/composed")
    assert sorted(again.domains) == ["court.3", "kitchen"]
    assert again.config["parts"][0]["domains"] == ["court.3"]
    assert {one["name"] for one in again.config["sources"]} == {"court.3", "kitchen"}


def test_lineage_shows_all_that_was_composed(moded) -> None:
    both, law, food = (card_of(name) for name in ("both/composed", "law/court", "food/kitchen"))
    with reading() as session:
        line, later = experts.lineage(session, "both/composed"), experts.lineage(session, "food/kitchen")
    edges = [(edge["source"], edge["target"]) for edge in line["edges"]]
    assert sorted(edges) == sorted(dict.fromkeys(edges))
    assert {(law.id, both.id), (food.id, both.id)} <= set(edges)
    assert {"source": food.id, "target": both.id} in later["edges"]


def test_a_copy_or_an_average_of_what_has_no_copies_is_refused_with_what_to_do(moded) -> None:
    late = {"kind": "train-expert", "name": "late", "domain": "sea", "mixture": "law", "training": TRAINING}
    with pytest.raises(BadSpecError, match="has no expert that can be copied: train another on the same seed"):
        submit(late)
    with transaction() as session:
        mixtures.add_member(session, "small", "law/court")
    card = moded({**late, "mixture": "small", "parent": "law/court"})
    assert (card.state, "“law/court” cannot be a parent" in card.error) == ("failed", True)
    assert "workbench train mode" in card.next_step
    card = moded({"kind": "average-experts", "name": "mean", "experts": BOTH["experts"]})
    assert (card.state, "“law/court” cannot be averaged" in card.error) == ("failed", True)
    assert "workbench mode compose" in card.next_step
    with reading() as session, pytest.raises(ScoresError, match="experts of MoDE cannot be copied"):
        NearestRequest(mixture="law", domain="sea").answer(session, get_storage())


def test_a_parent_is_selected_among_those_that_have_copies(moded) -> None:
    with transaction() as session:
        mixtures.add_member(session, "small", "law/court")
    late = {"kind": "train-expert", "name": "late", "domain": "sea", "mixture": "small", "training": TRAINING}
    card = done(moded(late))
    assert set(card.result["parent_posterior"]) == {"small/court", "small/kitchen"}


def test_it_costs_its_parts_beside_the_backbone(moded) -> None:
    with reading() as session:
        costs = {name: CostRequest(mixture=name, context=32).answer(session, get_storage()) for name in ("law", "both")}
        config = seeds.get_seed(session, "seed").config
        (job,) = [one for one in jobs.list_jobs(session) if one.title == "Train MoDE expert law"]
    one, two = (costs[name].mixture for name in ("law", "both"))
    backbone = forward_flops(Shape.of(config), 32)
    assert 1.9 < (two - backbone) / (one - backbone) < 2.1
    assert (costs["law"].num_parts, costs["both"].num_parts) == ([1], [2])
    assert costs["law"].adapting == job.result["throughput"]["flops_per_token"]
    assert costs["law"].composing["experts"] == costs["law"].adapting < costs["both"].composing["experts"]
    assert costs["both"].composing["gates"] == training_flops(Shape.of(config), 32, [ModeConfig(**SHAPE)] * 2, "gates")


def test_its_removal_and_its_addition_are_certified(moded) -> None:
    thin = {**STAGE_ONE, "kind": "train-joint", "name": "thin", "method": "lora", "domains": ["sea"]}
    done(moded({name: value for name, value in thin.items() if name not in ("shape", "retain")}))
    make = {
        "kind": "make-mixture",
        "name": "all",
        "experts": ["law/court", "food/kitchen", "both/composed", "thin/sea"],
    }
    done(moded(make))
    short = {"num_blocks": 2, "block_size": 32, "num_prefixes": 10, "prefix_length": 4, "continuation_length": 4}
    card = done(moded({"kind": "certify-removal", "expert": "law/court", "mixture": "all", **short}))
    assert card.result["ok"]
    job_spec = {"kind": "certify-addition", "expert": "both/composed", "mixture": "all", "max_tokens": 200}
    card = done(moded(job_spec))
    assert card.result["ok"], card.result["sentence"]


def test_the_history_shows_what_was_retained_and_which_experts_the_gates_chose(moded) -> None:
    card = done(moded({**STAGE_TWO, "training": {**TRAINING, "num_steps": 60}}))
    with reading() as session:
        history, of_law = (training_history.training_history(session, name) for name in ("tuned/composed", "law/court"))
        gates = {point.name for point in jobs.metrics(session, card.id) if point.name.startswith("gate/")}
    assert gates == {f"gate/{number}/{name}" for number in range(3) for name in (*TWO, "sea")}
    outcome = {domain.domain: domain for domain in history.domains}
    assert {name: one.retained for name, one in outcome.items()} == {"court": False, "kitchen": False, "sea": True}
    assert outcome["sea"].steps == [0, 15, 30, 45, 60]
    for one in outcome.values():
        assert all(list(look) == ["backbone", *TWO] for look in one.gates)
        assert all(sum(look.values()) == pytest.approx(1, abs=1e-5) for look in one.gates)
    first = {domain.domain: domain for domain in of_law.domains}["court"].gates[0]
    assert first == {"backbone": 0.5, "court": 0.5}  # a copy of its whole block starts open
    by_itself, both = ({domain.domain: domain.losses for domain in one.domains} for one in (of_law, history))
    assert both["court"][-1] < by_itself["court"][0]


def test_of_experts_trained_together_each_is_shown_on_its_own_domain(moded) -> None:
    with reading() as session:
        (seen,) = training_history.training_history(session, "small/court").domains
    assert seen.domain == "court"


def test_gates_are_numbered_where_nobody_wrote_their_parts_down(moded) -> None:
    submit({**FOOD, "name": "soon"})
    job_id = submit({**STAGE_TWO, "name": "later", "experts": ["law/court", "soon/kitchen"]})
    with transaction() as session:
        for name, value in (("gate/0/court", 0.75), ("gate/1/court", 0.25), ("dev_loss/court", 2.0)):
            session.add(Metric(job_id=job_id, name=name, step=1, value=value))
    with reading() as session:
        (seen,) = training_history.training_history(session, "later/composed").domains
    assert seen.gates == [{"backbone": 0.75, "part 1": 0.25}]


def test_gates_keep_the_names_of_what_was_trained_whatever_is_called_so_by_now(moded) -> None:
    job_id = paused_at({**STAGE_TWO, "experts": ["both/composed", "law/court"]}, 17)
    with reading() as session:
        (court, *_) = training_history.training_history(session, "tuned/composed").domains
        assert "Its gates weigh the backbone and the parts court, kitchen, court-2." in [
            event.message for event in jobs.events(session, job_id)
        ]
    assert list(court.gates[0]) == ["backbone", *TWO, "court-2"]
    with transaction() as session:
        jobs.request_stop(session, job_id, "cancel")
        mixtures.delete_mixture(session, "both")
        experts.delete_expert(session, "both/composed")
        experts.rename(session, "food/kitchen", "both/composed")  # with fewer parts
        assert training_history.gate_names(session, job_id) == ["backbone", *TWO, "court-2"]
        experts.rename(session, "law/court", "law/old")
        experts.rename(session, "small/court", "law/court")  # and none of MoDE
        assert training_history.gate_names(session, job_id) == ["backbone", *TWO, "court-2"]


def test_a_baseline_says_what_it_retains(moded) -> None:
    job_spec = {**STAGE_ONE, "kind": "train-joint", "name": "full", "method": "dense", "domains": TWO}
    done(moded({name: value for name, value in job_spec.items() if name != "shape"}))
    with reading() as session:
        history = training_history.training_history(session, "full/dense")
        shown = training_history.training_history(session, "law/court")
    full, law = ({domain.domain: domain for domain in one.domains}["sea"] for one in (history, shown))
    assert (full.retained, full.steps, full.gates) == (True, [0, 15, 30], [{}] * 3)
    assert full.losses[0] == pytest.approx(law.losses[0], abs=1e-5)  # before its first update each is the seed
    for wrong in ({"method": "demix"}, {"retain": ["court"]}):
        with pytest.raises(BadSpecError, match="retain"):
            submit({name: value for name, value in {**job_spec, "name": "x", **wrong}.items() if name != "shape"})


def test_what_is_done_in_one_process_says_so(moded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_PROCESSES", "2")
    get_settings.cache_clear()
    short = {**STAGE_ONE, "training": {**TRAINING, "num_steps": 2}, "name": "full"}
    full = {**short, "kind": "train-joint", "method": "dense"}
    card = done(moded({name: value for name, value in full.items() if name != "shape"}))
    words = "Domains to retain are evaluated in one process, so the training uses one."
    with reading() as session:
        assert words in [event.message for event in jobs.events(session, card.id)]
