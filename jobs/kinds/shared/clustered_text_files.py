"""The text behind a clustering, as it lies in the domains that it was made from."""

from __future__ import annotations

from pathlib import Path

from engine.errors import CorpusError
from workbench.registry.clusterings import ClusteringFiles


def folders_of(files: ClusteringFiles) -> list[Path]:
    """The folder of each source, in their order, once all are proved whole; raises CorpusError for what is gone."""
    gone = [source.name for source in files.sources if source.kept is None]
    if gone:
        told = ", ".join(f"“{name}”" for name in gone)
        raise CorpusError(
            f"The text of {told} must be what was clustered, but is gone or another.",
            f"See which documents: workbench cluster changes {files.name}. Then import it again, or cluster again.",
        )
    folders = []
    for source in files.sources:
        assert source.kept is not None
        source.kept.check()
        folders.append(source.kept.folder / source.folder)
    return folders
