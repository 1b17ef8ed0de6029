"""A queue in a folder: one JSON file per message, for one machine without a broker.

Kombu's own filesystem transport writes a message into the file that readers already see (a reader that is
quick finds half of it and takes its worker down), moves what it read to the system's temp folder, and stops
when its folder is removed. This one renames whole files, keeps to its folder and makes it again.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem

SCHEME = "folder"
TRANSPORT_ALIASES[SCHEME] = "jobs.queue.folder_queue:Transport"


class Channel(filesystem.Channel):
    """Puts and takes whole files; of several takers one wins."""

    @property
    def folder(self) -> Path:
        folder = Path(self.data_folder_in)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def control_folder(self) -> Path:
        folder = self.folder / "control"
        folder.mkdir(exist_ok=True)
        return folder

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]  # kombu disagrees with itself
        name = f"{time.time_ns():020d}_{uuid.uuid4().hex}.{queue}.msg"
        aside = self.folder / f".{name}"
        aside.write_text(json.dumps(payload), encoding="utf-8")
        aside.rename(self.folder / name)

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        for message in self._messages(queue):
            taken = message.with_name(f".{uuid.uuid4().hex}.taken")
            try:
                message.rename(taken)
                if _is_message(payload := json.loads(taken.read_text(encoding="utf-8"))):
                    return payload
            except (OSError, ValueError):
                continue  # somebody else was quicker, or it is no message: the row brings the job back
            finally:
                taken.unlink(missing_ok=True)
        raise Empty

    def _size(self, queue: str) -> int:
        return len(self._messages(queue))

    def _purge(self, queue: str) -> int:
        messages = self._messages(queue)
        for message in messages:
            message.unlink(missing_ok=True)
        return len(messages)

    def _messages(self, queue: str) -> list[Path]:
        found = self.folder.glob(f"*.{queue}.msg")
        return sorted(file for file in found if not file.name.startswith("."))


def _is_message(payload: Any) -> bool:
    """Whether kombu can deliver it; anything else would end the worker."""
    return isinstance(payload, dict) and isinstance(payload.get("properties"), dict)


class Transport(filesystem.Transport):
    """Looks into the folder several times a second."""

    Channel = Channel
    polling_interval = 0.25
