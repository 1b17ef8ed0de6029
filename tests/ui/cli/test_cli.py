"""The command line: it answers at once, speaks JSON when asked, and turns a problem into one sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from engine.plugins import BadPluginError
from tests.ui.conftest import ask
from ui.cli.app import ENTRY_POINTS, app, find_commands, main
from ui.cli.mix_options import number
from ui.cli.output import as_text
from ui.errors import BadUsageError

HEAVY = ("torch", "transformers", "sqlalchemy", "gradio", "streamlit", "celery", "fastapi", "httpx", "numpy")
# Our own packages, and what writes help and checks options.
HELP_NEEDS = {
    *("engine", "workbench", "ui", "typer", "click", "shellingham", "rich", "markdown_it", "mdurl", "pygments", "attr"),
    "workbench_studies",  # which commands it has; none of its modules
    *("pydantic", "pydantic_core", "annotated_types", "annotated_doc", "typing_extensions", "typing_inspection"),
}
ROOT = Path(__file__).parents[3]
FORMER = {"say", "eval", "mix", "jobs", "reproduce"}  # what commands were called before


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its path, groups included."""
    command = command or get_command(app)
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


VERBS = [(path, command) for path, command in commands() if not getattr(command, "commands", None)]


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
    script = f"import sys; from ui.cli.app import main; main(['train', 'joint', '--help']); {awake}"

    message = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert message.splitlines()[-1] == "[]"


def test_the_list_of_commands_gives_the_first_line_of_each_command_s_own_help() -> None:
    table: Any = get_command(app)
    summaries = {name: command.help for name, command in table.commands.summaries.items()}
    assert {name: command.help.partition("\n")[0] for name, command in table.commands.items()} == summaries
    assert len(summaries) > 15


SHARED = ["commands", "commands.servers", "output"]  # of every help
OF_VERBS = ["job_progress", "options", "verbs"]


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        (["--help"], SHARED),
        (["train", "--help"], [*SHARED, *OF_VERBS, "commands.train"]),
        (["job", "--help"], [*SHARED, *OF_VERBS, "commands.job"]),
    ],
)
def test_help_imports_only_the_command_of_the_help(arguments: list[str], imported: list[str]) -> None:
    awake = "print(*sorted(name for name in sys.modules if name.startswith('ui.cli.')))"
    script = f"import sys; from ui.cli.app import main; main({arguments}); {awake}"

    message = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert message.splitlines()[-1].split() == sorted(f"ui.cli.{name}" for name in ["app", *imported])


@pytest.mark.parametrize("arguments", [["--help"], ["train", "joint", "--help"], ["generate", "--help"]])
def test_help_answers_immediately(arguments: list[str]) -> None:
    """What takes a person's time is the import of libraries: help needs these alone."""
    script = f"import sys; from ui.cli.app import main; main({arguments}); print(*sys.modules)"
    message = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    modules = {name.split(".")[0] for name in message.splitlines()[-1].split()}
    assert modules & set(packages_distributions()) - {"_distutils_hack"} <= HELP_NEEDS


@pytest.mark.usefixtures("home")
def test_a_problem_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expert", "show", "nobody"]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "There is no expert called “nobody”. There is no expert yet.\n"


@pytest.mark.usefixtures("home")
def test_a_problem_as_json_is_the_only_output_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expert", "show", "nobody", "--json"]) == 2

    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["code"] == "not_found"
    assert printed.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-verb"],
        ["corpus", "add"],
        ["train", "joint", "x", "--steps", "many"],
        ["mixture", "list", "--nonsense"],
    ],
)
def test_what_cannot_be_read_is_one_sentence_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2

    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "--help" in message


def test_bytes_that_are_no_text_are_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "both", "caf\udce9"]) == 2

    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "Unicode" in message


def test_the_perplexity_of_a_diverged_model_is_shown_by_its_power_of_ten() -> None:
    assert [as_text(value) for value in (0.0, 0.001, 600.0, 1.5e9, 1e304)] == [
        "0.00",
        "0.001",
        "600.00",
        "1,500,000,000.00",
        "1e+304",
    ]


