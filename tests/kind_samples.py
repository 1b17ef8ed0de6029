"""A small valid spec of each kind of job of the workbench, and what its job leaves as its result."""

from __future__ import annotations

from typing import Any

_MODE_RESULT = {"expert": "m/law", "parts": ["law"], "num_parameters": 1234, "mixture": "m"}
_SENTENCE = {"sentence": "All is well."}
_EDIT_RESULT = {"clustering": "c", **_SENTENCE}

SPECS: dict[str, dict[str, Any]] = {
    "import-corpus": {"name": "law", "path": "/data/law.txt"},
    "make-domain": {"clustering": "c", "name": "law", "clusters": ["0"]},
    "make-seed": {"name": "seed", "domains": ["law"]},
    "train-joint": {"name": "m", "seed_model": "seed", "domains": ["law"]},
    "train-expert": {"name": "e", "domain": "law", "mixture": "m"},
    "train-mode": {"name": "m", "seed_model": "seed", "domains": ["law"]},
    "compose-mode": {"name": "m", "experts": ["a", "b"]},
    "average-experts": {"name": "m", "experts": ["a", "b"]},
    "join-experts": {"name": "m", "experts": ["a", "b"]},
    "make-mixture": {"name": "m", "experts": ["a"]},
    "export-expert": {"expert": "e", "folder": "/data/out"},
    "pack-expert": {"expert": "e", "file": "/data/e.expert"},
    "unpack-expert": {"file": "/data/e.expert"},
    "import-expert": {"source": "/data/adapter", "seed_model": "s"},
    "export-mixture": {"mixture": "m", "folder": "/data/out"},
    "push-expert": {"expert": "e", "repository": "you/e"},
    "evaluate": {"mixture": "m"},
    "classify": {"mixture": "m", "path": "/data/tasks"},
    "certify-addition": {"expert": "e", "mixture": "m"},
    "certify-removal": {"expert": "e", "mixture": "m"},
    "measure-overlap": {},
    "selfcheck": {},
    "find-clusters": {"name": "c"},
    "cluster-part": {"name": "c"},
    "merge-clusters": {"clustering": "c", "clusters": ["0", "1"]},
    "split-cluster": {"clustering": "c", "cluster": "0"},
    "pin-documents": {"clustering": "c", "cluster": "0", "documents": ["abcdef12"]},
    "make-cluster-domains": {"clustering": "c"},
}
RESULTS: dict[str, dict[str, Any]] = {
    "import-corpus": {"num_documents": 2, "domains": ["law"]},
    "make-domain": {"domain": "law", **_SENTENCE},
    "make-seed": {"seed_model": "seed", "num_parameters": 1234, "vocab_size": 500},
    "train-joint": {"experts": ["m/law"], "mixture": "m"},
    "train-expert": {"expert": "e", "parent": "m/law", "mixture": "m"},
    "train-mode": _MODE_RESULT,
    "compose-mode": _MODE_RESULT,
    "average-experts": {"expert": "m/average", "weights": {"a": 0.5, "b": 0.5}, "mixture": "m"},
    "join-experts": {"expert": "m/joined", "mixture": "m", **_SENTENCE},
    "make-mixture": {"experts": ["a"], "mixture": "m"},
    "export-expert": {"expert": "e", "folder": "/data/out", "format": "hf", "num_bytes": 1234},
    "pack-expert": {"expert": "e", "file": "/data/e.expert", "with_seed": True, "num_bytes": 1234},
    "unpack-expert": {"expert": "e", "new_seed": "s", "source": "packed:0"},
    "import-expert": {
        "expert": "e",
        "reason": "LoRA, since it is one",
        "source": "folder:/data/adapter",
        "num_parameters": 9,
    },
    "export-mixture": {
        "mixture": "m",
        "folder": "/o",
        "format": "moe",
        "num_bytes": 1,
        "weights": {"a": 0.5, "b": 0.5},
    },
    "push-expert": {"expert": "e", "url": "https://huggingface.co/you/e", "commit": "c0ffee", "format": "hf"},
    "evaluate": {"mixture": "m", "scored": 4},
    "classify": {"report": "r", **_SENTENCE},
    "certify-addition": {"expert": "e", **_SENTENCE},
    "certify-removal": {"expert": "e", **_SENTENCE},
    "measure-overlap": {"report": "r", "domains": ["a", "b"]},
    "selfcheck": {"laws": [{"law": "L1", "passed": True}], "failed": []},
    "find-clusters": _EDIT_RESULT,
    "cluster-part": {"clustering": "c", "shard": 3},
    "merge-clusters": _EDIT_RESULT,
    "split-cluster": _EDIT_RESULT,
    "pin-documents": _EDIT_RESULT,
    "make-cluster-domains": _EDIT_RESULT,
}
