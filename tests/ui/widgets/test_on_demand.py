"""What a closed popover or expander holds is drawn once it is opened, and stays."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def _page() -> None:
    import streamlit as st

    from ui.widgets.on_demand import content_of

    for kind in (st.popover, st.expander):
        key = f"box.{kind.__name__}"
        box = kind("More", key=key, on_change="rerun")
        if content := content_of(box, key):
            with content:
                st.text_input(key, key=f"{key}.text")


def test_content_is_drawn_from_the_first_opening_on_and_keeps_what_was_typed() -> None:
    page = AppTest.from_function(_page, default_timeout=120).run()
    assert not page.text_input
    page.session_state["box.popover"] = True
    page.run()
    assert [one.label for one in page.text_input] == ["box.popover"]
    page.text_input[0].set_value("typed").run()
    page.session_state["box.popover"] = False
    page.run()
    assert page.text_input[0].value == "typed"
    page.session_state["box.expander"] = True
    page.run()
    assert [one.label for one in page.text_input] == ["box.popover", "box.expander"]
