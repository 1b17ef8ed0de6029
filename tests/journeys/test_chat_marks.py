"""What records say of learning and of the template reaches a training, which names what its template does not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.journeys.conftest import TRAINING, Do
from tests.journeys.test_chat_data import seed_folder
from workbench.job_records import jobs
from workbench.registry.database import reading


def write(path: Path, **more: Any) -> str:
    """Eight conversations, each with a wrong answer and a right one."""
    user = {"role": "user", "content": "Spell it."}
    lines = [
        {
            "messages": [
                {**user, "content": f"Spell {n}."},
                {"role": "assistant", "content": "wrong wrong", **more},
                user,
            ]
        }
        for n in range(8)
    ]
    for line in lines:
        line["messages"].append({"role": "assistant", "content": "right"})
        line["chat_template_kwargs"] = {"effort": "high"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def notes(do: Do, name: str, path: str) -> str:
    assert do({"kind": "import-corpus", "name": name, "path": path, "format": "chat"}).state == "done"
    training = {**TRAINING, "block_size": 64, "num_steps": 1, "evaluate_every": 1, "checkpoint_every": 1}
    spec = {"kind": "train-joint", "name": f"m {name}", "seed_model": "seed", "domains": [name], "method": "lora"}
    card = do({**spec, "training": training})
    assert card.state == "done", card.error
    with reading() as session:
        return " ".join(f"{event.message} {event.data}" for event in jobs.events(session, card.id))


def test_fewer_tokens_count_where_answers_are_excluded(do: Do, tmp_path: Path) -> None:
    folder = str(seed_folder(tmp_path / "model"))
    assert do({"kind": "make-seed", "name": "seed", "source": "folder", "location": folder}).state == "done"

    every = notes(do, "every", write(tmp_path / "a.jsonl"))
    marked = notes(do, "marked", write(tmp_path / "b.jsonl", train=False))

    counted = [int(text.split(" of them are of answers")[0].split()[-1].replace(",", "")) for text in (every, marked)]
    assert 0 < counted[1] < counted[0] / 2
    assert "does not read “effort”, which 8 conversations set" in marked
