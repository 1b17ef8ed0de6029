"""Kinds of job that make domains: of imported text, or of chosen documents of a clustering."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from engine.text.dataset_source import DatasetSource
from workbench.formatting.number_format import listed, pluralize
from workbench.kinds.kind import Kind, Result, ResultLink, named, no_path, nothing
from workbench.specs.base import LocalPath, Name, Spec, absolute


@cache
def dataset_formats() -> frozenset[str]:
    """Names that the library “datasets” takes for file formats: it would read all such files of the current folder."""
    library = find_spec("datasets")  # too large to be imported here
    folder = Path(library.origin or "").parent / "packaged_modules" if library else Path()
    return frozenset(path.parent.name for path in folder.glob("*/__init__.py"))


class ImportCorpus(Spec):
    """Import text: validate it, split it, and store it as one or several domains."""

    kind: Literal["import-corpus"] = "import-corpus"
    name: Name = Field(description="Name of the corpus, and of its domain unless records name their own.")
    path: LocalPath = Field(
        "",
        title="File or folder",
        description="File or folder: txt, jsonl, csv, parquet, and gz, xz, bz2 or zst of these. A txt file is cut into "
        "documents: each ends at the first empty line after 10,000 characters.",
    )
    dataset: str = Field(
        "",
        title="Data set",
        description="Name of a Hugging Face data set to download: NAME, NAME:CONFIG, or either with @REVISION.",
    )
    dataset_split: str = Field(
        "train",
        pattern=r"^[\w.-]{1,100}$",
        description="Split of the data set to read, such as train; all: every file of a folder.",
    )
    local_source: str = Field("", description="Text on this machine: one of the demo's sources.")
    role: Literal["train", "novel"] = Field(
        "train",
        title="Role: to train on, or novel (kept aside to test on)",
        description="train, or novel: kept for testing.",
    )
    format: Literal["text", "chat"] = Field(
        "text",
        title="Text, or conversations",
        description="text, or chat: conversations (messages, conversations, prompt and completion, or instruction "
        "and output); only their answers count.",
    )
    text_field: str = Field("text", description="Field or column that holds the text.")
    domain_field: str = Field("", description="Field that names each record's domain; empty: one domain.")
    group_field: str = Field(
        "", description="Records with the same value of this field stay in one split (such as source)."
    )
    licence: str = Field("", description="Licence of the text.")
    max_bytes: int | None = Field(
        None,
        gt=0,
        le=2**50,
        title="Stop after (bytes of text)",
        description="Stop after this many bytes of text; empty reads all.",
    )
    skip_bad: bool = Field(
        False,
        title="Leave broken records out and list them",
        description="Skip and list broken records, instead of refusing the import.",
    )
    piece_length: int | None = Field(
        None,
        ge=100,
        title="Piece length (characters)",
        description="Split longer documents into pieces of at most this many characters; empty: never.",
    )
    leave_out: list[str] = Field(
        default_factory=list,
        title="Fields to leave out",
        description="Fields of conversations and messages that are left out on purpose, with a value or not.",
    )
    anonymize: bool = Field(
        False,
        title="Anonymize: dummy tokens for what identifies users",
        description="Replace e-mail addresses, phone, card and social security numbers, Facebook ids and user handles "
        "by dummy tokens (DEMix table 8).",
    )

    @model_validator(mode="after")
    def _one_source(self) -> ImportCorpus:
        if sum(map(bool, (self.path, self.dataset, self.local_source))) != 1:
            raise ValueError("give exactly one of path, dataset and local_source")
        if (name := DatasetSource.parse(self.dataset).dataset) in dataset_formats():
            raise ValueError(f"{name} is a kind of file, not the name of a data set: give its path")
        if self.dataset_split != "train" and self.local_source:
            raise ValueError("only a data set has a split to choose: text of this machine is split here")
        if self.leave_out and self.format != "chat":
            raise ValueError("fields are left out of conversations: of other records only the text field is read")
        if self.format == "chat" and (self.local_source or self.piece_length):
            raise ValueError("conversations come from files or a data set, and are never cut into pieces")
        return self

    def local_paths(self) -> list[str]:
        # The library of data sets reads a folder of this machine where its name is one.
        path = Path(DatasetSource.parse(self.dataset).dataset)
        is_local = path.is_absolute() or ".." in path.parts or (bool(self.dataset) and path.exists())
        return super().local_paths() + ([absolute(str(path))] if is_local else [])


def _import_corpus_sentence(result: Result) -> str:
    documents = f"{pluralize(result['num_documents'], 'document')} in {listed(result['domains'])}."
    return " ".join(filter(None, (documents, result.get("cut"), result.get("kept"))))


IMPORT_CORPUS = Kind(
    spec=ImportCorpus,
    title="Import corpus",
    creates=lambda spec: [("corpus", spec.name), *named("domain", None if spec.domain_field else spec.name)],
    requires=nothing,
    reads=lambda spec: spec.path,
    first_step="domains",
    creates_unnamed_domains=lambda spec: bool(spec.domain_field),
    command="corpus add NAME PATH",
    sentence=_import_corpus_sentence,
    link=ResultLink(
        "corpora",
        "See the domains",
        lambda result: {"part": "Domains", "domain": result["domains"][0]},
        ResultLink(
            "train", "Train an expert on it", lambda result: {"train.text": result["domains"], "train.kind": ""}
        ),
    ),
)


class MakeDomain(Spec):
    """Make a domain of chosen documents of a clustering, from any domain. Held-out documents stay held out."""

    kind: Literal["make-domain"] = "make-domain"
    clustering: Name = Field(description="Name of the clustering.")
    name: Name = Field(description="Name of the new domain.")
    areas: list[str] = Field(
        default_factory=list,
        description="Areas on the map, each a list of corners x y x y …; empty: the entire map.",
    )
    clusters: list[str] = Field(
        default_factory=list, description="Clusters to take documents from, by number or name; empty: all."
    )

    @model_validator(mode="after")
    def _some(self) -> MakeDomain:
        if not (self.areas or self.clusters):
            raise ValueError("name areas, clusters, or both")
        for area in self.areas:
            _corners(area)
        return self

    @property
    def corners(self) -> list[list[tuple[float, float]]]:
        """The areas as corners."""
        return [_corners(area) for area in self.areas]


def _corners(area: str) -> list[tuple[float, float]]:
    try:
        numbers = [float(one) for one in area.split()]
    except ValueError:
        raise ValueError(f"an area must be numbers, not “{area[:40]}”") from None
    if len(numbers) < 6 or len(numbers) % 2 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"an area must be pairs of numbers for at least three corners, not “{area[:40]}”")
    pairs: Iterator[float] = iter(numbers)
    return list(zip(pairs, pairs, strict=True))


MAKE_DOMAIN = Kind(
    spec=MakeDomain,
    title="Make domain",
    creates=lambda spec: [("corpus", spec.name), ("domain", spec.name)],
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    command="cluster choose CLUSTERING NAME",
    link=ResultLink(
        "train",
        "Train on it",
        lambda result: {
            "train.what": "DEMix, LoRA, MoE or dense",  # its title on the page Train
            "train-joint.method": "dense",
            "train-joint.domains": [result["domain"]],
        },
    ),
    runner="jobs.kinds.clusters.domains:make_domain",
)


KIND = (IMPORT_CORPUS, MAKE_DOMAIN)
