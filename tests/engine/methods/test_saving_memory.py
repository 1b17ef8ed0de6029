"""What saves memory in a training changes no loss and no weight: activations computed again, logits in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from engine.config import ModelConfig, TrainingConfig
from engine.errors import ModelError
from engine.events import Note, Step
from engine.methods.joint_training import Recipe
from engine.methods.registry import methods
from engine.models import likelihoods
from engine.models.compiled import checkpointed_activations
from engine.models.families import fresh_model
from engine.models.rows import Rows
from engine.text.blocks import Tokens
from engine.training.data import BlockSampler, DomainText
from engine.training.loop import train

VOCAB, CONTEXT, ROWS = 300, 16, 2
SHAPE = ModelConfig("llama", num_layers=4, width=32, num_heads=2, ffn_width=64, max_positions=64)
CONFIG = TrainingConfig(num_steps=2, block_size=CONTEXT, sequences_per_domain=ROWS, learning_rate=1e-2, clip=1.0)
every_method = pytest.mark.parametrize("name", [name for name, method in methods().items() if method.is_trainable])


@dataclass
class Trained:
    """The weights after a training, its losses, and the bytes that its largest backward pass kept."""

    losses: list[float] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kept: int = 0


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed")
    fresh_model(SHAPE, VOCAB, seed=7).save_pretrained(folder)
    return folder


@pytest.fixture
def trained(seed: Path, make_tokens: Callable[..., Tokens], tmp_path: Path) -> Callable[..., Trained]:
    def train_one(name: str, config: TrainingConfig = CONFIG) -> Trained:
        recipe, result = Recipe(name), Trained()
        method = recipe.descriptor
        key = method.only_expert or "law"
        model = method.build(seed, [key], method.config() if method.config else None, seed=3)
        text = DomainText("law", key, make_tokens(0, 400), make_tokens(50, 100))
        folder = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        with kept_bytes(model, result):
            events = list(train(model, [text], config, folder, only_experts=recipe.learns([key])))
            result.losses = [event.loss for event in events if isinstance(event, Step)]
            result.notes = [event.sentence for event in events if isinstance(event, Note)]
        result.weights = {name: one.detach().clone() for name, one in model.named_parameters()}
        return result

    return train_one


@contextmanager
def kept_bytes(model: nn.Module, result: Trained) -> Iterator[None]:
    """Counts what autograd keeps of each pass beside the weights."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            result.kept = max(result.kept, sum(kept.values()))
        return tensor

    def used(tensor: Tensor) -> Tensor:
        kept.clear()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, used):
        yield


@every_method
def test_activations_computed_again_give_the_same_bits(name: str, trained: Callable[..., Trained]) -> None:
    plain, saving = trained(name), trained(name, replace(CONFIG, activation_checkpointing=True))
    assert saving.losses == plain.losses
    assert all(torch.equal(saving.weights[weight], plain.weights[weight]) for weight in plain.weights)
    assert saving.kept < plain.kept


@every_method
def test_logits_in_chunks_give_the_same_losses(
    name: str, trained: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(name)
    monkeypatch.setitem(
        likelihoods._LOGITS_PER_LOSS_CHUNK, "cpu", VOCAB * ROWS * 3
    )  # 16 positions: 5 chunks and a rest
    saving = trained(name)
    assert saving.losses[0] == plain.losses[0]
    assert saving.losses[1] == pytest.approx(plain.losses[1], rel=1e-4)
    for one, tensor in plain.weights.items():
        torch.testing.assert_close(saving.weights[one], tensor, rtol=1e-2, atol=1e-4)
    all_logits = VOCAB * ROWS * CONTEXT * 4  # bytes
    assert saving.kept < plain.kept - 0.8 * all_logits


@every_method
def test_a_gpu_without_enough_memory_goes_on_with_less_and_with_the_same_bits(
    name: str, trained: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, notes = trained(name), []
    real = torch.Tensor.backward

    def backward(loss: Tensor) -> None:
        if not notes:
            real(loss)  # gradients are there, which must not count twice
            notes.append("out of memory")
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        real(loss)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    saving = trained(name)
    assert saving.notes == [
        "The GPU's memory does not suffice for step 1: from here on activations are computed again in the backward "
        "pass (activation_checkpointing), which changes no number but takes a third more operations."
    ]
    assert saving.losses == plain.losses
    assert all(torch.equal(saving.weights[weight], plain.weights[weight]) for weight in plain.weights)


@every_method
def test_where_that_does_not_suffice_batches_are_read_in_parts(
    name: str, trained: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, num_failed = trained(name), 0
    real = torch.Tensor.backward

    def backward(loss: Tensor) -> None:
        nonlocal num_failed
        real(loss)
        if num_failed < 2:
            num_failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    if name == "moe":  # whose routers spread the tokens of all rows evenly
        with pytest.raises(torch.OutOfMemoryError):
            trained(name)
        return
    saving = trained(name)
    assert saving.notes[1] == (
        f"The GPU's memory does not suffice for step 1: from here on the {ROWS} rows of a batch are read in 2 parts, "
        "which changes only the last digits of losses but takes longer."
    )
    assert len(saving.notes) == 2
    assert saving.losses == pytest.approx(plain.losses, rel=1e-4)
    for one, tensor in plain.weights.items():
        torch.testing.assert_close(saving.weights[one], tensor, rtol=1e-2, atol=1e-4)


def test_the_parts_of_a_batch_are_its_rows_each_with_its_expert(make_tokens: Callable[..., Tokens]) -> None:
    texts = [DomainText(key, key, make_tokens(0, 400), make_tokens(50, 100)) for key in ("code", "law")]
    batch = BlockSampler(texts, CONTEXT, 3, seed=1).batch(0)
    assert list(batch.parts(1)) == [batch]
    parts = list(batch.parts(4))  # of 6 rows
    assert [part.rows for part in parts] == [Rows(("code",), (2,)), Rows(("code", "law"), (1, 1)), Rows(("law",), (2,))]
    assert torch.equal(torch.cat([part.targets_BT for part in parts]), batch.targets_BT)
    assert [place for part in parts for place in part.places] == list(batch.places)
    assert sum(part.share for part in parts) == batch.share
    assert len(list(batch.parts(100))) == 6


def test_memory_that_never_suffices_ends_the_training(
    trained: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    def backward(_: Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    with pytest.raises(torch.OutOfMemoryError):
        trained("demix")


def test_a_lack_of_memory_for_the_optimizer_is_not_taken_for_one_of_the_passes(
    trained: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activation checkpointing would not help, and the optimizer's state is half made."""

    def step(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr("engine.training.loop.clip_and_step", step)
    with pytest.raises(torch.OutOfMemoryError):
        trained("demix")


def test_a_family_whose_layers_cannot_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot checkpoint activations"), checkpointed_activations(nn.Linear(2, 2)):
        pass
