"""A manifest keeps what was asked for and says what happened; an answer is made again as its manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from engine.config import SamplingConfig, ServePrecision
from engine.events import Done, Drafting, Token
from engine.loading.plan import GenerationPlan
from engine.mixing.gates.posterior import PosteriorGateConfig
from workbench.answers.posteriors import Manifest, StoredAnswer, StoredChoice
from workbench.requests.verification import verify


def manifest(speculate: bool = True) -> Manifest:
    sampling = asdict(SamplingConfig(speculate=speculate))
    return Manifest(model="m", experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None, sampling=sampling)


def test_drafts_of_all_answers_are_counted() -> None:
    made = manifest().after([Drafting(15, 12), Drafting(0, 0, "other streams filled its passes"), None])
    assert (made.sampling, made.num_drafted) == (manifest().sampling, 15)
    assert made.speculation == "12 of 15 drafted tokens were the mixture's own."


def test_an_answer_without_drafts_says_why_and_keeps_its_request() -> None:
    made = manifest().after([Drafting(0, 0, "one expert has no others to draft for")])
    assert (made.sampling, made.num_drafted) == (manifest().sampling, 0)
    assert made.speculation == "Nothing was drafted: one expert has no others to draft for."


def test_an_answer_without_speculation_names_no_drafts() -> None:
    assert manifest(speculate=False).after([None]) == manifest(speculate=False)


@pytest.mark.parametrize(
    ("stored", "speculates"),
    [
        (manifest().after([Drafting(0, 0, "other streams filled its passes")]), False),
        (manifest().after([Drafting(15, 12)]), True),
        (manifest(), True),  # as earlier versions stored an answer with drafts
        (manifest(speculate=False).model_copy(update={"speculation": "Nothing was drafted."}), False),  # and without
        (manifest(speculate=False), False),
    ],
)
def test_a_stored_answer_is_made_again_as_it_was_decoded(stored: Manifest, speculates: bool) -> None:
    requested: list[SamplingConfig] = []
    plan = GenerationPlan("m", (), (), "", PosteriorGateConfig())

    def stream(_: GenerationPlan, __: list[int], sampling: SamplingConfig) -> Iterator[Token | Done]:
        requested.append(sampling)
        return iter(())

    read_again = Manifest.model_validate_json(stored.model_dump_json())
    verify(StoredAnswer(manifest=read_again, choices=[StoredChoice(index=0, token_ids=[1])]), plan, stream)
    assert [sampling.speculate for sampling in requested] == [speculates]


def test_a_manifest_says_the_precision_of_the_weights() -> None:
    plan = GenerationPlan("mix", (), (), "", PosteriorGateConfig())
    assert Manifest.of(plan).precision == "stored"
    assert Manifest.of(replace(plan, precision="bf16")).precision == "bf16"


@pytest.mark.parametrize(("recorded", "now"), [("stored", "float32"), ("float32", "stored"), ("bf16", "bf16")])
def test_an_answer_is_replayed_in_its_own_precision_and_another_one_is_named(
    recorded: ServePrecision, now: ServePrecision
) -> None:
    plan = GenerationPlan("mix", (), (), "", PosteriorGateConfig(), precision=now)
    manifest = Manifest.of(replace(plan, precision=recorded), SamplingConfig())
    choice = StoredChoice(index=0, token_ids=[1], prompt_token_ids=[2])
    used: list[ServePrecision] = []

    def stream(plan: GenerationPlan, prompt: Any, sampling: SamplingConfig) -> Iterator[Token]:
        used.append(plan.precision)
        return iter(())

    result = verify(StoredAnswer(manifest=manifest, choices=[choice]), plan, stream)
    assert used == [recorded]
    assert result.changed == ([] if recorded == now else [f"precision {recorded}, now {now}"])
