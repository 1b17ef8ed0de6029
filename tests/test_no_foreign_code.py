"""No file, name or request can run code: nothing that ships unpickles, evaluates text or starts a shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
LOADS = {"torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"}
RUNS = {"eval", "exec", "compile", "__import__"}  # as plain names: `model.eval()` and `re.compile` are others
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
YAML = {"yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"}
NEVER_TRUE = ("allow_pickle", "trust_remote_code", "shell", "unsafe_allow_html", "unsafe_allow_javascript")


def dangerous(source: str) -> Iterator[str]:
    """What of a module's source could run code that somebody else wrote, or show it as markup."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in PICKLES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in PICKLES:
                yield node.module
            yield from (name.name for name in node.names if f"{node.module}.{name.name}" in LOADS | SHELLS | YAML)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in LOADS | SHELLS | YAML:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS:
            yield node.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "launch":
            yield from (
                f"launch({keyword.arg}={ast.unparse(keyword.value)})" for keyword in node.keywords if _shares(keyword)
            )
        elif isinstance(node, ast.keyword):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if (node.arg in NEVER_TRUE and value is not False) or (node.arg == "share" and value is True):
                yield f"{node.arg}={ast.unparse(node.value)}"


def _shares(option: ast.keyword) -> bool:
    """Whether it may open a tunnel from Gradio's servers to this one."""
    return option.arg == "share" and ast.unparse(option.value) != "False"


def test_nothing_that_ships_runs_what_somebody_else_wrote() -> None:
    packages = ("engine", "workbench", "jobs", "ui", "alembic", "studies/workbench_studies")
    modules = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    result = {str(file.relative_to(ROOT)): list(dangerous(file.read_text(encoding="utf-8"))) for file in modules}
    assert len(result) > 100
    assert {name: what for name, what in result.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "torch.load('x')",
        "from torch import load",
        "read = torch.load",
        "import pickle",
        "import joblib",
        "from pickle import loads",
        "f(allow_pickle=True)",
        "f(trust_remote_code=wish)",
        "eval(text)",
        "exec(text)",
        "__import__(name)",
        "run(command, shell=True)",
        "os.system(command)",
        "from os import system",
        "yaml.load(file)",
        "st.markdown(text, unsafe_allow_html=True)",
        "app.launch(share=True)",
        "app.launch(share=wish)",
        "partial(app.launch, share=True)",
    ],
)
def test_the_test_sees_what_would(source: str) -> None:
    assert list(dangerous(source))
