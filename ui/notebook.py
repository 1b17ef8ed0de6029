"""The workbench in a notebook: `from ui.notebook import Workbench`. Tables are pandas DataFrames.

A job runs in this process and has ended when its line returns, or, with `here=False`, is queued for a running
workbench. Its options are those of the command line by their full names (`num_steps` for `--steps`), and so are its
errors. A gate or an expert switched off belongs to the object that you hold, not to the registry.

The module holds no work of its own: each method calls a service, and the rest shows its card as text, HTML or a table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from engine.config import SamplingConfig
from engine.device import prepare_process
from engine.errors import Problem, ScoresError
from engine.events import Done, Event, Token
from engine.text.split_names import HeldOutSplit
from jobs.attempt.attempt import run_here
from jobs.queue.submit import request_stop, resume, run_now, submit_with_follow_up, wait
from ui.generation.model_host import ModelHost, find_member, with_clustering_id
from ui.kinds.catalog import result_sentence
from ui.present.forms.options import spec_of_options
from ui.present.jobs.failure_text import cause_of, failure_of
from ui.present.jobs.job_status import is_over, percent_of, sentence_of
from ui.present.jobs.throughput import tokens_per_step
from ui.present.text.posteriors import describe_proposal
from workbench.analysis.training_curves import job_metrics
from workbench.answers.base import Answer
from workbench.answers.cards import JobCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.job_records import jobs
from workbench.kinds.kind import kind_named, parse_as
from workbench.questions.calibration import calibrate_evidence, make_mixture, names_evidence
from workbench.questions.perplexities import PerplexitiesRequest, mix_scores
from workbench.questions.question import AnswerType, Question, ask
from workbench.registry.database import has_registry, migrate, reading, require_registry
from workbench.registry.resources import RESOURCES
from workbench.schema.job_states import UNSUCCESSFUL
from workbench.settings import read_settings
from workbench.specs.gates import changed_gate, dump_gate, load_gate
from workbench.specs.requests import MixtureRequest, MixtureSpec

REDRAW_SECONDS = 0.5


class Workbench:
    """A registry with its experts: that of a folder, or by default the one that the command line uses.

    A folder without a registry gets one. `quiet` leaves out the progress of jobs.
    """

    def __init__(self, home: str | Path | None = None, *, quiet: bool = False) -> None:
        self.settings = read_settings(None if home is None else Path(home).expanduser().absolute())
        self.quiet = quiet
        require_registry(self.settings) if has_registry(self.settings) else migrate(self.settings)

    def corpus(self, name: str, path: str | Path = "", **settings: Any) -> NotebookCorpus:
        """Imports text as a corpus of one or several domains; with its name only, the corpus that exists."""
        return NotebookCorpus(self, self._make("import-corpus", name, settings, path))

    def domain(self, name: str, path: str | Path = "", **settings: Any) -> NotebookDomain:
        """Imports text as one domain; with its name only, the domain that exists."""
        return NotebookDomain(self, self._make("import-corpus", name, settings, path))

    def seed(self, name: str, **settings: Any) -> NotebookSeed:
        """Makes a seed model; with its name only, the seed model that exists."""
        return NotebookSeed(self, self._make("make-seed", name, settings))

    def expert(self, name: str) -> NotebookExpert:
        """The expert of this name."""
        return NotebookExpert(self, name)

    def mixture(self, name: str, *, calibrate: bool | None = None, **settings: Any) -> NotebookMixture:
        """Creates a mixture of existing experts; with its name only, the mixture that exists.

        Where dev text is scored, evidence is fitted and proposed; `calibrate` accepts it, or keeps the paper's.
        """
        if settings:
            given = settings.get("gate")
            if isinstance(given, dict):
                settings["gate"] = with_clustering_id(given, self.settings)
            spec = parse_as(MixtureSpec, {"name": name, **_plain(settings)})
            has_evidence = names_evidence(given if isinstance(given, dict) else asdict(given) if given else None)
            made = make_mixture(spec, calibrate=calibrate, has_evidence=has_evidence, settings=self.settings)
            if not self.quiet and (words := describe_proposal(made)):
                print(words)
        return NotebookMixture(self, name)

    def train(self, name: str, kind: str = "train-joint", *, here: bool = True, **settings: Any) -> NotebookJob:
        """Trains experts: `train-joint`, `train-expert`, `train-mode` or another kind that trains."""
        return self.run(kind, here=here, name=name, **settings)

    def evaluate(self, mixture: str | NotebookMixture, *, here: bool = True, **settings: Any) -> NotebookJob:
        """Scores every expert of a mixture on held-out text."""
        return self.run("evaluate", here=here, mixture=mixture, **settings)

    def run(self, kind: str, *, here: bool = True, **settings: Any) -> NotebookJob:
        """A job of any kind, run here or queued. Raises BadSpecError for wrong options, and why the job failed.

        After a training that is queued comes the job that scores what it makes.
        """
        spec = spec_of_options(kind_named(kind).spec, _plain(settings))
        if not here:
            return NotebookJob(self, submit_with_follow_up(spec, settings=self.settings))
        job_id, events = run_now(spec, settings=self.settings)
        return NotebookJob(self, job_id).follow(events)

    def perplexities(self, mixture: str | NotebookMixture | None = None, split: HeldOutSplit = "test") -> pd.DataFrame:
        """The perplexity per token of each expert (columns) on each domain (rows), from stored scores."""
        name = mixture.name if isinstance(mixture, NotebookMixture) else mixture
        table = self.ask(PerplexitiesRequest(mixture=name, split=split))
        by_expert = pd.DataFrame(table.perplexity, index=table.experts, columns=table.domains, dtype=float)
        return _require_scores(by_expert.T)

    def ask(self, question: Question[AnswerType]) -> AnswerType:
        """The answer to a question about stored scores, such as `RemovalRequest(mixture="duo")`."""
        return ask(question.answer, self.settings)

    def table(self, question: Question[Any]) -> pd.DataFrame:
        """The same as a table; raises Problem for a question whose answer has no rows."""
        if not question.rows:
            raise Problem(f"The answer to “{question.path}” has no table.", "Use ask(): its fields are the numbers.")
        return _require_scores(pd.DataFrame([row.model_dump() for row in getattr(self.ask(question), question.rows)]))

    def job(self, job_id: str) -> NotebookJob:
        """The job of this id."""
        return NotebookJob(self, job_id)

    def domains(self) -> pd.DataFrame:
        """The domains with their sizes in documents, words and bytes."""
        return self._table("domain")

    def seeds(self) -> pd.DataFrame:
        """The seed models."""
        return self._table("seed")

    def experts(self) -> pd.DataFrame:
        """The experts."""
        return self._table("expert")

    def mixtures(self) -> pd.DataFrame:
        """The mixtures."""
        return self._table("mixture")

    def jobs(self) -> pd.DataFrame:
        """The newest jobs, the newest first."""
        return _frame(JobCard, self.read(jobs.list_jobs))

    def read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of a session, run in one short transaction."""
        with reading(self.settings) as session:
            return function(session, *arguments)

    @cached_property
    def host(self) -> ModelHost:
        """The weights that are loaded in this process."""
        prepare_process(self.settings.threads)
        return ModelHost(self.settings)

    def __repr__(self) -> str:
        return f"Workbench({str(self.settings.root)!r})"

    def _make(self, kind: str, name: str, settings: dict[str, Any], path: str | Path = "") -> str:
        if given := settings | ({"path": path} if path else {}):
            self.run(kind, name=name, **given).ended()
        return name

    def _table(self, kind: str) -> pd.DataFrame:
        return _frame(RESOURCES[kind].card, self.read(RESOURCES[kind].list_all))


