"""A composed expert of MoDE answers: its parts switched per request, its gates shown, and no trace left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.errors import MixtureError
from engine.events import Done, GateWeights, Token
from engine.loading.host import Host
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.descriptor import METHOD
from engine.methods.parts.files import save_parts
from tests.journeys.conftest import planned
from ui.cli.app import main
from workbench.answers.posteriors import Manifest
from workbench.errors import NotFoundError
from workbench.registry import experts, mixtures, seeds
from workbench.registry.database import reading, transaction
from workbench.requests import planning
from workbench.schema.base import new_id
from workbench.specs.requests import MixtureRequest, MixtureSpec
from workbench.store import artifacts
from workbench.store.storage import get_storage

SAMPLING = SamplingConfig(max_tokens=10, seed=4)
PARTS = ["court", "kitchen"]


@pytest.fixture(autouse=True)
def composed(trained: Any) -> None:
    """The mixture `apps` of `apps/composed`."""
    assert trained
    register(PARTS, "apps/composed")
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="apps", experts=["apps/composed"]))


def register(parts: list[str], name: str) -> None:
    """An expert beside the seed model, with parts that were trained by chance."""
    storage, id = get_storage(), new_id()
    with transaction() as session:
        seed = seeds.seed_row(session, "seed")
        base = storage.kept(seed.artifact)
        model = METHOD.open_base(base, ModeConfig(2))
        for part in parts:
            model.add_expert(part, ModeConfig(2, 1, init="random", start="even", seed=len(part)))
            generator = torch.Generator().manual_seed(len(part))
            for parameter in model.gate_parameters(part).values():
                parameter.data += torch.randn(parameter.shape, generator=generator)
        with storage.new(id) as folder:
            shown = {"base_sha256": str(base.sha256), "tokenizer_sha256": seed.tokenizer_sha256}
            save_parts(model, {part: part for part in parts}, folder, **shown)
        experts.register_expert(
            session,
            id=id,
            name=name,
            method="mode",
            domain_id=None,
            seed_id=seed.id,
            parent_id=None,
            base=seed.artifact,
            artifact=artifacts.register_artifact(session, storage, id, "mode-expert"),
            tokenizer_sha256=seed.tokenizer_sha256,
            data_sha256="",
            num_parameters=1,
            metrics={},
            config={"domains": parts, "parts": [{"name": part, "domain": part, "of": None} for part in parts]},
        )


def message(host: Host, parts: list[str] | None = None) -> list[Token]:
    return [
        one
        for one in host.stream(planned("apps", parts={"apps/composed": parts}), "the court", SAMPLING)
        if isinstance(one, Token)
    ]


def test_each_token_has_the_weights_of_backbone_and_active_parts() -> None:
    host = Host(device="cpu")
    for requested, active in ((None, PARTS), (["kitchen"], ["kitchen"]), (PARTS[::-1], PARTS), ([], [])):
        for token in message(host, requested):
            gates = token.gates["apps/composed"]
            assert list(gates.parts) == active
            for weights in zip(gates.backbone, *gates.parts.values(), strict=True):
                assert sum(weights) == pytest.approx(1, abs=1e-6)  # L5
        assert Manifest.of(planned("apps", parts={"apps/composed": requested})).experts[0].parts == list(active)


def test_switching_belongs_to_the_request() -> None:
    host = Host(device="cpu")
    before, one = message(host), message(host, ["kitchen"])
    assert [token.logprob for token in one] != [token.logprob for token in before]
    assert message(host, PARTS[::-1]) == before  # in whatever order
    assert message(host) == before
    assert message(host, ["kitchen"]) == one == message(Host(device="cpu"), ["kitchen"])


def test_with_all_parts_off_the_seed_model_speaks() -> None:
    from transformers import AutoModelForCausalLM

    host = Host(device="cpu")
    plan = planned("apps", parts={"apps/composed": []})
    result = host.posterior(plan, "the court held")
    ids = torch.tensor([host._tokenizer(plan).encode("the court held")])
    start = torch.tensor([[host._tokenizer(plan).bos_id]])
    with torch.no_grad():
        lm = AutoModelForCausalLM.from_pretrained(plan.base.folder)
        logits = lm(torch.cat([start, ids], 1)).logits
    expected = logits[:, :-1].log_softmax(-1).gather(-1, ids[..., None])[0, :, 0]
    assert result.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
    assert result.gate_weights[0] == {"apps/composed": GateWeights((1.0, 1.0), {})}


def test_parts_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(NotFoundError, match=r"no part of “apps/composed” called “sea”. Known: court, kitchen"):
        planned("apps", parts={"apps/composed": ["sea"]})
    with reading() as session:
        with pytest.raises(NotFoundError, match="no expert in “apps” called “small/court”"):
            planning.plan(session, get_storage(), MixtureRequest("apps", parts={"small/court": []}))
        with pytest.raises(MixtureError, match="has no parts: its method is “demix”"):
            planning.plan(session, get_storage(), MixtureRequest("small", parts={"small/court": []}))


def test_the_command_line_switches_parts_and_shows_their_mean_weights(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["generate", "apps", "the court", "--max-tokens", "4", "--seed", "1", "--parts", "apps/composed:kitchen"]
    assert main(ask) == 0
    printed = capsys.readouterr().err
    assert "Inside apps/composed: backbone " in printed
    assert "kitchen " in printed
    assert "court " not in printed
    assert main([*ask, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["tokens"][0]["gates"]["apps/composed"]["parts"]) == ["kitchen"]
    means = result["mean_gates"]["apps/composed"]
    assert means["backbone"] + means["parts"]["kitchen"] == pytest.approx(1, abs=1e-5)


def test_an_answer_that_is_closed_early_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    host = Host(device="cpu")
    stream: Iterator[Token | Done] = host.stream(
        planned("apps", parts={"apps/composed": ["court"]}), "the court", SAMPLING
    )
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert message(host) == message(Host(device="cpu"))


def test_a_base_that_comes_back_to_memory_in_other_company_goes_on_as_before() -> None:
    """Two bases of one mixture that do not fit together are read again for every token."""
    register(["kitchen"], "others/composed")
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="wide", experts=["apps/composed", "small/court"]))
    with reading() as session:
        wide, others = (planning.plan(session, get_storage(), name) for name in ("wide", "others/composed"))
    roomy = Host(device="cpu")
    expected = list(roomy.stream(wide, "the court", SAMPLING))
    tight = Host(cache_bytes=roomy._cache.num_bytes() - 1, device="cpu")
    next(tight.stream(others, "the court", SAMPLING))  # in memory before the expert that is asked
    assert list(tight.stream(wide, "the court", SAMPLING)) == expected
