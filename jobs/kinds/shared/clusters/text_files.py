"""The text of a clustering, in the folders of its source domains."""

from __future__ import annotations

from pathlib import Path

from engine.errors import CorpusError
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
