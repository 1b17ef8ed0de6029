"""Plug-ins: modules of a package and entry points of installed packages, under one name each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import plugins
from engine.plugins import BadPluginError, find_plugins

GROUP = "expert_workbench.toys"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path with the package `toys`, which has a module `ball` and a folder `kite`."""
    (tmp_path / "toys" / "kite").mkdir(parents=True)
    (tmp_path / "toys" / "__init__.py").touch()
    (tmp_path / "toys" / "kite" / "__init__.py").touch()
    (tmp_path / "toys" / "ball.py").write_text("TOY = 'ball'")
    (tmp_path / "toys" / "helpers.py").write_text("SIZE = 1")
    (tmp_path / "toys" / "kite" / "kite.py").write_text("TOY = 'kite'")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._entry_points.cache_clear()
    yield tmp_path
    plugins._entry_points.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] in ("toys", "yoyo")]:
        del sys.modules[name]


def install(environment: Path, entry_point: str, code: str) -> None:
    (environment / "yoyo.py").write_text(code)
    distribution = environment / "yoyo-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: yoyo\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_point}\n")


def all_toys() -> dict[str, str]:
    return find_plugins("toys", GROUP, "TOY", str, str)


def test_modules_and_folders_of_the_package_are_listed(environment: Path) -> None:
    assert list(all_toys()) == ["ball", "kite"]


def test_where_folders_have_descriptors_no_other_module_is_imported(environment: Path) -> None:
    (environment / "toys" / "water").mkdir()
    (environment / "toys" / "water" / "__init__.py").touch()
    (environment / "toys" / "water" / "descriptor.py").write_text("TOY = 'boat'")
    (environment / "toys" / "heavy.py").write_text("raise ImportError")
    assert list(all_toys()) == ["boat"]


def test_an_entry_point_of_an_installed_package_is_loaded(environment: Path) -> None:
    install(environment, "yoyo = yoyo:TOY", "TOY = 'yoyo'")
    assert list(all_toys()) == ["ball", "kite", "yoyo"]


def test_a_plugin_may_offer_several(environment: Path) -> None:
    install(environment, "yoyo = yoyo:TOYS", "TOYS = ('yoyo', 'red yoyo')")
    assert list(all_toys()) == ["ball", "kite", "yoyo", "red yoyo"]


@pytest.mark.parametrize(
    ("entry_point", "code", "message"),
    [
        ("yoyo = yoyo:TOY", "import nothing_of_that_name", "ModuleNotFoundError"),
        ("yoyo = yoyo:TOY", "TOY = 3", "is a int, not a str"),
        ("yoyo = yoyo:TOY", "TOY = 'ball'", "“ball”"),
    ],
)
def test_a_broken_plugin_is_named(environment: Path, entry_point: str, code: str, message: str) -> None:
    install(environment, entry_point, code)
    with pytest.raises(BadPluginError, match=message) as raised:
        all_toys()
    assert "yoyo" in str(raised.value)
