"""Upload an expert to the Hugging Face hub, with the hub's own client and the token that it finds."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event, Progress
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.exports import exported_expert, scratch, write_expert, writing, written
from workbench.errors import BadSpecError, StorageError
from workbench.kinds.training.exchange import PushExpert, push_complaints


def run(work: Work, spec: PushExpert) -> Generator[Event, None, Register]:
    """Writes the export into the job's folder and uploads it; the token is read, and never stored."""
    token = _token()
    with work.reading() as session:
        if complaints := push_complaints(session, spec):
            raise BadSpecError(complaints)
    expert = exported_expert(work, spec.expert, spec.format)
    yield writing()
    with scratch(work, "upload") as folder:
        yield from write_expert(work, expert, folder)
        yield Progress(0, 1, "folders", f"uploading to {spec.repository}")
        url, commit = _upload(folder, spec, token)
    yield written()

    def register(_: Session) -> dict[str, Any]:
        return {"expert": spec.expert, "url": url, "commit": commit, "format": spec.format}

    return register


def _upload(folder: Path, spec: PushExpert, token: str) -> tuple[str, str]:
    """The address of the repository and the new commit."""
    with _hub_errors(spec.repository):
        from huggingface_hub import HfApi

        hub = HfApi(token=token)
        repository = hub.create_repo(spec.repository, private=not spec.public, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=repository.repo_id, folder_path=folder, commit_message="Upload with Expert Workbench"
        )
        return str(repository), str(commit.oid)


def _token() -> str:
    """The token of HF_TOKEN or of a login; raises StorageError without one."""
    from huggingface_hub import get_token

    if token := get_token():
        return token
    raise StorageError(
        "Nothing can be uploaded to the Hugging Face hub without a token.",
        "Set HF_TOKEN where the job runs, or log in with: hf auth login",
    )


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turns the errors of the hub and of the network into one sentence."""
    from huggingface_hub.errors import HfHubHTTPError

    unreachable: tuple[type[Exception], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no status"
        raise StorageError(
            f"The Hugging Face hub refused the upload to “{repository}” ({status}): {_reason(error)}",
            "Check the repository's name, and that your token may write to it.",
        ) from error
    except unreachable as error:  # OSError, and the errors of the HTTP library of this version
        raise StorageError(
            f"The Hugging Face hub cannot be reached: {_reason(error)}", "Check the network, then retry the job."
        ) from error


def _reason(error: Exception) -> str:
    message = getattr(error, "server_message", None) or str(error)
    return next((line.strip() for line in str(message).splitlines() if line.strip()), type(error).__name__)[:300]
