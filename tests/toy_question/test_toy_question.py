"""A question from another package is one file: API, client, command line and notebook have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.queue.submit import run_now
from workbench.kinds.data import ImportCorpus

FOLDER = str(Path(__file__).parent)

SCRIPT = """
import json
import httpx
from starlette.testclient import TestClient
from toy_question import LargestDomainsRequest
from ui.api.app import create_app
from ui.api.route_roles import role_of
from ui.cli.app import main
from ui.client import Client
from ui.notebook import Workbench
from workbench.settings import get_settings

settings, question = get_settings(), LargestDomainsRequest(corpus="law", most=1)
app = create_app(settings, playground=False)
with TestClient(app, base_url="http://127.0.0.1:8000") as api:
    over_http = api.post("/v1/workbench/largest-domains", json={"corpus": "law", "most": 1}).json()
    refused = api.post("/v1/workbench/largest-domains", json={"corpus": "law", "most": 0}).json()
    def passed_on(request):
        answer = api.post(request.url.path, content=request.content, headers={"content-type": "application/json"})
        return httpx.Response(answer.status_code, content=answer.content)

    with Client(settings, transport=httpx.MockTransport(passed_on)) as client:
        by_client = client.ask(question).model_dump()
table = Workbench(quiet=True).table(question)
main(["evaluate", "largest-domains", "law", "--most", "1", "--json"])
main(["evaluate", "largest-domains", "law"])
main(["evaluate", "largest-domains", "--help"])
print()
print(json.dumps({
    "over_http": over_http, "refused": refused, "by_client": by_client, "columns": [*table.columns],
    "description": app.openapi()["paths"]["/v1/workbench/largest-domains"]["post"]["description"],
    "role": role_of("POST", "/v1/workbench/largest-domains").name,
}))
"""


@pytest.fixture
def law(home: Path, tmp_path: Path) -> None:
    """The corpus `law`: 40 documents of four words."""
    assert home
    path = tmp_path / "law.jsonl"
    path.write_text("".join(json.dumps({"text": f"the court adjourned {i}"}) + "\n" for i in range(40)))
    for _ in run_now(ImportCorpus(name="law", path=str(path)))[1]:
        pass


@pytest.mark.usefixtures("law")
def test_a_question_in_one_file_is_in_the_api_the_client_the_command_line_and_the_notebook() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([FOLDER, *sys.path])}
    ended = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    printed, _, last = ended.stdout.rstrip().rpartition("\n")
    answers = json.loads(last)
    assert answers["over_http"] == answers["by_client"]
    [row] = answers["over_http"]["rows"]
    assert list(row) == answers["columns"] == ["domain", "num_words"]
    assert f'"domain": "{row["domain"]}"' in printed
    assert "Num_words" in printed
    assert "How many domains." in printed
    assert "most" in answers["refused"]["error"]["message"]
    assert (answers["description"], answers["role"]) == (
        "The domains with the most words.",
        "VIEWER",
    )