@dataclass(frozen=True, eq=False, repr=False)
class NotebookObject:
    """Something of a registry, shown by its facts: they are data, so HTML in them is escaped."""

    workbench: Workbench
    name: str  # of a job its id
    get: ClassVar[Callable[..., Any]]  # its card from a session and its name
    fields: ClassVar[tuple[str, ...]] = ()  # of the card that are shown

    def __post_init__(self) -> None:
        _ = self.card  # raises NotFoundError

    @property
    def card(self) -> Any:
        """All that the registry knows about it, as it is now."""
        return self.workbench.read(type(self).get, self.name)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that are shown, by name."""
        card = self.card
        return {name: getattr(card, name) for name in self.fields}

    def __repr__(self) -> str:
        facts = "".join(f", {name}={_text(value)!r}" for name, value in self.facts.items())
        return f"{type(self).__name__.removeprefix('Notebook')}({self.name!r}{facts})"

    def _repr_html_(self) -> str:
        facts = {type(self).__name__.removeprefix("Notebook"): self.name, **self.facts}
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(_text(value))}</td></tr>" for name, value in facts.items())
        return f"<table>{''.join(rows)}</table>"


class NotebookCorpus(NotebookObject):
    """One import of text."""

    get, fields = staticmethod(RESOURCES["corpus"].get), ("domains",)

    @property
    def domains(self) -> list[NotebookDomain]:
        """Its domains."""
        return [NotebookDomain(self.workbench, name) for name in self.card.domains]


class NotebookDomain(NotebookObject):
    """A named body of text."""

    get, fields = staticmethod(RESOURCES["domain"].get), ("role", "num_documents", "num_words")


class NotebookSeed(NotebookObject):
    """A decoder with its tokenizer that a training starts from."""

    get, fields = staticmethod(RESOURCES["seed"].get), ("family", "num_parameters", "source")


class NotebookModel(NotebookObject):
    """A model that generates: a mixture, or an expert as a mixture of one."""

    @property
    def request(self) -> MixtureRequest:
        """How it differs from what is stored."""
        return MixtureRequest(self.name)

    def stream(self, prompt: str, *, stop: Sequence[str] = (), **sampling: Any) -> Iterator[Token]:
        """Tokens as they come: `text`, `weights` by expert, `logprob` in nats. Options: those of SamplingConfig."""
        host, config = self.workbench.host, SamplingConfig(**sampling)
        last: Token | None = None
        with closing(host.stream(host.plan(self.request), prompt, config, stop)) as events:
            for event in events:
                if isinstance(event, Done):  # text that was held back belongs to the last token
                    last = last and replace(last, text=last.text + event.text)
                elif last:
                    yield last
                last = last if isinstance(event, Done) else event
        if last:
            yield last

    def generate(self, prompt: str, **sampling: Any) -> str:
        """The text that continues a prompt."""
        return "".join(token.text for token in self.stream(prompt, **sampling))

    def posterior(self, text: str) -> pd.DataFrame:
        """The weight of each expert (columns) before each token of a text (rows), and the token's log-likelihood."""
        host = self.workbench.host
        answer = host.posterior(host.plan(self.request), text)
        tokens = pd.DataFrame({"token": answer.tokens, "log_likelihood": answer.logprobs})
        return pd.concat([tokens, pd.DataFrame(answer.weights, columns=answer.experts)], axis=1)


