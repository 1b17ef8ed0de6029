"""Starts the studio, the API with the playground, a worker and the scheduler, and stops them together."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Any

from engine.device import process_environment, python_command, python_environment
from engine.plugins import require_extras
from ui.addresses import (
    HELP_PATH,
    is_loopback,
    playground_address,
    public_api_address,
    public_studio_address,
    require_free_port,
    require_safe_address,
    studio_address,
)
from ui.errors import BadUsageError, UiError
from ui.present.terminal import harmless
from ui.serving.browser import can_browse, studio_answers
from ui.serving.login import login_link
from ui.serving.processes import SUPERVISOR
from workbench.access.home_token import needs_token
from workbench.schema.job_states import ACTIVE
from workbench.settings import Settings
from workbench.store.private_folder import make_private

if TYPE_CHECKING:
    from jobs.plans.demo import DemoSize
    from ui.serving.vllm_process import VllmCommand

PROCFILE = Path(__file__).with_name("Procfile")  # a link to the file at the top of the checkout
LOCK = "up.lock"  # in the home folder
_LOOK_SECONDS = 0.5  # between two looks whether the studio answers
EXIT_SECONDS = 4  # for a worker to exit after its job has stopped


def run(settings: Settings, *, demo: DemoSize | None = None, browse: bool = True, output: IO[str] | None = None) -> int:
    """Runs until Ctrl-C or until a server exits; returns the exit code. Raises a Problem before it starts any."""
    check(settings)
    make_private(settings)
    with _only_one(settings):
        prepare(settings, demo)
        with _browser(settings, browse and can_browse()):
            return _serve(settings, output or sys.stdout, processes())


def serve_api(settings: Settings, vllm: VllmCommand | None, output: IO[str]) -> int:
    """Runs the API with the playground alone, and a vLLM server that answers for it if one is given."""
    require_extras("api")
    require_safe_address(settings)
    require_free_port(settings.api_port, "WORKBENCH_API_PORT", settings.host)
    commands = {"api": processes()["api"]}
    if vllm:
        commands["vllm"] = f"exec python -P -m {SUPERVISOR} -- {shlex.join(vllm.words)}"
    return _serve(settings, output, commands, vllm.environment if vllm else {})


def check(settings: Settings) -> None:
    """Raises a Problem for addresses that cannot work, servers that are not installed, and a home that is in use."""
    require_extras("api", "studio")
    if (settings.root / LOCK).exists():
        with _only_one(settings):
            pass
    require_safe_address(settings)
    if settings.api_port == settings.studio_port:
        raise BadUsageError(
            f"The API and the studio need two ports, but both have {settings.api_port}.",
            "Set WORKBENCH_API_PORT or WORKBENCH_STUDIO_PORT.",
        )
    require_free_port(settings.api_port, "WORKBENCH_API_PORT", settings.host)
    require_free_port(settings.studio_port, "WORKBENCH_STUDIO_PORT")


def without_auth(settings: Settings) -> Settings:
    """The settings of servers that require no token; `check` refuses them beyond loopback. Raises BadUsageError."""
    if settings.token.get_secret_value():
        raise BadUsageError("`--no-auth` needs no token, but WORKBENCH_TOKEN is set.", "Leave one of them out.")
    return settings.model_copy(update={"no_auth": True})


@contextmanager
def _only_one(settings: Settings) -> Iterator[None]:
    """Locks the home, for as long as any of the started processes lives; raises UiError where it is locked."""
    try:
        file = (settings.root / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise UiError(
            f"The home folder {settings.root} is not writable ({error.strerror}).",
            "Set WORKBENCH_HOME, or change its permissions.",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UiError(
                f"A workbench is running already with the home folder {settings.root}.",
                "Open the address that it printed, or stop it first. A second workbench needs another WORKBENCH_HOME.",
            ) from error
        yield


def prepare(settings: Settings, demo: DemoSize | None) -> None:
    """Upgrades the registry to this version; submits the jobs of a demo, if one is asked for, to an empty registry."""
    from workbench.registry.database import migrate

    migrate(settings)
    if demo is None:
        return
    from jobs.plans.demo import DESCRIPTIONS, is_fresh, submit_demo, why_not_real

    if not is_fresh(settings):
        print(_unfinished_jobs(settings) or "The registry is not empty: the demo is left out.", file=sys.stderr)
        return
    if demo == "real" and (reason := why_not_real()):
        print(f"The demo of a pretrained model is left out for the small one. {reason}", file=sys.stderr)
        demo = "small"
    submit_demo(demo, settings)
    print(DESCRIPTIONS[demo], file=sys.stderr)


def _unfinished_jobs(settings: Settings) -> str:
    """A sentence on unfinished jobs, such as the demo's, without paused ones, which wait to be resumed."""
    from workbench.job_records.jobs import count_by_state
    from workbench.registry.database import reading

    with reading(settings) as session:
        counts = count_by_state(session)
    unfinished = sum(counts.get(state, 0) for state in ACTIVE)
    jobs = f"{unfinished} unfinished job{'s go' if unfinished > 1 else ' goes'}"
    return f"{jobs} on, and nothing new is started." if unfinished else ""


def addresses(settings: Settings) -> dict[str, str]:
    """The URLs of all servers, and a login link if a login is needed."""
    return _server_urls(settings) | ({"login": login_link(settings)} if needs_token(settings) else {})


