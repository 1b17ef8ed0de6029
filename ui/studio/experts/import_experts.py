"""Experts from elsewhere: the forms of an import and of a packed file."""

from __future__ import annotations

import streamlit as st

from ui.studio.forms.job_form import show_form_and_job
from ui.widgets.notices import explained
from workbench.registry import corpora, seeds
from workbench.registry.database import reading

_ADAPTER, _PACKED = "Adapter or model", "Packed file"


def show_import() -> None:
    """A popover with both forms."""
    with st.popover("Import", icon=":material/upload:"), explained():
        what = st.segmented_control(
            "What do you have?", [_ADAPTER, _PACKED], default=_ADAPTER, key="import_expert.what", required=True
        )
        if what == _PACKED:
            st.caption("A file of `workbench expert pack`, made by this or another workbench.")
            show_form_and_job("unpack-expert", {}, "Unpack it")
        else:
            _show_adapter()


def _show_adapter() -> None:
    with reading() as session:
        names = [seed.name for seed in seeds.list_seeds(session)]
        domains = [domain.name for domain in corpora.list_domains(session)]
    if names:
        st.caption("An adapter of PEFT, or a fine-tuned model, trained elsewhere from a seed model of this workbench.")
        show_form_and_job("import-expert", {"seed_model": names, "domains": domains}, "Import it")
    else:
        st.caption(
            "An import needs the seed model that the expert was trained from. Make one first, on the page Train."
        )
