"""Models in memory stay within their bytes, whatever is asked for."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.errors import DamagedFileError
from engine.files import ArtifactRef, new_folder
from engine.inference.cancellation import CancelledError, cancel_scope
from engine.inference.ensemble import Ensemble, Group
from engine.inference.mixing import Mixing
from engine.loading.loaded_base import HostedBase, ModelCache
from engine.methods import multi_expert_files
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import load_experts, load_multi_expert, new_placement, read_limits
from engine.methods.parts.files import save_parts
from engine.mixing.cluster import ClusterGate
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel, Placement
from tests.engine.clustered import NUM_CLUSTERS, WORDS, tiny_routing, tiny_tokenizer
from tests.engine.conftest import VOCAB, small_shape
from tests.engine.methods.mode.backbones import backbone
from tests.engine.methods.mode.test_files import kept
from tests.engine.methods.mode.test_files import save as save_mode
from tests.engine.models.test_demix_files import save

Pair = tuple[ArtifactRef, dict[str, ArtifactRef]]


def size_bytes(model: torch.nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Four whole models on disk."""
    root = tmp_path_factory.mktemp("elms")
    return {
        f"e{seed}": save(
            MultiExpertModel(fresh_model(small_shape(), VOCAB, seed), [f"e{seed}"], new_placement()), root / str(seed)
        )
        for seed in range(4)
    }


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The bytes of all models that were loaded and are still in memory, whoever holds them."""
    alive: list[weakref.ref[MultiExpertModel]] = []

    def loading(base: ArtifactRef, experts: dict[str, ArtifactRef], placement: Placement) -> MultiExpertModel:
        model = load_experts(base, experts, placement)
        alive.append(weakref.ref(model))
        return model

    monkeypatch.setattr(multi_expert_files, "load_experts", loading)

    def count() -> int:
        gc.collect()
        return sum(size_bytes(model) for one in alive if (model := one()) is not None)

    return count


def one_size(stored: dict[str, Pair]) -> int:
    return size_bytes(load_multi_expert(*stored["e0"]))


def test_the_least_recently_used_goes_before_another_comes(stored, held: Callable[[], int]) -> None:
    size = one_size(stored)
    models = ModelCache(int(2.5 * size))
    for key in ("e0", "e1", "e0", "e2"):
        models.get(*stored[key])
        assert held() == models.num_bytes() <= 2 * size
    assert sorted(keys[0] for keys in models.loaded().values()) == ["e0", "e2"]
    assert models.get(*stored["e0"]) is models.get(*stored["e0"])


def test_one_model_is_always_loaded_however_little_memory(stored, held: Callable[[], int]) -> None:
    models = ModelCache(1)
    for key in ("e0", "e1"):
        models.get(*stored[key])
        assert held() == models.num_bytes() == one_size(stored)


def test_many_experts_on_disk_answer_within_the_bytes_of_two(stored, held: Callable[[], int]) -> None:
    size, keys, peak = one_size(stored), list(stored), 0
    models = ModelCache(int(2.5 * size))

    def group(key: str) -> Group:
        limits = read_limits(stored[key][0].folder)
        return Group((key,), lambda: models.get(*stored[key]).view([key]), limits.max_positions, limits.vocab_size)

    gate = ClusterGate([1.0] * NUM_CLUSTERS, tiny_routing(), temperature=0.3, top_k=2)
    bounded = Mixing(Ensemble(tuple(map(group, keys))), keys, gate)
    full = {key: load_multi_expert(*stored[key]) for key in keys}
    free = Mixing(Ensemble(tuple(Group((key,), lambda key=key: full[key], 64, VOCAB) for key in keys)), keys, gate)
    awake, of_full = set(), held()
    for words in WORDS:
        ids = [tiny_tokenizer().bos_id, *tiny_tokenizer().encode(words)][:14]
        for mixing in (bounded, free):
            mixing.feed(ids)
        weights_E, logprobs_V = bounded.distribution()
        assert torch.equal(logprobs_V, free.distribution()[1])
        awake |= set(weights_E.nonzero().flatten().tolist())
        peak = max(peak, held() - of_full)
    assert len(awake) > 2
    assert peak <= 2 * size


def test_limits_are_read_without_tensors(stored, model: MultiExpertModel, tmp_path: Path) -> None:
    base, _ = save(model, tmp_path)
    for file in base.folder.glob("*.safetensors"):
        file.unlink()
    limits = read_limits(base.folder)
    assert (limits.max_positions, limits.vocab_size) == (model.max_positions, model.vocab_size)


def test_every_division_of_a_backbone_counts_as_a_body_of_its_own(tmp_path: Path) -> None:
    base, experts = save_mode(tmp_path, {"law": ["law"]})
    model = ModeModel(backbone(), 3)
    model.add_expert("three", ModeConfig(3, 1))
    with new_folder(tmp_path / "three") as folder:
        save_parts(model, {"three": "three"}, folder, base_sha256=str(base.sha256), tokenizer_sha256="t")
    more = experts | {"three": kept(tmp_path / "three")}
    one, both = (ModelCache(1 << 40).get(base, wanted).num_bytes() for wanted in (experts, more))
    assert both > one + size_bytes(backbone())
    page = ModelCache(both - 1)
    first = page.get(base, experts)
    assert page.get(base, {"three": more["three"]}) is not first  # both do not fit
    assert page.num_bytes() < both
    page = ModelCache(both + 20_000)  # the headers of files count, too
    assert page.get(base, experts) is page.get(base, more)


@contextmanager
def another_reads(
    models: ModelCache, base: ArtifactRef, experts: dict[str, ArtifactRef], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Another thread reads these experts for as long as the block lasts, and a little longer."""
    reading, go_on, add = threading.Event(), threading.Event(), HostedBase.add

    def slowly(self: HostedBase, wanted: dict[str, ArtifactRef]) -> None:
        reading.set()
        assert go_on.wait(60)
        add(self, wanted)

    monkeypatch.setattr(HostedBase, "add", slowly)
    other = threading.Thread(target=models.get, args=(base, experts))
    other.start()
    try:
        assert reading.wait(60)
        yield
    finally:
        go_on.set()
        other.join()


