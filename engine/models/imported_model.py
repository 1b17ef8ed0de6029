"""A model from a folder of any source, checked before it becomes a seed: it computes, and its files describe it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.foreign_files import short
from engine.models import model_files
from engine.models.families import empty_model, load_checkpoint, load_model, read_config

_PIECE = 1 << 22  # numbers looked at in one go
_MOST_IDS = 8  # of the text that is read to compare two models
_MOST_NAMES = 3  # of tensors in a sentence
_UNDAMAGED = "Give the model as it was published, or save it again from where its numbers are finite."


@dataclass(frozen=True)
class ImportedModel:
    """A model, and a sentence for each thing of its files that was left out or changed."""

    lm: Any
    changes: tuple[str, ...]


def import_model(folder: Path) -> ImportedModel:
    """Loads a model from a folder of any source and checks that it computes; raises ModelError with the cause."""
    model_files.refuse_foreign_code(folder)
    left_out: dict[str, Any] = {}
    config = read_config(folder, left_out)
    was_tied = getattr(config, "tie_word_embeddings", False)
    lm, weights, used = load_checkpoint(folder, config)
    _refuse_not_finite(folder, lm)  # also what the few tokens below do not reach
    _require_described(folder, lm)
    _try_out(folder, lm)
    _, of_generation = model_files.read_token_ids(folder, lm.config.vocab_size)
    changes = [
        *_ids_left_out(model_files.CONFIG, left_out, lm),
        *_ids_left_out("generation_config.json", of_generation, lm),
        *_tensors_left_out(weights.tensors, used),
        *_changed(folder, weights, lm, was_tied=was_tied),
    ]
    return ImportedModel(lm, tuple(changes))


def _refuse_not_finite(folder: Path, lm: nn.Module) -> None:
    """Raises ModelError that names the first tensor with NaN or an infinite number."""
    for name, parameter in lm.named_parameters():
        count = sum(int((~torch.isfinite(piece)).sum()) for piece in parameter.detach().flatten().split(_PIECE))
        if count:
            raise ModelError(
                f"“{short(name)}” of the weights in {folder} holds {count:,} infinite "
                f"number{'s' if count > 1 else ''} or NaN{_rows_words(parameter.detach(), count)}.",
                _UNDAMAGED,
            )


def _rows_words(tensor: Tensor, count: int) -> str:
    """The rows at the end of a table that hold nothing else, for a sentence: those that no token has, mostly."""
    if tensor.ndim != 2 or count % tensor.shape[1]:
        return ""
    first = len(tensor) - count // tensor.shape[1]
    is_complete = first > 0 and not bool(torch.isfinite(tensor[first:]).any())
    return f", in all of its rows from {first:,} on: set them to 0 if no token has them" if is_complete else ""


def _require_described(folder: Path, lm: Any) -> None:
    """Raises ModelError unless the configuration alone gives a model of the same weights: experts rely on it."""
    own, described = ({name for name, _ in one.named_parameters()} for one in (lm, empty_model(lm.config)))
    if odd := sorted(own ^ described):
        raise ModelError(
            f"{folder / model_files.CONFIG} does not describe its weights: “{short(odd[0])}” is a weight of its own in "
            f"{'the files' if odd[0] in own else 'the configuration'} only.",
            model_files.CORRECT,
        )


def _try_out(folder: Path, lm: Any) -> None:
    """Raises ModelError for a model that cannot compute, or whose predictions depend on later tokens."""
    try:
        with torch.no_grad():
            logits, others = (lm(input_ids=torch.tensor([[0, second]])).logits for second in (0, 1))
    except MemoryError:
        raise
    except Exception as error:  # whatever a configuration that fits its weights may still get wrong
        raise ModelError(f"The model in {folder} cannot be used: {short(error)}", model_files.EXPECTED_MODEL) from error
    if not torch.isfinite(logits).all():
        raise ModelError(
            f"The model in {folder} computes infinite numbers or NaN, although its weights are finite.", _UNDAMAGED
        )
    if not _is_close(logits[:, 0], others[:, 0]):
        raise ModelError(
            f"The model in {folder} reads ahead: what it predicts depends on the tokens that follow.",
            "Give a causal language model; some need is_decoder in their configuration.",
        )


def _is_close(one: Tensor, other: Tensor) -> bool:
    tolerance = max(1e-3, 2 * torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, atol=tolerance, rtol=tolerance)


@dataclass(frozen=True)
class Fingerprint:
    """The names of a model's weights, and its logits [1, T, V] for its first few ids."""

    names: frozenset[str]
    logits: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, lm: Any) -> Fingerprint:
        """That of a model in memory."""
        is_training = lm.training
        ids = torch.arange(min(_MOST_IDS, int(lm.config.vocab_size)))[None]
        logits = lm.eval()(input_ids=ids).logits
        lm.train(is_training)
        return cls(frozenset(lm.state_dict()), logits)

    def require_same(self, folder: Path) -> None:
        """Raises ModelError unless the model that was saved in a folder has these names and computes these logits."""
        saved = Fingerprint.of(load_model(folder))
        if odd := sorted(self.names ^ saved.names):
            raise ModelError(f"The saved model is not the one that was read: “{short(odd[0])}” differs.", _REPORT)
        if not _is_close(self.logits, saved.logits):
            raise ModelError("The saved model computes other numbers than the one that was read.", _REPORT)


_REPORT = "Nothing was added. Choose another seed, and report the model's family."


# what is said of an import ------------------------------------------------------------------------


def _ids_left_out(file: str, left_out: Mapping[str, Collection[int]], lm: Any) -> list[str]:
    return [
        f"{name} of {file} names {', '.join(map(str, ids))}, outside the model's {lm.config.vocab_size:,} rows: it was "
        "left out."
        for name, ids in sorted(left_out.items())
    ]


def _tensors_left_out(stored: Collection[str], used: Collection[str]) -> list[str]:
    """The tensors of the files that the model has no place for; none is known where only shapes were read."""
    names = sorted(set(stored) - set(used)) if used else []
    if not names:
        return []
    shown = ", ".join(f"“{short(name)}”" for name in names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "")
    noun = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
    return [f"Left out, since this configuration has no place for them: {noun} of the files, {shown}."]


def _changed(folder: Path, weights: model_files.Weights, lm: Any, *, was_tied: bool) -> list[str]:
    changes = []
    kinds = Counter(kind for kind, _ in weights.tensors.values())
    if kinds["F64"]:
        changes.append(f"{kinds['F64']:,} tensors in double precision (float64) were rounded to float32.")
    if was_tied and not lm.config.tie_word_embeddings:
        changes.append(
            "The files hold an output table that differs from the input's, although config.json ties the two: both are "
            "kept, and tie_word_embeddings is false now."
        )
    if model_files.both_are_there(folder):
        changes.append(f"{model_files.WEIGHTS} was read, and not the files that {model_files.INDEX} lists.")
    return changes
