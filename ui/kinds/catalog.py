"""The screen of each kind of job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from engine.plugins import BadPluginError, load_object
from ui.kinds.screen import Answers, Screen, TrainForm
from ui.present.forms.cli_command import command_line
from ui.present.forms.questions import Offers
from workbench.kinds.kind import Kind, known_kinds, stored_sentence


def screen_of(name: str) -> Screen:
    """The screen of a kind: its own or, of a kind without one and of an unknown kind, what the kind itself says.

    Kinds with a form on the page Train have theirs in the module of `ui.kinds` of their name. Raises BadPluginError.
    """
    kind = known_kinds().get(name)
    if kind is None:  # the package of an old job was uninstalled
        return Screen(command=None, sentence=stored_sentence, link=None, form=None)
    path = screen_path(kind)
    return _load(path) if path else _screen_without_form(kind)


def train_forms() -> dict[str, TrainForm]:
    """All forms of the page Train by the names of their kinds, in their order."""
    forms = {name: form for name in known_kinds() if (form := screen_of(name).form)}
    return dict(sorted(forms.items(), key=lambda pair: pair[1].position))


def screen_path(kind: Kind[Any]) -> str:
    """`package.module:SCREEN`; empty for a kind without one."""
    module = f"ui.kinds.{kind.module}"
    return f"{module}:SCREEN" if not kind.screen and kind.module and _exists(module) else kind.screen


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is there its folder
        return False


def _load(path: str) -> Screen:
    screen = load_object(path)
    if not isinstance(screen, Screen):
        raise BadPluginError(
            f"{path} is a {type(screen).__name__}, not a Screen.", "Correct it or uninstall its package."
        )
    return screen


def _screen_without_form(kind: Kind[Any]) -> Screen:
    """What a kind says; one of another package has a form from its spec."""
    command = command_of(kind) if kind.command else None
    return Screen(
        command=command,
        sentence=kind.sentence,
        link=kind.link,
        form=None if kind.module else _generic_form(kind, command),
    )


def _generic_form(kind: Kind[Any], command: Callable[[Answers], str] | None) -> TrainForm:
    from ui.kinds.train_form_parts import needs_of  # imports nothing heavy

    about = (kind.spec.__doc__ or kind.title).strip().splitlines()[0]
    draw = partial(_draw_generic, kind.name, command)
    return TrainForm(title=kind.title, about=about, draw=draw, needs=needs_of(kind.spec))


def command_of(kind: Kind[Any]) -> Callable[[Answers], str]:
    """The command line that submits what a form would."""
    words = kind.command.split()
    fields = [word.lower() for word in words if word.isupper()]
    return partial(command_line, " ".join(word for word in words if not word.isupper()), kind.spec, fields)


def _draw_generic(name: str, command: Callable[[Answers], str] | None, offers: Offers) -> None:
    from ui.widgets.job_form import show_job_form  # imports Streamlit, which the command line does not need

    show_job_form(name, offers, "Submit", command=command)
