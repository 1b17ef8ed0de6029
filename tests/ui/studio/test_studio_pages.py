"""Every page opens, on an empty registry and on a full one, and says the sentence that matters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ui.addresses import help_path
from ui.pages.catalog import page_at
from workbench.job_records.jobs import create_job
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import transaction

STUDIO = str(Path(__file__).parents[3] / "ui" / "studio" / "app.py")

EMPTY = {
    "overview": "Bring in text",
    "corpora": "There is no text yet.",
    "clusters": "There is no text yet.",
    "train": "There is no domain yet.",
    "jobs_page": "There is no job yet.",
    "experts": "There is no expert yet.",
    "mixtures": "There is no mixture yet.",
    "reports": "No report has been written yet.",
    "specialization": "There is no expert yet.",
    "posteriors": "There is no mixture yet.",
    "selfcheck": "Nothing has been checked on this machine yet.",
    "playground": "does not answer",
    "search": "open this page from every other",
}
FILLED = {
    "overview": "Evaluate|has failed: |Choose a smaller",
    "corpora": "What the experts can learn",
    "clusters": "There is no clustering yet.|Find clusters",
    "train": "What do you have?|Choose one domain, or several|No training starts before step 3.",
    "jobs_page": "step 40 of 100",
    "experts": "4 experts",
    "mixtures": "Experts and their weights",
    "reports": "No report has been written yet.",
    "specialization": "Each expert is best on its own domain",
    "posteriors": "Show the posterior",
    "selfcheck": "Nothing has been checked on this machine yet.",
    "playground": "does not answer",
    "search": "open this page from every other",
}


def open_page(name: str) -> AppTest:
    """The studio, opened at a page."""
    app = AppTest.from_file(STUDIO, default_timeout=120).run()
    if name != "overview":
        app.switch_page(f"app_pages/{name}.py").run()
    return app


def output(app: AppTest) -> str:
    """Everything the page says in words, with the marks that keep names from being read as Markdown taken off."""
    heads = (app.title, app.header, app.subheader)
    kinds = (*heads, app.markdown, app.caption, app.error, app.warning, app.info, app.success, app.button, app.text)
    words = [str(getattr(one, "value", "")) + str(getattr(one, "label", "")) for kind in kinds for one in kind]
    words += [block.label for block in app.expander] + [one.proto.text for one in app.get("progress")]
    return "\n".join(words).replace("\\", "")


def complaints(app: AppTest) -> list[str]:
    return [one.value for one in (*app.exception, *app.error) if "mistake" in one.value or one in app.exception]


@pytest.mark.parametrize("page", EMPTY)
@pytest.mark.usefixtures("home")
def test_an_empty_registry_says_why_and_what_to_do(page: str) -> None:
    app = open_page(page)
    assert not complaints(app)
    assert EMPTY[page] in output(app)
    assert f"[Help]({help_path(page_at(page.removesuffix('_page')).document)})" in output(app)


@pytest.mark.parametrize("page", FILLED)
@pytest.mark.usefixtures("filled_home")
def test_a_full_registry_is_reported_in_words(page: str) -> None:
    app = open_page(page)
    assert not complaints(app)
    assert all(sentence in output(app) for sentence in FILLED[page].split("|"))


@pytest.mark.parametrize("page", EMPTY)
def test_without_a_registry_every_page_names_the_command(page: str) -> None:
    app = open_page(page)
    assert not complaints(app)
    if page not in ("playground", "search"):  # a search reads the registry once there are words
        assert "workbench migrate" in output(app)


def test_the_studio_loads_no_weights_library() -> None:
    pages = [f"ui.studio.app_pages.{path.stem}" for path in Path(STUDIO).with_name("app_pages").glob("[a-z]*.py")]
    names = ", ".join(["ui.studio.app", *pages])
    code = f"import sys, {names}; sys.exit(bool({{'torch', 'transformers'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_a_foreign_origin_makes_the_studio_ask_nobody_for_our_address() -> None:
    from streamlit import net_util

    AppTest.from_file(STUDIO, default_timeout=120).run()
    assert net_util.get_external_ip() == "(not asked)"


@pytest.mark.parametrize("page", ["experts", "mixtures", "specialization", "posteriors"])
@pytest.mark.usefixtures("home")
def test_an_empty_page_names_the_job_that_will_fill_it(page: str) -> None:
    with transaction() as session:
        create_job(session, TrainJoint(name="demo", seed_model="s", domains=["a"]), title="Train 4 experts together")
    assert "“Train 4 experts together” waits for its turn." in output(open_page(page))


@pytest.mark.usefixtures("home")
def test_the_overview_explains_the_terms() -> None:
    [glossary] = [box for box in open_page("overview").expander if "Glossary" in box.label]
    assert "| expert |" in glossary.markdown[0].value
    assert "Refused" not in glossary.markdown[0].value
