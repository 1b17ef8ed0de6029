"""A request that reads through one expert while others load and evict on its backbone gets the answer it gets alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle

import pytest
import torch

from engine.config import SamplingConfig
from engine.events import Token
from engine.files import ArtifactRef
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate
from engine.inference.scores import score_text
from engine.loading.loaded_base import ModelCache, loaded_bytes
from engine.methods.mode.block import Block, active_keys
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.fixed import FixedGateConfig
from engine.models.rows import Rows
from engine.text.blocks import eval_sample
from tests.engine.clustered import tiny_tokenizer
from tests.engine.methods.mode.backbones import VOCAB, some_ids
from tests.engine.methods.mode.test_files import save

PARTS = {key: [key] for key in ("law", "code", "news")}
Disk = tuple[ArtifactRef, dict[str, ArtifactRef]]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    return save(tmp_path_factory.mktemp("three"), PARTS)


def scored(models: ModelCache, disk: Disk) -> list[float]:
    base, experts = disk
    model = models.get(base, {"law": experts["law"]}).view(["law"])
    text = eval_sample(some_ids(1, 25)[0].numpy(), 8)
    return [float(logprob) for logprob in score_text(model, "law", text, batch_size=2)]


def generated(models: ModelCache, disk: Disk) -> list[float]:
    """As the API does it: the model is asked for anew for every piece of text."""
    base, experts = disk
    group = Group(("law",), lambda: models.get(base, {"law": experts["law"]}).view(["law"]), 64, VOCAB)
    gate, sampling = build_gate(FixedGateConfig(), [1.0]), SamplingConfig(4, seed=2)
    events = generate(Ensemble((group,)), ["law"], gate, tiny_tokenizer(), "the court", sampling)
    return [event.logprob for event in events if isinstance(event, Token)]


@torch.inference_mode()
def shown(models: ModelCache, disk: Disk, key: str) -> torch.Tensor:
    base, experts = disk
    return models.get(base, {key: experts[key]}).view([key])(some_ids(), Rows.all_to(key, 3))


@contextmanager
def another_requests(models: ModelCache, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[set[str]]]:
    """After each block that law has passed, another thread asks another expert; gives what was in memory then."""
    expected = {key: shown(ModelCache(1 << 30), disk, key) for key in ("code", "news")}
    turns, forward, seen = cycle(expected), Block.forward, list[set[str]]()

    def ask(key: str) -> None:
        assert torch.equal(shown(models, disk, key), expected[key])
        seen.extend(map(set, models.loaded().values()))

    def passing(block: Block, *given: object, **named: object) -> torch.Tensor:
        y_BTD = forward(block, *given, **named)  # type: ignore[arg-type]
        if active_keys() == ("law-0",):
            other.submit(ask, next(turns)).result()
        return y_BTD

    with ThreadPoolExecutor(1) as other, monkeypatch.context() as patch:  # one asks at a time, or it would see others'
        patch.setattr(Block, "forward", passing)
        yield seen


@pytest.mark.parametrize("read", [scored, generated])
@pytest.mark.parametrize("page", [3, 1])
def test_a_running_answer_is_the_single_one_whatever_others_load_and_evict(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, read, page: int
) -> None:
    base, experts = disk
    by_itself = read(ModelCache(1 << 30), disk)
    models = ModelCache(loaded_bytes("stored", base, *[experts["law"]] * page))
    with another_requests(models, disk, monkeypatch) as seen:
        assert read(models, disk) == by_itself
    if page == 3:  # each has joined the model that is read from
        assert {"law", "code", "news"} in seen
    else:  # it was evicted, and so was who came in its place
        assert {frozenset(one) for one in seen} == {frozenset({"code"}), frozenset({"news"})}
