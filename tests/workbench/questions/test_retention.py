"""Learned and kept: the same text for all, who is ahead, and the command for what is missing."""

from __future__ import annotations

import math
import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from engine.errors import MixtureError
from ui.cli import verbs
from ui.cli.app import main
from ui.present.text.retention import describe_left_out, retention_rows
from workbench.analysis import perplexity_tables
from workbench.errors import NotFoundError
from workbench.job_records import jobs
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import TrainMode
from workbench.questions.retention import (
    NOT_COUNTED,
    NOT_SCORED,
    Retention,
    RetentionDefaults,
    RetentionRequest,
    suggest_defaults,
)
from workbench.registry import corpora, experts, mixtures
from workbench.registry.seeds import MADE_OF, seed_row
from workbench.schema.job_tables import Job
from workbench.specs.base import Spec
from workbench.specs.requests import MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def score(
    world: World, expert: str, domain: str, accuracy: float | None, perplexity: float = 10.0, **other: Any
) -> None:
    measure = {"split": "test", "block_size": 8, "num_tokens": 200, **other}
    perplexity_tables.register_evaluation(
        world.session,
        expert_id=experts.get_expert(world.session, expert).id,
        domain_id=corpora.get_domain(world.session, domain).id,
        artifact=world.artifact("scores"),
        log_likelihood=-measure["num_tokens"] * math.log(perplexity),
        num_correct=None if accuracy is None else round(accuracy * measure["num_tokens"]),
        **measure,
    )


@pytest.fixture
def trained(world: World) -> World:
    """Three experts in a mixture each: “whole” learned most, “mode” kept most, “poor” is behind both."""
    world.corpus("text", "code", "law", "general")
    numbers = {"whole": (0.5, 0.4, 0.2), "mode": (0.4, 0.3, 0.3), "poor": (0.4, 0.2, 0.2)}
    for name, values in numbers.items():
        world.expert(f"{name}/code", "code")
        mixtures.create_mixture(world.session, MixtureSpec(name=name, experts=[f"{name}/code"]))
        for domain, accuracy in zip(("code", "law", "general"), values, strict=True):
            score(world, f"{name}/code", domain, accuracy, perplexity=1 / accuracy)
    return world


def ask(world: World, *targets: str, **other: Any) -> Retention:
    return RetentionRequest(retain="general", targets=targets, **other).answer(world.session, world.storage)


def test_what_was_learned_stands_against_what_was_kept(trained: World) -> None:
    outcome = ask(trained, "code", "law")
    rows = {row.expert: row for row in outcome.rows}
    assert rows["whole/code"].accuracy == {"code": 0.5, "law": 0.4, "general": 0.2}
    assert rows["whole/code"].learned == {
        "accuracy": pytest.approx(0.45),
        "perplexity": pytest.approx(math.sqrt(2 * 2.5)),
    }
    assert rows["mode/code"].kept == {"accuracy": 0.3, "perplexity": pytest.approx(1 / 0.3)}
    assert outcome.missing == []


def test_ahead_is_who_is_not_behind_another_in_both(trained: World) -> None:
    for number in ("accuracy", "perplexity"):
        ahead = [row.expert for row in ask(trained, "code", "law").rows if row.is_ahead[number]]
        assert ahead == ["mode/code", "whole/code"]


def test_targets_are_what_the_experts_were_trained_on_unless_named(trained: World) -> None:
    assert ask(trained).targets == ["code"]
    trained.expert("lawyer", "law")
    assert ask(trained, experts=["lawyer", "mode/code"]).targets == ["law", "code"]


def test_without_names_all_that_were_scored_on_the_domain_are_compared(trained: World) -> None:
    trained.expert("unscored", "law")
    assert [row.expert for row in ask(trained).rows] == ["mode/code", "poor/code", "whole/code"]
    with pytest.raises(NotFoundError, match="nothing of the kind"):
        ask(trained, "nothing of the kind")


def test_of_all_that_were_scored_those_of_the_most_common_tokenizer_are_compared(
    trained: World,
) -> None:
    trained.expert("foreign", "code", tokenizer_sha256="f" * 64)
    score(trained, "foreign", "general", 0.9)
    outcome = ask(trained, "code")
    assert outcome.left_out == ["foreign"]
    assert "foreign" not in {row.expert for row in outcome.rows}
    assert describe_left_out(outcome).startswith("Left out, since their tokenizers differ: foreign.")
    assert describe_left_out(outcome.model_copy(update={"left_out": []})) == ""


def test_who_kept_an_unknown_amount_comes_last(trained: World) -> None:
    trained.expert("dark", "code")
    outcome = ask(trained, "code", experts=["dark", "whole/code", "mode/code"])
    assert [row["expert"] for row in retention_rows(outcome)] == ["mode/code", "whole/code", "dark"]


