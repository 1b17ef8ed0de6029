"""Answers that were compared over HTTP: stored with what makes them again, searched, voted on and deleted."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from ui.api.app import create_app
from ui.generation.model_host import ModelHost
from workbench.registry import comparisons
from workbench.registry.database import get_engine, reading, transaction
from workbench.registry.experts import set_enabled
from workbench.registry.mixtures import delete_mixture
from workbench.requests.verification import read_answer, verify
from workbench.schema.tables import ComparedAnswer
from workbench.settings import Settings

PATH = "/v1/workbench/comparisons"
RATINGS = "/v1/workbench/ratings"
ASK = {"model": "both", "prompt": "the sea", "max_tokens": 3, "seed": 11, "return_token_ids": True}


def complete(api: TestClient, **changes: Any) -> dict[str, Any]:
    answer: dict[str, Any] = api.post("/v1/completions", json={**ASK, **changes}).json()
    return answer


def store(api: TestClient, prompt: str = "the sea", **more: Any) -> dict[str, Any]:
    """A stored comparison of the mixture with the mixture without an expert."""
    answers = [complete(api, prompt=prompt), complete(api, prompt=prompt, active=["both/code"])]
    response = api.post(PATH, json={"prompt": prompt, "answers": answers, **more})
    assert response.status_code == 201, response.text
    card: dict[str, Any] = response.json()
    return card


def test_a_permalink_holds_what_makes_the_text_again(
    api: TestClient, api_settings: Settings, host: Any, tmp_path: Path
) -> None:
    card = api.get(f"{PATH}/{store(api)['id'][:10]}").json()
    assert [(one["letter"], one["model"], one["variant"]) for one in card["answers"]] == [
        ("A", "both", ""),
        ("B", "both", "without both/law"),
    ]
    for number, _ in enumerate(card["answers"]):
        path = tmp_path / "answer.json"
        path.write_text(json.dumps(card["answers"][number]))
        stored, generations = read_answer(path), ModelHost(api_settings, host)
        assert stored.sampling(stored.choices[0]).seed == 11
        result = verify(stored, generations.plan(stored.request()), generations.stream)
        assert result.agrees
        assert result.changed == []
        stored.choices[0].token_ids[-1] = 99
        assert not verify(stored, generations.plan(stored.request()), generations.stream).agrees


def test_a_comparison_is_verified_over_http(api: TestClient, host: Any) -> None:
    path = f"{PATH}/{store(api)['id']}"
    result = api.post(f"{path}/verify").json()
    assert result["agrees"]
    assert [(one["letter"], one["choices"][0]["first_difference"]) for one in result["answers"]] == [
        ("A", None),
        ("B", None),
    ]
    host.first_id = 7
    result = api.post(f"{path}/verify").json()
    assert not result["agrees"]
    assert result["answers"][1]["choices"][0]["first_difference"] == 0
    api.post(f"{path}/vote", json={"choice": "tie"})
    api.delete(PATH)
    assert api.post(f"{path}/verify").status_code == 400


def test_a_link_opens_the_requests_that_make_the_texts_again(api: TestClient) -> None:
    opened = api.get(f"{PATH}/{store(api)['id']}/link").json()
    assert [(one["letter"], one["changed"], one["problem"]) for one in opened["answers"]] == [
        ("A", [], ""),
        ("B", [], ""),
    ]
    for one, answer in zip(opened["answers"], opened["comparison"]["answers"], strict=True):
        again = api.post("/v1/completions", json=one["request"]).json()
        assert again["choices"][0]["token_ids"] == answer["choices"][0]["token_ids"]
        assert {**again["manifest"], "sampling": None} == {**answer["manifest"], "sampling": None}
        assert again["manifest"]["sampling"]["seed"] == 11


def test_a_link_keeps_sampling_seeds_and_the_length_of_a_stopped_answer(api: TestClient) -> None:
    sampling = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.01, "logit_bias": {"7": -1.5}}
    answer = complete(api, **sampling, n=2, presence_penalty=0.5, max_tokens=9)
    answer["choices"] = answer["choices"][1:]
    stopped = json.loads(json.dumps(answer))
    stopped["choices"][0] |= {"finish_reason": None, "token_ids": [0, 1]}
    id = api.post(PATH, json={"prompt": "the sea", "answers": [answer, stopped]}).json()["id"]
    full, part = (one["request"] for one in api.get(f"{PATH}/{id}/link").json()["answers"])
    assert {name: full[name] for name in sampling} == sampling
    assert (full["seed"], full["presence_penalty"], full["max_tokens"]) == (12, 0.5, 9)
    assert part["max_tokens"] == 2
    assert api.post("/v1/completions", json=full).status_code == 200


def test_a_link_names_what_differs_today(api: TestClient, api_settings: Settings) -> None:
    id = store(api)["id"]
    with transaction(api_settings) as session:
        row = session.scalars(select(ComparedAnswer).where(ComparedAnswer.position == 0)).one()
        experts = [{**one, "sha256": "0" * 64} for one in row.manifest["experts"][:1]] + row.manifest["experts"][1:]
        row.manifest = {**row.manifest, "experts": experts, "precision": "bf16"}
        set_enabled(session, ["both/law"], False)
    changed = [one["changed"] for one in api.get(f"{PATH}/{id}/link").json()["answers"]]
    assert changed == [["expert both/code", "expert both/law, which is disabled", "precision bf16, now stored"], []]
    with transaction(api_settings) as session:
        delete_mixture(session, "both")
    problems = [one["problem"] for one in api.get(f"{PATH}/{id}/link").json()["answers"]]
    assert all("both" in problem for problem in problems)


def test_tokens_have_their_leading_expert_and_weights(api: TestClient) -> None:
    first = store(api)["answers"][0]
    assert first["text"] == " sea0 sea1 sea2"
    assert first["experts"] == ["both/code", "both/law"]
    assert first["weights"] == [[0.75, 0.25]] * 3
    assert [first["manifest"]["experts"][place]["name"] for place in first["leading"]] == ["both/code"] * 3


def test_the_domain_is_that_of_the_posterior_unless_the_user_names_one(api: TestClient) -> None:
    card = store(api)
    assert (card["domain"], card["domain_source"]) == ("code", "posterior")
    assert card["domain_weights"] == {"code": 0.75, "law": 0.25}
    named = store(api, domain="law")
    assert (named["domain"], named["domain_source"]) == ("law", "user")
    voted = api.post(f"{PATH}/{card['id']}/vote", json={"choice": "a", "domain": "law"}).json()
    assert (voted["domain"], voted["domain_source"]) == ("law", "user")
    assert api.post(f"{PATH}/{card['id']}/vote", json={"choice": "a", "domain": "sea"}).status_code == 404


def test_a_gate_that_does_not_read_and_a_model_of_one_domain_name_no_domain(api: TestClient) -> None:
    fixed = complete(api, gate={"kind": "fixed"})
    single = complete(api, model="both/code")
    card = api.post(PATH, json={"prompt": "the sea", "answers": [fixed, single]}).json()
    assert card["domain"] == ""
    assert card["domain_weights"] == {}


def test_a_conversation_is_stored_with_its_messages_and_its_link_requests_an_answer_in_it(api: TestClient) -> None:
    messages = [{"role": "user", "content": "where is the harbour"}]
    body = {"model": "both", "messages": messages, "max_tokens": 2, "return_token_ids": True}
    answer = api.post("/v1/chat/completions", json=body).json()
    card = api.post(PATH, json={"messages": messages, "answers": [answer]}).json()
    assert card["is_chat"]
    assert card["messages"] == messages
    assert card["prompt"] == "where is the harbour"
    assert card["answers"][0]["text"] == answer["choices"][0]["message"]["content"] != ""
    [linked] = api.get(f"{PATH}/{card['id']}/link").json()["answers"]
    again = api.post("/v1/chat/completions", json=linked["request"]).json()
    assert again["choices"][0]["token_ids"] == answer["choices"][0]["token_ids"]


def test_the_history_is_searched_by_words_in_pages(api: TestClient) -> None:
    for prompt in ("a 100% <b>grey</b> rock", "the court", "grey water"):
        store(api, prompt)
    assert api.get(PATH).json()["total"] == 3
    assert [one["prompt"] for one in api.get(PATH, params={"search": "GREY"}).json()["data"]] == [
        "grey water",
        "a 100% <b>grey</b> rock",
    ]
    for search, total in (("grey rock", 1), ("100%", 1), ("%", 1), ("_", 0), ("court2", 1), ("sky", 0)):
        assert api.get(PATH, params={"search": search}).json()["total"] == total, search
    page = api.get(PATH, params={"limit": 1, "offset": 1}).json()
    assert [one["prompt"] for one in page["data"]] == ["the court"]
    assert page["total"] == 3
    assert api.get(PATH, params={"model": "apps"}).json()["total"] == 0
    assert api.get(PATH, params={"model": "both", "domain": "code"}).json()["total"] == 3


def test_a_vote_is_replaced_by_the_next_and_then_no_longer_blind(api: TestClient) -> None:
    path = f"{PATH}/{store(api)['id']}/vote"
    [vote] = api.post(path, json={"choice": "a", "is_blind": True}).json()["votes"]
    assert (vote["a"], vote["b"], vote["choice"], vote["is_blind"]) == ("A", "B", "a", True)
    [vote] = api.post(path, json={"choice": "a", "a": "B", "b": "A", "is_blind": True}).json()["votes"]
    assert (vote["a"], vote["b"], vote["choice"], vote["is_blind"]) == ("A", "B", "b", False)
    assert api.delete(path).json()["votes"] == []
    assert api.delete(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"choice": "c"}, 400),
        ({"choice": "a", "b": "C"}, 404),
        ({"choice": "a", "b": "A"}, 400),
        ({"choice": "tie", "voter": "me"}, 400),
    ],
)
def test_a_vote_on_what_is_not_there_is_refused(api: TestClient, body: dict[str, Any], status: int) -> None:
    path = f"{PATH}/{store(api)['id']}"
    assert api.post(f"{path}/vote", json=body).status_code == status
    assert api.get(path).json()["votes"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": None},
        {"manifest": {}},
        {"sampling": {"temperature": -3}},
        {"sampling": {"api_key": "sk-1"}},
        {"sampling": None},
        {"gate": {"kind": "nothing"}},
        {"experts": []},
    ],
)
def test_an_answer_that_could_not_be_made_again_is_refused(api: TestClient, change: dict[str, Any]) -> None:
    answer = complete(api)
    [(name, value)] = change.items()
    if name == "token_ids":
        answer["choices"][0][name] = value
    elif name == "manifest":
        answer[name] = value
    else:
        answer["manifest"][name] = value
    response = api.post(PATH, json={"prompt": "the sea", "answers": [answer]})
    assert response.status_code == 400, response.text
    assert api.get(PATH).json()["total"] == 0


def test_nothing_else_of_a_request_is_stored(api: TestClient, api_settings: Settings) -> None:
    answer = {**complete(api), "user": "SECRET", "headers": {"authorization": "SECRET"}}
    answer["manifest"]["key"] = answer["choices"][0]["key"] = "SECRET"
    header = {"authorization": "Bearer SECRET"}
    response = api.post(PATH, json={"prompt": "the sea", "answers": [answer]}, headers=header)
    assert response.status_code == 201
    with get_engine(api_settings).connect() as connection:
        dump = [
            str(connection.exec_driver_sql(f"SELECT * FROM {name}").all())
            for name in ("comparisons", "compared_answers")
        ]
    assert "the sea" in dump[0]
    assert "SECRET" not in "".join(dump)


def test_text_is_data(api: TestClient) -> None:
    card = store(api, "<script>alert(1)</script> \x00 ' OR 1=1 --")
    shown = api.get(f"{PATH}/{card['id']}")
    assert shown.json()["prompt"] == "<script>alert(1)</script> � ' OR 1=1 --"
    assert shown.headers["content-type"] == "application/json"
    half = {"content": b'{"prompt": "\\ud800", "answers": []}', "headers": {"content-type": "application/json"}}
    assert api.post(PATH, **half).status_code == 400


def test_deleted_text_is_gone_and_votes_stay(api: TestClient, api_settings: Settings) -> None:
    voted, other = store(api)["id"], store(api)["id"]
    api.post(f"{PATH}/{voted}/vote", json={"choice": "tie"})
    assert api.delete(PATH, params={"older_than_days": 1}).json() == {"num_comparisons": 0, "num_votes": 0}
    assert api.delete(PATH).json() == {"num_comparisons": 2, "num_votes": 0}
    assert api.get(PATH).json()["total"] == 0
    assert api.get(f"{PATH}/{other}").status_code == 404
    card = api.get(f"{PATH}/{voted}").json()
    assert not card["has_text"]
    assert "sea" not in str(card)
    assert [one["choice"] for one in card["votes"]] == ["tie"]
    assert [one["choices"] for one in card["answers"]] == [[], []]
    assert api.delete(PATH, params={"with_votes": True}).json() == {"num_comparisons": 1, "num_votes": 1}
    assert api.get(f"{PATH}/{voted}").status_code == 404


def test_one_comparison_is_deleted_with_its_votes(api: TestClient) -> None:
    voted, other = store(api)["id"], store(api)["id"]
    api.post(f"{PATH}/{voted}/vote", json={"choice": "a"})
    assert api.delete(f"{PATH}/{voted}").json() == {"num_comparisons": 1, "num_votes": 1}
    assert [one["id"] for one in api.get(PATH).json()["data"]] == [other]


def test_with_the_history_off_votes_count_and_no_text_is_stored(mixed: Path, host: Any) -> None:
    off_settings = Settings(home=mixed, history_days=0)
    app = create_app(off_settings, host, playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        card = store(api)
        assert not card["has_text"]
        assert "sea" not in str(card)
        assert card["domain"] == "code"
        assert api.post(f"{PATH}/{card['id']}/vote", json={"choice": "a"}).status_code == 200
        assert api.get(PATH).json()["data"] == []


def test_text_that_is_too_old_is_not_shown(api: TestClient, api_settings: Settings) -> None:
    store(api)
    with reading(api_settings) as session:
        assert comparisons.list_comparisons(session, history_days=1e-9).total == 0
        assert comparisons.list_comparisons(session, history_days=1).total == 1


def test_votes_become_ratings_as_json_and_csv(api: TestClient) -> None:
    assert api.get(RATINGS).json()["tables"][0]["num_votes"] == 0
    for number in range(12):
        path = f"{PATH}/{store(api)['id']}/vote"
        api.post(path, json={"choice": "a" if number % 4 else "b", "is_blind": number == 1})
    overall, code = api.get(RATINGS).json()["tables"]
    assert (overall["domain"], code["domain"]) == ("", "code")
    best, other = overall["rows"]
    assert (best["label"], best["wins"], best["losses"]) == ("both", 9, 3)
    assert best["rating"] - other["rating"] == pytest.approx(400 * math.log10(3))
    assert overall["num_blind"] == 1
    assert api.get(RATINGS, params={"blind_only": True}).json()["tables"][0]["num_votes"] == 1
    response = api.get(RATINGS, params={"format": "csv", "domain": "code"})
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(response.text.splitlines()))
    assert [(row["domain"], row["label"], float(row["rating"])) for row in rows] == [
        ("code", "both", best["rating"]),
        ("code", "both without both/law", other["rating"]),
    ]