@pytest.mark.usefixtures("home")
def test_an_impossible_spec_lists_every_complaint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "make", "x", "--domains", "a", "--vocab-size", "3", "--layers", "0"]) == 2

    message = capsys.readouterr().err
    assert "--vocab-size" in message
    assert "--layers" in message


@pytest.mark.parametrize("weight", ["inf", "nan", "1e400", "5e-324"])
def test_a_weight_that_nobody_can_mean_is_refused(weight: str) -> None:
    with pytest.raises(BadUsageError, match="The weight “"):
        number(weight)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "options",
    [
        "train joint x --seed-model s --domains a --clip inf",
        "train joint x --seed-model s --domains a --decay-power 1e400",
        "train joint x --seed-model s --domains a --epsilon 5e-324",
        "train joint x --seed-model s --domains a --sequences-per-domain 4294967296",
        "seed make x --domains a --max-positions 9223372036854775808",
        "evaluate grid x --temperature nan",
        "evaluate grid x --temperature 1e-13",
        "job list --limit 9223372036854775808",
    ],
)
def test_a_number_that_nobody_can_mean_is_refused_in_a_sentence(
    options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options.split()) == 2

    message = capsys.readouterr().err
    assert options.split("--")[-1].split()[0] in message
    assert "Traceback" not in message


def test_no_registry_names_the_command_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mixture", "list"]) == 2

    assert "workbench migrate" in capsys.readouterr().err


def test_the_doctor_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 1

    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert "workbench migrate" in checks["Registry"]["next_step"]
    assert checks["PyTorch"]["ok"]


def test_migrate_makes_a_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert Path(ask(capsys, "migrate")["home"], "registry.db").is_file()
    assert ask(capsys, "corpus", "list") == []


PLUGIN = '''"""Word counts: count the words of a domain."""

import typer

app = typer.Typer(help=__doc__)
print("imported")


@app.command("run")
def run(domain: str = typer.Argument(help="A domain.")) -> None:
    """Count words."""
    print(f"{domain}: 7 words")


@app.command("list")
def list_all() -> None:
    """List counts."""
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package that offers a command."""
    module = f"word_counts_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("word-count", module, ENTRY_POINTS)
    monkeypatch.setattr("ui.cli.app.entry_points", lambda group: EntryPoints([point]).select(group=group))
    yield module
    sys.modules.pop(module, None)


def test_another_package_adds_a_command_that_a_list_does_not_import(
    plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "Word counts: count the words" in listed
    assert "imported" not in listed
    assert main(["word-count", "run", "sea"]) == 0
    assert capsys.readouterr().out.splitlines() == ["imported", "sea: 7 words"]


def test_a_command_that_cannot_be_imported_is_named(
    plugin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{plugin}.py").write_text('"""Broken."""\nimport no_such_package\n', encoding="utf-8")
    assert main(["word-count"]) == 2
    assert "word-count" in capsys.readouterr().err


def test_two_commands_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("train", "word_counts", ENTRY_POINTS)
    monkeypatch.setattr("ui.cli.app.entry_points", lambda group: EntryPoints([point]).select(group=group))
    with pytest.raises(BadPluginError, match="“train”"):
        find_commands()


def test_every_command_that_a_message_of_the_code_names_exists() -> None:
    known = {" ".join(path) for path, _ in commands()} | {""}
    wrong = []
    for file in (
        file for package in ("engine", "workbench", "jobs", "ui", "studies") for file in (ROOT / package).rglob("*.py")
    ):
        for words in re.findall(r"\bworkbench ([a-z-]+(?: [a-z-]+)?)", file.read_text(encoding="utf-8")):
            first, _, second = words.partition(" ")
            group = {name.split()[1] for name in known if name.startswith(f"{first} ")}
            if first in FORMER or (group and second and second not in group):
                wrong.append(f"{file.relative_to(ROOT)}: workbench {words}")
    assert not wrong
