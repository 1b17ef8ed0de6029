"""What a CUDA device computes is what a CPU does: training, scores, texts, vectors and files of all methods.

Skipped where there is none. The engine's libraries and pytest are enough:
python -m pytest tests/gpu --confcutdir=tests/gpu
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.clusters.embedders.hidden_states import embedder_of
from engine.config import LoraConfig, ModelConfig, SamplingConfig, TrainingConfig
from engine.device import choose_device
from engine.events import Evaluated, Note, Step, Token
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate
from engine.inference.scores import score_text
from engine.inference.shared_passes import SharedPasses
from engine.loading.loaded_base import load_base
from engine.methods.joint_training import train_distributed
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import new_placement
from engine.methods.parts.parts_model import ActiveParts
from engine.methods.registry import get_method
from engine.mixing.base import FixedGate, Gate
from engine.mixing.posterior import PosteriorGate
from engine.models.families import fresh_model, load_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import Tokens, eval_sample
from engine.text.tokenizer import train_tokenizer
from engine.training.data import DomainText, PackedDomain
from engine.training.loop import train
from tests.engine.training import test_precision as small

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device.")
VOCAB, KEYS = 300, ["law", "code", "news", "verse"]
CPU, GPU = torch.device("cpu"), torch.device("cuda")
CONFIG = TrainingConfig(
    num_steps=6,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=3,
    evaluate_every=3,
    evaluation_blocks=2,
    seed=1,
    precision="fp32",
)
PLACES = ["ffn", "token", "adapter"]


@pytest.fixture(autouse=True)
def _all_memory() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def model_with(keys: Sequence[str], family: str = "llama", experts_in: str = "ffn", width: int = 32) -> Any:
    """A model whose experts differ, the same at every call."""
    shape = ModelConfig(family=family, num_layers=2, width=width, num_heads=2, ffn_width=2 * width, max_positions=64)  # type: ignore[arg-type]
    model = new_placement(experts_in).build(fresh_model(shape, VOCAB, seed=7), list(keys), LoraConfig(rank=8)).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key in keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def mode_model(keys: Sequence[str]) -> ModeModel:
    shape = ModelConfig(num_layers=4, width=32, num_heads=2, ffn_width=64, max_positions=64)
    model = ModeModel(fresh_model(shape, VOCAB, seed=3), 2).eval()
    generator = torch.Generator().manual_seed(5)
    for key in keys:
        model.add_expert(key, ModeConfig(num_blocks=2, expert_layers=2))
        with torch.no_grad():
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def texts_of(keys: Sequence[str]) -> list[DomainText]:
    """Domains whose tokens come from different parts of the vocabulary."""
    width = (VOCAB - 1) // len(keys)

    def tokens(seed: int, length: int, low: int) -> Tokens:
        ids = np.random.default_rng(seed).integers(low, low + width, length).astype(np.uint16)
        return Tokens(ids, np.zeros(1, dtype=np.int64))

    return [
        DomainText(f"domain {key}", key, tokens(i, 400, 1 + i * width), tokens(50 + i, 100, 1 + i * width))
        for i, key in enumerate(keys)
    ]


def trained(model: Any, folder: Path, config: TrainingConfig = CONFIG, only: Sequence[str] | None = None) -> list[Any]:
    return list(train(model, texts_of(model.keys), config, folder, only_experts=only))


def losses(events: Sequence[Any]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def held_out(events: Sequence[Any]) -> list[float]:
    return [loss for event in events if isinstance(event, Evaluated) for loss in event.loss_by_domain.values()]


# training ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("experts_in", PLACES)
def test_a_training_has_the_losses_and_weights_of_the_cpu(experts_in: str, family: str, tmp_path: Path) -> None:
    here = model_with(KEYS, family, experts_in)
    there = copy.deepcopy(here).to(GPU)
    only = KEYS if experts_in == "adapter" else None
    expected, events = trained(here, tmp_path / "cpu", only=only), trained(there, tmp_path / "gpu", only=only)
    assert losses(events) == pytest.approx(losses(expected), rel=1e-4)
    assert held_out(events) == pytest.approx(held_out(expected), rel=1e-3)
    theirs = here.state_dict()
    for name, tensor in there.state_dict().items():  # Adam turns the sign of a gradient near 0 into a full step
        torch.testing.assert_close(tensor.cpu(), theirs[name], atol=3e-3, rtol=1e-3)


def test_a_mode_training_has_the_losses_of_the_cpu_and_leaves_the_backbone(tmp_path: Path) -> None:
    here = mode_model(["law", "code"])
    there = copy.deepcopy(here)
    there.to(GPU)
    before = {name: tensor.clone() for name, tensor in there.state_dict().items()}
    pairs = []
    for model, folder in ((here, "cpu"), (there, "gpu")):
        active = ActiveParts(model, ["law"], "law")
        pairs.append(losses(list(train(active, texts_of(["law"]), CONFIG, tmp_path / folder, only_experts=["law"]))))
    assert pairs[1] == pytest.approx(pairs[0], rel=1e-4)
    learnt = {parameter.data_ptr() for parameter in there.expert_parameters("law").values()}
    for name, tensor in there.state_dict().items():
        assert torch.equal(tensor, before[name]) != (tensor.data_ptr() in learnt), name


@pytest.mark.parametrize("experts_in", PLACES)
def test_a_resumed_training_ends_as_one_that_was_not_stopped(experts_in: str, tmp_path: Path) -> None:
    full, cut = (model_with(KEYS, experts_in=experts_in).to(GPU) for _ in range(2))
    expected = losses(trained(full, tmp_path / "one"))
    events = train(cut, texts_of(KEYS), CONFIG, tmp_path / "cut")
    first = []
    for event in events:
        if isinstance(event, Step):
            first.append(event.loss)
            if event.step == 4:
                break
    events.close()  # type: ignore[attr-defined]
    again = model_with(KEYS, experts_in=experts_in).to(GPU)
    rest = losses(trained(again, tmp_path / "cut"))
    assert first + rest == pytest.approx(expected, rel=1e-6)
    theirs = full.state_dict()
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("experts_in", PLACES)
def test_auto_precision_is_bf16_and_learns_as_fp32_does(experts_in: str, tmp_path: Path) -> None:
    config = replace(CONFIG, num_steps=60, learning_rate=1e-2, evaluate_every=60, checkpoint_every=60)
    ends = {}
    for precision in ("fp32", "auto", "bf16"):
        model = model_with(KEYS, experts_in=experts_in, width=64).to(GPU)
        only = KEYS if experts_in == "adapter" else None
        events = trained(model, tmp_path / precision, replace(config, precision=precision), only)  # type: ignore[arg-type]
        ends[precision] = losses(events)
    assert ends["auto"] == ends["bf16"] != ends["fp32"]
    assert ends["fp32"][-1] < (0.99 if experts_in == "adapter" else 0.9) * ends["fp32"][0]
    assert ends["bf16"][-1] == pytest.approx(ends["fp32"][-1], rel=0.02)


def test_activation_checkpointing_gives_the_same_losses_in_less_memory(tmp_path: Path) -> None:
    config = replace(CONFIG, block_size=64, sequences_per_domain=16, num_steps=3)
    seen, peaks = [], []
    for again in (False, True):
        model = deep_model().to(GPU)
        torch.cuda.reset_peak_memory_stats()
        seen.append(losses(trained(model, tmp_path / str(again), replace(config, activation_checkpointing=again))))
        peaks.append(torch.cuda.max_memory_allocated())
        del model
    assert seen[1] == pytest.approx(seen[0], rel=1e-6)
    assert peaks[1] < 0.7 * peaks[0]


def deep_model() -> MultiExpertModel:
    shape = ModelConfig(num_layers=12, width=128, num_heads=4, ffn_width=512, max_positions=64)
    return MultiExpertModel(fresh_model(shape, VOCAB, seed=7), KEYS, new_placement())


def test_where_memory_does_not_suffice_activations_are_computed_again_and_the_training_goes_on(tmp_path: Path) -> None:
    config = replace(CONFIG, block_size=64, sequences_per_domain=64, num_steps=3)
    expected = losses(trained(deep_model().to(GPU), tmp_path / "all"))  # warms up
    peaks = []
    for again in (True, False):
        model = deep_model().to(GPU)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        expected = losses(trained(model, tmp_path / str(again), replace(config, activation_checkpointing=again)))
        peaks.append(torch.cuda.max_memory_reserved())
        del model
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((peaks[0] + 0.4 * (peaks[1] - peaks[0])) / total)
    events = trained(deep_model().to(GPU), tmp_path / "little", config)
    (note,) = [event.sentence for event in events if isinstance(event, Note)]
    assert "activations are computed again" in note
    assert losses(events) == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore")  # torch.compile warns
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("experts_in", ["ffn", "adapter"])
def test_a_compiled_training_has_nearly_the_same_losses(experts_in: str, family: str, tmp_path: Path) -> None:
    only = KEYS if experts_in == "adapter" else None
    seen = []
    for is_compiled in (False, True):
        model = model_with(KEYS, family, experts_in).to(GPU)
        config = replace(CONFIG, compile=is_compiled, activation_checkpointing=family == "gpt2")
        seen.append(losses(trained(model, tmp_path / str(is_compiled), config, only)))
    assert seen[1] == pytest.approx(seen[0], rel=1e-4)


@pytest.mark.parametrize("shard", [False, True])
def test_a_process_of_torchrun_trains_on_the_device_over_nccl(shard: bool, tmp_path: Path) -> None:
    shape = ModelConfig(num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)
    fresh_model(shape, VOCAB, seed=7).save_pretrained(tmp_path / "seed")
    domains = []
    for number, text in enumerate(texts_of(KEYS)):
        (tmp_path / str(number)).mkdir()
        for split, one in (("train", text.train), ("dev", text.dev)):
            np.save(tmp_path / f"{number}/{split}.npy", one.array.astype("<u2"))
            np.save(tmp_path / f"{number}/{split}.starts.npy", one.starts.astype("<i8"))
        domains.append(PackedDomain(text.name, text.expert, tmp_path / str(number)))
    model = MultiExpertModel(load_model(tmp_path / "seed"), KEYS, new_placement()).to(GPU)
    expected = losses(list(train(model, [domain.open() for domain in domains], CONFIG, tmp_path / "one")))
    config, log = replace(CONFIG, shard=shard), tmp_path / "log"
    events = train_distributed(1, tmp_path / "seed", domains, config, tmp_path / "many", device="cuda", log=log)
    assert losses(list(events)) == pytest.approx(expected, rel=1e-5), log.read_text()


# scores and texts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("experts_in", PLACES)
def test_scores_are_those_of_the_cpu(experts_in: str, family: str) -> None:
    here = model_with(KEYS, family, experts_in)
    there = copy.deepcopy(here).to(GPU)
    text = eval_sample(np.random.default_rng(0).integers(1, VOCAB, 16 * 16 + 1, dtype=np.uint16), 16)
    for key in KEYS:
        np.testing.assert_allclose(score_text(there, key, text), score_text(here, key, text), atol=1e-4, rtol=1e-4)


def test_logits_of_mode_are_those_of_the_cpu() -> None:
    here = mode_model(["law", "code"])
    there = copy.deepcopy(here)
    there.to(GPU)
    ids = torch.randint(1, VOCAB, (3, 12), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected, _ = here(ids, ["law", "code"])
        result, _ = there(ids.to(GPU), ["law", "code"])
    torch.testing.assert_close(result.cpu(), expected, atol=1e-4, rtol=1e-4)


Request = tuple[Sequence[str], Gate, list[int], SamplingConfig]
REQUESTS: list[Request] = [
    (KEYS, PosteriorGate([1, 2, 3, 4]), [3, 5, 7, 11, 13], SamplingConfig(max_tokens=9, seed=1)),
    (["news", "law"], FixedGate([1, 3]), list(range(2, 33)), SamplingConfig(max_tokens=5, seed=2)),
    (["verse"], PosteriorGate([1.0]), [9], SamplingConfig(max_tokens=12, temperature=0)),
    (KEYS[1:], PosteriorGate([1, 1, 2], top_k=2), [8, 4, 2], SamplingConfig(max_tokens=7, top_p=0.8, seed=3)),
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(["the court held that the statute does not apply; def main(): return 0\n" * 20], VOCAB)


def tokens_of(models: Any, request: Request, tokenizer: Any) -> list[int]:
    keys, gate, ids, sampling = request
    events = generate(models, keys, gate, tokenizer, ids, sampling, stop_ids=())
    return [event.id for event in events if isinstance(event, Token)]


def in_one(model: Any, keys: Sequence[str], shared: SharedPasses) -> Ensemble:
    return Ensemble((Group(tuple(keys), lambda: shared.view(model), model.max_positions, model.vocab_size),))


@pytest.mark.parametrize(("family", "experts_in"), [("llama", "ffn"), ("gpt2", "ffn"), ("llama", "adapter")])
def test_streams_that_share_passes_say_what_each_says_on_a_cpu(family: str, experts_in: str, tokenizer: Any) -> None:
    here, shared = model_with(KEYS, family, experts_in), SharedPasses()
    there = copy.deepcopy(here).to(GPU)
    expected = [tokens_of(here, request, tokenizer) for request in REQUESTS]
    assert [tokens_of(there, request, tokenizer) for request in REQUESTS] == expected
    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        running = [threads.submit(tokens_of, in_one(there, one[0], shared), one, tokenizer) for one in REQUESTS]
        assert [one.result() for one in running] == expected


def test_weights_in_bf16_say_nearly_the_same() -> None:
    here = model_with(KEYS).to(GPU)
    half = copy.deepcopy(here).to(torch.bfloat16)
    ids = torch.randint(1, VOCAB, (1, 12), generator=torch.Generator().manual_seed(1)).to(GPU)
    with torch.inference_mode():
        for key in KEYS:
            full, less = (model(ids, Rows.all_to(key, 1)).float() for model in (here, half))
            assert 0 < float((full - less).abs().max()) < 0.1 * float(full.abs().max())


# files and vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demix", "dense", "domain-token", "lora", "moe", "mode"])
def test_what_was_trained_on_the_device_is_kept_in_files_that_say_the_same_on_a_cpu(name: str, tmp_path: Path) -> None:
    method, seed = get_method(name), small.seed_in(torch.float32, tmp_path / "seed")
    model = method.build(seed.folder, ["law"])
    model.to(GPU)
    learns = ["law"] if method.base_is_frozen else None
    list(train(model, [small.text()], CONFIG, tmp_path / "training", only_experts=learns))
    if name == "mode":
        model.names = ("law",)  # type: ignore[attr-defined]
    files = small.kept(method, model, seed, tmp_path)
    with torch.no_grad():
        expected = model.eval()(small.IDS.to(GPU), Rows.all_to("law", 1)).cpu()
        for device in (CPU, GPU):
            hosted = load_base(files[0], {"law": files[1]}, device=device).view(["law"])
            result = hosted(small.IDS.to(device), Rows.all_to("law", 1)).cpu()
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


def test_vectors_of_documents_are_those_of_the_cpu(tokenizer: Any, tmp_path: Path) -> None:
    shape = ModelConfig(num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)
    texts = ["the court held", "def main(): return 0", "statute " * 40, ""]
    fresh_model(shape, tokenizer.vocab_size, seed=7).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    on_cpu, on_gpu = (embedder_of(tmp_path, 64, device) for device in ("cpu", "auto"))
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    vectors_ND = on_gpu.embed(texts).vectors_ND
    assert torch.cuda.max_memory_allocated() > held > 0  # computed there
    np.testing.assert_allclose(vectors_ND, on_cpu.embed(texts).vectors_ND, atol=1e-4, rtol=1e-4)
    assert on_gpu.sha256 == on_cpu.sha256


def test_the_device_is_chosen_by_itself() -> None:
    assert choose_device("auto").type == "cuda"
