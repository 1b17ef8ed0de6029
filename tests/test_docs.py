"""Documentation is run, not believed."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from httpx import Response
from starlette.testclient import TestClient

from ui.api.app import create_app
from ui.api.security import MAX_BODY_BYTES
from ui.serving.addresses import REGISTRY_HEADER
from workbench.analysis.training_history import training_history
from workbench.registry.database import reading
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
RUN_IN_ORDER = [  # one registry for all
    "first_expert.md",
    "how_to/cheaper_experts.md",
    "how_to/mode.md",
    "how_to/switch_parts.md",
    "how_to/explain_experts.md",
    "how_to/forget_and_remove.md",
    "how_to/find_clusters.md",
    "how_to/classify.md",
    "how_to/backups_and_trash.md",
]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(path: Path, prompt: str = "$ workbench") -> list[str]:
    """Lines that begin with a prompt and a command in the console blocks of a document."""
    blocks = re.findall(r"```console\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith(prompt)]


@pytest.fixture(scope="module")
def reader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader stands."""
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="module")
def reader(reader_folder: Path) -> Callable[[Path], None]:
    """Somebody who types every command of a document, in one folder for all of them."""
    folder = reader_folder
    shutil.copytree(ROOT / "docs" / "how_to" / "tasks", folder / "tasks")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    # A port nobody listens on: `say` must not ask an API server that happens to run here.
    clean |= {"WORKBENCH_API_PORT": "9", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def follow(document: Path) -> None:
        for line in commands(document):
            ended = subprocess.run(
                shlex.split(line), cwd=folder, env=clean, capture_output=True, text=True, timeout=240, check=False
            )
            assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
        assert (folder / ".workbench" / "registry.db").is_file()

    return follow


def with_walk(reader: Callable[[Path], None], folder: Path) -> None:
    """The registry of the documents up to MoDE, where a test is run by itself."""
    if not (folder / ".workbench" / "registry.db").is_file():
        for name in ("first_expert.md", "how_to/mode.md"):
            reader(ROOT / "docs" / name)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUN_IN_ORDER)
def test_a_tutorial_runs_as_it_is_written(reader: Callable[[Path], None], name: str) -> None:
    document = ROOT / "docs" / name
    assert len(commands(document)) > 4
    reader(document)


def test_all_documents_score_the_same_number_of_tokens() -> None:
    """Else `eval retention` and the like could not compare what they made."""
    scored = [line for name in RUN_IN_ORDER for line in commands(ROOT / "docs" / name, "$ workbench eval run")]
    assert len(scored) > 8
    assert {re.findall(r"--max-tokens (\d+)", line)[0] for line in scored} == {"4000"}


@pytest.mark.timeout(900)
def test_gates_of_the_walk_learn(reader: Callable[[Path], None], reader_folder: Path) -> None:
    """What they learn depends on the text of this machine; that they choose well where they can is tested elsewhere."""
    with_walk(reader, reader_folder)
    with reading(Settings(home=reader_folder / ".workbench")) as session:
        looks = {one.domain: one.gates for one in training_history(session, "tuned/composed").domains}
    for domain in ("python", "licences", "cython"):
        first, last = looks[domain][0], looks[domain][-1]
        assert math.isclose(math.fsum(last.values()), 1, abs_tol=1e-5)
        assert max(abs(last[part] - first[part]) for part in first) > 0.01


HTTP = ROOT / "docs" / "how_to" / "http_api.md"


