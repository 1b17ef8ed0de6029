"""A saved view is a name of an address in the studio, and of nothing else."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from workbench.errors import BadSpecError, NotFoundError
from workbench.registry import views


def test_views_are_saved_replaced_listed_by_page_and_deleted(session: Session) -> None:
    views.save_view(session, "adapters", "/experts?method=lora")
    views.save_view(session, "all", "/experts")
    views.save_view(session, "failed", "/jobs?state=failed&q=%C3%BC")
    assert views.save_view(session, "adapters", "/experts?method=dora").address == "/experts?method=dora"
    assert [one.name for one in views.list_views(session)] == ["adapters", "all", "failed"]
    assert [one.name for one in views.list_views(session, "/experts")] == ["adapters", "all"]
    views.delete_view(session, "all")
    with pytest.raises(NotFoundError, match="all"):
        views.get_view(session, "all")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "experts",
        "//evil.example",
        "https://evil.example/experts",
        "javascript:alert(1)",
        "/\\evil.example",
        "/../etc",
        "/experts?a b",
        "/experts?a\n",
        "/experts#x",
        "/experts?" + "x" * 2000,
    ],
)
def test_what_is_no_address_in_the_studio_is_refused(session: Session, address: str) -> None:
    with pytest.raises(BadSpecError, match="address"):
        views.save_view(session, "adapters", address)
    assert views.list_views(session) == []
