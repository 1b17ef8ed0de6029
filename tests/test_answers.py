"""Answers are typed: no untyped dict leaves a package, and the API's schema knows what it answers."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ui.api.app import create_app
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "workbench", "jobs", "ui")
UNTYPED = re.compile(r"\b(?:dict|Mapping|MutableMapping)\[str, (?:Any|object)\]|\bJsonObject\b")
# JSON whose fields depend on what is installed: the stored form of a gate.
JSON_FORMS = {
    "workbench/specs/gates.py:dump_gate",
    "workbench/specs/gates.py:upgraded_gate",
    "workbench/requests/body.py:changes",
    "workbench/requests/body.py:gate_changes",
}

# Objects whose fields belong to somebody else, by what they are (docs/decisions/0031-json-objects.md).
FREE_FORM = {
    "config of a method, of a gate or of a model: the fields of a plug-in or of transformers": {
        "engine.methods.base:Method.config_from",
        "engine.methods.base:Method.opens",
        "engine.methods.base:Method.parameters",
        "engine.methods.base:StoredExpert.config",
        "engine.methods.parts.method:PartsMethod.configs_of",
        "engine.methods.parts.method:PartsMethod.describe_part",
        "engine.methods.parts.method:backbone_of",
        "engine.methods.joint_training:Recipe.from_json",
        "engine.methods.registry:method_of_card",
        "engine.mixing.evidence:name_of_reading",
        "engine.inference.scores:score_card",
        "engine.models.flops:Shape.of",
        "workbench.questions.calibration:names_evidence",
        "workbench.answers.posteriors:Manifest.gate",
        "workbench.specs.gates:changed_gate",
        "workbench.specs.gates:dump_gate",
        "workbench.specs.gates:load_gate",
        "workbench.specs.requests:MixtureRequest.gate",
        "workbench.schema.composition:ComposedPart.shape",
        "workbench.answers.cards:ClusteringCard.config",
        "workbench.requests.body:gate_changes",
        "workbench.answers.cards:ExpertCard.config",
        "workbench.analysis.changes.additions:worse_than_before",
        "workbench.answers.cards:ExpertCard.metrics",
        "workbench.answers.cards:MixtureCard.gate",
        "workbench.answers.cards:SeedCard.config",
        "workbench.registry.experts:register_expert",
        "workbench.registry.packed_experts:PackedExpert.config",
        "workbench.registry.packed_experts:PackedExpert.metrics",
        "workbench.registry.seeds:register_seed",
        "workbench.store.artifact_files:config_of_card",
    },
    "spec, result, or event of a job: its kind validates the spec, and its screen reads the result": {
        "jobs.queue.submit:keep_done",
        "jobs.queue.submit:run_now",
        "jobs.queue.submit:submit",
        "workbench.job_records.leases:add_event",
        "workbench.job_records.leases:finish",
        "workbench.kinds.kind:Kind.computes_on_gpu",
        "workbench.kinds.kind:Kind.uses_gpu",
        "workbench.kinds.kind:Kind.uses_processes",
        "workbench.kinds.kind:Kind.spreads",
        "workbench.kinds.kind:ResultLink.state",
        "workbench.answers.cards:EventCard.data",
        "workbench.answers.cards:JobCard.result",
        "workbench.answers.cards:JobCard.spec",
        "workbench.registry.reproducible:describe_environment",
        "workbench.kinds.kind:parse_as",
        "workbench.kinds.kind:parse_spec",
        "workbench.kinds.kind:paths_read",
        "workbench.kinds.kind:unreadable_reason",
    },
    "findings of a kind of report, stored on users' disks": {
        "workbench.questions.removal:verdict",
        "workbench.answers.cards:ReportCard.findings",
        "workbench.registry.reports:register_report",
    },
    "measurements of a clustering, with what an embedder or a map adds": {
        "workbench.answers.cards:ClusteringCard.metrics",
        "workbench.registry.clusters.clusterings:register_clustering",
        "workbench.registry.clusters.clusterings:replace_clusters",
        "workbench.formatting.clustering_warnings:clustering_warnings",
        "workbench.formatting.clustering_warnings:unequal_lengths",
    },
    "records of a file or a data set that somebody else wrote": {
        "engine.packed_file:Packed.about",
        "engine.packed_file:write_packed",
        "engine.text.dataset_source:DatasetSource.rows",
        "workbench.registry.packed_experts:read_packed",
    },
    "values for the variables of somebody's chat template": {
        "engine.text.chat.conversations:Conversation.template_kwargs",
        "engine.text.chat.conversations:clean_values",
        "engine.loading.host:Host.conversation_prompt",
    },
    "arguments of Plotly, of pydantic and of a sampler": {
        "workbench.answers.posteriors:Manifest.sampling",
        "workbench.formatting.chart_template:CaptionedChart.table",
        "workbench.formatting.chart_template:fill_of",
        "workbench.formatting.chart_template:line_of",
        "workbench.formatting.chart_template:new_subplots",
        "workbench.errors:validation_message",
    },
    "JSON columns, which cards and answers type": {
        "workbench.registry.corpora:register_corpus",
        "workbench.schema.tables:Clustering.config",
        "workbench.schema.tables:Clustering.metrics",
        "workbench.schema.tables:Corpus.report",
        "workbench.schema.tables:Domain.splits",
        "workbench.schema.tables:Expert.config",
        "workbench.schema.tables:Expert.metrics",
        "workbench.schema.job_tables:Job.failure",
        "workbench.schema.job_tables:Job.result",
        "workbench.schema.job_tables:Job.spec",
        "workbench.schema.tables:Mixture.calibration",
        "workbench.schema.tables:Mixture.gate",
        "workbench.schema.tables:SeedModel.config",
    },
}


def untyped_results(path: Path) -> Iterator[str]:
    """The public functions of a file whose return annotation holds `dict[str, Any]`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns and not node.name.startswith("_"):
            result = ast.unparse(node.returns)
            if "dict[str, Any]" in result or "dict[str, object]" in result:
                yield f"{path.relative_to(ROOT).as_posix()}:{node.name}"