class NotebookExpert(NotebookModel):
    """A part of a language model, or a model, trained on one domain."""

    get, fields = staticmethod(RESOURCES["expert"].get), ("method", "domains", "num_parameters", "enabled")

    @property
    def facts(self) -> dict[str, Any]:
        return {"own_parameters" if name == "num_parameters" else name: fact for name, fact in super().facts.items()}

    def export(self, folder: str | Path, **settings: Any) -> Path:
        """Writes a new folder that transformers (`format="hf"`) or PEFT (`format="peft"`) loads."""
        job = self.workbench.run("export-expert", expert=self, folder=folder, **settings)
        return Path(job.ended().card.result["folder"])


@dataclass(frozen=True, eq=False, repr=False)
class NotebookMixture(NotebookModel):
    """A named list of experts with a gate. Changes of it are new objects; the registry keeps what it has."""

    get = staticmethod(RESOURCES["mixture"].get)
    gate_changes: dict[str, Any] | None = None
    active_experts: tuple[str, ...] | None = None

    @property
    def request(self) -> MixtureRequest:
        return MixtureRequest(self.name, active=self.active_experts, gate=self.gate_changes or {})

    @property
    def gate(self) -> dict[str, Any]:
        """The kind and the settings of its gate."""
        return self.gate_changes or self.card.gate

    @property
    def active(self) -> list[str]:
        """The names of its active experts."""
        stored = [member.expert for member in self.card.members if member.enabled and member.active]
        return stored if self.active_experts is None else list(self.active_experts)

    @property
    def experts(self) -> list[NotebookExpert]:
        """Its experts, those that are switched off included."""
        return [NotebookExpert(self.workbench, member.expert) for member in self.card.members]

    @property
    def facts(self) -> dict[str, Any]:
        return {"experts": self.active, "gate": self.gate}

    def with_gate(self, kind: str | None = None, **settings: Any) -> NotebookMixture:
        """The same with another gate, or other settings of its gate."""
        changes = with_clustering_id(settings, self.workbench.settings) | ({"kind": kind} if kind else {})
        return replace(self, gate_changes=dump_gate(changed_gate(load_gate(self.gate), changes)))

    def calibration(self) -> EvidenceCalibration:
        """The decay and the power of evidence that fit dev text of its training domains, and what they gain."""
        return ask(partial(calibrate_evidence, mixture=self.request), self.workbench.settings)

    def calibrated(self) -> NotebookMixture:
        """The same with the evidence that fits best, if that gains."""
        fitted = self.calibration()
        return self if fitted.keeps else self.with_gate(evidence=asdict(fitted.best))

    def without(self, *names: str | NotebookExpert) -> NotebookMixture:
        """The same with experts switched off, by their names or their domains'."""
        members = {member.expert: member.domain for member in self.card.members if member.enabled}
        left_out = {find_member(members, _plain(name)) for name in names}
        return replace(self, active_experts=tuple(name for name in self.active if name not in left_out))

    def perplexity(self, split: HeldOutSplit = "test") -> pd.DataFrame:
        """Its perplexity per token on each domain next to that of its best expert, from stored scores."""
        scores = ask(partial(mix_scores, request=self.request, split=split), self.workbench.settings)
        columns = ["domain", "num_tokens", "perplexity", "best_expert"]
        table = pd.DataFrame([domain.model_dump() for domain in scores.domains], columns=columns)
        return _require_scores(table.set_index("domain"))


