"""Answers are typed: no untyped dict leaves a package, and the API's schema knows what it answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ui.api.app import create_app
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
# JSON whose fields depend on what is installed or given: the stored form of a gate, and the body of a request.
JSON_FORMS = {
    "workbench/gate_configs.py:dump_gate",
    "workbench/gate_configs.py:upgraded_gate",
    "workbench/mixture_request.py:changes",
}


def untyped_results(path: Path) -> Iterator[str]:
    """The public functions of a file whose return annotation holds `dict[str, Any]`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns and not node.name.startswith("_"):
            result = ast.unparse(node.returns)
            if "dict[str, Any]" in result or "dict[str, object]" in result:
                yield f"{path.relative_to(ROOT).as_posix()}:{node.name}"


def test_services_and_the_client_return_no_untyped_dicts() -> None:
    files = [path for path in (ROOT / "workbench").rglob("*.py") if "replications" not in path.parts]
    untyped = {name for path in [*files, ROOT / "ui" / "client.py"] for name in untyped_results(path)}
    assert untyped == JSON_FORMS


def has_fields(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a response's schema is an object whose fields are known."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return bool(name and schemas[name].get("properties"))


def of_success(responses: dict[str, Any]) -> dict[str, Any]:
    """The one response that is no error."""
    [response] = [response for status, response in responses.items() if status.startswith("2")]
    return dict(response)


def test_the_schema_of_the_api_knows_the_fields_of_every_answer(tmp_path: Path) -> None:
    api = create_app(Settings(home=tmp_path), playground=False).openapi()
    answers = {
        f"{method} {path}": of_success(operation["responses"])["content"]["application/json"]["schema"]
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    }
    assert len(answers) > 10
    assert [name for name, schema in answers.items() if not has_fields(schema, api["components"]["schemas"])] == []
