"""The command line that wishes the same as a form. Pure; a test runs it through the CLI's own parser."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ui.present.option_names import option_of
from workbench.specs import SPECS

# The verb of each kind of job, and the fields that go without a flag, in order.
_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "import-corpus": ("corpus add", ("name", "path")),
    "make-seed": ("seed make", ("name",)),
    "train-demix": ("train demix", ("name",)),
    "train-expert": ("train expert", ("name",)),
    "train-mode": ("mode train", ("name",)),
    "compose-mode": ("mode compose", ("name",)),
    "average-experts": ("mix average", ("name",)),
    "evaluate": ("eval run", ("mixture",)),
    "classify": ("eval classify", ("mixture", "path")),
    "find-clusters": ("cluster find", ("name",)),
    "merge-clusters": ("cluster merge", ("clustering",)),
    "split-cluster": ("cluster split", ("clustering", "cluster")),
    "make-cluster-domains": ("cluster domains", ("clustering",)),
    "train-clusters": ("cluster train", ("clustering", "name")),
    "certify-addition": ("expert certify", ("expert",)),
    "certify-removal": ("expert certify-removal", ("expert",)),
}


def command_for(kind: str, told: Mapping[tuple[str, ...], Any]) -> str:
    """`workbench train demix NAME --steps 60 …` from the answers that differ from their defaults."""
    if kind == "make-seed" and told.get(("source",), "fresh") != "fresh":
        return _seed_command(told)
    verb, bare = _VERBS[kind]
    words = [str(told[name,]) for name in bare if told.get((name,))]
    flags = [flag for path, value in told.items() if path[0] not in bare for flag in _flag(_option(kind, path), value)]
    return shlex.join(["workbench", *verb.split(), *words, *flags])


def _option(kind: str, path: tuple[str, ...]) -> str:
    return option_of(SPECS[kind], *path) if len(path) == 2 and kind in SPECS else path[-1]


def _seed_command(told: Mapping[tuple[str, ...], Any]) -> str:
    flag = [f"--{told['source',]}"] if told["source",] in ("hub", "expert") else []
    place = told.get(("expert",)) or told.get(("location",), "")
    return shlex.join(["workbench", "seed", "add", str(told.get(("name",), "")), *flag, str(place)])


def _flag(field: str, value: Any) -> Iterator[str]:
    name = field.removeprefix("num_").replace("_", "-")
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
    elif value not in (None, "", [], {}):
        yield f"--{name}"
        yield ",".join(map(str, value)) if isinstance(value, list) else _word(value)


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else f"{value}"
