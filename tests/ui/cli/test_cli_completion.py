"""Shell completion, asked for as bash does: commands, options, and names from the registry, without loading torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ui.cli.options import names_of
from workbench.job_records.jobs import create_job
from workbench.kinds.analysis import SelfCheck
from workbench.registry.database import transaction
from workbench.registry.resources import names_from
from workbench.settings import get_settings

COMPLETE = """
import sys
from ui.cli.app import main
try:
    main()
finally:
    heavy = [name for name in ("torch", "transformers", "gradio", "streamlit", "celery") if name in sys.modules]
    folder = "ui.cli.commands.servers"  # of commands, and empty itself
    modules = [name for name in sys.modules if name.startswith("ui.cli.commands.") and name != folder]
    print(heavy, len(modules), file=sys.stderr)
"""


def complete(*words: str, home: Path | None = None) -> tuple[list[str], str]:
    """What bash is offered for the last word, and what was imported for it."""
    line = {"COMP_WORDS": " ".join(["workbench", *words]), "COMP_CWORD": str(len(words))}
    line |= {"_WORKBENCH_COMPLETE": "complete_bash"} | ({"WORKBENCH_HOME": str(home)} if home else {})
    ended = subprocess.run(
        [sys.executable, "-c", COMPLETE], env=os.environ | line, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split(), ended.stderr.strip()


def test_commands_are_completed_without_importing_any() -> None:
    offered, imported = complete("")
    assert {"corpus", "expert", "generate", "job", "login-link", "mixture", "train", "up"} <= set(offered)
    assert imported == "[] 0"
    assert complete("mi")[0] == ["migrate", "mixture"]


def test_subcommands_and_options_are_completed() -> None:
    assert complete("train", "")[0] == ["joint", "expert", "mode", "clusters"]
    assert complete("job", "re")[0] == ["resume", "retry"]
    offered, imported = complete("job", "list", "--s")
    assert offered == ["--status", "--sort"]
    assert imported == "[] 1"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["expert", "show", ""], ["both/code", "both/law"]),
        (["expert", "show", "both/l"], ["both/law"]),
        (["mixture", "show", "b"], ["both"]),
        (["generate", "both"], ["both", "both/code", "both/law"]),
        (["mixture", "add", "both", "both/c"], ["both/code"]),
        (["corpus", "show", ""], ["code", "law"]),
        (["train", "expert", "new", "--parent", "both/c"], ["both/code"]),
        (["train", "joint", "new", "--domains", "code,l"], ["code,law"]),
        (["evaluate", "run", ""], ["both"]),
        (["seed", "show", ""], []),
    ],
)
def test_names_are_completed_from_the_registry(mixed: Path, words: list[str], names: list[str]) -> None:
    offered, imported = complete(*words, home=get_settings().root)
    assert offered == names
    assert imported.startswith("[]")


def test_without_a_registry_no_name_is_offered(tmp_path: Path) -> None:
    assert complete("expert", "show", "", home=tmp_path)[0] == []


@pytest.mark.usefixtures("home")
def test_a_job_is_completed_by_its_id() -> None:
    with transaction() as session:
        job = create_job(session, SelfCheck())
        assert names_from(session, "job", "") == [job[:8]]
        assert names_from(session, "job", job[:12]) == [job[:12]]
        assert names_from(session, "job", "%") == []
    assert names_of("job")(job[:3]) == [job[:8]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-c", "from ui.cli.app import main; main()", "--show-completion", shell],
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "_WORKBENCH_COMPLETE" in script
