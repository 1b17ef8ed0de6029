"""The forms of the kinds of job, their commands, and what front ends show of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from engine.plugins import BadPluginError, load_object
from ui.kinds.form import TrainForm, needs_of
from ui.pages.catalog import page_at
from ui.present.forms.options import command_line
from ui.present.forms.questions import Answers
from ui.present.pages import Page
from workbench.answers.cards import JobCard
from workbench.kinds.kind import Kind, known_kinds, stored_sentence


def train_forms() -> dict[str, TrainForm]:
    """All forms of the page Train by the names of their kinds, in their order."""
    forms = {name: form for name in known_kinds() if (form := form_of(name))}
    return dict(sorted(forms.items(), key=lambda pair: pair[1].position))


def form_of(name: str) -> TrainForm | None:
    """The form of a kind on the page Train; None where it has none there. Raises BadPluginError.

    That of a built-in kind is in the module of its name in `ui.kinds`. Another package may name one, else its
    kinds have a form from their spec.
    """
    kind = known_kinds().get(name)
    if kind is None or kind.form is None:  # the package of an old job may be uninstalled
        return None
    if not (path := form_path(kind)):
        about = (kind.spec.__doc__ or kind.title).strip().splitlines()[0]
        return None if kind.module else TrainForm(title=kind.title, about=about, needs=needs_of(kind.spec))
    form = load_object(path)
    if not isinstance(form, TrainForm):
        raise BadPluginError(
            f"{path} is a {type(form).__name__}, not a TrainForm.", "Correct it or uninstall its package."
        )
    return form


def form_path(kind: Kind[Any]) -> str:
    """`package.module:FORM`; empty for a kind without one."""
    module = f"ui.kinds.{kind.module}"
    return kind.form or (f"{module}:FORM" if kind.module and _exists(module) else "")


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is there its folder
        return False


def command_of(name: str) -> Callable[[Answers], str] | None:
    """The command line that submits what the form of a kind would; None for a kind without a command."""
    kind, form = known_kinds().get(name), form_of(name)
    if kind is None or not kind.command:
        return None
    if form and form.command:
        return form.command
    words = kind.command.split()
    fields = [word.lower() for word in words if word.isupper()]
    return partial(command_line, " ".join(word for word in words if not word.isupper()), kind.spec, fields)


class ResultPage(NamedTuple):
    """A page, the label of the button that leads there, and the state of its widgets."""

    page: Page
    label: str
    state: dict[str, Any]


def result_pages(job: JobCard) -> Iterator[ResultPage]:
    """Where the result of a job is shown, and where to go on with it; none before it is done."""
    kind = known_kinds().get(job.kind)
    link = kind.link if kind and job.state == "done" else None
    while link is not None:
        yield ResultPage(page_at(link.address), link.label, link.state(job.result))
        link = link.beside


def result_sentence(job: JobCard) -> str:
    """The result of a job as a sentence; empty unless it is done."""
    kind = known_kinds().get(job.kind)
    return (kind.sentence if kind else stored_sentence)(job.result) if job.state == "done" else ""
