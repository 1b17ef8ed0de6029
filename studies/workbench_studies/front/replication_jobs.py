"""The jobs of a replication from the command line: its spec, its plan in words, how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.output import print_table, say
from ui.errors import BadUsageError, JobFailedError
from ui.present.text.formatting import duration, pluralize
from workbench.formatting.number_format import amount
from workbench.formatting.shell_command import shell_command
from workbench.schema.job_states import UNSUCCESSFUL
from workbench_studies.core.sizes import ENOUGH_DOCUMENTS, SEEDS, SizeName
from workbench_studies.front.replication_reports import files_of, newest

if TYPE_CHECKING:
    from workbench.answers.cards import JobCard
    from workbench_studies.core.spec import Replicate
    from workbench_studies.papers.forecast import Forecast

SIZE: SizeName = "tiny"


def spec_of(
    paper: str,
    folder: str,
    name: str,
    size: SizeName | None,
    seeds: int | None,
    domains: Sequence[str],
    novel: Sequence[str],
) -> Replicate:
    """The spec from a folder or from imported domains; else that of the replication with this name."""
    from workbench_studies.running.submission import spec_for_domains, spec_for_folder

    name = name or f"{paper}-{size or SIZE}"
    if folder and (domains or novel):
        raise BadUsageError("FOLDER and --domains or --novel are both given.", "Give one of them.")
    if folder:
        text = Path(folder).expanduser().absolute()
        return spec_for_folder(text, name, size or SIZE, seeds or _seeds_of(name), paper=paper)
    if domains or novel:
        return spec_for_domains(domains, novel, name, size or SIZE, seeds or _seeds_of(name), paper=paper)
    return _existing(paper, name, size, seeds)


def _seeds_of(name: str) -> int:
    """The number of seeds of the replication with this name; the default for a new one."""
    from workbench.registry.database import reading
    from workbench_studies.running.submission import replications

    with reading() as session:
        return next((spec.seeds for spec in replications(session) if spec.name == name), SEEDS)


def _existing(paper: str, name: str, size: SizeName | None, seeds: int | None) -> Replicate:
    """The replication of this name, with another number of seeds if given; its paper and size stay the same."""
    from workbench.registry.database import reading
    from workbench_studies.running.submission import changed, find_replication

    with reading() as session:
        spec = find_replication(session, name)
    if spec.paper != paper:
        raise BadUsageError(
            f"“{name}” is a replication of {spec.paper}, not of {paper}.",
            f"Continue it with: {_command(spec)}",
        )
    if size not in (None, spec.size):
        raise BadUsageError(
            f"“{name}” was started with the size {spec.size}, not {size}.",
            "Omit --size, or start another replication: give FOLDER and another --name.",
        )
    return changed(spec, seeds=seeds) if seeds else spec


def domain_name(spec: Replicate, domain: str) -> str:
    """A training domain's name in the registry: that of its file, or of the replication and the file."""
    longer = f"{spec.name}-{domain}"
    return longer if longer in spec.domains else domain


def cards_of(ids: Sequence[str]) -> list[JobCard]:
    """The jobs with these ids."""
    from jobs.queue import tasks

    return tasks.cards_of(ids)


def state_of(spec: Replicate, ids: Sequence[str]) -> dict[str, Any]:
    """The state of a replication with the files of its report; raises JobFailedError if a job has failed."""
    from workbench_studies.core.findings import summary

    cards, card = cards_of(ids), newest(spec.name)
    last = cards[-1]
    if last.state == "failed":
        raise _failure(spec, cards)
    files = files_of(card) if card and last.state == "done" else {}
    claims = summary(card.findings) if card and files else ""
    return {"name": spec.name, "jobs": list(ids), "state": last.state, "summary": claims, "files": files}


def state_words(spec: Replicate, cards: Sequence[JobCard]) -> str:
    """The number of jobs in each state, and how to continue."""
    states = Counter(card.state for card in cards)
    done = states.pop("done", 0)
    rest = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    progress = f"{done} of {pluralize(len(cards), 'job')} done, {rest}."
    if states.keys() & {"paused", *UNSUCCESSFUL}:
        return f"{progress} Continue with: {_command(spec)}"
    return f"{progress} Start a worker with: workbench up"


def _command(spec: Replicate) -> str:
    return shell_command("replicate", spec.paper, "--name", spec.name)


def _failure(spec: Replicate, cards: Sequence[JobCard]) -> JobFailedError:
    """The error of the first job that failed on its own."""
    cause = next((card for card in cards if card.state in UNSUCCESSFUL and card.attempt), cards[-1])
    return JobFailedError(
        f"{cause.title} has {cause.state}: {cause.error}".rstrip(": "),
        f"Fix it and continue: {_command(spec)}. "
        f"Or write a partial report: {shell_command('replicate', 'report', spec.name)}",
    )


# before the first job ------------------------------------------------------------------------------


def print_plans(expected: Sequence[Forecast]) -> None:
    """The jobs, the time and the disk that are left, and what cannot be tested; of several papers also the sum."""
    for one in expected:
        _print_plan(one)
    if len(expected) > 1:
        seconds, num_bytes = sum(one.seconds for one in expected), sum(one.disk_bytes for one in expected)
        num_jobs = sum(one.num_jobs - one.num_done for one in expected)
        words = f"{pluralize(num_jobs, 'job')}, about {duration(seconds, to_minutes=True)} of computing"
        say(f"Together: {words} and {amount(num_bytes, 'B')} of disk. What two papers import alike is counted twice.")


def _print_plan(expected: Forecast) -> None:
    kinds = ", ".join(f"{number} {kind}" for kind, number in expected.jobs.items()) or "none"
    done = f", of which {expected.num_done} are done" if expected.num_done else ""
    say(f"{expected.name}: {pluralize(expected.num_jobs, 'job')}{done}. Left: {kinds}.")
    say(f"About {duration(expected.seconds, to_minutes=True)} of computing. {expected.how}")
    say(f"About {amount(expected.disk_bytes, 'B')} of disk.")
    if few := [f"{one.domain} (about {one.about})" for one in expected.few_documents]:
        say(f"Novel domains of which fewer than {ENOUGH_DOCUMENTS} test documents will be read: {', '.join(few)}.")
    rows = [(one.where, one.sentence, one.why) for one in expected.untestable]
    say(f"Not testable, as far as can be known before: {len(rows)} of {pluralize(expected.num_claims, 'claim')}.")
    print_table(["Table", "Claim", "Why"], rows, empty="Every claim can be tested.")
