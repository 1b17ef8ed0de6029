"""The help: docs/ as a site. Links that lead out of it, what it loads, and whether it shows what the documents say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from ui.addresses import HELP_PATH, help_path, help_path_for
from ui.pages.catalog import all_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_TAG = re.compile(r"<(?!a\b)\w[^>]*?\b(?:src|href|srcset|data|poster)=[\"']?\s*((?:https?:)?//[^\s\"'>]+)")
_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\s\"')]+)")


def outside(site: Path) -> list[str]:
    """What a browser would load from another server: all addresses but those of links that a reader follows."""
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    return [*(url for page in pages for url in _TAG.findall(page)), *_STYLE.findall("\n".join(pages + styles))]


def built(site: Path) -> Path:
    """The site, built as `make docs` builds it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return site


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[Concepts](../concepts.md)", "[Concepts](../concepts.md)"),
        ("[how](../../CONTRIBUTING.md)", "how (`CONTRIBUTING.md`)"),
        ("[`deploy/Caddyfile`](../../deploy/Caddyfile)", "`deploy/Caddyfile`"),
        ("[the folder](tasks/)", "the folder (`docs/how_to/tasks`)"),
        ("[draw.py](../design/draw.py)", "`docs/design/draw.py`"),
        ("[gone](../../deploy/gone)", "[gone](../../deploy/gone)"),  # left to --strict
        ("![a picture](../../deploy/Caddyfile)", "![a picture](../../deploy/Caddyfile)"),
        ("[elsewhere](https://example.org/)", "[elsewhere](https://example.org/)"),
    ],
)
def test_a_link_out_of_the_site_becomes_the_path_of_the_file(hooks: Any, link: str, shown: str) -> None:
    def file_of(path: str) -> SimpleNamespace | None:
        inclusion = SimpleNamespace(is_excluded=lambda: path.endswith(".py"))
        return SimpleNamespace(inclusion=inclusion) if (DOCS / path).is_file() else None

    page = SimpleNamespace(file=SimpleNamespace(src_uri="how_to/classify.md"))
    files = SimpleNamespace(get_file_from_path=file_of)
    assert hooks.on_page_markdown(f"See {link}.", page=page, files=files) == f"See {shown}."


def test_the_check_sees_what_a_page_would_load_from_elsewhere(tmp_path: Path) -> None:
    own = (
        '<a href="https://example.org/">a source</a><script src="../a.js"></script><img src="data:image/png;base64,x">'
    )
    (tmp_path / "index.html").write_text(own, encoding="utf-8")
    (tmp_path / "own.css").write_text("a { background: url(x.png) } /* https://example.org */", encoding="utf-8")
    assert outside(tmp_path) == []
    foreign = '<script async src="https://a.example/x.js"></script><link rel=stylesheet href=//b.example/x.css>'
    (tmp_path / "index.html").write_text(f"{foreign}<style>@import 'https://c.example'</style>", encoding="utf-8")
    (tmp_path / "own.css").write_text("@font-face { src: url('https://d.example/f.woff2') }", encoding="utf-8")
    hosts = ["https://a.example/x.js", "//b.example/x.css", "https://c.example", "https://d.example/f.woff2"]
    assert outside(tmp_path) == hosts


def test_a_document_has_an_address_of_its_own() -> None:
    assert help_path("how_to/mode.md#parts") == "/help/how_to/mode.html#parts"
    assert help_path("methods/README.md") == "/help/methods/index.html"
    assert help_path_for("Choose one of the families in docs/models.md.") == "/help/models.html"
    assert help_path_for("Try again.") == help_path_for("") == "/help/troubleshooting.html"


def structure(html: str) -> Counter[str]:
    """How many lists, tables, blocks and headings a text has."""
    outside_blocks = re.sub(r"<pre.*?</pre>", "<pre>", html, flags=re.DOTALL)
    return Counter(re.findall(r"<(ul|ol|li|table|td|pre|h[1-6]|img|blockquote)\b", outside_blocks))


@pytest.mark.slow
def test_the_site_is_built_strictly_shows_every_document_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = built(tmp_path / "site")
    assert outside(site) == []
    assert not [path for path in site.rglob("*.html") if "mermaid" in path.read_text(encoding="utf-8")]
    for page in all_pages():
        name, _, anchor = help_path(page.document).removeprefix(HELP_PATH).partition("#")
        assert f'id="{anchor}"' in (site / name).read_text(encoding="utf-8") or not anchor
    reader = MarkdownIt("commonmark").enable("table")
    for document in DOCS.rglob("*.md"):
        path = site / help_path(str(document.relative_to(DOCS))).removeprefix(HELP_PATH)
        article = path.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        assert structure(article) == structure(reader.render(document.read_text(encoding="utf-8"))), document
