"""Two API servers do not use one GPU unless they are allowed to; the GPU is made up here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.device import gpu_uuid, python_environment
from ui.api import __main__ as api
from ui.errors import GpuTakenError, UiError
from ui.serving import gpu_lease as lease
from ui.serving.gpu_lease import find_uuid, gpu_lease
from workbench.settings import Settings

FAKE = "GPU-1b2c3d4e-fake"
HOLD = """
import sys
from pathlib import Path
from ui.serving.gpu_lease import gpu_lease
from workbench.settings import Settings
with gpu_lease(Settings(home=Path(sys.argv[1]), api_port=8123), lambda _: sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def fake(_: str) -> str:
    return FAKE


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of locks, here and in what is started."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "expert-workbench"


def test_a_second_server_on_a_gpu_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "first"), FAKE]
    environment = {**os.environ, **python_environment()}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        second = Settings(home=tmp_path / "second")
        with pytest.raises(GpuTakenError) as caught, gpu_lease(second, fake):
            pass
        assert caught.value.problem == (
            f"Another API server of yours uses the GPU {FAKE} already "
            f"(http://127.0.0.1:8123, home folder {tmp_path / 'first'})."
        )
        assert "WORKBENCH_SHARE_GPU=true" in caught.value.next_step
        with gpu_lease(second, lambda _: "GPU-another"):
            pass
        with gpu_lease(second.model_copy(update={"share_gpu": True}), fake):
            pass
        first.kill()
        first.wait()
        with gpu_lease(second, fake):
            pass


def test_nothing_is_leased_without_a_gpu(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "has_driver", lambda: False)
    assert [find_uuid(device) for device in ("cpu", "auto", "mps")] == ["", "", ""]
    with gpu_lease(Settings(device="cpu")):
        assert not own_folder.exists()
    assert gpu_uuid("cpu") == ""


def test_another_process_reads_the_name_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "python_command", lambda *_: [sys.executable, "-c", f"print('{FAKE}')"])
    assert find_uuid("cuda:1") == FAKE


def test_only_the_user_can_open_the_folder_of_locks(own_folder: Path) -> None:
    with gpu_lease(Settings(), fake):
        assert own_folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in own_folder.iterdir()} == {0o600}
    own_folder.chmod(0o755)
    with pytest.raises(UiError, match="is not private to you"), gpu_lease(Settings(), fake):
        pass


def test_a_server_refuses_in_one_sentence_before_it_binds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    monkeypatch.setattr(lease, "find_uuid", fake)
    settings = Settings(api_port=free_port)
    monkeypatch.setattr(api, "_settings", lambda: settings)
    monkeypatch.setattr(api, "_listen", lambda _: pytest.fail("it listens"))
    with gpu_lease(settings, fake):
        assert api.main() == 2
    assert capsys.readouterr().err.startswith(f"Another API server of yours uses the GPU {FAKE} already (")