@pytest.fixture(scope="module")
def served(reader: Callable[[Path], None], reader_folder: Path) -> Iterator[TestClient]:
    """The API over what the reader has made, with the models' own weights."""
    with_walk(reader, reader_folder)
    app = create_app(Settings(home=reader_folder / ".workbench"), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client


def asked(client: TestClient, line: str) -> Response:
    """What a line of curl is answered."""
    words = shlex.split(line)
    [url] = [word for word in words if word.startswith("http://")]
    if "-d" not in words:
        return client.get(url)
    return client.post(url, content=words[words.index("-d") + 1], headers={"Content-Type": "application/json"})


@pytest.mark.timeout(900)
def test_every_call_of_the_page_on_http_is_answered(served: TestClient) -> None:
    lines = commands(HTTP, "$ curl")
    answers = {line: asked(served, line) for line in lines}
    assert {line: answer.status_code for line, answer in answers.items()} == dict.fromkeys(lines, 200)
    [echoed] = [answer.json()["choices"] for line, answer in answers.items() if '"echo"' in line]
    assert [one["logprobs"]["tokens"][0] for one in echoed] == ["<s>", "<s>"]
    assert all(nats < 0 for one in echoed for nats in one["logprobs"]["token_logprobs"][1:])
    one_each = {line: answer for line, answer in answers.items() if "/completions" in line and '"echo"' not in line}
    whole = [answer.json() for line, answer in one_each.items() if "stream" not in line]
    assert [set(one["choices"][0]["expert_weights"][0]) for one in whole] == [
        {"duo/licences", "duo/python"},
        {"duo/python"},
        {"duo/licences", "duo/python"},
        {"tuned/composed"},
        {"tuned/composed"},
    ]
    parts = [one["choices"][0]["gate_weights"][0]["tuned/composed"]["parts"] for one in whole[3:]]
    assert [list(one) for one in parts] == [["python"], []]
    assert all(one["manifest"]["experts"][0]["sha256"] for one in whole)
    [streamed] = [answer.text for line, answer in answers.items() if '"stream"' in line]
    assert streamed.rstrip().endswith("data: [DONE]")
    assert '"manifest"' in streamed
    [model] = [answer.json() for line, answer in answers.items() if line.endswith("/v1/models/tuned/composed")]
    assert model["parts"] == {"tuned/composed": ["python", "licences"]}


@pytest.mark.timeout(900)
def test_the_codes_of_the_page_on_http_are_those_that_are_given(served: TestClient) -> None:
    text = HTTP.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .* \| `(\{.*\})` \|$", text, re.MULTILINE)
    assert len(rows) == 6
    answers = [served.post("/v1/completions", json=json.loads(body)) for _, _, body in rows]
    told = [(one.json()["error"]["code"], str(one.status_code)) for one in answers]
    assert told == [(code, status) for code, status, _ in rows]
    long = served.post("/v1/completions", json={"model": "duo", "prompt": "x" * 100_000})
    assert f"`{long.json()['error']['code']}` ({long.status_code})" in text
    assert "no chat" in served.post("/v1/chat/completions", json={}).json()["error"]["message"]
    at_the_door = [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {REGISTRY_HEADER: "another"},
        {"content-length": str(MAX_BODY_BYTES + 1)},
    ]
    for headers in at_the_door:
        refused = served.get("/v1/models", headers=headers)
        assert f"`{refused.json()['error']['code']}`" in text
        assert f"({refused.status_code})" in text


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_that_a_document_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    files = re.findall(r"`((?:engine|workbench|jobs|ui|tests|docs|benchmarks)/[\w/.]+)`", text)
    missing = [link for link in links if not (path.parent / link).exists()]
    missing += [file for file in files if not (ROOT / file).exists()]
    assert not missing


def test_every_setting_is_in_the_reference_with_its_sentence() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        shown = default.get_secret_value() if name == "token" else default
        shown = "empty" if shown in ("", None) else shown
        assert f"| `WORKBENCH_{name.upper()}` | {shown} | {field.description} |" in text


def test_the_readme_counts_the_laws() -> None:
    from engine.selfcheck.laws import LAWS

    assert f"{len(LAWS)} laws of mixing" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_law_of_the_self_check_is_in_the_methods_with_its_tolerance() -> None:
    from engine.selfcheck.laws import LAWS

    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for law in LAWS:
        assert f"| {law.number} | {law.sentence} | {law.tolerance} |" in text
