"""Settings of this machine, read from environment variables (`WORKBENCH_…`), never from a job."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.config import RequestedPrecision
from engine.training.launchers import SSH
from workbench.errors import BadSettingsError

LONGEST_SECONDS = 86_400.0
SHORTEST_SECONDS = 0.001
LONGEST_PATH = 3_000  # bytes; Linux takes 4,095, and files lie a few folders deep
LONGEST_NAME = 255  # bytes of a file's or a folder's name


_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")

_PLACE = re.compile(r"https://(\[[0-9a-fA-F:.]+\]|[^/?#@:\[\]]+)(:\d+)?")
_STORE = re.compile(r"s3://[a-z0-9][a-z0-9.-]*(/[\w./-]*)?|file:///[^?@]+")
_GPU_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def _split_names(names: str) -> list[str]:
    return [one.strip() for one in names.split(",") if one.strip()]


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _has_valid_port(url: str) -> bool:
    try:
        _ = urlsplit(url).port
    except ValueError:
        return False
    return True


def _seconds(default: float, description: str) -> Any:
    return Field(default, ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, description=description)


class Settings(BaseSettings):
    """Settings of one machine. Each is an environment variable with the prefix WORKBENCH_."""

    model_config = SettingsConfigDict(env_prefix="WORKBENCH_", frozen=True, extra="ignore")

    home: Path = Field(Path(".workbench"), description="Folder of the registry, artifacts, queue and logs.")
    database_url: str = Field(
        "", description="SQLAlchemy URL of the registry; empty: an SQLite file in the home folder."
    )
    broker_url: str = Field(
        "", description="Celery broker, such as redis://…; empty: a folder queue in the home folder."
    )
    artifacts: Path | None = Field(
        None, description="Folder of weights and texts; empty: `artifacts` in the home folder."
    )
    store: str = Field(
        "",
        description="Store of artifacts, checkpoints and logs that several machines share, such as s3://bucket/prefix "
        "or file:///mnt/shared; the folder of artifacts is then a cache of it. Empty: that folder only.",
    )
    host: str = Field(
        "127.0.0.1", description="Address that the API listens on; any other than loopback needs a token."
    )
    hosts: str = Field(
        "",
        description="Further names and addresses under which the servers are reached, separated by commas, such as the "
        "name of a proxy with TLS; needs a token.",
    )
    public_url: str = Field(
        "",
        description="URL of a proxy that serves the studio, and the playground and the API beneath it, at one port, "
        "such as https://bench.example.org; needs a token. Empty: none.",
    )
    api_port: int = Field(8000, ge=1, le=65535, description="Port of the API and the playground.")
    studio_port: int = Field(8501, ge=1, le=65535, description="Port of the studio.")
    token: SecretStr = Field(
        SecretStr(""),
        description="Secret that the API and the studio require; empty: a random one in the home folder, which "
        "`workbench token` prints. Any address other than loopback needs one of at least 32 characters here.",
    )
    no_auth: bool = Field(
        False,
        description="Require no token, on loopback only: every user and every program of this machine can use the "
        "servers. Without effect where WORKBENCH_TOKEN is set.",
    )
    data_folders: str = Field(
        "",
        description="Folders that paths typed in the studio or sent to the API may lead into, separated by “:” "
        "(“;” on Windows); empty: the folder where the workbench was started.",
    )
    device: str = Field("auto", description="Device to compute on: auto, cpu, cuda, cuda:1, mps.")
    gpus: str = Field(
        "",
        description="Numbers of the GPUs that this worker leases to jobs, such as 0-3 or 0,2; empty: all. On a machine "
        "without a GPU they are pretended: jobs lease them and compute on the CPU.",
    )
    threads: int = Field(0, ge=0, le=4096, description="Threads of each computing process; 0: one per core.")
    processes: int = Field(
        0,
        ge=0,
        le=4096,
        description="Training processes of one job; 0: one per leased GPU (one process without a GPU, and for MoDE).",
    )
    launcher: Literal["local", "ssh", "slurm"] = Field(
        "local",
        description="What starts the processes of a joint training: local, on the worker's own machine; ssh, on the "
        "hosts of WORKBENCH_HOSTFILE; or slurm. A worker with ssh or slurm takes joint trainings that ask for GPUs, "
        "and nothing else.",
    )
    hostfile: str = Field(
        "",
        description="With ssh: file with a line such as `gpu1 slots=4` for each host, as of Open MPI and DeepSpeed.",
    )
    remote_shell: str = Field(
        shlex.join(SSH), description="With ssh: the command to which a host and what it shall run are added."
    )
    processes_per_node: int = Field(
        1, ge=1, le=1024, description="With slurm: training processes on each node, with a GPU each."
    )
    slurm_options: str = Field("", description="With slurm: options of srun, such as `--partition=gpu --time=2-0`.")
    node_address: str = Field(
        "",
        description="With ssh or slurm: name or address of the worker's machine for the nodes; empty: its host name.",
    )
    worker_slots: int = Field(2, ge=1, le=1024, description="Jobs that one worker runs at the same time.")
    lease_seconds: float = _seconds(30.0, "Seconds without a heartbeat before a job is returned to the queue.")
    heartbeat_seconds: float = _seconds(10.0, "Seconds between two heartbeats of a job.")
    reconcile_seconds: float = _seconds(15.0, "Seconds between two checks for lost or dead jobs.")
    max_attempts: int = Field(
        3, ge=1, le=1_000_000, description="Attempts without a new checkpoint after which a job fails."
    )
    cancel_seconds: float = _seconds(8.0, "Seconds that a job has to stop after a cancel before its process is killed.")
    max_streams: int = Field(16, ge=1, le=1024, description="Generations that run at the same time; more wait.")
    max_waiting: int = Field(64, ge=0, le=1_000_000, description="Generations that may wait; more are refused.")
    answer_seconds: float = _seconds(
        3600.0, "Seconds that an answer of the API may take, with its wait; then it is cut."
    )
    gguf_converter: str = Field(
        "",
        description="Program of llama.cpp that converts a model to GGUF; empty: `convert_hf_to_gguf.py` in the PATH.",
    )
    cache_bytes: int = Field(
        6 << 30,
        ge=1 << 20,
        le=1 << 50,
        description="Bytes of memory in the API server for loaded models, clusterings, and the keys and values of "
        "running generations; one model and one generation always fit.",
    )
    vllm_url: str = Field(
        "",
        description="URL of a vLLM server with the mixtures of `serving/vllm_mixtures`, such as "
        "http://127.0.0.1:8100, which then answers for the seed models that it holds and their adapters; empty: none.",
    )
    vllm_mode: Literal["mix", "route"] = Field(
        "mix",
        description="How vLLM answers for a mixture: mix, token by token as the API server does; or route, by the one "
        "expert whose weight behind the prompt is the greatest, faster by the number of experts.",
    )
    vllm_key: SecretStr = Field(SecretStr(""), description="Key that the vLLM server requires; empty: none.")
    vllm_seconds: float = _seconds(120.0, "Seconds that a vLLM server may be silent before an answer fails.")
    replay_bytes: int = Field(
        2 << 30,
        ge=0,
        le=1 << 50,
        description="Bytes of disk for the last checkpoint but one of finished trainings, from which `workbench verify "
        "--replay` continues; the oldest are deleted first. 0: none are kept.",
    )
    share_gpu: bool = Field(False, description="Start an API server on a GPU that another one of yours uses already.")
    serve_precision: RequestedPrecision = Field(
        "auto",
        description="Precision of the weights that generate: stored; bf16 in place of float32, in half the memory; "
        "float32 in place of 16 bits, in twice the memory; auto: float32 for weights of 16 bits on a CPU without "
        "instructions for them, where they fit WORKBENCH_CACHE_BYTES, else stored.",
    )
    history_days: int = Field(
        365,
        ge=0,
        le=36_500,
        description="Days for which prompts and answers that were compared are stored; 0: they are not stored at all. "
        "Votes stay, without any text.",
    )
    trackers: str = Field(
        "",
        description="Trackers that curves are sent to as well, separated by commas: tensorboard, trackio, wandb, "
        "mlflow; empty: none.",
    )

    @field_validator("home", "artifacts")
    @classmethod
    def _fits_file_system(cls, folder: Path | None) -> Path | None:
        if folder is None:
            return None
        try:
            path = os.fsencode(folder.expanduser().absolute())
        except (RuntimeError, ValueError) as error:  # such as ~nobody
            raise ValueError(f"must be the path of a folder: {error}") from None
        if len(path) > LONGEST_PATH:
            raise ValueError(f"must be a path of at most {LONGEST_PATH:,} bytes; got {len(path):,}")
        if (longest := max(map(len, path.split(b"/")))) > LONGEST_NAME:
            raise ValueError(f"must have names of at most {LONGEST_NAME} bytes in its path; one has {longest}")
        return folder

    @field_validator("token")
    @classmethod
    def _sendable(cls, token: SecretStr) -> SecretStr:
        """Refuses tokens that an HTTP header cannot carry; blanks at the ends would be lost."""
        text = token.get_secret_value()
        if not (text.isascii() and text.isprintable() and text == text.strip()):
            raise ValueError("must be printable ASCII characters without blanks at the ends")
        return token

    @field_validator("hosts")
    @classmethod
    def _are_names(cls, hosts: str) -> str:
        """Refuses addresses of pages, ports and patterns: a name stands for itself."""
        for name in _split_names(hosts):
            if not (_HOST_NAME.fullmatch(name) or _is_ip(name)):
                raise ValueError(f"must be names or addresses without a scheme, port or “*”; got “{name}”")
        return hosts

    @field_validator("vllm_url")
    @classmethod
    def _is_server(cls, url: str) -> str:
        """Refuses what cannot be the address of a server, and credentials, which errors would show."""
        parts = urlsplit(url)
        named = parts.hostname and (_HOST_NAME.fullmatch(parts.hostname) or _is_ip(parts.hostname))
        is_plain = parts.scheme in ("http", "https") and named and not parts.username and not parts.query
        if url and not (is_plain and _has_valid_port(url)):
            raise ValueError("must be http://NAME:PORT, without credentials")
        return url

    @field_validator("public_url")
    @classmethod
    def _is_one_place(cls, url: str) -> str:
        """Refuses a path: the studio is at the top, and the proxy reads the same variable."""
        if not url:
            return url
        match = _PLACE.fullmatch(url)
        name = match[1].strip("[]") if match else ""
        if not (_HOST_NAME.fullmatch(name) or _is_ip(name)) or not _has_valid_port(url):
            raise ValueError("must be https://NAME or https://NAME:PORT, without a path or “/” at its end")
        return url

    @field_validator("store")
    @classmethod
    def _is_store(cls, store: str) -> str:
        """Refuses other addresses, and credentials in one: they come from the variables and files of AWS."""
        if store and not _STORE.fullmatch(store):
            raise ValueError("must be s3://BUCKET/PREFIX or file:///FOLDER, without credentials or options")
        return store.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _is_database(cls, url: str) -> str:
        """Refuses other databases. URLs may hold passwords: no message shows more than the scheme."""
        if not url:
            return url
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            scheme = make_url(url).get_backend_name()
        except (ArgumentError, ValueError):  # the latter for a port
            raise ValueError("must be a URL such as postgresql://user@host/name") from None
        if scheme not in ("postgresql", "sqlite"):
            raise ValueError(f"must begin with postgresql:// or sqlite://; got “{scheme}://”")
        return url

    @field_validator("broker_url")
    @classmethod
    def _is_broker(cls, urls: str) -> str:
        """Refuses what Celery cannot connect to; no message shows more than the scheme."""
        from kombu.transport import TRANSPORT_ALIASES  # only where there is a broker

        for url in filter(None, urls.split(";")):
            scheme, separator, _ = url.partition("://")
            if not separator:
                raise ValueError("must be a URL such as redis://localhost:6379/0; it has no “://”")
            if scheme.partition("+")[0] not in TRANSPORT_ALIASES:
                raise ValueError(f"must be the URL of a Celery broker, such as redis://…; got “{scheme}://”")
            if not _has_valid_port(url):
                raise ValueError("must have a number from 0 to 65535 as its port")
        return urls

    @field_validator("remote_shell", "slurm_options")
    @classmethod
    def _is_command(cls, command: str) -> str:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"must be words as in a shell: {str(error).lower()}") from None
        return command if words else ""

    @field_validator("gpus")
    @classmethod
    def _are_numbers(cls, gpus: str) -> str:
        for numbers in _split_names(gpus):
            match = _GPU_RANGE.fullmatch(numbers)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise ValueError(f"must be numbers or ranges, such as 0-3 or 0,2; got “{numbers}”")
        return gpus

    @property
    def gpu_numbers(self) -> list[int]:
        """The numbers in `gpus`, each once; empty: all GPUs."""
        matches = [match for one in _split_names(self.gpus) if (match := _GPU_RANGE.fullmatch(one))]
        ranges = [range(int(match[1]), int(match[2] or match[1]) + 1) for match in matches]
        return sorted({number for one in ranges for number in one})

    @property
    def host_names(self) -> frozenset[str]:
        """The names in `hosts`, in lower case."""
        return frozenset(name.lower() for name in _split_names(self.hosts))

    @property
    def own_names(self) -> frozenset[str]:
        """The names under which the servers are reached from elsewhere, in lower case."""
        public = urlsplit(self.public_url).hostname
        return self.host_names | ({public} if public else set())

    @property
    def root(self) -> Path:
        """The home folder as an absolute path."""
        return self.home.expanduser().resolve()

    @property
    def artifacts_folder(self) -> Path:
        return self.artifacts.expanduser().resolve() if self.artifacts else self.root / "artifacts"

    @property
    def readable_folders(self) -> list[Path]:
        """The folders of `data_folders`, with links resolved."""
        named = [Path(one).expanduser() for one in self.data_folders.split(os.pathsep) if one.strip()]
        return [one.resolve() for one in named or [Path.cwd()]]

    @property
    def tracker_names(self) -> list[str]:
        """The names in `trackers`, each once."""
        return list(dict.fromkeys(_split_names(self.trackers)))

    @property
    def jobs_folder(self) -> Path:
        """Checkpoints and logs of jobs, one folder each, named by the job's id."""
        return self.root / "jobs"

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'registry.db'}"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, read once. Tests call `get_settings.cache_clear()`. Raises BadSettingsError."""
    return read_settings()


def read_settings(home: Path | None = None, **others: str | SecretStr) -> Settings:
    """The settings as the environment has them, with another home and others if given. Raises BadSettingsError."""
    changes: dict[str, Any] = {**others} if home is None else {**others, "home": home}
    try:
        return Settings(**changes)
    except ValidationError as error:
        raise BadSettingsError(error.errors()) from None
