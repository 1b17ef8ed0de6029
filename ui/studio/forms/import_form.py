"""The import form: where the text lies, and how to read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from ui.present.forms.questions import QuestionForm, questions_of
from ui.present.forms.readable_folders import keep_uploads, require_text
from ui.present.text.formatting import listed, plain, pluralize, size
from ui.studio.job_views.job_view import show_form_and_job, show_last
from ui.widgets.fields import Answers
from ui.widgets.notices import cannot_change, explain_problems
from workbench.kinds.data import ImportCorpus
from workbench.settings import get_settings

_SELDOM = ("text_field", "domain_field", "group_field", "max_bytes", "skip_bad", "leave_out")
_NAME = "import-corpus.name"
_PLACES = ("path", "dataset", "local_source")
_OF_A_SOURCE = (*_PLACES, "dataset_split")  # asked for above the form, each with its source
_NOTHING = {
    "path": "path: give the path of a file or a folder.",
    "dataset": "data set: give its name on the Hugging Face hub.",
}
_SPLIT_HELP = (
    "Of files that belong to splits, as in a data set of a hub, only those of one are read; all reads every file."
)
LOCAL_PATH, UPLOAD, LOCAL_SOURCE, HUB = (
    "Files on this machine",
    "Upload files",
    "Found on this machine",
    "Hugging Face data set",
)


def show_import() -> None:
    """The form, and the last import live beneath it."""
    source = st.segmented_control(
        "Where is the text?", list(_SOURCES), default=UPLOAD, key="import.where", required=True
    )
    given = _SOURCES[source]()
    if given is None:
        show_last("import-corpus")
        return
    absent: Answers = {**{(place,): "" for place in _PLACES}, ("dataset_split",): "train"}
    with explain_problems():
        complaints = [_NOTHING[path[0]] for path, value in given.items() if not value and path[0] in _NOTHING]
        given = {**absent, **given}
        show_form_and_job(
            "import-corpus",
            {},
            "Import the text",
            skip=_OF_A_SOURCE,
            given=given,
            tucked=_SELDOM,
            complaints=complaints,
        )


def _from_path() -> Answers:
    path = st.text_input("Path", key="import.path", help=_question("path").help, placeholder="/data/reviews.jsonl")
    # The worker may run in another folder, so a relative path is settled here.
    _propose_name(path)
    split = st.text_input("Split of a folder that has several", "train", key="import.split", help=_SPLIT_HELP)
    return {("path",): str(Path(path).expanduser().absolute()) if path else "", ("dataset_split",): split}


def _from_upload() -> Answers | None:
    files = st.file_uploader(
        "Files",
        accept_multiple_files=True,
        key="import.files",
        help=_question("path").help,
        disabled=cannot_change(),
    )
    if not files:
        st.caption("Drop txt, md, jsonl, csv or parquet files here, plain or compressed (gz, xz, bz2, zst).")
        return None
    summary = f"{pluralize(len(files), 'file')}, {size(sum(file.size for file in files))}, kept in the home folder: "
    st.caption(plain(summary + listed([file.name for file in files])))
    with explain_problems():
        require_text(files)
        return _keep_files(files)
    return None


def _keep_files(files: Sequence[Any]) -> Answers:
    """The folder that holds the files, stored once for the same choice."""
    _propose_name(files[0].name)
    marks = tuple(file.file_id for file in files)
    if st.session_state.get("import.kept", (None, ""))[0] != marks:
        st.session_state["import.kept"] = (marks, str(keep_uploads(files, get_settings().root)))
    return {("path",): st.session_state["import.kept"][1]}


def _propose_name(path: str) -> None:
    """Fills in the corpus's name from its file's, unless the person wrote another."""
    name = re.sub(r"[^\w.-]+", " ", path.rstrip("/").rpartition("/")[2]).strip().partition(".")[0][:80]
    if st.session_state.get(_NAME, "") in ("", st.session_state.get("import.proposed", "")):
        st.session_state[_NAME] = st.session_state["import.proposed"] = name


def _from_local_source() -> Answers:
    from engine.text.local_sources import SOURCES

    name = st.selectbox(
        "Source",
        list(SOURCES),
        format_func=lambda one: SOURCES[one].title,
        key="import.local_source",
        help=_question("local_source").help,
    )
    st.caption(plain(f"Licence: {SOURCES[name].licence}"))
    return {("local_source",): name}


def _from_hub() -> Answers:
    st.warning("This downloads from the Hugging Face hub over the network.", icon=":material/cloud_download:")
    return {
        ("dataset",): st.text_input("Data set", key="import.dataset", help=_question("dataset").help),
        ("dataset_split",): st.text_input(
            "Split", "train", key="import.dataset_split", help=_question("dataset_split").help
        ),
    }


def _question(name: str) -> QuestionForm:
    return next(q for q in questions_of(ImportCorpus, {}) if q.path == (name,))


_SOURCES: dict[str, Callable[[], Answers | None]] = {
    LOCAL_PATH: _from_path,
    UPLOAD: _from_upload,
    LOCAL_SOURCE: _from_local_source,
    HUB: _from_hub,
}
