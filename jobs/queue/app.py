"""The Celery application, which only wakes workers up.

Messages contain a job's id as JSON. There is no result backend: the job's row has the result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from celery import Celery

from jobs.queue import folder_queue
from workbench.settings import Settings

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
    app.conf.update(configuration(settings))
    return app


def configuration(settings: Settings) -> dict[str, Any]:
    """Celery's settings for this machine."""
    return {
        **_broker(settings),
        "broker_connection_timeout": CONNECT_SECONDS,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # a worker waits for its broker without limit
        "result_backend": None,
        "task_ignore_result": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_default_queue": QUEUE,
        # Acknowledged when it starts: the row, not the broker, brings a lost job back.
        "task_acks_late": False,
        "worker_prefetch_multiplier": 1,
        "worker_pool": "threads",
        "worker_concurrency": settings.worker_slots,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "worker_redirect_stdouts": False,
    }


def _broker(settings: Settings) -> dict[str, Any]:
    if settings.broker_url:
        options = REDIS if settings.broker_url.startswith(("redis:", "rediss:")) else {}
        return {"broker_url": settings.broker_url, "broker_transport_options": options}
    queue = str(settings.root / "queue")
    folders = {"data_folder_in": queue, "data_folder_out": queue}
    return {"broker_url": f"{folder_queue.SCHEME}://localhost/", "broker_transport_options": folders}
