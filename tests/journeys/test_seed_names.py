"""`seed:NAME` means a seed model as it is in every command and route that takes a model, or the error says why not."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import select
from starlette.testclient import TestClient
from typer.main import get_command

from tests.toy_packages import WORDS, do
from ui.api.app import create_app
from ui.cli.app import app, main
from ui.notebook import Workbench
from workbench.registry import database, experts, seeds
from workbench.registry.resources import names_from
from workbench.schema.names import not_a_cli_name
from workbench.schema.tables import Evaluation
from workbench.settings import Settings, get_settings

IS_SEED, NOT_STORED = "is the seed model “seed” as it is", "is a seed model as it is, not a mixture that is stored"
NO_COPY = "has no expert that can be copied"
TEXT = "--domains court --block-size 32 --max-tokens 200 --here"

# By command and parameter, for all that take a mixture or an expert: a line, and what its error says where it fails.
COMMANDS: dict[str, tuple[str, str]] = {
    "alias set model": ("alias set best@prod seed:seed", ""),
    "comparison create models": ("comparison create hello seed:seed small --max-tokens 2", ""),
    "comparison list model": ("comparison list --model seed:seed", ""),
    "evaluate affinity mixture": ("evaluate affinity seed:seed", ""),
    "evaluate classify experts": ("evaluate classify small {out}/tasks --experts seed:seed --here", "task"),
    "evaluate classify mixture": ("evaluate classify seed:seed {out}/tasks --here", "task"),
    "evaluate contrast expert": ("evaluate contrast court seed:seed small/court", "scored"),
    "evaluate contrast rival": ("evaluate contrast court small/court seed:seed", "scored"),
    "evaluate forgetting after": ("evaluate forgetting small seed:seed", ""),
    "evaluate forgetting before": ("evaluate forgetting seed:seed small", ""),
    "evaluate grid mixture": ("evaluate grid seed:seed", "must have a cluster gate"),
    "evaluate posteriors mixture": ("evaluate posteriors seed:seed", ""),
    "evaluate removal mixture": ("evaluate removal seed:seed", ""),
    "evaluate retention experts": ("evaluate retention court --experts seed:seed", ""),
    "evaluate run experts": (f"evaluate run small --experts seed:seed {TEXT}", ""),
    "evaluate run mixture": (f"evaluate run seed:seed {TEXT}", ""),
    "evaluate show mixture": ("evaluate show seed:seed", ""),
    "expert additions name": ("expert additions seed:seed", ""),
    "expert certify expert": ("expert certify seed:seed --mixture small --here", "was not added"),
    "expert certify mixture": ("expert certify small/court --mixture seed:seed --here", "was not added"),
    "expert certify-removal expert": (
        "expert certify-removal seed:seed --mixture small --here",
        "no expert in “small”",
    ),
    "expert certify-removal mixture": (
        "expert certify-removal small/court --mixture seed:seed --here",
        "no expert in “seed:seed”",
    ),
    "expert delete name": ("expert delete seed:seed", IS_SEED),
    "expert disable names": ("expert disable seed:seed", ""),
    "expert enable names": ("expert enable seed:seed", ""),
    "expert export expert": ("expert export seed:seed {out}/exported --here", ""),
    "expert nearest mixture": ("expert nearest court --mixture seed:seed", "cannot be copied"),
    "expert note name": ("expert note seed:seed --tags bare", ""),
    "expert pack expert": ("expert pack seed:seed {out}/packed --here", "pack one of its experts"),
    "expert push expert": ("expert push seed:seed me/seed --format peft --here", "not from the hub"),
    "expert removals name": ("expert removals seed:seed", ""),
    "expert rename name": ("expert rename seed:seed other", IS_SEED),
    "expert show name": ("expert show seed:seed", ""),
    "generate model": ("generate seed:seed hello --max-tokens 2", ""),
    "mixture add expert": ("mixture add small seed:seed", ""),
    "mixture add name": ("mixture add seed:seed small/court", NOT_STORED),
    "mixture average experts": ("mixture average mean --experts seed:seed,small/court --here", ""),
    "mixture join experts": ("mixture join joined --experts seed:seed,small/court --here", "no training text here"),
    "mixture calibrate name": ("mixture calibrate seed:seed", "a seed model as it is"),
    "mixture copy name": ("mixture copy seed:seed", ""),
    "mixture cost mixture": ("mixture cost seed:seed", ""),
    "mixture delete name": ("mixture delete seed:seed", NOT_STORED),
    "mixture export mixture": ("mixture export seed:seed {out}/model --here", ""),
    "mixture gate name": ("mixture gate seed:seed --gate fixed", NOT_STORED),
    "mixture inference-modes mixture": ("mixture inference-modes seed:seed", ""),
    "mixture smallest-set mixture": ("mixture smallest-set seed:seed court", "is scored on dev text"),
    "mixture perplexity name": ("mixture perplexity seed:seed", ""),
    "mixture remove expert": ("mixture remove small seed:seed", "“seed:seed”"),
    "mixture remove name": ("mixture remove seed:seed seed:seed", NOT_STORED),
    "mixture serve-config name": ("mixture serve-config seed:seed {out}/served", ""),
    "mixture show name": ("mixture show seed:seed", ""),
    "mixture toggle expert": ("mixture toggle small seed:seed", "no expert"),
    "mixture toggle name": ("mixture toggle seed:seed seed:seed", NOT_STORED),
    "mixture weights name": ("mixture weights seed:seed seed:seed=2", NOT_STORED),
    "mode compose experts": ("mode compose c --experts seed:seed,small/court --here", "have no parts"),
    "mode history experts": ("mode history seed:seed", ""),
    "prior estimate mixture": ("prior estimate p seed:seed court", "not scored"),
    "prior set pairs": ("prior set q seed:seed=1", ""),
    "seed add expert": ("seed add copy --expert seed:seed --here", ""),
    "train clusters branch_from": ("train clusters topics c1 --branch-from seed:seed", "no clustering"),
    "train expert mixture": ("train expert new --domain sea --mixture seed:seed --here", NO_COPY),
    "train expert parent": (
        "train expert new --domain sea --mixture small --parent seed:seed --block-size 32 --here",
        "seed:seed",
    ),
    "verify expert": ("verify --replay seed:seed", "seed:seed"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, seeded_home: Path) -> Path:
    """The home with the model `seed`, and the mixture `small` of adapters to it. Made once."""
    folder = tmp_path_factory.mktemp("named")
    shutil.copytree(seeded_home, folder, dirs_exist_ok=True)
    training = {"num_steps": 2, "block_size": 32, "evaluate_every": 2}
    spec = {"kind": "train-joint", "name": "small", "seed_model": "seed", "domains": list(WORDS), "method": "lora"}
    do({**spec, "training": training}, Settings(home=folder))
    database.close_engines()
    return folder


@pytest.fixture
def named(home: Path, made: Path) -> Path:
    """A copy of that home, where no seed model was an expert before."""
    return Path(shutil.copytree(made, home, dirs_exist_ok=True))


def parameters(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any]]:
    """The parameters of a command and of all below it, each with its context and `COMMAND NAME`."""
    context = typer.Context(command, info_name=path[-1] if path else "workbench")
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from parameters(command.get_command(context, name), (*path, name))
    for parameter in () if hasattr(command, "list_commands") else command.params:
        yield " ".join([*path, parameter.name]), parameter, context


def test_the_table_has_every_command_that_takes_a_model(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert home.is_dir()
    monkeypatch.setattr("workbench.registry.resources.names_from", lambda _session, kind, _start: [kind])
    taking = {
        name
        for name, parameter, context in parameters(get_command(app))
        if {"mixture", "expert"} & {offered.value for offered in parameter.shell_complete(context, "")}
    }
    assert taking == COMMANDS.keys()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_takes_a_bare_seed_or_says_why_not(
    name: str, named: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named.is_dir()
    (tmp_path / "tasks").mkdir()
    line, problem = COMMANDS[name]
    code = main(shlex.split(line.format(out=tmp_path)))
    error = capsys.readouterr().err
    assert (problem in error, "no seed model" in error, code) == (True, False, 2 if problem else 0), error


def test_jobs_that_wait_for_the_seed_may_name_it(home: Path, seeded_home: Path) -> None:
    shutil.copytree(seeded_home, home, dirs_exist_ok=True)
    score = {"kind": "evaluate", "mixture": "seed:seed", "domains": ["court"], "block_size": 32, "max_tokens": 200}
    with database.reading() as session:
        assert experts.list_experts(session) == []
    do(score, get_settings())
    with database.reading() as session:
        [row] = session.scalars(select(Evaluation))
        assert (row.expert.name, row.expert_id) == ("seed:seed", seeds.seed_row(session, "seed").id)


def test_routes_take_a_bare_seed(named: Path) -> None:
    settings = Settings(home=named)
    with TestClient(create_app(settings, playground=False), base_url="http://127.0.0.1:8000") as api:
        models = [model["id"] for model in api.get("/v1/models").json()["data"]]
        body = {"model": "seed:seed", "prompt": "hello", "max_tokens": 2, "seed": 1}
        answer = api.post("/v1/completions", json=body).json()
        read = api.post("/v1/workbench/posterior", json={"model": "seed:seed", "text": "the court"}).json()
        chat = api.post(
            "/v1/chat/completions", json={"model": "seed:seed", "messages": [{"role": "user", "content": "a"}]}
        )
        refused = api.delete("/v1/workbench/experts/seed:seed")
        unknown = api.post("/v1/completions", json={**body, "model": "seed:nope"})
        shown = [api.get(f"/v1/workbench/{path}/seed:seed").status_code for path in ("experts", "mixtures")]
    assert models == ["small", "small/court", "small/sea", "seed:seed"]
    assert (answer["model"], list(read["experts"])) == ("seed:seed", ["seed:seed"])
    assert "chat template" in chat.json()["error"]["message"]
    assert (refused.status_code, unknown.status_code, shown) == (422, 404, [200, 200])
    assert IS_SEED in refused.json()["error"]["message"]


def test_a_notebook_takes_a_bare_seed(named: Path) -> None:
    workbench = Workbench(named, quiet=True)
    assert workbench.expert("seed:seed").generate("hello", max_tokens=2, seed=1)
    assert workbench.mixture("seed:seed").active == ["seed:seed"]


def test_names_of_seeds_are_completed_and_free_for_nothing_else(named: Path) -> None:
    assert named.is_dir()
    with database.reading() as session:
        assert names_from(session, "expert", "seed:") == ["seed:seed"]
    assert "it means the seed model “x” as it is" in not_a_cli_name("expert", "seed:x")


def test_a_bare_seed_has_one_look_before_and_after_it_is_stored(named: Path) -> None:
    assert named.is_dir()
    with database.reading() as session:
        before = experts.get_expert(session, "seed:seed")
    with database.transaction() as session:
        stored = experts.get_expert(session, "seed:seed")
    assert stored == before