def _server_urls(settings: Settings) -> dict[str, str]:
    return {
        "studio": public_studio_address(settings),
        "playground": playground_address(settings),
        "api": public_api_address(settings) + "/v1",
        "help": public_studio_address(settings) + HELP_PATH,
    }


def greeting(settings: Settings) -> str:
    """The text that `workbench up` prints first. The login link follows: its ten minutes begin when it is made."""
    lines = [f"  {name:<11} {url}" for name, url in _server_urls(settings).items()]
    if needs_token(settings):
        lines.append("  A login link is printed as soon as the studio answers.")
        lines.append("  Programs send the token that `workbench token` prints.")
    else:
        lines.append("  No login is needed: every user and every program of this machine can use the servers.")
    if settings.public_url:
        lines.append(f"  A proxy must serve {settings.public_url}: see docs/how_to/remote_box.md.")
    elif not is_loopback(settings.host):
        lines.append("  The studio can be reached only from this machine.")
    return "\n".join(["Expert Workbench is starting. Press Ctrl-C to stop all servers.", *lines, ""])


def ready_text(settings: Settings) -> str:
    """The text that `workbench up` prints once the studio answers, with a new login link if a login is needed."""
    if needs_token(settings):
        lines = [
            f"The studio is ready. Log in: {login_link(settings)}",
            "  The link works once, within ten minutes. `workbench login-link` prints a new one.",
        ]
    else:
        lines = [f"The studio is ready: {studio_address(settings)}"]
    return "\n".join(["", *lines, *describe_other_terminal(settings), "", ""])


def describe_other_terminal(settings: Settings) -> list[str]:
    """How another terminal finds the command and this workbench, where only this process's environment does."""
    activate, usual = Path(sys.prefix, "bin", "activate"), Settings.model_fields
    commands = [] if which("workbench") or not activate.is_file() else [f"source {shlex.quote(str(activate))}"]
    home = {} if settings.home == usual["home"].default else {"home": str(settings.root)}
    ports = {name: str(getattr(settings, name)) for name in ("api_port", "studio_port")}
    values = home | {name: port for name, port in ports.items() if port != str(usual[name].default)}
    if values:
        exports = [f"WORKBENCH_{name.upper()}={shlex.quote(value)}" for name, value in values.items()]
        commands.append(" ".join(["export", *exports]))
    return [f"  For commands in another terminal, first run there: {' && '.join(commands)}"] if commands else []


def announce(settings: Settings, output: IO[str], is_over: Event, answers: Callable[[Settings], bool]) -> None:
    """Prints that the studio is ready once it answers, unless the servers are over before."""
    while not is_over.wait(_LOOK_SECONDS):
        if answers(settings):
            output.write(ready_text(settings))
            output.flush()
            return


def environment(settings: Settings, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of every process: inherited variables, an absolute home, and this `python` on the path."""
    return {
        **process_environment(settings.threads),
        **inherited,
        **python_environment(inherited),
        "WORKBENCH_HOME": str(settings.root),
        "WORKBENCH_NO_AUTH": str(int(settings.no_auth)),
        **{f"WORKBENCH_{name.upper()}": value for name, value in _vllm_settings(settings).items()},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
    }


def _vllm_settings(settings: Settings) -> dict[str, str]:
    key = settings.vllm_key.get_secret_value()
    return {"vllm_url": settings.vllm_url, "vllm_key": key, "vllm_mode": settings.vllm_mode}


def processes(procfile: Path = PROCFILE) -> dict[str, str]:
    """Name and command of every process of the Procfile."""
    from honcho.environ import parse_procfile

    if not procfile.is_file():
        raise UiError(f"The file {procfile} is missing.", "Install the workbench again.")
    return dict(parse_procfile(procfile.read_text(encoding="utf-8")).processes)


def _serve(
    settings: Settings, output: IO[str], commands: Mapping[str, str], more: Mapping[str, str] | None = None
) -> int:
    """Runs these processes until one ends; `more` is added to the environment of vLLM."""
    from honcho import manager

    # Honcho kills processes that are still running by then; a job may need `cancel_seconds` to save a checkpoint.
    manager.KILL_WAIT = settings.cancel_seconds + EXIT_SECONDS
    servers = manager.Manager(printer(output))
    for name, command in commands.items():
        servers.add_process(name, command, env=environment(settings) | (dict(more or {}) if name == "vllm" else {}))
    is_over = Event()
    if "studio" in commands:
        Thread(target=announce, args=(settings, output, is_over, studio_answers), daemon=True).start()
    servers.loop()
    is_over.set()
    return int(servers.returncode or 0)


def printer(output: IO[str]) -> Any:
    """Honcho's printer of the servers' lines, without what names and texts in them could do to a terminal."""
    from honcho.printer import Printer

    class HarmlessPrinter(Printer):  # type: ignore[misc]  # honcho has no types
        def write(self, message: Any) -> None:
            data = message.data
            text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
            super().write(message._replace(data=harmless(text)))

    return HarmlessPrinter(output)


@contextmanager
def _browser(settings: Settings, is_wanted: bool) -> Iterator[None]:
    """Opens the studio once it responds, from a process that ends with this block."""
    if not is_wanted:
        yield
        return
    opener = subprocess.Popen(python_command("ui.serving.browser"), env=environment(settings))
    try:
        yield
    finally:
        opener.terminate()
        opener.wait()
