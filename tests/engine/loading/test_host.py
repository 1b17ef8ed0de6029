"""What a host of models keeps in memory in addition to their weights, and how often it reads files."""

from __future__ import annotations

import gc
import json
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from transformers import LlamaConfig

from engine.files import ArtifactRef, write_manifest
from engine.inference.cancellation import CancelledError, cancel_scope
from engine.loading import host as host_module
from engine.loading.host import CacheBytes, Host, bytes_per_position
from engine.loading.plan import GenerationPlan, PlannedExpert, Route
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.families import fresh_model
from tests.engine.clustered import tiny_clustering
from tests.engine.conftest import VOCAB, small_shape
from tests.engine.tokenizer_shapes import llama_like


def planned(folder: Path) -> GenerationPlan:
    """A plan that is weighed by nearness to the clusters in a folder."""
    route = Route(folder.name, ArtifactRef(folder), None, (0,))
    return GenerationPlan("mix", (), (), "", ClusterGateConfig(clustering=folder.name), route)


def test_of_many_clusterings_only_the_last_used_stay_in_memory(tmp_path: Path) -> None:
    plans = []
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        tiny_clustering().save(folder)
        write_manifest(folder)
        plans.append(planned(folder))
    host = Host(device="cpu")
    loaded = [weakref.ref(host._clustering(plans[place])) for place in (0, 1, 2, 3, 0, 4)]
    gc.collect()
    assert [one() is not None for one in loaded] == [True, False, True, True, True, True]
    assert host._clustering(plans[0]) is loaded[0]()


def base_folder(folder: Path, ends: list[int] | None) -> ArtifactRef:
    """A base without weights."""
    LlamaConfig(vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1).save_pretrained(folder)
    llama_like().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (folder / "chat_template.jinja").write_text("{% for one in messages %}{{ one.content }}{% endfor %}")
    return ArtifactRef(folder)


def test_a_mixture_ends_where_a_model_on_any_of_its_bases_would(tmp_path: Path) -> None:
    experts = []
    for name, ends in (("one", [2]), ("other", [2, 260]), ("before", None)):
        base = base_folder(tmp_path / name, ends)
        experts.append(PlannedExpert(name, name, "", base.folder, 1.0, base))
    for order in (experts, experts[::-1]):
        plan, host = GenerationPlan("mix", tuple(order), (), "", PosteriorGateConfig()), Host(device="cpu")
        assert host._stop_ids(plan, host._tokenizer(plan)) == {1, 2, 260}


def test_the_files_of_a_base_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()
    for name in ("read_limits", "read_config", "load_tokenizer", "load_chat_template", "stop_ids"):
        read = getattr(host_module, name)

        def counted(*arguments: Any, name: str = name, read: Any = read) -> Any:
            reads[name] += 1
            return read(*arguments)

        monkeypatch.setattr(host_module, name, counted)
    base, host = base_folder(tmp_path / "base", [2]), Host(device="cpu")
    experts = tuple(PlannedExpert(name, name, "", base.folder, 1.0, base) for name in ("law", "code"))
    plan = GenerationPlan("mix", experts, (), "", PosteriorGateConfig())
    for _ in range(2):
        host.require_readable(plan, "ab")
        host.conversation_prompt(plan, [{"role": "user", "content": "ab"}], {})
        host._stop_ids(plan, host._tokenizer(plan))
    assert set(reads.values()) == {1}


def test_who_does_not_fit_waits_until_another_has_left() -> None:
    cache, inside, leave, order = CacheBytes(10), Event(), Event(), list[str]()

    def first() -> None:
        with cache.reserved(6):
            inside.set()
            assert leave.wait(60)
            order.append("first")

    def second() -> None:
        with cache.reserved(5):
            order.append("second")

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first)
        assert inside.wait(60)
        other = threads.submit(second)
        assert cache.num_reserved == 6
        leave.set()
        one.result()
        other.result()
    assert order == ["first", "second"]
    assert cache.num_reserved == 0


def test_one_stream_always_fits() -> None:
    cache = CacheBytes(1)
    with cache.reserved(100):
        assert cache.num_reserved == 100


def test_what_is_idle_goes_for_a_stream_before_it_waits() -> None:
    idle = [4, 3]

    def shrink(wanted: int) -> int:
        while idle and sum(idle) + wanted > 10:
            idle.pop()
        return sum(idle)

    cache = CacheBytes(10, shrink)
    with cache.reserved(3):
        assert idle == [4, 3]
        with cache.reserved(2):
            assert idle == [4]


def test_who_waits_looks_again_when_something_else_is_idle() -> None:
    in_use, waits, inside = [8], Event(), Event()

    def shrink(_: int) -> int:
        waits.set()
        return sum(in_use)

    cache = CacheBytes(10, shrink)

    def second() -> None:
        with cache.reserved(2):
            inside.set()

    with ThreadPoolExecutor(1) as threads, cache.reserved(1):
        waits.clear()
        other = threads.submit(second)
        assert waits.wait(60)
        assert not inside.is_set()
        in_use.clear()
        cache.retry()
        other.result(30)
    assert inside.is_set()


def test_bytes_are_those_of_a_cache_that_was_filled() -> None:
    import torch
    from transformers import DynamicCache

    lm, cache = fresh_model(small_shape(), VOCAB), DynamicCache()
    lm(input_ids=torch.ones(1, 5, dtype=torch.long), past_key_values=cache, use_cache=True)
    filled = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert filled == 5 * bytes_per_position(lm.config)


def test_a_stream_that_nobody_wants_any_more_leaves_its_place_to_the_next() -> None:
    cache, gave_up, waits = CacheBytes(10), Event(), Event()

    def unwanted() -> None:
        def is_cancelled() -> bool:
            waits.set()
            return gave_up.is_set()

        with cancel_scope(is_cancelled), cache.reserved(8):
            raise AssertionError("it does not fit")

    with ThreadPoolExecutor(1) as threads, cache.reserved(6):
        stream = threads.submit(unwanted)
        assert waits.wait(60)
        gave_up.set()
        assert isinstance(stream.exception(60), CancelledError)
        with cache.reserved(4):  # would wait behind it
            assert cache.num_reserved == 10
    assert cache.num_reserved == 0
