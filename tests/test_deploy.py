"""Containers and units name only what exists. No container is built and no unit started here: the documents say so."""

from __future__ import annotations

import configparser
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

from ui.cli.command_table import CommandTable
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
GPU: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.gpu.yaml").read_text(encoding="utf-8"))
OURS = {"migrate", "api", "studio", "worker", "scheduler"}
FOLDERS = ("engine", "workbench", "jobs", "ui", "alembic")


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