def test_experts_of_other_tokenizers_are_not_compared(trained: World) -> None:
    trained.expert("foreign", "code", tokenizer_sha256="f" * 64)
    with pytest.raises(MixtureError, match="their tokenizers differ"):
        ask(trained, "code", experts=["mode/code", "foreign"])


def test_a_number_of_other_tokens_is_missing_and_so_is_the_mean(trained: World) -> None:
    trained.expert("new", "code")
    mixtures.create_mixture(trained.session, MixtureSpec(name="of new", experts=["new"]))
    for domain in ("code", "general"):
        score(trained, "new", domain, 0.9, block_size=16)
    outcome = ask(trained, "code", experts=["mode/code", "whole/code", "new"])
    row = outcome.rows[-1]
    assert (row.learned["accuracy"], row.kept["perplexity"], row.is_ahead["accuracy"]) == (None, None, None)
    assert [(gap.experts, gap.domains, gap.why) for gap in outcome.missing] == [
        (["new"], ["code", "general"], NOT_SCORED)
    ]


def test_what_is_missing_is_named_with_a_command_that_makes_it(trained: World, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[Spec] = []
    monkeypatch.setattr(verbs, "submit", lambda spec, _: requested.append(spec) or SimpleNamespace(id="j"))
    score(trained, "poor/code", "code", None)
    trained.expert("alone", "law")
    outcome = ask(trained, "code", experts=["mode/code", "poor/code", "alone"])
    for gap in outcome.missing:
        assert main(shlex.split(gap.command)[1:]) in (0, None)
    same = {"split": "test", "block_size": 8, "max_tokens": 200}
    assert [gap.why for gap in outcome.missing] == [NOT_COUNTED, NOT_SCORED]
    assert requested == [
        Evaluate(mixture="poor", domains=["code"], again=True, **same),
        Evaluate(mixture="mode", experts=["alone"], domains=["code", "general"], **same),
    ]


def test_what_is_missing_is_scored_of_all_on_one_number_of_tokens(trained: World) -> None:
    for expert in ("mode/code", "whole/code"):
        score(trained, expert, "code", 0.5, num_tokens=400)
    trained.expert("alone", "law")
    outcome = ask(trained, "code", "law", experts=["mode/code", "whole/code", "alone"])
    assert len({gap.command.split("--max-tokens")[1] for gap in outcome.missing}) == 1
    (evaluation,) = outcome.evaluations
    names = {"mixture": "mode", "experts": ["whole/code", "alone"], "domains": ["code", "law", "general"]}
    assert evaluation.spec == Evaluate(**names, split="test", block_size=8, max_tokens=400)
    assert ask(trained, "code", experts=["mode/code", "whole/code"]).evaluations == []


def test_what_is_likely_to_be_kept_was_scored(trained: World) -> None:
    trained.corpus("more", "a cluster", "unscored")
    assert suggest_defaults(trained.session, ["mode/code", "whole/code"]).retain == [
        "general",
        "law",
        "a cluster",
        "unscored",
        "code",
    ]


def begin_from_a_copy(world: World, expert: str) -> None:
    """Makes an expert of law, and its copy the seed of this one."""
    world.expert("first", "law")
    first = experts.expert_row(world.session, "first")
    job_id = jobs.create_job(world.session, MakeSeed(name="copy", source="expert", expert="first"))
    world.session.get_one(Job, job_id).result = {MADE_OF: first.id}
    world.seed("copy")
    seed_row(world.session, "copy").job_id = job_id
    experts.expert_row(world.session, expert).seed = seed_row(world.session, "copy")
    world.session.flush()


def test_a_comparison_is_suggested_for_what_was_retained_else_for_what_the_seed_knew(trained: World) -> None:
    names = ["mode/code", "whole/code"]
    assert suggest_defaults(trained.session, names) == RetentionDefaults(
        retain=["general", "law", "code"], targets=["code"]
    )
    begin_from_a_copy(trained, "mode/code")
    outcome = suggest_defaults(trained.session, [*names, "first"])
    assert outcome == RetentionDefaults(retain=["law", "general", "code"], targets=["code"])
    job_spec = TrainMode(name="m", seed_model="copy", domains=["code"], retain=["general"])
    experts.expert_row(trained.session, "whole/code").job_id = jobs.create_job(trained.session, job_spec)
    assert suggest_defaults(trained.session, names).retain == ["general", "law", "code"]


def test_the_expert_that_the_seed_is_a_copy_of_says_what_there_was_to_keep(trained: World) -> None:
    begin_from_a_copy(trained, "mode/code")
    outcome = ask(trained, experts=["mode/code", "whole/code"])
    assert [(row.expert, row.is_seed) for row in outcome.rows] == [
        ("mode/code", False),
        ("whole/code", False),
        ("first", True),
    ]
    assert outcome.targets == ["code"]  # what the seed was trained on is no target
