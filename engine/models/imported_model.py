"""A model of another source: from a folder, checked before it becomes a seed, or from the Hugging Face hub.

Of the hub only safetensors, JSON and tokenizers are downloaded, pinned to a commit, and never pickles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.foreign_files import confined, short
from engine.models import model_files
from engine.models.families import empty_model, load_checkpoint, load_model
from engine.text.tokenizer import TEMPLATES, TOKENIZER_FILES

_PIECE = 1 << 22  # numbers looked at in one go
_MOST_IDS = 8  # of the text that is read to compare two models
_MOST_NAMES = 3  # of tensors in a sentence
_REPORT = "Nothing was added. Choose another seed, and report the model's family."
_ADAPTER, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_UNDAMAGED = "Give the model as it was published, or save it again from where its numbers are finite."


@dataclass(frozen=True)
class ImportedModel:
    """A model, and a sentence for each thing of its files that was left out or changed."""

    lm: Any
    changes: tuple[str, ...]


def import_model(folder: Path, file: str = "") -> ImportedModel:
    """Loads a model from a folder of any source and checks that it computes; raises ModelError with the cause.

    With `file` its weights are in this safetensors file of the folder, and in no other.
    """
    model_files.refuse_foreign_code(folder)
    left_out: dict[str, Any] = {}
    config = model_files.read_config(folder, left_out)
    was_tied = getattr(config, "tie_word_embeddings", False)
    lm, weights, used = load_checkpoint(folder, config, file)
    _refuse_not_finite(folder, lm)  # also what the few tokens below do not reach
    _require_described(folder, lm)
    _try_out(folder, lm)
    _, of_generation = model_files.read_token_ids(folder, lm.config.vocab_size)
    changes = [
        f"{name} of {origin} names {', '.join(map(str, ids))}, outside the model's {lm.config.vocab_size:,} rows: it "
        "was left out."
        for origin, outside in ((model_files.CONFIG, left_out), ("generation_config.json", of_generation))
        for name, ids in sorted(outside.items())
    ]
    return ImportedModel(lm, (*changes, *_changes_of_weights(folder, file, weights, used, lm, was_tied=was_tied)))


def _refuse_not_finite(folder: Path, lm: nn.Module) -> None:
    for name, parameter in lm.named_parameters():
        count = sum(int((~torch.isfinite(piece)).sum()) for piece in parameter.detach().flatten().split(_PIECE))
        if count:
            raise ModelError(
                f"“{short(name)}” of the weights in {folder} holds {count:,} infinite "
                f"number{'s' if count > 1 else ''} or NaN{_describe_rows(parameter.detach(), count)}.",
                _UNDAMAGED,
            )


def _describe_rows(tensor: Tensor, count: int) -> str:
    """The rows at the end of a table that hold nothing else, for a sentence: those that no token has, mostly."""
    if tensor.ndim != 2 or count % tensor.shape[1]:
        return ""
    first = len(tensor) - count // tensor.shape[1]
    is_complete = first > 0 and not bool(torch.isfinite(tensor[first:]).any())
    return f", in all of its rows from {first:,} on: set them to 0 if no token has them" if is_complete else ""


def _require_described(folder: Path, lm: Any) -> None:
    """Raises ModelError unless the configuration on its own gives a model of the same weights: experts rely on it."""
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
        problem = f"The model in {folder} computes infinite numbers or NaN, although its weights are finite."
        raise ModelError(problem, _UNDAMAGED)
    if not _is_close(logits[:, 0], others[:, 0]):
        problem = f"The model in {folder} reads ahead: what it predicts depends on the tokens that follow."
        raise ModelError(problem, "Give a causal language model; some need is_decoder in their configuration.")


def _is_close(first: Tensor, second: Tensor) -> bool:
    tolerance = max(1e-3, 2 * torch.finfo(first.dtype).eps)
    return torch.allclose(first, second, atol=tolerance, rtol=tolerance)


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


def _changes_of_weights(
    folder: Path, file: str, weights: model_files.Weights, used: Collection[str], lm: Any, *, was_tied: bool
) -> Iterator[str]:
    names = sorted(set(weights.tensors) - set(used)) if used else []  # none is used where only shapes were read
    if names:
        shown = ", ".join(f"“{short(name)}”" for name in names[:_MOST_NAMES]) + " …" * (len(names) > _MOST_NAMES)
        noun = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
        yield f"Left out, since this configuration has no place for them: {noun} of the files, {shown}."
    if num_doubles := sum(kind == "F64" for kind, _ in weights.tensors.values()):
        yield f"{num_doubles:,} tensors in double precision (float64) were rounded to float32."
    if was_tied and not lm.config.tie_word_embeddings:
        yield (
            "The files hold an output table that differs from the input's, although config.json ties the two: both are "
            "kept, and tie_word_embeddings is false now."
        )
    if not file and all(confined(folder, name) for name in (model_files.WEIGHTS, model_files.INDEX)):
        yield f"{model_files.WEIGHTS} was read, and not the files that {model_files.INDEX} lists."


def download_model(name: str, revision: str = "", *, or_adapter: bool = False) -> Path:
    """The local folder of a model on the hub, downloaded now; the folder's name is the commit.

    With `or_adapter` the repository may hold an adapter instead. The small files come first, since they list the
    weights. Raises ModelError if the download fails, or where the weights are only there as pickles.
    """
    from huggingface_hub import HfApi, snapshot_download

    with _in_sentences(name, revision):
        small = [*model_files.SMALL_FILES, *TOKENIZER_FILES, TEMPLATES]
        folder = Path(snapshot_download(name, revision=revision or None, allow_patterns=small))
        if or_adapter and (folder / _ADAPTER).exists():
            names = [_ADAPTER_WEIGHTS]
        else:
            model_files.read_config(folder)
            has_index = (folder / model_files.INDEX).exists()
            names = model_files.shard_names(folder) if has_index else [model_files.WEIGHTS]
        folder = Path(snapshot_download(name, revision=folder.name, allow_patterns=names))
        if any((folder / file).exists() for file in names):
            return folder
        listed = sorted(HfApi().list_repo_files(name, revision=folder.name))
        if pickle := next((file for file in listed if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl"))), ""):
            problem = f"The weights of “{name}” on the hub are only there as {short(pickle)}, a pickle, which is never "
            raise ModelError(f"{problem}opened.", "Choose one in safetensors format.")
        return folder


@contextmanager
def _in_sentences(name: str, revision: str) -> Iterator[None]:
    """Raises ModelError with a sentence of its own for each cause that the hub's client distinguishes."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise ModelError(
            f"“{name}” is gated: its authors give access to those who accept its terms.",
            f"Accept them on huggingface.co/{name}, then set HF_TOKEN to a token of that account.",
        ) from None
    except errors.RevisionNotFoundError:
        problem = f"“{name}” on the hub has no revision “{short(revision)}”."
        raise ModelError(problem, "Give a branch, a tag or a commit of it.") from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"There is no model “{name}” on the hub, or it is private.",
            "Check its name; for a private one, set HF_TOKEN to a token that may read it.",
        ) from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        raise ModelError(
            f"“{name}” cannot be downloaded: the hub cannot be reached.",
            "Check the network, and that HF_HUB_OFFLINE is not set, or give a local folder.",
        ) from None
    except (OSError, ValueError, RuntimeError) as error:
        problem = f"The model “{name}” cannot be downloaded: {short(error)}"
        raise ModelError(problem, "Check its name and the network, or give a local folder.") from error
