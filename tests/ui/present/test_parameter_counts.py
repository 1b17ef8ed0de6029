"""Parameters of an expert are those with its base wherever they are shown; others are called own, trainable, active."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

import ui
from ui.present.text.formatting import parameters_text
from ui.studio.experts.registry_view import ExpertRegistry, expert_row
from workbench.exports.facts import expert_facts
from workbench.exports.model_card import _origin
from workbench.registry import experts
from workbench.registry.database import transaction
from workbench.registry.seeds import register_seed
from workbench.schema.tables import Artifact, SeedModel
from workbench.store import artifacts
from workbench.store.storage import get_storage

OF_SEED, OWN = 5_000_000, 70_000
LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
NETWORK, ROUTER_COLUMN = 2 * 3 * 8 * 16, 2 * 8
FOUR_NETWORKS = 4 * (NETWORK + ROUTER_COLUMN)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("method", "own", "total", "active"),
    [
        ("lora", OWN, OF_SEED + OWN, OF_SEED + OWN),
        ("mode", OWN, OF_SEED + OWN, OF_SEED + OWN),
        ("domain-token", OWN, OF_SEED + OWN, OF_SEED + OWN),
        ("demix", OWN, OF_SEED, OF_SEED),
        ("dense", OWN, OF_SEED, OF_SEED),
        ("moe", FOUR_NETWORKS, OF_SEED - NETWORK + FOUR_NETWORKS, OF_SEED + 2 * NETWORK + 4 * ROUTER_COLUMN),
    ],
)
def test_cards_tables_and_model_cards_show_the_same_numbers(method: str, own: int, total: int, active: int) -> None:
    with transaction() as session:
        seed = register_seed(
            session,
            name="seed",
            source="fresh",
            family="llama",
            config=LLAMA,
            num_parameters=OF_SEED,
            tokenizer_sha256="t" * 64,
            artifact=_artifact(session, "seed"),
        )
        card = experts.register_expert(
            session,
            id="e" * 32,
            name="law",
            method=method,
            domain_id=None,
            seed_id=seed.id,
            parent_id=None,
            base=session.get_one(SeedModel, seed.id).artifact,
            artifact=_artifact(session, "expert"),
            tokenizer_sha256="t" * 64,
            data_sha256="d" * 64,
            num_parameters=own,
            config={"domains": [], "moe": {"active_experts": 3}},
            metrics={},
        )
        facts = expert_facts(session, experts.expert_row(session, "law"))
    assert (card.total_parameters, card.num_parameters, card.active_parameters) == (total, own, active)
    row = expert_row(card, ExpertRegistry([card]))
    assert (row["parameters"], row["own parameters"]) == (parameters_text(total), parameters_text(own))
    shown = list(_origin(facts))
    assert {f"{total:,} parameters with its base", f"{own:,} parameters of its own"} <= set(shown)


def _artifact(session, key: str) -> Artifact:  # type: ignore[no-untyped-def]
    storage, id = get_storage(), sha256(key.encode()).hexdigest()[:32]
    with storage.new(id) as folder:
        (folder / "bytes").write_text(id)
    return artifacts.register_artifact(session, storage, id, "thing")


def test_no_place_calls_the_own_parameters_of_an_expert_parameters() -> None:
    wrong = [f"{file}:{line}" for file, label, source, line in labels() if label.lower() == "parameters" and source]
    assert wrong == []
    assert len(list(labels())) > 5


def labels() -> Iterator[tuple[str, str, bool, int]]:
    """Every label about parameters, and whether what it stands beside is the own number of something but a seed."""
    for file in sorted(Path(ui.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for label, value in _labelled(node):
                is_own = ".num_parameters" in ast.unparse(value) and "seed." not in ast.unparse(value)
                yield str(file), label, is_own, value.lineno


def _labelled(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What stands under a label in a dictionary, or in a column of a list."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        pairs = [(node.args[0], node.args[1])]
    for key, value in pairs:
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and "parameters" in key.value.lower():
            yield key.value, value


def test_the_glossary_says_what_each_number_is() -> None:
    glossary = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text(encoding="utf-8")
    for term in ("parameters", "own parameters", "trainable parameters", "active parameters"):
        assert f"| {term} |" in glossary
