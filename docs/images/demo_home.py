"""Makes the registry that the pictures show: the demo of a pretrained model, models of other methods, their scores.

`python docs/images/demo_home.py FOLDER` runs the commands below one after another, each as a user would type it. A
command that was run before in this folder is not run again, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from jobs.plans.demo import ADAPTERS, ADAPTING, PACKAGE

TRAINED = ("python", "headers", "manuals", "descriptions", "licences")
NOVEL = ("cython", "mathematics")
ALL = ",".join(TRAINED)
TRAINING = "--block-size 128 --clip 1"
LITTLE = f"--learning-rate 0.004 {TRAINING} --here"
DEMO = " ".join(
    f"--{option} {value}"
    for option, value in {
        "method": "lora",
        "rank": ADAPTERS.rank,
        "alpha": ADAPTERS.alpha,
        "targets": ADAPTERS.targets,
        "steps": ADAPTING.num_steps,
        "block-size": ADAPTING.block_size,
        "sequences-per-domain": ADAPTING.sequences_per_domain,
        "learning-rate": ADAPTING.learning_rate,
        "clip": ADAPTING.clip,
        "evaluate-every": 12,
    }.items()
)
SCORES = "--block-size 128 --max-tokens 2048 --here"
IMPORTS = [
    f"corpus add {name} --local-source {name} --role {role} --max-bytes 1000000 --here"
    for role, names in (("train", TRAINED), ("novel", NOVEL))
    for name in names
]
COMMANDS = (
    "migrate",
    *IMPORTS,
    f"seed add smol --package {PACKAGE} --here",
    # Clusters and their branches are of a little model: one of 135M parameters for each takes an hour.
    f"seed make little --domains {ALL} --vocab-size 2048 --layers 2 --width 64 --heads 2"
    " --ffn-width 192 --max-positions 512 --here",
    "cluster find topics --clusters 8 --here",
    f"train clusters topics branches --seed-model little --steps 160 {LITTLE}",
    "evaluate run branches --block-size 128 --max-tokens 2000 --here",
    f"train joint dense --seed-model smol --method dense-balanced --domains {ALL} --steps 16 --evaluate-every 4"
    f" --learning-rate 0.0001 --sequences-per-domain 1 {TRAINING} --here",
    f"evaluate run dense {SCORES}",
    "train mode code --seed-model smol --domains python --blocks 3 --expert-layers 1 --retain licences --steps 20"
    f" --sequences-per-domain 1 --evaluate-every 5 {TRAINING} --here",
    f"evaluate run code {SCORES}",
    # The mixture that the page Overview shows is the newest of those that are scored.
    f"train joint smol --seed-model smol --domains {ALL} {DEMO} --here",
    "mixture add smol seed:smol",
    f"evaluate run smol {SCORES}",
    f"evaluate run smol --split dev {SCORES}",
    "train expert pyrex --domain cython --mixture smol --steps 30 --evaluate-every 10 --learning-rate 0.001"
    f" {TRAINING} --here",
    f"evaluate run smol {SCORES}",
    f"evaluate run smol --split dev {SCORES}",
    "evaluate overlap --here",
    "evaluate removal smol --blocks 5",
    "alias set law@production smol/licences",
    "view save code /experts?experts.search=python",
    "alias set demo@production smol",  # pages open on the mixture that has an alias
)
COMPARED = (
    ("def read(path):", "a"),
    ("The licensor grants", "b"),
    ("#include <vector>\n", "tie"),
    ("Returns the array of", "a"),
)
# Several commands in one process: torch is loaded once.
_RUN_ALL = """
import json, sys
from pathlib import Path
from ui.cli.app import main
done = Path(sys.argv[2])
start = int(done.read_text() if done.exists() else 0)
for number, words in enumerate(json.loads(sys.argv[1])):
    if 0 < number < start:  # the first is the migration, which a new version may need again
        continue
    print("workbench", *words, flush=True)
    if code := main(words):
        sys.exit(f"{words}: exit code {code}")
    done.write_text(str(max(start, number + 1)))
"""


def environment(home: Path) -> dict[str, str]:
    """The variables of processes that work in a home; settings of this shell do not count."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    return own | {"WORKBENCH_HOME": str(home), "OMP_WAIT_POLICY": "passive"}


def run(home: Path, *words: str) -> str:
    """What a command prints with `--json`."""
    command = [sys.executable, "-c", "import sys; from ui.cli.app import main; sys.exit(main())", *words, "--json"]
    return subprocess.run(command, env=environment(home), check=True, capture_output=True, text=True).stdout


def make_home(home: Path) -> None:
    """Fills a home, as far as it is not filled yet."""
    home.mkdir(parents=True, exist_ok=True)
    words = [line.split() for line in COMMANDS]
    code = [sys.executable, "-c", _RUN_ALL, json.dumps(words), str(home / "commands_done")]
    subprocess.run(code, env=environment(home), check=True)
    if not json.loads(run(home, "comparison", "list")):
        for prompt, vote in COMPARED:
            made = json.loads(
                run(home, "comparison", "create", prompt, "smol", "seed:smol", "--max-tokens", "60", "--seed", "1")
            )
            run(home, "comparison", "vote", made["id"], vote)


if __name__ == "__main__":
    make_home(Path(sys.argv[1]))
