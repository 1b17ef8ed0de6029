"""Every kind of job has a screen: a sentence of its result, a place that shows it, a form or an explicit none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

import pytest

from engine.plugins import BadPluginError
from tests.kind_samples import RESULTS, SPECS
from ui.kinds.catalog import screen_of, screen_path, train_forms
from ui.kinds.screen import Screen
from ui.kinds.train_form_parts import JOINT
from ui.pages.catalog import all_pages
from ui.widgets.fields import Answers
from workbench.kinds.kind import known_kinds, stored_sentence


@pytest.mark.parametrize("name", SPECS)
def test_a_kind_says_what_its_results_are_and_where_they_are_shown(name: str) -> None:
    screen = screen_of(name)
    assert screen_path(known_kinds()[name]).endswith(f".{name.replace('-', '_')}:SCREEN" if screen.form else "")
    assert screen.sentence(RESULTS[name]).endswith(".")
    if screen.link:
        assert screen.link.address in {page.address for page in all_pages()}
        assert all("." in key or key in ("part", "domain", "mixture") for key in screen.link.state(RESULTS[name]))
    if screen.form:
        assert screen.form.about.endswith(".")


@pytest.mark.parametrize("name", SPECS)
def test_a_command_begins_with_the_program(name: str) -> None:
    """Its options are parsed by the command line's own parser in tests/ui/studio/test_studio_commands.py."""
    command = screen_of(name).command
    answers: Answers = {(field,): value for field, value in SPECS[name].items()}
    assert command is None or command(answers).startswith("workbench ")


def test_the_parts_of_a_screen_have_no_default() -> None:
    with pytest.raises(TypeError, match=str(len(fields(Screen)))):
        Screen()  # type: ignore[call-arg]


def test_the_forms_of_the_page_train_have_an_order_and_known_needs() -> None:
    forms = train_forms()
    assert [form.title for form in forms.values()][:3] == ["Seed model", "DEMix, LoRA, MoE or dense", "New expert"]
    assert len({form.position for form in forms.values()}) == len(forms)
    assert {need.kind for form in forms.values() for need in form.needs} <= set(known_kinds())


@pytest.mark.parametrize("path", ["no_such_package.screen:SCREEN", "workbench.kinds.kind:stored_sentence"])
def test_a_screen_that_is_none_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_kinds(), "evaluate", replace(known_kinds()["evaluate"], screen=path))
    with pytest.raises(BadPluginError, match=path):
        screen_of("evaluate")


def test_a_link_to_a_training_opens_a_form_that_exists() -> None:
    link = screen_of("make-domain").link
    assert link is not None
    assert link.state(RESULTS["make-domain"])["train.what"] == JOINT


def test_an_unknown_kind_is_shown_by_what_its_result_says() -> None:
    assert screen_of("of-an-uninstalled-package").sentence({"summary": "Two claims hold."}) == "Two claims hold."
    assert stored_sentence({"num_words": 3, "words": ["a"]}) == "num_words: 3."
    assert stored_sentence({}) == ""


def test_screens_import_no_torch() -> None:
    code = (
        "import sys; from workbench.kinds.kind import known_kinds; from ui.kinds.catalog import screen_of\n"
        "for name in known_kinds(): screen_of(name)\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
