"""Two clients change one mixture: with If-Match the second is refused, without it the change is made."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from workbench.registry import experts
from workbench.registry.database import transaction

BOTH = "/v1/workbench/mixtures/both"
LAW = {"expert": "both/law"}
CHANGES: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "patch": ("PATCH", BOTH, {"weights": {"both/law": 2}}),
    "remove": ("POST", f"{BOTH}/remove", LAW),
    "add": ("POST", f"{BOTH}/add", LAW),
    "delete": ("DELETE", BOTH, None),
}


def tag_of(api: TestClient) -> str:
    return str(api.get(BOTH).headers["etag"])


def test_the_tag_of_a_mixture_is_its_version_and_that_of_its_change(api: TestClient) -> None:
    read = api.get(BOTH)
    assert read.headers["etag"] == f'"{read.json()["version"]}"' == tag_of(api)
    changed = api.patch(BOTH, json={"weights": {"both/law": 2}, "gate": "fixed"})
    assert changed.headers["etag"] == tag_of(api) != read.headers["etag"]


def test_who_saves_second_is_refused_and_may_save_what_is_read_again(api: TestClient) -> None:
    tag = tag_of(api)
    first = api.patch(BOTH, json={"weights": {"both/law": 2}}, headers={"if-match": tag})
    assert first.status_code == 200
    second = api.patch(BOTH, json={"weights": {"both/code": 9}}, headers={"if-match": tag})
    error = second.json()["error"]
    assert (second.status_code, error["code"]) == (412, "changed_meanwhile")
    assert error["message"] == (
        "The mixture “both” was changed meanwhile; nothing was saved. Load what is saved, and make your change to that."
    )
    assert [one["weight"] for one in api.get(BOTH).json()["members"]] == [3, 2]
    for header in ("{}", '"another", {}', "*"):
        headers = {"if-match": header.format(tag_of(api))}
        assert api.patch(BOTH, json={"weights": {"both/code": 9}}, headers=headers).status_code == 200


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_mixture_minds_its_tag(api: TestClient, change: str) -> None:
    method, path, body = CHANGES[change]
    if change == "add":
        api.post(f"{BOTH}/remove", json=LAW)
    before = api.get(BOTH).json()
    tag = tag_of(api)
    for other in ('"another"', f"W/{tag}", tag.strip('"'), ""):
        assert api.request(method, path, json=body, headers={"if-match": other}).status_code == 412, other
    assert api.get(BOTH).json() == before
    assert api.request(method, path, json=body, headers={"if-match": tag}).status_code == 200


def test_without_a_tag_a_change_is_made(api: TestClient) -> None:
    for weight in (2, 4):
        assert api.patch(BOTH, json={"weights": {"both/law": weight}}).status_code == 200


@pytest.mark.parametrize("change", ["disabled", "renamed"])
def test_a_change_of_a_member_is_one_of_the_mixture(api: TestClient, change: str) -> None:
    tag = tag_of(api)
    with transaction() as session:
        experts.set_enabled(session, ["both/law"], False) if change == "disabled" else experts.rename(
            session, "both/law", "both/rules"
        )
    assert tag_of(api) != tag


def test_a_tag_makes_no_mixture_known(api: TestClient) -> None:
    assert api.patch("/v1/workbench/mixtures/x", json={}, headers={"if-match": '"x"'}).status_code == 404


def test_the_schema_declares_the_tag_and_412_where_it_is_minded(api: TestClient) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    minding = {
        f"{method.upper()} {path.removeprefix('/v1/workbench/mixtures/{name}')}".strip()
        for path, methods in paths.items()
        for method, operation in methods.items()
        if "412" in operation["responses"]
        if "If-Match" in [one["name"] for one in operation["parameters"]]
    }
    assert minding == {"PATCH", "DELETE", "POST /add", "POST /remove", "POST /calibrate"}
