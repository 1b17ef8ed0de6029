"""Which peak learning rates suit a seed model? One training for each method and rate, from the same seed and text.

Prints the loss on held-out text before the first update and after the last one, processor seconds and peak memory, each
run in a process of its own. The default rates of pretrained seed models stand on it (`docs/real_models.md`).
Without a seed model a small random one is made, whose text is invented: that says nothing of language.
Run: python benchmarks/learning_rates.py --home FOLDER --seed-folder MODEL --texts LAW.jsonl RECIPES.jsonl
     [--methods dense lora] [--rates 1e-5 1e-4 1e-3] [--random-seeds 0 1]
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from engine.events import TrainingFinished  # noqa: E402
from harness.benchmark import Figure, Options, in_own_process, report, resident_bytes  # noqa: E402
from jobs.queue.submit import run_now  # noqa: E402
from workbench.registry import database  # noqa: E402
from workbench.settings import get_settings  # noqa: E402

METHODS = ["dense", "demix", "lora", "mode", "cbtm"]
SIZES = {
    "home": ("", "", "folder of the workbench, in which seed model and text are kept for the next call"),
    "seed_folder": ("", "", "folder of a pretrained model"),
    "texts": ([""], [""], "files of text, a domain each; MoDE and C-BTM train on the first"),
    "num_domains": (0, 0, "of a joint training, the first ones; 0: all"),
    "methods": (METHODS, ["dense", "lora"], "C-BTM trains a dense model on a cluster: here on the first domain"),
    "rates": ([1e-5, 1e-4, 1e-3, 1e-2], [1e-3], "peak learning rates"),
    "random_seeds": ([0], [0], "of the order of blocks and of what is new"),
    "steps": (20, 2, "updates"),
    "sequences": (1, 1, "of each domain in an update"),
    "block_size": (256, 32, "tokens in each of them"),
    "blocks": (8, 2, "of held-out text of each domain, before and after"),
    "rank": (16, 4, "of LoRA's adapters"),
    "targets": ("attention", "attention", "of LoRA's adapters"),
    "first_layer": (0, 0, "of LoRA's adapters, counted from 0"),
}


def run(spec: dict[str, Any]) -> TrainingFinished | None:
    """Runs a job here, and returns the event that ends a training."""
    finished = None
    for event in run_now(spec)[1]:
        finished = event if isinstance(event, TrainingFinished) else finished
    return finished


def spec_of(method: str, rate: float, random_seed: int, domains: list[str], options: Any) -> dict[str, Any]:
    """The job of a training."""
    training = {
        "num_steps": options.steps,
        "block_size": options.block_size,
        "sequences_per_domain": options.sequences,
        "learning_rate": rate,
        "evaluate_every": options.steps,
        "evaluation_blocks": options.blocks,
        "checkpoint_every": options.steps,
        "sample_tokens": 0,
        "seed": random_seed,
    }
    name = f"{method}-{rate:g}-{random_seed}-{time.time_ns()}".replace(".", "_")
    spec = {"kind": "train-joint", "name": name, "seed_model": "seed", "domains": domains, "training": training}
    if method == "mode":
        return spec | {"kind": "train-mode", "domains": domains[:1]}
    if method == "cbtm":
        return spec | {"method": "dense", "domains": domains[:1]}
    spec["domains"] = domains[: options.num_domains or len(domains)]
    lora = {name: getattr(options, name) for name in ("rank", "targets", "first_layer")}
    return spec | {"method": method} | ({"lora": lora} if method == "lora" else {})


def measure(home: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Trains, and says what it cost and brought."""
    os.environ["WORKBENCH_HOME"] = home
    began = time.process_time()
    finished = run(spec)
    assert finished is not None, "every training ends with it"
    return {
        "before": dict(finished.loss_at_start),
        "after": dict(finished.loss_by_domain),
        "processor_seconds": time.process_time() - began,
        "peak_bytes": resident_bytes(),
    }


def prepare(home: str, seed_folder: str, texts: list[str]) -> list[str]:
    """Imports text and seed model where they are not yet there; returns the domains."""
    os.environ["WORKBENCH_HOME"] = home
    get_settings.cache_clear()
    database.migrate(get_settings())
    made = Path(home) / "prepared.json"
    if made.exists():
        return list(json.loads(made.read_text()))
    if texts == [""]:
        texts = [str(invented(Path(home), name)) for name in "ab"]
    domains = [Path(text).name.partition(".")[0] for text in texts]
    for name, text in zip(domains, texts, strict=True):
        run({"kind": "import-corpus", "name": name, "path": text, "max_bytes": 2_000_000})
    seed = {"source": "folder", "location": seed_folder} if seed_folder else {"domains": domains, "vocab_size": 512}
    run({"kind": "make-seed", "name": "seed", **seed})
    made.write_text(json.dumps(domains))
    return domains


def invented(folder: Path, name: str) -> Path:
    """A file of words that only it has."""
    draw = random.Random(name)
    lines = [json.dumps({"text": " ".join(f"{name}{draw.randrange(99)}" for _ in range(200))}) for _ in range(60)]
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines))
    return path


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    runs, figures = [], []
    with tempfile.TemporaryDirectory() as temporary:
        home = options.home or temporary
        domains = in_own_process(prepare, home, options.seed_folder, options.texts)
        for method in options.methods:
            for rate in options.rates:
                gains = []
                for random_seed in options.random_seeds:
                    measured = in_own_process(measure, home, spec_of(method, rate, random_seed, domains, options))
                    runs.append({"method": method, "rate": rate, "random_seed": random_seed, **measured})
                    print(json.dumps(runs[-1]), flush=True)
                    before, after = (sum(measured[when].values()) / len(measured[when]) for when in ("before", "after"))
                    gains.append(after - before)
                figures.append(Figure(f"{method} at {rate:g}, change of the held-out loss", gains, "nats per token"))
    report(options, figures, runs=runs)


if __name__ == "__main__":
    main()
