"""The documents of a clustering, read from their domains, each in the split that it was clustered in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.clusters.documents import ClusteredDocuments
from engine.clusters.sources import as_ids, hex_of, places_of, require_all
from engine.errors import CorpusError
from engine.text.corpus import Document
from engine.text.parquet_rows import read_rows
from engine.text.split_names import SPLITS, Split
from workbench.formatting.shell_command import shell_command
from workbench.registry.clusters.clusterings import ClusteringFiles


def folders_of(files: ClusteringFiles) -> list[Path]:
    """The verified folder of each source, in order. Raises CorpusError if the text of one is missing or changed."""
    gone = [source.name for source in files.sources if source.kept is None]
    if gone:
        names = ", ".join(f"“{name}”" for name in gone)
        raise CorpusError(
            f"The text of {names} was deleted or changed after it was clustered.",
            f"List the documents with `{shell_command('cluster', 'changes', files.name)}`, then import them or cluster "
            "again.",
        )
    folders = []
    for source in files.sources:
        assert source.kept is not None
        source.kept.check()
        folders.append(source.kept.folder / source.folder)
    return folders


BATCH = 1024  # rows looked up at once
NONE = -1


class Splits:
    """The split of a document by its id."""

    def __init__(self, documents: ClusteredDocuments) -> None:
        self._documents = documents

    def __call__(self, id: str) -> Split:
        return self._documents.split(int(places_of(as_ids([id]), self._documents.ids_N)[0]))


def read_documents(
    folders: Sequence[Path], documents: ClusteredDocuments, numbers_N: NDArray[np.int32], domains: Mapping[int, str]
) -> Iterator[Document]:
    """Yields the documents whose number is a key of `domains` (NONE leaves one out), from their clustered positions.

    Raises CorpusError if a document is missing.
    """
    is_left_N = numbers_N != NONE
    total = int(is_left_N.sum())
    for source, folder in enumerate(folders):
        for split_number, split in enumerate(SPLITS):
            rows = read_rows(folder / f"{split}.parquet")
            is_in_file_N = is_left_N & (documents.sources_N == source) & (documents.splits_N == split_number)
            while batch := list(islice(rows, BATCH)):
                places = places_of(as_ids([row["id"] for row in batch]), documents.ids_N)
                for row, place in zip(batch, places.tolist(), strict=True):
                    if place >= 0 and is_in_file_N[place]:
                        is_left_N[place] = False
                        domain = domains[int(numbers_N[place])]
                        yield Document(row["text"], domain, row["group"], row["source"], row.get("messages"))
    require_all(hex_of(documents.ids_N[is_left_N]), total)