class NotebookJob(NotebookObject):
    """A piece of long work: its row in the registry."""

    get = staticmethod(jobs.get_job)

    @property
    def facts(self) -> dict[str, Any]:
        card = self.card
        facts = {"title": card.title, "state": card.state, "percent": percent_of(card)}
        return facts | {"result": result_sentence(card) or cause_of(card) or sentence_of(card)}

    def wait(self) -> NotebookJob:
        """Waits until it has ended or is paused. Raises JobFailedError if it failed or was cancelled."""
        for card in wait(self.name, REDRAW_SECONDS, settings=self.workbench.settings):
            self.show_progress(card)
        if card.state in UNSUCCESSFUL:
            raise failure_of(card)
        return self

    def ended(self) -> NotebookJob:
        """The same when it has ended: waits only for a job that was queued."""
        return self if is_over(self.card) else self.wait()

    def follow(self, events: Iterator[Event]) -> NotebookJob:
        """Runs it here to its end. An interrupt pauses it. Raises the reason why it failed."""
        shown_at = time.monotonic()
        with closing(events):  # type: ignore[type-var]  # a generator: closing it pauses the job
            for _ in events:
                if time.monotonic() - shown_at > REDRAW_SECONDS:
                    shown_at = time.monotonic()
                    self.show_progress(self.card)
        return self.wait()

    def resume(self, *, here: bool = True) -> NotebookJob:
        """Continues a paused job from its last checkpoint."""
        resume(self.name, settings=self.workbench.settings)
        return self.follow(run_here(self.name, self.workbench.settings)) if here else self

    def cancel(self) -> None:
        """Requests it to stop."""
        request_stop(self.name, "cancel", settings=self.workbench.settings)

    def curve(self) -> pd.DataFrame:
        """Its measures by step (rows): tokens trained on until then, losses in nats per token, speeds.

        `dev_loss/DOMAIN` is on held-out text. `attrs["units"]` has the unit of each column. A measure that was not
        taken at a step is NaN there.
        """
        points = [point.model_dump() for point in self.workbench.read(job_metrics, self.name).points]
        frame = pd.DataFrame(points, columns=["metric", "step", "value", "unit"])
        curve = frame.pivot(index="step", columns="metric", values="value").rename_axis(columns=None)
        curve.attrs["units"] = dict(zip(frame["metric"], frame["unit"], strict=True))
        if per_step := tokens_per_step(self.card.spec):
            curve.insert(0, "tokens", curve.index * per_step)
            curve.attrs["units"]["tokens"] = "tokens"
        return curve

    def show_progress(self, card: JobCard) -> None:
        """Writes one line over the last one, and ends it with the job."""
        if not self.workbench.quiet:
            note = result_sentence(card) if is_over(card) else sentence_of(card)
            line = f"{card.title}: {card.state}, {percent_of(card)} %. {note}"
            print(f"\r{line[:110]:<110}", end="\n" if is_over(card) or card.state == "paused" else "", flush=True)


def _plain(value: Any) -> Any:
    """The names of objects and the texts of paths, also in lists and options."""
    if isinstance(value, NotebookObject):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    """A fact as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items() if one not in (None, ""))
    return ", ".join(value) if isinstance(value, list) else f"{value:,}" if type(value) is int else str(value)


def _frame(card: type[Answer], cards: Sequence[Answer]) -> pd.DataFrame:
    frame = pd.DataFrame([one.model_dump() for one in cards], columns=list(card.model_fields))
    for column in (name for name in card.model_fields if name.endswith("_at")):
        frame[column] = pd.to_datetime(frame[column], unit="s", utc=True)
    return frame.set_index("name" if "name" in card.model_fields else "id")


def _require_scores(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        raise ScoresError("There are no stored scores yet.", "Score the experts first, with the method evaluate.")
    return table
