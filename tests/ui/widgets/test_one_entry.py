"""A run of a page makes one entry of the browser's history, however many of its choices changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from ui.widgets import address


def address_message(query: str) -> ForwardMsg:
    message = ForwardMsg()
    message.page_info_changed.query_string = query
    return message


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_only_the_last_address_of_a_run_is_sent_and_after_all_else(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    sent: list[ForwardMsg] = []
    context = SimpleNamespace(enqueue=sent.append)
    monkeypatch.setattr(address, "get_script_run_ctx", lambda: context)
    other = ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)

    @address.one_entry()
    def draw() -> None:
        context.enqueue(address_message("expert=a"))
        with address.one_entry():  # a fragment within the page
            context.enqueue(address_message("expert=a&domain=b"))
        context.enqueue(other)
        if error:
            raise error

    if error:
        with pytest.raises(error):
            draw()
    else:
        draw()
    assert sent == [other, address_message("expert=a&domain=b")]
    context.enqueue(other)
    assert len(sent) == 3
