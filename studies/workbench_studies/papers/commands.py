"""The command that makes a replication again, and what its text is called."""

from __future__ import annotations

from pathlib import PurePath

from workbench.formatting.shell_command import shell_command
from workbench_studies.kinds.replicate import Replicate
from workbench_studies.kinds.replicate_cbtm import ReplicateCbtm
from workbench_studies.kinds.replicate_demix import ReplicateDemix
from workbench_studies.kinds.replicate_mode import ReplicateMode

IMPORTED = "imported domains"


def corpus_of(spec: Replicate) -> str:
    """The name of the folder that the text came from."""
    return PurePath(spec.imports[0].path).parent.parent.name if spec.imports else IMPORTED


def command_of(spec: Replicate) -> str:
    """The command; a folder is named without where it lies, so that a report can be shown to others."""
    novel = ["--domains", ",".join(spec.domains), "--novel", ",".join(spec.novel)]
    text = [corpus_of(spec)] if spec.imports else novel
    chosen = ["--size", spec.size, "--seeds", str(spec.seeds), "--name", spec.name]
    return shell_command("replicate", spec.paper, *text, *chosen, *_own(spec), "--here")


def _own(spec: Replicate) -> list[str]:
    """The options that only its paper has."""
    match spec:
        case ReplicateDemix(removed=[_, *_]):
            return ["--removed", ",".join(spec.removed)]
        case ReplicateCbtm(tasks=str(tasks)) if tasks:
            return ["--tasks", PurePath(tasks).name]
        case ReplicateMode():
            return ["--targets", ",".join(spec.targets), "--retention", spec.retention]
    return []
