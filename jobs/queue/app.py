"""The Celery application, which only wakes workers up, and its message queue for one machine without a broker.

Messages contain a job's id as JSON. The job's row has the result, so Celery needs no result backend.

The queue is a folder with one JSON file per message. Kombu's filesystem transport writes a message into a file that
readers already see (a fast reader gets half of it and crashes its worker), moves read messages to the system's temp
folder, and stops when its folder is removed. This one renames complete files, stays in its folder and recreates it.
"""

from __future__ import annotations

import json
import time
import uuid
from functools import lru_cache
from pathlib import Path
from queue import Empty
from typing import Any

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES, filesystem

from engine.files import former_of, new_file
from workbench.errors import StorageError
from workbench.settings import Settings
from workbench.store.private_folder import private_folder

SCHEME = "folder"
TRANSPORT_ALIASES[SCHEME] = "jobs.queue.app:Transport"


class Channel(filesystem.Channel):
    """Writes and takes messages by renaming files; of several readers one wins."""

    @property
    def folder(self) -> Path:
        try:
            return private_folder(Path(self.data_folder_in))
        except StorageError as problem:  # to a sender a queue that cannot be used is a broker that is away
            raise OSError(str(problem)) from problem

    @property
    def control_folder(self) -> Path:
        folder = self.folder / "control"
        folder.mkdir(exist_ok=True)
        return folder

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]  # kombu disagrees with itself
        name = f"{time.time_ns():020d}_{uuid.uuid4().hex}.{queue}.msg"
        with new_file(self.folder / name, synced=False) as file:  # a lost message is sent again: the row is the truth
            file.write_text(json.dumps(payload), encoding="utf-8")

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        for message in self._messages(queue):
            taken = former_of(message, uuid.uuid4().hex)
            try:
                message.rename(taken)
                payload = json.loads(taken.read_text(encoding="utf-8"))
                if isinstance(payload["properties"], dict):  # else kombu would crash the worker
                    return payload
            except (OSError, ValueError, LookupError, TypeError):
                continue  # another reader was faster, or it is not a message: the row brings the job back
            finally:
                taken.unlink(missing_ok=True)
        raise Empty

    def _size(self, queue: str) -> int:
        return len(self._messages(queue))

    def _messages(self, queue: str) -> list[Path]:
        files = self.folder.glob(f"*.{queue}.msg")
        return sorted(file for file in files if not file.name.startswith("."))


class Transport(filesystem.Transport):
    """Polls the folder several times a second."""

    Channel = Channel
    polling_interval = 0.25


QUEUE = "jobs"
RUN = "jobs.run"
CONNECT_SECONDS = 2.0
REDIS = {
    "socket_connect_timeout": CONNECT_SECONDS,
    "socket_timeout": 5.0,  # longer than a blocking read (1 s)
    # A message is acknowledged once it is read. Otherwise an acknowledgement that fails because Redis is away blocks
    # the worker: it reads no other message before. Nor is a message delivered again after an hour.
    "ack_emulation": False,
}


@lru_cache(maxsize=8)
def make_app(settings: Settings) -> Celery:
    """A Celery application for these settings; made once per process and settings."""
    app = Celery("workbench", set_as_current=False)
    app.conf.update(
        **_broker(settings),
        broker_connection_timeout=CONNECT_SECONDS,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # a worker waits for its broker without limit
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=QUEUE,
        task_acks_late=False,  # acknowledged when it starts: the row, not the broker, brings a lost job back
        worker_prefetch_multiplier=1,
        worker_pool="threads",
        worker_concurrency=settings.worker_slots,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_redirect_stdouts=False,
    )
    return app


def _broker(settings: Settings) -> dict[str, Any]:
    if settings.broker_url:
        options = REDIS if settings.broker_url.startswith(("redis:", "rediss:")) else {}
        return {"broker_url": settings.broker_url, "broker_transport_options": options}
    queue = str(settings.root / "queue")
    folders = {"data_folder_in": queue, "data_folder_out": queue}
    return {"broker_url": f"{SCHEME}://localhost/", "broker_transport_options": folders}
