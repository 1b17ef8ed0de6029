"""The command that starts vLLM with a seed model of the registry, for its adapters and mixtures of them.

The flags are those of vLLM 0.32 (`python -m vllm.entrypoints.openai.api_server`; the builds under other names have no
working command `vllm`). Adapters are loaded when they are first asked for.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from ui.errors import ServingEngineError
from workbench.exports.serve_config import ServedSeed

VERSION = "0.32"
HOW_TO = "See docs/how_to/serve_on_vllm.md."
KEY_VARIABLE = "VLLM_API_KEY"
_LEAST_RANK, _LEAST_ADAPTERS = 16, 4
_PARTS = """
import importlib.util as u, json, re
spec = u.find_spec("vllm")
file = spec and re.sub("__init__.py$", "_version.py", spec.origin)
text = open(file, encoding="utf-8").read() if file else ""
found = re.search(r"^__version__ = version = ['\\"]([^'\\"]+)|^version = ['\\"]([^'\\"]+)", text, re.M)
version = next(filter(None, found.groups()), "") if found else ""
missing = [name for name in ("vllm_mixtures", "engine") if not u.find_spec(name)]
print(json.dumps({"vllm": bool(spec), "version": version, "missing": missing}))
"""


@dataclass(frozen=True)
class VllmCommand:
    """The words that start a server, and what its environment has in addition."""

    words: list[str]
    environment: dict[str, str]
    seed_model: str


def vllm_command(served: ServedSeed, python: str, port: int, key: str) -> VllmCommand:
    """The command for a seed model, of a Python that `require_vllm` accepts."""
    words = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(served.folder)]
    words += ["--served-model-name", served.sha256, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", served.dtype, "--enable-lora", "--max-loras", str(max(_LEAST_ADAPTERS, len(served.ranks)))]
    words += ["--max-lora-rank", str(max([_LEAST_RANK, *served.ranks]))]
    words += ["--lora-target-modules", *served.linear_maps]
    words += ["--no-async-scheduling", "--scheduler-cls", "vllm_mixtures.scheduler.MixtureScheduler"]
    words += ["--middleware", "vllm_mixtures.guard.RequireKey"]
    environment = {
        KEY_VARIABLE: key,
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONSAFEPATH": "1",  # else a file in the current folder counts more than a library of its name
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # it takes no logits processors of this interface
        "HF_HUB_OFFLINE": "1",
    }
    return VllmCommand(words, environment, served.name)


def require_vllm(python: str) -> None:
    """Raises ServingEngineError unless a Python has vLLM of the right version and the plug-in."""
    try:
        run = subprocess.run([python, "-c", _PARTS], capture_output=True, text=True, timeout=60, check=True)
        parts = json.loads(run.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ServingEngineError(f"“{python}” cannot be run as a Python: {error}.", HOW_TO) from error
    if not parts["vllm"]:
        raise ServingEngineError(f"“{python}” has no vLLM.", HOW_TO)
    if not parts["version"].startswith(f"{VERSION}."):
        problem = f"“{python}” has vLLM {parts['version'] or 'of no known version'}; mixtures need {VERSION}."
        raise ServingEngineError(problem, HOW_TO)
    if parts["missing"]:
        raise ServingEngineError(f"“{python}” lacks {' and '.join(parts['missing'])}.", HOW_TO)
