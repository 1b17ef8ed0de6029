"""Laws of what is kept: experts beside one another, folders that move, a training that was interrupted."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import torch

from engine.config import TrainingConfig
from engine.events import Event, Step
from engine.files import ArtifactRef, sha256_of
from engine.methods.row_registry import load_demix
from engine.models.multi_expert import MultiExpertModel
from engine.selfcheck.law import Finding, gap, worst
from engine.selfcheck.test_bed import KEYS, TestBed, plain_logprobs, save_model
from engine.text.blocks import pack_domain
from engine.text.corpus import ReadOptions, Report, read_documents
from engine.text.split import keep_documents
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


def adding_touches_nothing(ground: TestBed) -> Iterator[Finding]:
    """L8: tensors that changed by an addition, from a copy and from tensors, and by training what was added.

    The control counts the tensors of the trained expert that changed.
    """
    model = ground.model()
    before = _hashes(model)
    model.add_expert("new", copy_of="law")
    model.add_expert("given", state=model.expert_state("code"))
    added = _hashes(model)
    for _ in train(model, ground.texts(["new"]), TRAINING, ground.new_folder(), only_experts=["new"]):
        pass
    after = _hashes(model)
    yield Finding(_num_changed(before, added), _num_changed(added, after))
    others = {name: sha256 for name, sha256 in added.items() if ".experts.new." not in name}
    yield Finding(_num_changed(others, after), _num_changed(added, after))


def moving_changes_nothing(ground: TestBed) -> Iterator[Finding]:
    """L16: packed files that changed when text was moved and renamed; a model that was moved still says the same.

    The controls change one document, and ask another expert.
    """
    here = _write_text(ground.new_folder())
    before = _packed(ground, here)
    there = here.rename(ground.new_folder() / "moved")
    for file in there.iterdir():
        file.rename(there / f"renamed-{file.name}")
    after = _packed(ground, there)
    next(there.iterdir()).write_text("In another case the court held that not.\n", encoding="utf-8")
    yield Finding(_num_changed(before, after), _num_changed(before, _packed(ground, there)))
    yield _moved_model(ground)


def _moved_model(ground: TestBed) -> Finding:
    model, root = ground.model(), ground.new_folder()
    base, experts = save_model(model, root / "here")
    there = (root / "here").rename(root / "there")
    places = {key: ArtifactRef(there / expert.folder.name) for key, expert in experts.items()}
    moved = load_demix(ArtifactRef(there / base.folder.name, base.sha256), places)
    said, again = (plain_logprobs(one, KEYS, ground.ids) for one in (model, moved.to(ground.device)))
    return Finding(gap(again, said), gap(said[0], said[1]))


def resumed_is_uninterrupted(ground: TestBed) -> Iterator[Finding]:
    """L17, on CPU: losses and final weights; the control sets a training off again from its beginning."""
    on_cpu = TestBed(torch.device("cpu"), ground.new_folder())
    whole, cut, again = (on_cpu.model() for _ in range(3))
    folder = on_cpu.new_folder()
    expected = _losses(on_cpu, whole, on_cpu.new_folder())
    seen = [*_losses(on_cpu, cut, folder, CUT), *_losses(on_cpu, again, folder)]
    weights = [gap(tensor, again.state_dict()[name]) for name, tensor in whole.state_dict().items()]
    losses = gap(torch.tensor(seen), torch.tensor(expected))
    twice = gap(torch.tensor(expected[:CUT] * 2), torch.tensor(expected))
    yield Finding(worst([losses, *weights]), twice)


def _losses(ground: TestBed, model: MultiExpertModel, folder: Path, stop_after: int | None = None) -> list[float]:
    """The loss of each update; a training that stops early is closed, and leaves a checkpoint."""
    losses: list[float] = []
    events = cast(Generator[Event, None, None], train(model, ground.texts(KEYS), TRAINING, folder))
    with closing(events):
        for event in events:
            losses += [event.loss] if isinstance(event, Step) else []
            if len(losses) == stop_after:
                break
    return losses


def _hashes(model: MultiExpertModel) -> dict[str, str]:
    """The SHA-256 of every tensor by its name."""
    return {
        name: hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest() for name, tensor in model.state_dict().items()
    }


def _num_changed(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """How many of the things before are gone or others now."""
    return sum(after.get(name) != sha256 for name, sha256 in before.items())


def _write_text(folder: Path) -> Path:
    """A folder with one file for each document."""
    for number in range(DOCUMENTS):
        (folder / f"{number}.txt").write_text(f"In case {number} the court held that.\n" * 3, encoding="utf-8")
    return folder


def _packed(ground: TestBed, text: Path) -> dict[str, str]:
    """The SHA-256 of every file that the text in a folder is packed into."""
    kept, packed = ground.new_folder(), ground.new_folder()
    for _ in keep_documents(read_documents(text, ReadOptions(), Report()), kept):
        pass
    for _ in pack_domain(kept / "0", ground.tokenizer, packed):
        pass
    return {file.name: sha256_of(file) for file in packed.iterdir()}
