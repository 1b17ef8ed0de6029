"""Containers and units name only what exists. No container is built and no unit started here: the documents say so."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import make_url

from ui.api.app import create_app
from ui.cli.app import CommandTable
from ui.pages.catalog import all_pages
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
GPU: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.gpu.yaml").read_text(encoding="utf-8"))
PROXY: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.proxy.yaml").read_text(encoding="utf-8"))
CADDYFILE = (ROOT / "deploy" / "Caddyfile").read_text(encoding="utf-8")
OURS = {"migrate", "api", "studio", "worker", "scheduler"}
FOLDERS = ("engine", "workbench", "jobs", "ui", "alembic", "studies")


def require_command(words: list[str]) -> None:
    """Fails unless this is a command of ours or a module that can be run."""
    if words[0].endswith("workbench"):
        assert words[1] in CommandTable()
    else:
        assert words[0].endswith("python")
        assert words[1:3] == ["-P", "-m"]
        assert find_spec(words[3]) is not None


def test_all_parts_are_started_with_commands_that_exist() -> None:
    services = COMPOSE["services"]
    assert set(services) == OURS | {"database", "broker", "store", "bucket"}
    for name in OURS:
        require_command(services[name]["command"])
    require_command(["workbench", "up"])
    assert 'CMD ["workbench", "up", "--no-browser"]' in DOCKERFILE
    assert set(GPU["services"]) <= OURS


def test_the_drop_in_for_vllm_replaces_the_command_by_one_that_exists() -> None:
    [path] = (ROOT / "deploy" / "systemd" / "workbench-api.service.d").glob("*.conf")
    emptied, command = re.findall(r"^ExecStart=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert emptied == ""
    require_command(command.split())
    assert command.split()[2:4] == ["--engine", "vllm"]


def test_services_have_settings_that_exist_and_wait_for_services_that_exist() -> None:
    known = {f"WORKBENCH_{name.upper()}" for name in Settings.model_fields}
    for name in OURS:
        service = COMPOSE["services"][name]
        assert {one for one in service["environment"] if one.startswith("WORKBENCH_")} <= known
        assert set(service["depends_on"]) <= set(COMPOSE["services"])
        assert service["network_mode"] == "host"
    text = DOCKERFILE + (ROOT / "deploy" / "workbench.env").read_text(encoding="utf-8")
    names = set(re.findall(r"WORKBENCH_[A-Z_]+", text))
    assert names
    assert names <= known


def test_the_settings_of_the_containers_are_valid_once_the_secrets_are_set() -> None:
    environment = COMPOSE["services"]["worker"]["environment"]
    values = {
        name: re.sub(r"\$\{\w+(?::-(\w*)|:\?[^}]*)?\}", lambda m: m[1] or "", v) for name, v in environment.items()
    }
    settings = Settings(
        **{name.removeprefix("WORKBENCH_").lower(): v for name, v in values.items() if name.startswith("WORKBENCH_")}
    )
    assert make_url(settings.database).get_backend_name() == "postgresql"
    assert settings.store == "s3://workbench/experts"
    assert settings.worker_slots == 2


def test_the_proxy_of_the_containers_has_the_kept_file_and_its_variables() -> None:
    proxy = PROXY["services"]["proxy"]
    assert set(PROXY["services"]) <= OURS | {"proxy"}
    assert proxy["volumes"][0] == "./deploy/Caddyfile:/etc/caddy/Caddyfile:ro"
    assert set(PROXY["volumes"]) == {proxy["volumes"][1].partition(":")[0]}
    needed = set(re.findall(r"\{\$(\w+)\}", CADDYFILE))
    assert needed == {"WORKBENCH_PUBLIC_URL"}
    for service in PROXY["services"].values():
        assert needed <= set(service["environment"]) <= needed | {"CADDY_TLS"}


def test_the_kept_proxy_sends_every_route_of_the_api_there_and_no_page_of_the_studio(tmp_path: Path) -> None:
    [line] = re.findall(r"^\t@api path (.+)$", CADDYFILE, re.MULTILINE)
    both = {"", "favicon.ico", "login", "logout"}  # the studio has its own
    app = create_app(Settings(home=tmp_path))
    mounted = {route.path for route in app.routes if isinstance(getattr(route, "path", None), str)}
    served = {path.split("/")[1] for path in {*app.openapi()["paths"], *mounted, "/metrics"}} - both
    assert {path.split("/")[1] for path in line.split()} == served
    assert all({f"/{name}/*", f"/{name}"} & set(line.split()) for name in served)
    studio = {page.address for page in all_pages()} | {"static", "media", "component", "_stcore", "help"}
    assert served.isdisjoint(studio)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="there is no Caddy on this machine")
def test_caddy_takes_the_kept_file_as_it_is(tmp_path: Path) -> None:
    """With one listener, no admin endpoint, and no upstream but on loopback."""
    environment = {**os.environ, "WORKBENCH_PUBLIC_URL": "https://192.0.2.7:8443", "XDG_DATA_HOME": str(tmp_path)}
    command = ["caddy", "adapt", "--config", str(ROOT / "deploy" / "Caddyfile"), "--validate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    taken = json.loads(done.stdout)
    [server] = taken["apps"]["http"]["servers"].values()
    assert (server["listen"], taken["admin"], server["protocols"]) == ([":8443"], {"disabled": True}, ["h1", "h2"])
    assert set(re.findall(r'"dial":"([^"]+)"', done.stdout)) == {"127.0.0.1:8000", "127.0.0.1:8501"}
    formatted = subprocess.run(["caddy", "fmt", command[3]], capture_output=True, text=True, check=False)
    assert formatted.stdout == CADDYFILE


def test_no_port_is_open_to_the_network_and_no_secret_is_written_down() -> None:
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or "SECRET" in name or name == "WORKBENCH_TOKEN":
                assert value.startswith("${")


def test_the_image_gets_all_packages_and_only_extras_and_files_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {one for some in re.findall(r"'\.\[([\w,]+)\]'", DOCKERFILE) for one in some.split(",")}
    assert named
    assert named <= extras.keys()
    copied = [word for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]]
    assert set(FOLDERS) <= set(copied)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert not set(ignored) & set(copied)
    assert DOCKERFILE.index("USER workbench") < DOCKERFILE.index("CMD")


def test_every_unit_starts_a_module_that_exists_as_another_user() -> None:
    target = (ROOT / "deploy" / "systemd" / "workbench.target").read_text(encoding="utf-8")
    assert len(UNITS) == 4
    for unit in UNITS:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(unit, encoding="utf-8")
        assert parser["Service"]["User"] == "workbench"
        require_command(parser["Service"]["ExecStart"].split())
        assert unit.name in target


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze on this machine")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in [*UNITS, ROOT / "deploy" / "systemd" / "workbench.target"]:
        text = unit.read_text(encoding="utf-8").replace("/opt/workbench/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    files = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if "workbench" in line]
    assert done.returncode == 0