def test_services_and_the_client_return_no_untyped_dicts() -> None:
    files = (ROOT / "workbench").rglob("*.py")
    untyped = {name for path in [*files, ROOT / "ui" / "client.py"] for name in untyped_results(path)}
    assert untyped == JSON_FORMS


def test_no_untyped_object_crosses_a_package_boundary_without_a_reason() -> None:
    assert crossing_untyped() == {name for names in FREE_FORM.values() for name in names}


def crossing_untyped() -> set[str]:
    """Public functions and classes with untyped objects that another of our packages imports."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    imported = {pair for module, tree in trees.items() for pair in imported_from_others(module, tree, trees)}
    crossings = set()
    for module, name in imported:
        body = trees[module].body if module in trees else []
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name and is_untyped(node):
                crossings.add(f"{module}:{name}")
            elif isinstance(node, ast.ClassDef) and node.name == name:
                crossings |= {f"{module}:{name}.{member}" for member in untyped_members(node)}
    return crossings


def imported_from_others(module: str, tree: ast.Module, modules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Module and name of what a module takes from our other packages, by name or as an attribute of a module."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and is_other(node.module, module):
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.module, alias.name
    for node in ast.walk(tree):
        name = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
        if isinstance(node, ast.Attribute) and aliases.get(name) in modules:
            yield aliases[name], node.attr


def is_other(imported: str, module: str) -> bool:
    """Whether a module is in another of our packages."""
    package = imported.split(".")[0]
    return package in PACKAGES and package != module.split(".")[0]


def is_untyped(node: ast.AST) -> bool:
    """Whether an argument, a result or a field is annotated as an object whose fields nobody knows."""
    return bool(UNTYPED.search(" ".join(ast.unparse(annotation) for annotation in annotations(node))))


def annotations(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = node.args
        several = [arguments.vararg, arguments.kwarg]
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *filter(None, several)]
        yield from (one.annotation for one in every if one.annotation)
        if arguments.kwarg and ast.unparse(arguments.kwarg.annotation or ast.Name("Any")) == "Any":
            yield ast.Name("JsonObject")  # `**options: Any` is one by another name
        if node.returns:
            yield node.returns


def untyped_members(node: ast.ClassDef) -> Iterator[str]:
    for one in node.body:
        name = ast.unparse(one.target) if isinstance(one, ast.AnnAssign) else getattr(one, "name", "_")
        if (not name.startswith("_") or name == "__init__") and is_untyped(one):
            yield name


def test_an_untyped_object_in_any_place_is_seen() -> None:
    module = """
class Card:
    fields: JsonObject
    typed: dict[str, int]
    def method(self, **request: Any) -> None: ...
    def typed_method(self, **request: int) -> None: ...
"""
    function = "def read(values: Mapping[str, Any], *, other: int = 0) -> int: ..."
    [card], [read] = ast.parse(module).body, ast.parse(function).body
    assert isinstance(card, ast.ClassDef)
    assert list(untyped_members(card)) == ["fields", "method"]
    assert is_untyped(read)
    taken = ast.parse("from workbench import a\nfrom workbench.b import c\nfrom ui.d import e\nprint(a.f)")
    assert set(imported_from_others("ui.x", taken, {"workbench.a"})) == {
        ("workbench", "a"),
        ("workbench.b", "c"),
        ("workbench.a", "f"),
    }


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
