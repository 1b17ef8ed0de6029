"""The command line: it answers at once, speaks JSON when asked, and turns a problem into one sentence."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ui.cli.app import VERBS as SENTENCES
from ui.cli.app import app, main
from ui.cli.mix_options import number
from ui.cli.output import shown
from ui.errors import BadUsage

HEAVY = ("torch", "transformers", "sqlalchemy", "gradio", "streamlit", "celery", "fastapi", "httpx", "numpy")
HELP_SECONDS = 0.5


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its path, groups included."""
    command = command or get_command(app)
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


VERBS = [(path, command) for path, command in commands() if not getattr(command, "commands", None)]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a verb printed."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_verb_and_every_option_says_what_it_is() -> None:
    for path, command in commands():
        assert command.help, f"{path} has no help"
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{path}: {parameter.name} has no help"


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_help_of_every_verb_can_be_read(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0

    assert "Usage" in capsys.readouterr().out


def test_every_verb_speaks_json() -> None:
    for path, command in VERBS:
        assert any("--json" in parameter.opts for parameter in command.params), path


def test_help_wakes_nothing_heavy() -> None:
    awake = f"print([name for name in {HEAVY} if name in sys.modules])"
    script = f"import sys; from ui.cli.app import main; main(['train', 'demix', '--help']); {awake}"

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert said.splitlines()[-1] == "[]"


def test_the_list_of_verbs_says_of_each_what_it_says_of_itself() -> None:
    verbs: Any = get_command(app)
    assert {name: command.help for name, command in verbs.commands.items()} == SENTENCES


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [(["--help"], []), (["train", "--help"], ["train"])],
)
def test_help_imports_only_the_verb_that_was_asked_for(arguments: list[str], imported: list[str]) -> None:
    awake = "print(*sorted(name for name in sys.modules if name.startswith(('ui.cli.commands.', 'workbench.specs'))))"
    script = f"import sys; from ui.cli.app import main; main({arguments}); {awake}"

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert said.splitlines()[-1].split() == [f"ui.cli.commands.{name}" for name in imported]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "demix", "--help"], ["say", "--help"]])
def test_help_answers_at_once(arguments: list[str]) -> None:
    assert min(_seconds(arguments) for _ in range(3)) < HELP_SECONDS


def _seconds(arguments: list[str]) -> float:
    """Processor time: what the person waits for on a machine that is not busy with something else."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script = "from ui.cli.app import main; main()"
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.usefixtures("home")
def test_a_problem_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expert", "show", "nobody"]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "There is no expert called “nobody”. There is no expert yet.\n"


@pytest.mark.usefixtures("home")
def test_a_problem_as_json_stands_on_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expert", "show", "nobody", "--json"]) == 2

    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["code"] == "not_found"
    assert printed.err == ""


@pytest.mark.parametrize(
    "arguments",
    [["no-such-verb"], ["corpus", "add"], ["train", "demix", "x", "--steps", "many"], ["mix", "list", "--nonsense"]],
)
def test_what_cannot_be_read_is_one_sentence_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--help" in said


def test_bytes_that_are_no_text_are_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["say", "both", "caf\udce9"]) == 2

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Unicode" in said


def test_the_perplexity_of_a_diverged_model_is_told_by_its_power_of_ten() -> None:
    assert [shown(value) for value in (0.0, 0.001, 600.0, 1.5e9, 1e304)] == [
        "0.00",
        "0.001",
        "600.00",
        "1,500,000,000.00",
        "1e+304",
    ]


@pytest.mark.usefixtures("home")
def test_a_wish_that_cannot_be_granted_lists_every_complaint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "make", "x", "--domains", "a", "--vocab-size", "3", "--layers", "0"]) == 2

    said = capsys.readouterr().err
    assert "vocab_size" in said
    assert "num_layers" in said


@pytest.mark.parametrize("weight", ["inf", "nan", "1e400", "5e-324"])
def test_a_weight_that_nobody_can_mean_is_refused(weight: str) -> None:
    with pytest.raises(BadUsage, match="A weight must be"):
        number(weight)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "options",
    [
        "train demix x --seed-model s --domains a --clip inf",
        "train demix x --seed-model s --domains a --decay-power 1e400",
        "train demix x --seed-model s --domains a --epsilon 5e-324",
        "train demix x --seed-model s --domains a --sequences-per-domain 4294967296",
        "seed make x --domains a --max-positions 9223372036854775808",
        "eval grid x --temperature nan",
        "jobs list --limit 9223372036854775808",
    ],
)
def test_a_number_that_nobody_can_mean_is_refused_in_a_sentence(
    options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options.split()) == 2

    said = capsys.readouterr().err
    assert options.split("--")[-1].split()[0].replace("-", "_") in said
    assert "Traceback" not in said


def test_no_registry_names_the_command_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mix", "list"]) == 2

    assert "workbench migrate" in capsys.readouterr().err


def test_the_doctor_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 1

    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert "workbench migrate" in checks["Registry"]["next_step"]
    assert checks["PyTorch"]["ok"]


def test_migrate_makes_a_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert Path(ask(capsys, "migrate")["home"], "registry.db").is_file()
    assert ask(capsys, "corpus", "list") == []
