"""The table of things: every one lists, shows and deletes, and its routes follow."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from ui.api.app import create_app
from workbench.answers.base import Answer
from workbench.errors import NotFoundError
from workbench.registry.database import transaction
from workbench.registry.resources import RESOURCES, ResourceKind, names_from
from workbench.settings import Settings


@pytest.mark.usefixtures("home")
def test_every_thing_has_a_list_names_and_a_card() -> None:
    for kind in get_args(ResourceKind):
        with transaction() as session:
            assert names_from(session, kind, "") == []
            if resource := RESOURCES.get(kind):
                assert list(resource.list_all(session)) == []
                assert issubclass(resource.card, Answer)
                with pytest.raises(NotFoundError, match="nobody"):
                    resource.get(session, "nobody")


def test_every_thing_has_its_routes_with_its_sentences(tmp_path: Path) -> None:
    paths = create_app(Settings(home=tmp_path), playground=False).openapi()["paths"]
    for kind, resource in RESOURCES.items():
        path = f"/v1/workbench/{resource.path or resource.plural}"
        assert paths[path]["get"]["description"] == resource.listed, kind
        operations = paths.get(f"{path}/{{name}}") or paths.get(f"{path}/{{id}}") or {}
        assert ("delete" in operations) is (resource.delete is not None), kind
        if resource.delete:
            assert operations["delete"]["description"] == resource.deleted, kind
