"""Models and adapters of the Hugging Face hub, pinned to a commit: safetensors, JSON and tokenizers, never pickles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import ModelError
from engine.foreign_files import short
from engine.models import model_files
from engine.models.families import read_config
from engine.text.tokenizer import TEMPLATES, TOKENIZER_FILES

_ADAPTER, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def download_model(name: str, revision: str = "") -> Path:
    """The local folder of a model on the hub, downloaded now; the folder's name is the commit.

    The small files come first, since they list the weights. Raises ModelError if the download fails.
    """
    with _in_sentences(name, revision):
        return _download_weights(name, _download_small_files(name, revision))


def download_expert(name: str, revision: str = "") -> Path:
    """Downloads an adapter or a fine-tuned model, as `download_model` downloads a seed model."""
    with _in_sentences(name, revision):
        folder = _download_small_files(name, revision)
        if (folder / _ADAPTER).exists():
            return _download_tensors(name, folder.name, [_ADAPTER_WEIGHTS])
        return _download_weights(name, folder)


def _download_small_files(name: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download

    small = [*model_files.SMALL_FILES, *TOKENIZER_FILES, TEMPLATES]
    return Path(snapshot_download(name, revision=revision or None, allow_patterns=small))


def _download_weights(name: str, folder: Path) -> Path:
    read_config(folder)
    has_index = (folder / model_files.INDEX).exists()
    names = model_files.shard_names(folder) if has_index else [model_files.WEIGHTS]
    return _download_tensors(name, folder.name, names)


def _download_tensors(name: str, commit: str, names: list[str]) -> Path:
    """The folder with these files of a commit; raises ModelError where there are only pickles instead."""
    from huggingface_hub import snapshot_download

    folder = Path(snapshot_download(name, revision=commit, allow_patterns=names))
    if not any((folder / file).exists() for file in names) and (pickles := _pickles(name, commit)):
        raise ModelError(
            f"The weights of “{name}” on the hub are only there as {pickles[0]}, a pickle, which is never opened.",
            "Choose one in safetensors format.",
        )
    return folder


def _pickles(name: str, commit: str) -> list[str]:
    from huggingface_hub import HfApi

    files = HfApi().list_repo_files(name, revision=commit)
    return sorted(short(file) for file in files if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")))


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
        raise ModelError(
            f"“{name}” on the hub has no revision “{short(revision)}”.", "Give a branch, a tag or a commit of it."
        ) from None
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
        raise ModelError(
            f"The model “{name}” cannot be downloaded: {short(error)}",
            "Check its name and the network, or give a local folder.",
        ) from error
