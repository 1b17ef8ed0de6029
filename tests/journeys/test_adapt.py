"""Adapting to a new domain: an expert of its own, or the whole model; what is watched, and when it ends."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sqlalchemy import delete, select

from engine.config import Precision
from engine.events import Saved, Step
from engine.inference.scores import as_blocks, score_text
from engine.methods.multi_expert_files import load_multi_expert
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.text.blocks import EvalSample, Tokens
from engine.text.tokenizer import load_tokenizer
from engine.training.optimizer import autocast_for
from jobs.queue.submit import run_now, submit
from tests.journeys.conftest import Do, paused_at, resumed
from ui.cli.app import main
from workbench.answers.cards import MetricPoint
from workbench.errors import BadSpecError, InUseError
from workbench.job_records import jobs
from workbench.registry import corpora, experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.requests.planning import plan
from workbench.schema.tables import Expert, Mixture, MixtureMember
from workbench.store.artifacts import find_artifact
from workbench.store.storage import get_storage

TRAINING = {
    "num_steps": 12,
    "block_size": 32,
    "learning_rate": 2e-2,
    "clip": 1.0,
    "checkpoint_every": 5,
    "evaluate_every": 4,
}
NEW = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small", "training": TRAINING}
WATCHED = {**NEW, "watch": ["court", "kitchen"]}


def hashes(home: Path) -> dict[str, str]:
    folder = home / "artifacts"
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.rglob("*.*")}


def curve(job_id: str, name: str) -> dict[int, float]:
    with reading() as session:
        return {point.step: point.value for point in jobs.metrics(session, job_id, f"dev_loss/{name}")}


def members(mixture: str) -> list[str]:
    with reading() as session:
        return [member.expert for member in mixtures.get_mixture(session, mixture).members]


def expert_names() -> list[str]:
    with reading() as session:
        return [card.name for card in experts.list_experts(session)]


def shared(expert: str) -> dict[str, Any]:
    with reading() as session:
        return load_file(get_storage().path(experts.get_expert(session, expert).base_id) / "shared.safetensors")


# the whole model -------------------------------------------------------------------------------------


def test_the_full_model_is_adapted_on_a_base_of_its_own_and_the_old_one_stays(trained: Do, home: Path) -> None:
    before = hashes(home)
    card = trained({**WATCHED, "name": "dapt", "full_model": True, "parent": "small/court"})
    assert card.state == "done", card.error
    assert (card.result["expert"], card.result["mixture"]) == ("dapt/sea", "dapt")
    with reading() as session:
        new, old = experts.get_expert(session, "dapt/sea"), experts.get_expert(session, "small/court")
    assert (new.parent, new.domain, new.seed, new.config["full_model"]) == ("small/court", "sea", "seed", True)
    assert new.base_id != old.base_id
    assert (members("dapt"), members("small")) == (["dapt/sea"], ["small/court", "small/kitchen"])
    ours, theirs = shared("dapt/sea"), shared("small/court")
    assert ours.keys() == theirs.keys()
    assert sum(not tensor.equal(theirs[name]) for name, tensor in ours.items()) == len(ours)  # all were trained
    after = hashes(home)
    assert {name: after[name] for name in before} == before  # L8
    with transaction() as session:
        assert mixtures.add_member(session, "small", "dapt/sea").base_ids == [old.base_id, new.base_id]


def test_the_adapted_model_forgets_and_a_new_expert_does_not(trained: Do) -> None:
    full = trained({**WATCHED, "name": "dapt", "full_model": True, "parent": "small/court"})
    by_itself = trained(WATCHED)
    assert all(card.state == "done" for card in (full, by_itself)), (full.error, by_itself.error)
    for card in (full, by_itself):
        assert list(curve(card.id, "sea")) == list(curve(card.id, "court")) == [0, 4, 8, 12]
        assert curve(card.id, "sea")[12] < curve(card.id, "sea")[0] - 0.3
    assert curve(full.id, "court")[12] > curve(full.id, "court")[0] + 0.5
    assert curve(by_itself.id, "court")[12] == pytest.approx(curve(by_itself.id, "court")[0], abs=0.1)


def dev_loss(expert: str, domain: str) -> float:
    """Of an expert alone, on the blocks that an evaluation takes."""
    storage = get_storage()
    with reading() as session:
        planned = plan(session, storage, expert)
        tokenizer = load_tokenizer(planned.base.folder)
        artifact = find_artifact(session, f"tokens:{corpora.get_domain(session, domain).id}:{tokenizer.sha256}")
        assert artifact is not None
        tokens = Tokens.open(storage.path(artifact.id), "dev")
    (one,) = planned.experts
    text = EvalSample.of_blocks(tokens, 32, 8)
    return -float(score_text(load_multi_expert(planned.base, {one.id: one.kept}), one.id, text).mean())


def test_what_is_watched_is_the_full_model_as_it_is(trained: Do) -> None:
    card = trained({**WATCHED, "name": "dapt", "full_model": True, "parent": "small/court"})
    for domain in ("sea", "court", "kitchen"):
        assert curve(card.id, domain)[12] == pytest.approx(dev_loss("dapt/sea", domain), rel=1e-5)
        assert curve(card.id, domain)[0] == pytest.approx(dev_loss("small/court", domain), rel=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_watched_beside_a_new_expert_is_the_mixture_that_holds_it(trained: Do, precision: Precision) -> None:
    card = trained({**WATCHED, "join": True, "training": {**TRAINING, "precision": precision}})
    storage = get_storage()
    with reading() as session:
        planned = plan(session, storage, "small")
        tokenizer = load_tokenizer(planned.base.folder)
        artifact = find_artifact(session, f"tokens:{corpora.get_domain(session, 'court').id}:{tokenizer.sha256}")
        assert artifact is not None
        tokens = Tokens.open(storage.path(artifact.id), "dev")
    text = EvalSample.of_blocks(tokens, 32, 8)
    model = load_multi_expert(planned.base, {one.id: one.kept for one in planned.experts})
    with autocast_for(precision, model.device):
        rows = torch.stack([torch.from_numpy(score_text(model, one.id, text)) for one in planned.experts])
    gate = build_gate(PosteriorGateConfig(), [one.weight for one in planned.experts])
    assert len(rows) == 3
    loss = -gate.total(as_blocks(rows, 32)) / rows.shape[1]
    assert curve(card.id, "court")[12] == pytest.approx(loss, rel=1e-5)


def test_the_forgetting_is_measured_on_the_same_held_out_text(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained({**WATCHED, "name": "dapt", "full_model": True, "parent": "small/court"}).state == "done"
    for mixture in ("small", "dapt"):
        job_spec = {"kind": "evaluate", "mixture": mixture, "block_size": 32, "max_tokens": 400}
        assert trained(job_spec).state == "done"
    assert main(["evaluate", "forgetting", "small/court", "dapt", "--json"]) == 0
    shown = {row["domain"]: row for row in json.loads(capsys.readouterr().out)["domains"]}
    assert shown["court"]["change_percent"] > 20
    assert shown["sea"]["change_percent"] < -20
    assert main(["evaluate", "forgetting", "small", "dapt"]) == 0
    shown = capsys.readouterr().out
    assert "On average over 2 train domains: +" in shown
    assert "On the target: −" in shown


@pytest.mark.parametrize(("method", "parent"), [("dense", "dense"), ("domain-token", "court")])
def test_a_baseline_is_adapted_as_what_it_is(trained: Do, method: str, parent: str) -> None:
    job_spec = {"kind": "train-joint", "name": "base", "seed_model": "seed", "domains": ["court", "kitchen"]}
    assert trained({**job_spec, "method": method, "training": TRAINING}).state == "done"
    card = trained({**WATCHED, "name": "dapt", "mixture": "base", "full_model": True, "parent": f"base/{parent}"})
    assert card.state == "done", card.error
    with reading() as session:
        new = experts.get_expert(session, "dapt/sea")
    assert (new.method, new.parent, new.domain) == (method, f"base/{parent}", "sea")
    assert curve(card.id, "sea")[12] < curve(card.id, "sea")[0]
    assert trained({**NEW, "mixture": "dapt", "watch": ["court"]}).result["mixture"] == "dapt"


# early stopping --------------------------------------------------------------------------------------


def test_a_job_with_patience_ends_early_says_so_and_keeps_the_best_weights(trained: Do) -> None:
    wild = {**TRAINING, "num_steps": 200, "learning_rate": 0.5, "evaluate_every": 2, "patience": 2}
    card = trained({**NEW, "training": wild})
    assert (card.state, card.progress) == ("done", 1.0), card.error
    losses = curve(card.id, "sea")
    assert max(losses) < 200
    with reading() as session:
        shown = [event.message for event in jobs.events(session, card.id)]
        perplexity = experts.get_expert(session, "sailor").metrics["dev_perplexity"]
    best = min(losses, key=losses.__getitem__)
    assert any(
        f"Stopped early, after step {max(losses)} of 200: the weights are those of step {best}" in one for one in shown
    )
    assert math.log(perplexity) == pytest.approx(losses[best])
    assert dev_loss("sailor", "sea") == pytest.approx(losses[best], rel=1e-5)


@pytest.mark.parametrize("kind", ["train-expert", "train-joint"])
def test_a_job_cut_after_its_last_checkpoint_keeps_its_perplexity_and_its_throughput(trained: Do, kind: str) -> None:
    job_spec = (
        NEW
        if kind == "train-expert"
        else {
            "kind": kind,
            "name": "two",
            "seed_model": "seed",
            "domains": ["sea", "court"],
            "training": TRAINING,
        }
    )
    job_id, events = run_now(job_spec)
    assert any(isinstance(event, Saved) and event.step == 12 for event in events)
    events.close()  # type: ignore[attr-defined]
    card = resumed(job_id)
    assert card.state == "done", card.error
    assert card.result["throughput"]["num_steps"] == 12
    with reading() as session:
        made = experts.get_expert(session, "sailor" if kind == "train-expert" else "two/sea")
    assert math.log(made.metrics["dev_perplexity"]) == pytest.approx(curve(job_id, "sea")[12])


def test_without_a_rate_a_tenth_of_the_parents_is_taken_and_reported(trained: Do) -> None:
    training = {name: value for name, value in TRAINING.items() if name != "learning_rate"}
    card = trained({**NEW, "training": training})
    assert card.state == "done", card.error
    with reading() as session:
        rates = {
            name: experts.get_expert(session, name).config["learning_rate"]
            for name in (card.result["parent"], "sailor")
        }
        shown = " ".join(event.message for event in jobs.events(session, card.id))
    assert rates == {card.result["parent"]: 5e-3, "sailor": pytest.approx(5e-4)}
    points = {point.value for point in _points(card.id, "learning_rate")}
    assert max(points) <= 5e-4 * 1.000001
    assert f"The peak learning rate is 0.0005: a tenth of what “{card.result['parent']}” was trained with." in shown
    share = card.result["parent_posterior"][card.result["parent"]]
    assert card.result["parent_blocks"] > 1
    assert (
        f"The parent is “{card.result['parent']}”: its mean posterior is {share:.2f} over "
        f"{card.result['parent_blocks']} held-out blocks of 32 tokens." in shown
    )
    with reading() as session:
        assert experts.get_expert(session, "sailor").metrics["parent_blocks"] == card.result["parent_blocks"]


def test_a_copy_of_a_copy_of_a_copy_learns_at_the_rate_of_the_first_copy(
    trained: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    training = {name: value for name, value in TRAINING.items() if name != "learning_rate"}
    parent = "small/court"
    for name in ("child", "grandchild", "last"):
        card = trained({**NEW, "name": name, "parent": parent, "join": True, "training": training})
        assert card.state == "done", card.error
        parent = name
    with reading() as session:
        made = [experts.get_expert(session, name) for name in ("child", "grandchild", "last")]
        shown = " ".join(event.message for event in jobs.events(session, card.id))
    assert [one.parent for one in made] == ["small/court", "child", "grandchild"]
    assert [one.config["learning_rate"] for one in made] == [pytest.approx(5e-4)] * 3
    assert "The peak learning rate is 0.0005: a tenth of what “small/court” was trained with." in shown
    assert trained({"kind": "evaluate", "mixture": "small", "split": "dev", "block_size": 32}).state == "done"
    assert main(["expert", "nearest", "sea", "--mixture", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["learning_rate"] == pytest.approx(5e-4)


def _points(job_id: str, name: str) -> list[MetricPoint]:
    with reading() as session:
        return jobs.metrics(session, job_id, name)


def test_a_parent_that_does_not_say_its_rate_needs_one(trained: Do) -> None:
    with transaction() as session:
        for expert in session.scalars(select(Expert)):
            expert.config = {}
    training = {name: value for name, value in TRAINING.items() if name != "learning_rate"}
    card = trained({**NEW, "training": training})
    assert (card.state, card.next_step) == ("failed", "Set a learning rate.")
    assert trained(NEW).state == "done"


# several ---------------------------------------------------------------------------------------------


def test_experts_are_added_one_after_another_and_none_that_was_there_changes(trained: Do, home: Path) -> None:  # L8
    for number, domain in enumerate(["sea", "court", "sea"]):
        before = hashes(home)
        card = trained({**NEW, "name": f"new {number}", "domain": domain})
        assert card.state == "done", card.error
        after = hashes(home)
        assert {name: after[name] for name in before} == before
        assert len(members("small")) == 3 + number
    assert members("small") == ["small/court", "small/kitchen", "new 0", "new 1", "new 2"]


def test_two_that_are_trained_concurrently_both_end_up_in_the_mixture(trained: Do) -> None:
    assert trained(NEW).state == "done"
    ids, streams = zip(*(run_now({**NEW, "name": name, "parent": "small/court"}) for name in "ab"), strict=True)
    open_ones = list(streams)
    while open_ones:
        open_ones = [one for one in open_ones if next(one, None) is not None]
    with reading() as session:
        assert [jobs.get_job(session, id).state for id in ids] == ["done", "done"]
    assert sorted(members("small")) == ["a", "b", "sailor", "small/court", "small/kitchen"]


# what cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"watch": ["moon"]}, "no domain called “moon”"),
        ({"watch": ["sea"]}, "not the training domain"),
        ({"watch": ["court", "court"]}, "Name each domain to watch once"),
        ({"full_model": True, "name": "small"}, "A mixture called “small” exists already"),
        ({"training": {"patience": 0}}, "patience"),
    ],
)
def test_such_a_spec_is_refused_at_the_click(trained: Do, change, words) -> None:
    assert trained
    with pytest.raises(BadSpecError, match=words):
        submit({**NEW, **change})
    with reading() as session:
        assert not jobs.list_jobs(session, kind="train-expert")


@pytest.mark.parametrize("domain", ["little", "court"])
def test_too_little_text_fails_by_name_and_leaves_nothing(trained: Do, home: Path, domain: str) -> None:
    path = home / "little.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a", "b", "c", "d")))
    assert trained({"kind": "import-corpus", "name": "little", "path": str(path)}).state == "done"
    watch = ["little"] if domain == "court" else []
    card = trained({**NEW, "domain": domain, "watch": watch})
    assert card.state == "failed"
    assert re.search(r"held-out text of .*“little” has 2 tokens.* one block of 32", card.error)
    assert card.next_step
    assert expert_names() == ["small/court", "small/kitchen"]


def test_a_parent_that_was_deleted_meanwhile_fails_the_job_and_nothing_is_made(trained: Do) -> None:
    assert trained({**NEW, "name": "closer"}).state == "done"
    job_id, events = run_now(NEW)  # the nearest is “closer”
    for event in events:
        if isinstance(event, Step) and event.step == 3:
            with transaction() as session:
                mixtures.remove_member(session, "small", "closer")
                experts.delete_expert(session, "closer")
        if isinstance(event, Step) and event.step == 11:
            break
    with pytest.raises(Exception, match="The parent “closer” was deleted"):
        list(events)
    with reading() as session:
        card = jobs.get_job(session, job_id)
    assert card.state == "failed"
    assert "was deleted while its copy was trained" in card.error
    assert card.next_step
    assert expert_names() == ["small/court", "small/kitchen"]


def test_a_parent_that_a_paused_training_began_from_and_that_is_gone_is_named(trained: Do) -> None:
    assert trained({**NEW, "name": "closer"}).state == "done"
    job_id = paused_at(NEW, 6)
    with transaction() as session:
        mixtures.remove_member(session, "small", "closer")
        experts.delete_expert(session, "closer")
    card = resumed(job_id)
    assert (card.state, expert_names()) == ("failed", ["small/court", "small/kitchen"])
    assert "The parent that this training started from" in card.error


def test_a_mixture_is_not_deleted_while_a_training_needs_it_nor_a_domain_that_is_watched(trained: Do) -> None:
    job_id = paused_at(WATCHED, 6)
    with pytest.raises(InUseError, match="Train expert sailor"), transaction() as session:
        mixtures.delete_mixture(session, "small")
    with transaction() as session:
        session.execute(delete(MixtureMember))
        session.execute(delete(Mixture))
        for name in ("small/kitchen", "small/court"):
            session.execute(delete(Expert).where(Expert.name == name))
    with pytest.raises(InUseError, match="Train expert sailor"), transaction() as session:
        corpora.delete_corpus(session, "court")
    card = resumed(job_id)
    assert card.state == "failed"
    assert "no mixture called “small”" in card.error


def test_an_expert_whose_mixture_vanished_meanwhile_is_kept_and_that_is_reported(trained: Do) -> None:
    job_id, events = run_now(NEW)
    for event in events:
        if isinstance(event, Step) and event.step == 6:
            with transaction() as session:  # past every service: those refuse it
                session.execute(delete(MixtureMember))
                session.execute(delete(Mixture))
    with reading() as session:
        card = jobs.get_job(session, job_id)
    assert (card.state, card.result["mixture"]) == ("done", None)
    assert "sailor" in expert_names()
