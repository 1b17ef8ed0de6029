"""Names and sentences use the words of docs/glossary.md; the words that it refuses may not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ui.serving.help_site import FOLDER

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
REFUSED_HEADING = "## Refused words"
CODE = ("engine", "workbench", "jobs", "ui", "tests", "benchmarks", "alembic", "studies", "setup.py")
ITSELF = "tests/test_vocabulary.py"  # its examples are refused words
STYLES = [
    path
    for path in sorted([*(ROOT / "ui").rglob("*.js"), *(ROOT / "ui").rglob("*.css")])
    if not path.name.endswith(".min.js") and not path.is_relative_to(FOLDER)  # the help's are its generator's
]
GENERATED = re.compile(r"replication/\w+-tiny\.md$")  # reports as a replication wrote them, kept as a record
PROSE = [
    path
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if not GENERATED.search(path.as_posix())
]
# Names that a stored format or a public option fixes.
ALLOWED_NAMES: frozenset[str] = frozenset(
    {
        "NotFoundError",  # the API's error code `not_found` and HTTP's name for the status 404
    }
)

# A test's name is a sentence, and *once* in a sentence means one time.
IN_TEST_NAMES = frozenset({"once"})


@cache
def refused_words(scope: str) -> frozenset[str]:
    """The words that the glossary's table refuses in `identifiers` or in `prose`."""
    table = GLOSSARY.read_text(encoding="utf-8").partition(REFUSED_HEADING)[2]
    rows = re.findall(r"^\| ([a-z, ]+) \| ([a-z, ]+) \|", table, re.MULTILINE)
    return frozenset(word for words, scopes in rows if scope in scopes.split(", ") for word in words.split(", "))


def prose_of(text: str) -> str:
    """A document without code, link targets and the table of refused words."""
    text = text.partition(REFUSED_HEADING)[0]
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def refused_in_prose(text: str) -> list[str]:
    """The refused words of a sentence, in order."""
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word in refused_words("prose")]


def name_parts(name: str) -> list[str]:
    """`a_nameLikeThis` as its parts: a, name, like, this."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def names_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module defines: functions, classes, arguments, attributes and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name


def sentences_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every docstring, and every other string with a blank: messages, descriptions, help."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str(text)) as constant), *_]:
                    docstrings.add(id(constant))
                    yield constant.lineno, text.strip()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings and " " in text.strip():
                yield node.lineno, text


def refused_in_name(name: str) -> bool:
    """Whether a part of a name is refused in identifiers."""
    refused = refused_words("identifiers") - (IN_TEST_NAMES if name.startswith("test_") else frozenset())
    return name not in ALLOWED_NAMES and not refused.isdisjoint(name_parts(name))


def names_of_style(text: str) -> set[str]:
    """Every name and word of a script or a style sheet, comments and strings included."""
    return set(re.findall(r"[A-Za-z_$][\w$]*", text))


@cache
def modules_of(place: str) -> tuple[tuple[Path, ast.Module], ...]:
    """The modules of a folder, or a module by itself."""
    paths = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py"))
    return tuple(
        (path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))) for path in paths if path != ROOT / ITSELF
    )


def test_the_glossary_refuses_words_of_both_kinds() -> None:
    assert {"wish", "found", "told"} <= refused_words("identifiers")
    assert {"wish", "told", "whom"} <= refused_words("prose")
    assert "found" not in refused_words("prose")


def test_a_refused_word_is_seen_in_a_name_and_in_a_sentence_but_not_in_code() -> None:
    assert name_parts("_the_WishOf") == ["the", "wish", "of"]
    assert name_parts("HTTPWish") == ["http", "wish"]
    document = "It is told.\n\n```sh\ntold\n```\n\n    told\n\n`told` [x](told.md)\n"
    assert refused_in_prose(prose_of(document)) == ["told"]
    tree = ast.parse('def tell(one):\n    """What it does.\n\n    A wish.\n    """\n    found = "a wish for all"')
    assert {name for _, name in names_of(tree)} == {"tell", "one", "found"}
    assert [text for _, text in sentences_of(tree)] == ["What it does.\n\n    A wish.", "a wish for all"]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_uses_no_refused_word(path: Path) -> None:
    lines = prose_of(path.read_text(encoding="utf-8")).splitlines()
    hits = [f"{word}: {line.strip()}" for line in lines for word in refused_in_prose(line)]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize("place", CODE)
def test_names_use_no_refused_word(place: str) -> None:
    assert modules_of(place)
    hits = [
        f"{path}:{line}: {name}"
        for path, tree in modules_of(place)
        for line, name in [(0, path.stem), *names_of(tree)]
        if refused_in_name(name)
    ]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize("place", CODE)
def test_sentences_use_no_refused_word(place: str) -> None:
    hits = [
        f"{path}:{line}: {word}: {part.strip()[:200]}"
        for path, tree in modules_of(place)
        for line, text in sentences_of(tree)
        for part in text.splitlines()
        for word in refused_in_prose(part)
    ]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize("path", STYLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_and_style_sheets_use_no_refused_word(path: Path) -> None:
    hits = sorted(name for name in names_of_style(path.read_text(encoding="utf-8")) if refused_in_name(name))
    assert not hits, f"{path.relative_to(ROOT)}: {', '.join(hits)}"


def test_a_refused_word_is_seen_in_a_script_and_once_is_allowed_only_in_the_name_of_a_test() -> None:
    script = "const told = new WeakMap(); // #foundList { color: red }"
    assert [name for name in sorted(names_of_style(script)) if refused_in_name(name)] == ["foundList", "told"]
    assert not refused_in_name("test_a_link_logs_in_once")
    assert refused_in_name("make_once")
    assert refused_in_name("test_a_link_is_found_once")
