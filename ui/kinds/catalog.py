"""The screen of each kind of job."""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.plugins import BadPlugin, load_object
from ui.kinds.screen import Result, Screen, TrainForm
from ui.present.forms.questions import Offers
from workbench.kinds.catalog import known_kinds
from workbench.kinds.kind import Kind

_PACKAGE = "workbench.kinds"


def screen_of(name: str) -> Screen:
    """The screen of a kind: its own or, of a plug-in without one and of an unknown kind, a generic one.

    Kinds of the workbench have theirs in the module of `ui.kinds` named as their spec's. Raises BadPlugin.
    """
    kind = known_kinds().get(name)
    if kind is None:  # the package of an old job was uninstalled
        return Screen(command=None, sentence=generic_sentence, link=None, form=None)
    path = screen_path(kind)
    return _load(path) if path else _generic_screen(kind)


def train_forms() -> dict[str, TrainForm]:
    """All forms of the page Train by the names of their kinds, in their order."""
    forms = {name: form for name in known_kinds() if (form := screen_of(name).form)}
    return dict(sorted(forms.items(), key=lambda pair: pair[1].position))


def screen_path(kind: Kind[Any]) -> str:
    """`package.module:SCREEN`; empty for a kind of another package that names none."""
    module = kind.spec.__module__
    if kind.screen or not module.startswith(f"{_PACKAGE}."):
        return kind.screen
    return module.replace(_PACKAGE, "ui.kinds", 1) + ":SCREEN"


def generic_sentence(result: Result) -> str:
    """The sentence or summary in a result, or else its short values by their names."""
    for name in ("sentence", "summary"):
        if isinstance(sentence := result.get(name), str):
            return sentence
    values = [f"{name}: {value}" for name, value in result.items() if isinstance(value, str | int | float)]
    return f"{', '.join(values)}." if values else ""


def _load(path: str) -> Screen:
    screen = load_object(path)
    if not isinstance(screen, Screen):
        raise BadPlugin(f"{path} is a {type(screen).__name__}, not a Screen.", "Correct it or uninstall its package.")
    return screen


def _generic_screen(kind: Kind[Any]) -> Screen:
    from ui.kinds.train_form_parts import needs_of  # imports nothing heavy

    about = (kind.spec.__doc__ or kind.title).strip().splitlines()[0]
    draw = partial(_draw_generic, kind.name)
    form = TrainForm(title=kind.title, about=about, draw=draw, needs=needs_of(kind.spec))
    return Screen(command=None, sentence=generic_sentence, link=None, form=form)


def _draw_generic(name: str, offers: Offers) -> None:
    from ui.widgets.job_form import show_job_form  # imports Streamlit, which the command line does not need

    show_job_form(name, offers, "Submit", command=None)
