"""The fields of a replication's size, common to all papers, and how numbers are read from a paper's TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import TypeAdapter

from engine.config import PAPER_BLOCKS, Checked, ModelConfig, TrainingConfig

SizeName = Literal["tiny", "quick", "small", "smoke"]
SIZE: SizeName = "tiny"  # unless another is given
SMOKE: SizeName = "smoke"  # whose numbers say nothing
TOO_SHORT: frozenset[SizeName] = frozenset({"quick"})  # to tell DEMix from Dense: seeds differ by more than they do
SEEDS = 5  # unless another number is given: with two the rule says *reproduced* too often where nothing differs
ENOUGH_DOCUMENTS = 60  # of test text of a novel domain; a report and a plan name the domains with fewer


@dataclass(frozen=True, kw_only=True)
class Size(Checked):
    """Model, training and text of one size; a paper adds what only it needs."""

    about: str
    shape: ModelConfig
    vocab_size: int
    training: TrainingConfig
    max_bytes: int | None  # of text per domain
    piece_length: int | None = None  # characters of a document at most, in text that it imports
    test_tokens: int  # per domain
    prior_blocks: int = PAPER_BLOCKS

    @property
    def block_size(self) -> int:
        return self.training.block_size

    @property
    def dev_tokens(self) -> int:
        """Exactly the blocks behind a cached prior."""
        return self.prior_blocks * self.block_size


SizeType = TypeVar("SizeType", bound=Size)


def read_table(module: str, name: str) -> dict[str, Any]:
    """The TOML file of this name next to a module."""
    return tomllib.loads(Path(module).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def read_sizes(module: str, kind: type[SizeType]) -> Mapping[SizeName, SizeType]:
    """The sizes of the paper whose module this is, from the `sizes.toml` next to it.

    A size may begin with another (`base`) and change some of its values; `without` names the fields that are None.
    """
    tables = read_table(module, "sizes")
    adapter, names = TypeAdapter(kind), get_args(SizeName)
    return {name: adapter.validate_python(_values(tables, name)) for name in names if name in tables}


def _values(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = dict(tables[name])
    values = _values(tables, own.pop("base")) if "base" in own else {}
    values |= dict.fromkeys(own.pop("without", ()))
    is_changed = {key: isinstance(one, dict) and isinstance(values.get(key), dict) for key, one in own.items()}
    return values | {key: values[key] | one if is_changed[key] else one for key, one in own.items()}


@dataclass(frozen=True)
class Run:
    """One seed of a replication; the names of all that it makes begin with that of its seed model."""

    name: str
    seed: int

    @property
    def seed_model(self) -> str:
        return f"{self.name}-s{self.seed}"

    def step_key(self, name: str) -> str:
        """The key of a step of its plan."""
        return f"s{self.seed} {name}"
