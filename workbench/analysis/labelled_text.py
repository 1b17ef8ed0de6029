"""Held-out documents with labels, which few-shot tasks are made of: no model was trained on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from sqlalchemy.orm import Session

from engine.text.split_names import HELD_OUT_SPLITS
from workbench.errors import StorageError
from workbench.registry.corpora import domain_row
from workbench.store.storage import Storage

Label = Literal["domain", "source"]
_HASH = re.compile("[0-9a-f]{64}")  # the group of the pieces of one document


def labelled_text(
    session: Session, storage: Storage, domains: Sequence[str], by: Label = "domain"
) -> Iterator[tuple[str, str]]:
    """Text and label of the held-out documents of these domains: the domain's name, or the `source` of the record.

    Documents without a source have no label by it. Raises NotFoundError for an unknown domain.
    """
    folders: dict[str, Path] = {}
    for name in domains:
        row = domain_row(session, name)
        folders[name] = storage.path(row.artifact_id) / row.folder
        if not folders[name].is_dir():
            raise StorageError(f"The text of “{name}” is not in {folders[name]}.", "Import it again.")
    return _documents(folders, by)


def _documents(folders: dict[str, Path], by: Label) -> Iterator[tuple[str, str]]:
    from engine.text.split import read_split  # here, because only this needs Arrow

    for name, folder in folders.items():
        for split in sorted(HELD_OUT_SPLITS):
            for document in read_split(folder, split):
                label = name if by == "domain" else document["group"]
                if label and not _HASH.fullmatch(label):
                    yield document["text"], " ".join(label.split())
