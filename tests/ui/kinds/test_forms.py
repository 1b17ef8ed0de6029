"""Every kind of job has a sentence of its result and a page that shows it; some have a form on the page Train."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from engine.plugins import BadPluginError
from tests.kind_samples import RESULTS, SPECS
from ui.kinds.catalog import command_of, form_of, form_path, result_sentence, train_forms
from ui.kinds.form import JOINT
from ui.pages.catalog import all_pages
from ui.widgets.fields import Answers
from workbench.answers.cards import JobCard
from workbench.kinds.kind import known_kinds, stored_sentence


@pytest.mark.parametrize("name", SPECS)
def test_a_kind_says_what_its_results_are_and_where_they_are_shown(name: str) -> None:
    kind, form = known_kinds()[name], form_of(name)
    assert form_path(kind).endswith(f".{name.replace('-', '_')}:FORM" if form else "")
    assert kind.sentence(RESULTS[name]).endswith(".")
    if kind.link:
        assert kind.link.address in {page.address for page in all_pages()}
        assert all("." in key or key in ("part", "domain", "mixture") for key in kind.link.state(RESULTS[name]))
    if form:
        assert form.about.endswith(".")


@pytest.mark.parametrize("name", SPECS)
def test_a_command_begins_with_the_program(name: str) -> None:
    """Its options are parsed by the command line's own parser in tests/ui/studio/test_studio_commands.py."""
    command = command_of(name)
    answers: Answers = {(field,): value for field, value in SPECS[name].items()}
    assert command is None or command(answers).startswith("workbench ")


def test_the_forms_of_the_page_train_have_an_order_and_known_needs() -> None:
    forms = train_forms()
    assert [form.title for form in forms.values()][:3] == ["Seed model", "DEMix, LoRA, MoE or dense", "New expert"]
    assert len({form.position for form in forms.values()}) == len(forms)
    assert {need.kind for form in forms.values() for need in form.needs} <= set(known_kinds())


@pytest.mark.parametrize("path", ["no_such_package.form:FORM", "workbench.kinds.kind:stored_sentence"])
def test_a_form_that_is_none_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_kinds(), "evaluate", replace(known_kinds()["evaluate"], form=path))
    with pytest.raises(BadPluginError, match=path):
        form_of("evaluate")


@pytest.mark.parametrize("name", ["make-domain", "make-seed"])
def test_a_link_to_a_training_opens_a_form_that_exists(name: str) -> None:
    link = known_kinds()[name].link
    assert link is not None
    assert link.state(RESULTS[name])["train.what"] == JOINT


def test_an_unknown_kind_is_shown_by_what_its_result_says() -> None:
    card = JobCard.model_construct(kind="uninstalled", state="done", result={"summary": "Two claims hold."})
    assert result_sentence(card) == "Two claims hold."
    assert stored_sentence({"num_words": 3, "words": ["a"]}) == "num_words: 3."
    assert stored_sentence({}) == ""


def test_forms_import_no_torch() -> None:
    code = (
        "import sys; from ui.kinds.catalog import train_forms; train_forms()\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
