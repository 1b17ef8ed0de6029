"""The plug-in for vLLM uses of the workbench only gates and sampling, which load in an environment without the rest."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "serving" / "vllm_mixtures"
USED = ("engine.config", "engine.inference.sampling", "engine.mixing.base", "engine.mixing.gate_type")
FOREIGN = ("transformers", "tokenizers", "sqlalchemy", "pyarrow", "sklearn", "scipy", "streamlit", "gradio", "fastapi")


def imported_modules() -> set[str]:
    """The modules that its files import, but those of Python."""
    modules = set[str]()
    for path in sorted((FOLDER / "vllm_mixtures").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
            elif isinstance(node, ast.Import):
                modules.update(alias.name for alias in node.names)
    return {module for module in modules if module.partition(".")[0] not in sys.stdlib_module_names}


def test_it_imports_gates_and_sampling_and_nothing_else_of_the_workbench() -> None:
    others = {
        module for module in imported_modules() if module.partition(".")[0] not in ("vllm", "vllm_mixtures", "torch")
    }
    assert others == set(USED)


def test_what_it_uses_needs_only_torch_and_numpy() -> None:
    code = f"""
import sys
for name in {FOREIGN}:
    sys.modules[name] = None  # an import of it fails
import {", ".join(USED)}
from engine.mixing.gate_type import build_gate, gate_types
for name, kind in gate_types().items():
    if not kind.needs_clustering:
        assert build_gate(kind.config(), [1.0, 2.0]).start().log_weights().exp().sum() > 0.999, name
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_packages_have_one_version() -> None:
    versions = {
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
        for folder in (ROOT, FOLDER)
    }
    assert len(versions) == 1
