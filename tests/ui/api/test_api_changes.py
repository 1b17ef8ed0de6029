"""Changes of the registry over HTTP: each is in the list afterwards, and what something depends on stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.ui.clusterings import fill_clustering
from workbench.registry.database import transaction
from workbench.registry.reports import register_report
from workbench.registry.seeds import register_seed
from workbench.schema.tables import Artifact
from workbench.settings import get_settings
from workbench.store.storage import get_storage

V1 = "/v1/workbench"
LAW = "both/law"


@pytest.fixture
def topics(mixed: Path) -> str:
    """The clustering `topics` of three domains."""
    with transaction() as session:
        return fill_clustering(session, get_storage(get_settings()), num_documents=60).name


def done(answer: Any, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    return body


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def listed(api: TestClient, what: str) -> dict[str, dict[str, Any]]:
    """What a list shows, by name."""
    return {one.get("name", one["id"]): one for one in done(api.get(f"{V1}/{what}"))["data"]}


def weights(card: dict[str, Any]) -> dict[str, float]:
    """The weights of the active members of a mixture."""
    return {one["expert"]: one["weight"] for one in card["members"] if one["active"]}


def test_an_expert_is_disabled_and_enabled(api: TestClient) -> None:
    for enabled in (False, True):
        card = done(api.patch(f"{V1}/experts/{LAW}", json={"enabled": enabled}))
        assert card["enabled"] is enabled
        assert listed(api, "experts")[LAW] == card
        assert (LAW in {one["id"] for one in done(api.get("/v1/models"))["data"]}) is enabled


def test_an_expert_is_renamed_and_described_at_once(api: TestClient) -> None:
    body = {"name": "court", "notes": "of 1925", "tags": ["old", " law ", ""]}
    card = done(api.patch(f"{V1}/experts/{LAW}", json=body))
    assert (card["name"], card["notes"], card["tags"]) == ("court", "of 1925", ["law", "old"])
    assert listed(api, "experts")["court"] == card
    assert LAW not in listed(api, "experts")
    assert set(weights(listed(api, "mixtures")["both"])) == {"both/code", "court"}
    assert done(api.patch(f"{V1}/experts/court", json={"tags": None, "notes": ""}))["tags"] == ["law", "old"]


def test_a_change_that_fails_changes_nothing(api: TestClient) -> None:
    before = listed(api, "experts")
    taken = {"name": "both/code", "notes": "new", "enabled": False}
    assert refused(api.patch(f"{V1}/experts/{LAW}", json=taken)) == (409, "name_taken")
    assert refused(api.patch(f"{V1}/experts/{LAW}", json={"name": "a,b", "notes": "new"})) == (422, "bad_spec")
    assert refused(api.patch(f"{V1}/experts/nobody", json={"notes": "new"})) == (404, "expert_not_found")
    assert refused(api.patch(f"{V1}/experts/{LAW}", json={"colour": "red"})) == (400, "bad_request")
    assert listed(api, "experts") == before


def test_an_expert_is_deleted_when_no_mixture_has_it(api: TestClient) -> None:
    assert refused(api.delete(f"{V1}/experts/{LAW}")) == (409, "in_use")
    assert "both" in api.delete(f"{V1}/experts/{LAW}").json()["error"]["message"]
    assert weights(done(api.post(f"{V1}/mixtures/both/remove", json={"expert": LAW}))) == {"both/code": 3.0}
    assert done(api.delete(f"{V1}/experts/{LAW}"))["name"] == LAW
    assert set(listed(api, "experts")) == {"both/code"}
    assert refused(api.delete(f"{V1}/experts/{LAW}")) == (404, "expert_not_found")


def test_a_mixture_is_created_and_deleted(api: TestClient) -> None:
    body = {"name": "pair", "experts": ["both/code", LAW], "weights": [1, 2], "gate": "fixed"}
    card = done(api.post(f"{V1}/mixtures", json=body), 201)
    assert (weights(card), card["gate"]["kind"]) == ({"both/code": 1.0, LAW: 2.0}, "fixed")
    assert listed(api, "mixtures")["pair"].items() <= card.items()  # which has what was proposed, too
    assert refused(api.post(f"{V1}/mixtures", json=body)) == (409, "name_taken")
    assert done(api.delete(f"{V1}/mixtures/pair"))["name"] == "pair"
    assert set(listed(api, "mixtures")) == {"both"}
    assert set(listed(api, "experts")) == {"both/code", LAW}


def test_a_mixture_with_an_alias_is_not_deleted(api: TestClient) -> None:
    done(api.put(f"{V1}/aliases/duo@live", json={"model": "both"}))
    assert refused(api.delete(f"{V1}/mixtures/both")) == (409, "in_use")
    done(api.delete(f"{V1}/aliases/duo@live"))
    done(api.delete(f"{V1}/mixtures/both"))
    assert listed(api, "mixtures") == {}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "pair", "experts": []}, 400),
        ({"name": "pair", "experts": ["nobody"]}, 404),
        ({"name": "pair", "experts": [LAW, LAW]}, 422),
        ({"name": "a,b", "experts": [LAW]}, 422),
        ({"name": "pair", "experts": [LAW], "weights": [1, 2]}, 422),
        ({"name": "pair", "experts": [LAW], "gate": {"kind": "fixed", "decay": 1}}, 400),
    ],
)
def test_what_can_be_no_mixture_is_refused(api: TestClient, body: dict[str, Any], status: int) -> None:
    assert api.post(f"{V1}/mixtures", json=body).status_code == status
    assert set(listed(api, "mixtures")) == {"both"}


def test_a_mixture_is_saved_as_on_the_page(api: TestClient) -> None:
    body = {"active": [LAW], "weights": {LAW: 2.5}, "gate": {"evidence": {"decay": 0.9, "power": 0.3}}}
    card = done(api.patch(f"{V1}/mixtures/both", json=body))
    assert weights(card) == {LAW: 2.5}
    assert (card["gate"]["kind"], card["gate"]["evidence"]["decay"]) == ("posterior", 0.9)
    assert listed(api, "mixtures")["both"] == card
    again = done(api.patch(f"{V1}/mixtures/both", json={"gate": "fixed"}))
    assert (weights(again), again["gate"]["kind"]) == ({LAW: 2.5}, "fixed")
    both = done(api.patch(f"{V1}/mixtures/both", json={"active": [LAW, "both/code"]}))
    assert weights(both) == {"both/code": 3.0, LAW: 2.5}
    heavier = done(api.patch(f"{V1}/mixtures/both", json={"weights": {LAW: 4}}))
    assert weights(heavier) == {"both/code": 3.0, LAW: 4.0}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"active": []}, 422),
        ({"weights": {LAW: -1}}, 422),
        ({"active": ["both/poetry"]}, 404),
        ({"weights": {"both/poetry": 1}}, 404),
        ({"weights": {LAW: 2}, "gate": "oracle"}, 400),
        ({"weights": {LAW: 2}, "gate": {"temperature": 0.5}}, 400),
    ],
)
def test_a_mixture_that_cannot_be_saved_stays_as_it_is(api: TestClient, body: dict[str, Any], status: int) -> None:
    before = listed(api, "mixtures")
    assert api.patch(f"{V1}/mixtures/both", json=body).status_code == status
    assert listed(api, "mixtures") == before


def test_members_come_and_go(api: TestClient) -> None:
    done(api.post(f"{V1}/mixtures", json={"name": "solo", "experts": [LAW], "weights": [4]}), 201)
    assert weights(done(api.post(f"{V1}/mixtures/solo/add", json={"expert": "both/code"}))) == {
        LAW: 4.0,
        "both/code": 4.0,
    }
    assert refused(api.post(f"{V1}/mixtures/solo/add", json={"expert": LAW})) == (409, "name_taken")
    done(api.post(f"{V1}/mixtures/solo/remove", json={"expert": LAW}))
    assert weights(listed(api, "mixtures")["solo"]) == {"both/code": 4.0}
    assert refused(api.post(f"{V1}/mixtures/solo/remove", json={"expert": "both/code"})) == (422, "bad_spec")
    assert refused(api.post(f"{V1}/mixtures/solo/remove", json={"expert": LAW})) == (404, "expert_not_found")


def test_a_prior_is_set_and_deleted(api: TestClient) -> None:
    card = done(api.put(f"{V1}/priors/mostly law", json={"weights": {LAW: 3, "both/code": 1}}), 201)
    assert card["shares"] == {LAW: 0.75, "both/code": 0.25}
    assert listed(api, "priors") == {"mostly law": card}
    assert done(api.get(f"{V1}/priors/mostly law")) == card
    assert refused(api.put(f"{V1}/priors/mostly law", json={"weights": {LAW: 1}})) == (409, "name_taken")
    assert refused(api.put(f"{V1}/priors/none", json={"weights": {}})) == (422, "bad_spec")
    assert refused(api.put(f"{V1}/priors/none", json={"weights": {"nobody": 1}})) == (404, "expert_not_found")
    assert done(api.delete(f"{V1}/priors/mostly law")) == card
    assert listed(api, "priors") == {}
    assert refused(api.delete(f"{V1}/priors/mostly law")) == (404, "prior_not_found")


def test_a_corpus_is_deleted_when_no_expert_learned_from_it(api: TestClient) -> None:
    assert refused(api.delete(f"{V1}/corpora/law")) == (409, "in_use")
    assert LAW in api.delete(f"{V1}/corpora/law").json()["error"]["message"]
    done(api.post(f"{V1}/mixtures/both/remove", json={"expert": LAW}))
    done(api.delete(f"{V1}/experts/{LAW}"))
    assert done(api.delete(f"{V1}/corpora/law"))["domains"] == ["law"]
    assert set(listed(api, "corpora")) == set(listed(api, "domains")) == {"code"}
    assert refused(api.get(f"{V1}/corpora/law")) == (404, "corpus_not_found")


def test_a_seed_model_is_deleted(api: TestClient) -> None:
    with transaction() as session:
        artifact = Artifact(kind="seed", sha256="ab" * 32)
        session.add(artifact)
        session.flush()
        register_seed(
            session,
            name="tiny",
            source="here",
            family="llama",
            config={},
            num_parameters=1,
            tokenizer_sha256="ab" * 32,
            artifact=artifact,
        )
    assert done(api.get(f"{V1}/seeds/tiny"))["source"] == "here"
    assert done(api.delete(f"{V1}/seeds/tiny"))["name"] == "tiny"
    assert listed(api, "seeds") == {}


def test_a_cluster_is_renamed_and_gets_notes(api: TestClient, topics: str) -> None:
    path = f"{V1}/clusterings/{topics}/clusters"
    old, other, *_ = (one["name"] for one in done(api.get(f"{V1}/clusterings/{topics}"))["clusters"])
    done(api.patch(f"{path}/{old}", json={"notes": "of the sea"}))
    card = done(api.patch(f"{path}/0", json={"name": "ships"}))
    assert (card["clusters"][0]["name"], card["clusters"][0]["notes"]) == ("ships", "of the sea")
    assert listed(api, "clusterings")[topics] == card
    assert refused(api.patch(f"{path}/ships", json={"name": other})) == (422, "bad_spec")
    assert refused(api.patch(f"{path}/{old}", json={"name": "x"})) == (404, "cluster_not_found")


def test_a_clustering_is_compared_with_the_text_of_now(api: TestClient, topics: str) -> None:
    changes = done(api.get(f"{V1}/clusterings/{topics}/changes"))
    assert (changes["num_missing"], changes["missing"]) == (0, [])


def test_a_clustering_is_deleted_when_no_job_needs_it(api: TestClient, topics: str) -> None:
    corpus = listed(api, "domains")["letters"]["corpus"]
    assert refused(api.delete(f"{V1}/corpora/{corpus}")) == (409, "in_use")
    spec = {"kind": "split-cluster", "clustering": topics, "cluster": "0"}
    job = done(api.post(f"{V1}/jobs", json={"spec": spec}), 202)["id"]
    assert refused(api.delete(f"{V1}/clusterings/{topics}")) == (409, "in_use")
    done(api.post(f"{V1}/jobs/{job}/cancel"))
    assert done(api.delete(f"{V1}/clusterings/{topics}"))["name"] == topics
    assert listed(api, "clusterings") == {}
    done(api.delete(f"{V1}/corpora/{corpus}"))


def test_a_report_is_listed_and_deleted(api: TestClient) -> None:
    with transaction() as session:
        ids = [register_report(session, kind, kind, {"of": kind}).id for kind in ("overlap", "removal")]
    assert set(listed(api, "reports")) == set(ids)
    assert set(listed(api, "reports?kind=removal")) == {ids[1]}
    assert done(api.get(f"{V1}/reports/{ids[0]}"))["findings"] == {"of": "overlap"}
    assert done(api.delete(f"{V1}/reports/{ids[0]}"))["id"] == ids[0]
    assert set(listed(api, "reports")) == {ids[1]}
    assert refused(api.delete(f"{V1}/reports/{ids[0]}")) == (404, "report_not_found")


def test_a_waiting_job_gets_a_priority(api: TestClient) -> None:
    job = done(api.post(f"{V1}/jobs", json={"spec": {"kind": "selfcheck"}}), 202)["id"]
    assert done(api.put(f"{V1}/jobs/{job}/priority", json={"priority": 7}))["priority"] == 7
    assert listed(api, "jobs")[job]["priority"] == 7
    assert refused(api.put(f"{V1}/jobs/{job}/priority", json={"priority": 5000})) == (400, "bad_request")
    done(api.post(f"{V1}/jobs/{job}/cancel"))
    assert refused(api.put(f"{V1}/jobs/{job}/priority", json={"priority": 1})) == (409, "job_error")


def test_an_ended_job_is_deleted_unless_another_waits_for_it(api: TestClient) -> None:
    def submitted(**more: Any) -> str:
        return str(done(api.post(f"{V1}/jobs", json={"spec": {"kind": "selfcheck"}, **more}), 202)["id"])

    first = submitted()
    second = submitted(after=[first])
    assert refused(api.delete(f"{V1}/jobs/{first}")) == (409, "job_error")
    for job in (second, first):
        done(api.post(f"{V1}/jobs/{job}/cancel"))
    assert done(api.delete(f"{V1}/jobs/{first}")) == {"deleted": first, "in_list": True}
    assert set(listed(api, "jobs")) == {first, second}
    assert done(api.delete(f"{V1}/jobs/{second}")) == {"deleted": second, "in_list": False}
    assert set(listed(api, "jobs")) == {first}
    assert refused(api.delete(f"{V1}/jobs/{second}")) == (404, "job_not_found")
