"""Laws of persistence: added experts, moved folders, interrupted training."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import torch

from engine.analysis.removal import tensor_hashes
from engine.config import TrainingConfig
from engine.events import Event, Step
from engine.files import ArtifactRef, sha256_of
from engine.methods.multi_expert_files import load_multi_expert
from engine.models.multi_expert import MultiExpertModel
from engine.selfcheck.law import LawFinding, gap, worst
from engine.selfcheck.test_bed import KEYS, TestBed, plain_logprobs, save_model
from engine.text.blocks import pack_domain
from engine.text.corpus import ReadOptions, read_documents
from engine.text.import_report import ReadReport
from engine.text.split import store_documents
from engine.training.loop import train

TRAINING = TrainingConfig(
    num_steps=6,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=4,
    evaluate_every=6,
    evaluation_blocks=2,
    seed=1,
)
CUT = 3  # updates before the interruption
DOCUMENTS = 12


def adding_touches_nothing(bed: TestBed) -> Iterator[LawFinding]:
    """L8: tensors that change when experts are added, from a copy and from tensors, and when they are trained.

    The control counts the tensors of the trained expert that changed.
    """
    model = bed.model()
    before = tensor_hashes(model.state_dict())
    model.add_expert("new", copy_of="law")
    model.add_expert("given", state=model.expert_state("code"))
    added = tensor_hashes(model.state_dict())
    for _ in train(model, bed.texts(["new"]), TRAINING, bed.new_folder(), only_experts=["new"]):
        pass
    after = tensor_hashes(model.state_dict())
    yield LawFinding(_num_changed(before, added), _num_changed(added, after))
    others = {name: sha256 for name, sha256 in added.items() if ".experts.new." not in name}
    yield LawFinding(_num_changed(others, after), _num_changed(added, after))


def moving_changes_nothing(bed: TestBed) -> Iterator[LawFinding]:
    """L16: packed files that change when text is moved and renamed; a moved model gives the same log-probabilities.

    The controls change one document, and use another expert.
    """
    original = bed.new_folder()
    for number in range(DOCUMENTS):  # a file for each
        (original / f"{number}.txt").write_text(f"In case {number} the court held that.\n" * 3, encoding="utf-8")
    before = _pack(bed, original)
    moved = original.rename(bed.new_folder() / "moved")
    for file in moved.iterdir():
        file.rename(moved / f"renamed-{file.name}")
    after = _pack(bed, moved)
    next(moved.iterdir()).write_text("In another case the court held that not.\n", encoding="utf-8")
    yield LawFinding(_num_changed(before, after), _num_changed(before, _pack(bed, moved)))
    yield _move_model(bed)


def _move_model(bed: TestBed) -> LawFinding:
    model, root = bed.model(), bed.new_folder()
    base, experts = save_model(model, root / "here")
    there = (root / "here").rename(root / "there")
    places = {key: ArtifactRef(there / expert.folder.name) for key, expert in experts.items()}
    moved = load_multi_expert(ArtifactRef(there / base.folder.name, base.sha256), places)
    logprobs, moved_logprobs = (plain_logprobs(loaded, KEYS, bed.ids) for loaded in (model, moved.to(bed.device)))
    return LawFinding(gap(moved_logprobs, logprobs), gap(logprobs[0], logprobs[1]))


def resumed_is_uninterrupted(bed: TestBed) -> Iterator[LawFinding]:
    """L17, on CPU: losses and final weights; the control starts the training again."""
    on_cpu = TestBed(torch.device("cpu"), bed.new_folder())
    uninterrupted, interrupted, resumed = (on_cpu.model() for _ in range(3))
    folder = on_cpu.new_folder()
    expected = _losses(on_cpu, uninterrupted, on_cpu.new_folder())
    seen = [*_losses(on_cpu, interrupted, folder, CUT), *_losses(on_cpu, resumed, folder)]
    weights = [gap(tensor, resumed.state_dict()[name]) for name, tensor in uninterrupted.state_dict().items()]
    losses = gap(torch.tensor(seen), torch.tensor(expected))
    twice = gap(torch.tensor(expected[:CUT] * 2), torch.tensor(expected))
    yield LawFinding(worst([losses, *weights]), twice)


def _losses(bed: TestBed, model: MultiExpertModel, folder: Path, stop_after: int | None = None) -> list[float]:
    """The loss of each update; a training that stops early is closed, and leaves a checkpoint."""
    losses: list[float] = []
    events = cast(Generator[Event, None, None], train(model, bed.texts(KEYS), TRAINING, folder))
    with closing(events):
        for event in events:
            losses += [event.loss] if isinstance(event, Step) and event.loss is not None else []
            if len(losses) == stop_after:
                break
    return losses


def _num_changed(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """The number of items that were removed or changed."""
    return sum(after.get(name) != sha256 for name, sha256 in before.items())


def _pack(bed: TestBed, text: Path) -> dict[str, str]:
    """The SHA-256 of every file that the text in a folder is packed into."""
    stored, packed = bed.new_folder(), bed.new_folder()
    for _ in store_documents(read_documents(text, ReadOptions(), ReadReport()), stored):
        pass
    for _ in pack_domain(stored / "0", bed.tokenizer, packed):
        pass
    return {file.name: sha256_of(file) for file in packed.iterdir()}