def test_nobody_waits_for_an_expert_that_another_request_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, experts = save_mode(tmp_path, {"law": ["law"], "code": ["code"]})
    models = ModelCache(1 << 30)
    there = models.get(base, {"law": experts["law"]})
    with another_reads(models, base, experts, monkeypatch):
        assert models.get(base, {"law": experts["law"]}) is there
    assert models.loaded() == {(str(base.sha256), "stored"): ["law", "code"]}


def test_models_are_built_one_at_a_time(stored: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    build, running, most = PreTrainedModel.from_pretrained.__func__, list[object](), list[int]()

    def slowly(model_type: type, *given: object, **named: object) -> object:
        running.append(model_type)
        most.append(len(running))
        time.sleep(0.1)
        try:
            return build(model_type, *given, **named)
        finally:
            running.pop()

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(slowly))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: ModelCache(1 << 30).get(*stored[name]), stored))
    assert most == [1] * len(stored)


def test_one_whose_client_left_does_not_wait_until_another_has_read_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, experts = save_mode(tmp_path, {"law": ["law"], "code": ["code"]})
    models = ModelCache(1 << 30)

    def get_and_cancel() -> None:
        with cancel_scope(lambda: True), pytest.raises(CancelledError):
            models.get(base, experts)
        has_left.set()

    has_left = threading.Event()
    with another_reads(models, base, experts, monkeypatch):
        waiting = threading.Thread(target=get_and_cancel)
        waiting.start()
        has_left_meanwhile = has_left.wait(20)
    waiting.join()
    assert has_left_meanwhile
    assert models.loaded() == {(str(base.sha256), "stored"): ["law", "code"]}


def test_what_was_read_before_a_damaged_expert_counts(tmp_path: Path) -> None:
    base, experts = save_mode(tmp_path, {"law": ["law"], "code": ["code"]})
    part = experts["code"].folder / "part-0.safetensors"
    part.write_bytes(part.read_bytes()[:-8])
    models = ModelCache(1 << 30)
    with pytest.raises(DamagedFileError):
        models.get(base, experts)
    assert models.loaded() == {(str(base.sha256), "stored"): ["law"]}
    assert models.num_bytes() == models.get(base, {"law": experts["law"]}).num_bytes()


def test_models_that_nobody_uses_go_for_what_else_needs_memory(stored: dict[str, Pair]) -> None:
    size = one_size(stored)
    others = [0]
    models = ModelCache(int(3.5 * size), others=lambda: others[0])
    for name in ("e0", "e1", "e2"):
        models.get(*stored[name])
    with models.using([stored["e0"][0]]):
        assert models.evict_idle(size) == 2 * size  # the oldest is in use
        assert list(models.loaded()) == [(str(stored[name][0].sha256), "stored") for name in ("e0", "e2")]
        assert models.evict_idle(10 * size) == size
        others[0] = 2 * size
        models.get(*stored["e1"])  # what is read next has its place in any case
        assert list(models.loaded()) == [(str(stored["e1"][0].sha256), "stored")]
    assert models.evict_idle(3 * size) == 0


def test_who_is_used_goes_last(stored: dict[str, Pair]) -> None:
    models = ModelCache(int(2.5 * one_size(stored)))
    for name in ("e0", "e1"):
        models.get(*stored[name])
    with models.using([stored["e0"][0]]):
        models.get(*stored["e2"])
        assert list(models.loaded()) == [(str(stored[name][0].sha256), "stored") for name in ("e0", "e2")]
