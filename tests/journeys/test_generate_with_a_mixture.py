"""The second walk: a prompt, a plan, a gate, tokens with the weights behind each."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict
from typing import Any

import pytest

from engine.config import SamplingConfig
from engine.errors import DamagedFileError, MixtureError
from engine.events import Done, Token
from engine.loading.host import Host
from engine.mixing.gates.fixed import FixedGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from tests.journeys.conftest import planned
from workbench.answers.posteriors import Manifest
from workbench.errors import NotFoundError
from workbench.registry import experts
from workbench.registry.database import transaction

pytestmark = pytest.mark.usefixtures("trained")
SAMPLING = SamplingConfig(max_tokens=15, seed=4)


def text(events: list[Token | Done]) -> str:
    return "".join(event.text for event in events)


def test_a_mixture_answers_and_says_which_experts_files_and_weights_made_it() -> None:
    plan = planned("small")
    events = list(Host(device="cpu").stream(plan, "the court", SAMPLING))
    assert isinstance(events[-1], Done)
    for event in events[:-1]:
        assert math.fsum(event.weights.values()) == pytest.approx(1, abs=1e-6)
        assert set(event.weights) == {"small/court", "small/kitchen"}
    manifest = Manifest.of(plan).model_dump()
    assert [len(expert["sha256"]) for expert in manifest["experts"]] == [64, 64]
    assert manifest["gate"] == asdict(PosteriorGateConfig())


def test_the_posterior_leans_to_the_expert_whose_domain_the_text_is_of() -> None:
    host = Host(device="cpu")
    for text, leader in (("the appeal is dismissed with costs", 0), ("bake in a hot oven until golden", 1)):
        reading = host.posterior(planned("small"), text)
        assert reading.experts == ["small/court", "small/kitchen"]
        assert reading.weights[0] == pytest.approx([0.5, 0.5])
        assert reading.weights[-1][leader] > 0.7


def test_toggles_belong_to_the_request() -> None:
    host = Host(device="cpu")
    before = list(host.stream(planned("small"), "the", SAMPLING))
    by_itself = list(host.stream(planned("small", active=["small/kitchen"]), "the", SAMPLING))
    assert all(set(event.weights) == {"small/kitchen"} for event in by_itself[:-1])
    assert by_itself == list(host.stream(planned("small/kitchen"), "the", SAMPLING))  # L2
    assert list(host.stream(planned("small"), "the", SAMPLING)) == before


def test_an_expert_switched_off_in_the_registry_takes_part_nowhere() -> None:
    with transaction() as session:
        experts.set_enabled(session, ["small/court"], False)
    assert [expert.name for expert in planned("small").experts] == ["small/kitchen"]
    with pytest.raises(MixtureError, match="disabled in the registry"):
        planned("small/court")
    with transaction() as session:
        experts.set_enabled(session, ["small/kitchen"], False)
    with pytest.raises(MixtureError, match="Switch an expert on"):
        planned("small")


def test_weights_of_a_request_replace_those_of_the_mixture() -> None:
    plan = planned("small", weights={"small/court": 3, "small/kitchen": 1}, gate=FixedGateConfig())
    first = next(iter(Host(device="cpu").stream(plan, "the", SAMPLING)))
    assert first.weights == pytest.approx({"small/court": 0.75, "small/kitchen": 0.25})
    assert [expert.name for expert in planned("small", weights={"small/court": 1}).experts] == ["small/court"]


def test_unknown_names_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(NotFoundError, match=r"Neither a mixture nor an expert is called “big”.*small"):
        planned("big")
    with pytest.raises(NotFoundError, match="no expert in “small” called “moon”"):
        planned("small", active=["moon"])


def test_many_streams_together_each_give_what_they_would_by_themselves() -> None:
    host, prompts = Host(device="cpu"), ["the court", "mix flour", "waves", "serve"]
    plans = [planned("small"), planned("small/court"), planned("small", active=["small/kitchen"]), planned("small")]
    by_itself = [list(host.stream(plan, prompt, SAMPLING)) for plan, prompt in zip(plans, prompts, strict=True)]
    answers: list[Any] = [None] * 4

    def say(i: int) -> None:
        answers[i] = list(host.stream(plans[i], prompts[i], SAMPLING))

    threads = [threading.Thread(target=say, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == by_itself


def test_a_changed_file_is_refused_before_it_speaks() -> None:
    plan = planned("small")
    file = plan.experts[0].folder / "expert.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedFileError, match="bytes changed"):
        next(iter(Host(device="cpu").stream(plan, "the", SAMPLING)))


def test_two_experts_that_changed_places_are_refused() -> None:
    plan = planned("small")
    one, two = (expert.folder for expert in plan.experts)
    aside = one.with_name("aside")
    for source, target in ((one, aside), (two, one), (aside, two)):
        source.rename(target)
    with pytest.raises(DamagedFileError, match="not the one that was recorded"):
        next(iter(Host(device="cpu").stream(plan, "the", SAMPLING)))


def test_a_cache_too_small_for_all_experts_still_answers_each(home) -> None:
    roomy, tight = Host(device="cpu"), Host(cache_bytes=1, device="cpu")
    for model in ("small/court", "small/kitchen", "small"):
        assert list(tight.stream(planned(model), "the", SAMPLING)) == list(
            roomy.stream(planned(model), "the", SAMPLING)
        )
    assert [len(base.experts) for base in roomy.use().bases] == [2]
    list(tight.stream(planned("small/court"), "the", SAMPLING))
    assert [len(base.experts) for base in tight.use().bases] == [2]
    list(tight.stream(planned("small/kitchen"), "the", SAMPLING))


def test_a_request_is_one_hit_or_one_miss_however_many_tokens_it_reads() -> None:
    host = Host(device="cpu")
    for _ in range(3):
        assert len(list(host.stream(planned("small"), "the court", SAMPLING))) > 2
    use = host.use()
    assert (use.num_hits, use.num_misses) == (2, 1)


def test_moving_the_home_changes_no_answer(home, monkeypatch) -> None:
    from workbench.registry.database import close_engines
    from workbench.settings import get_settings

    before = list(Host(device="cpu").stream(planned("small"), "the court", SAMPLING))
    close_engines()
    home.rename(home.parent / "elsewhere")
    monkeypatch.setenv("WORKBENCH_HOME", str(home.parent / "elsewhere"))
    get_settings.cache_clear()
    assert list(Host(device="cpu").stream(planned("small"), "the court", SAMPLING)) == before
