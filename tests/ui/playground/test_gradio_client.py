"""Gradio's own client, as it comes, uses a playground that requires a token."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

ASK = {"model": "both", "prompt": "the sea", "max_tokens": 3, "api_name": "/generate"}
LOGIN = {"Authorization": "Bearer s3cret"}


def connect(url: str, headers: dict[str, str]) -> Any:
    from gradio_client import Client

    return Client(url, headers=headers, verbose=False, analytics_enabled=False, download_files=False)


@pytest.mark.filterwarnings("ignore")
def test_gradio_client_lists_generates_streams_and_is_refused_in_words(url: str, host: Any) -> None:
    from gradio_client.exceptions import AppError

    client = connect(url, LOGIN)
    endpoints = client.view_api(return_format="dict")["named_endpoints"]
    assert set(endpoints) == {"/models", "/generate"}
    names = [one["parameter_name"] for one in endpoints["/generate"]["parameters"]]
    assert names == ["model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed"]

    assert client.predict(api_name="/models") == ["both", "both/code", "both/law"]
    assert client.predict(**ASK, seed=5) == " sea0 sea1 sea2"
    assert host.sampling.seed == 5

    host.seconds = 0.05

    texts = list(client.submit(**ASK))
    assert texts[-1] == " sea0 sea1 sea2"
    assert all(text == texts[-1][: len(text)] for text in texts)
    assert len(set(texts)) > 1

    with pytest.raises(AppError, match="nobody"):
        client.predict(**{**ASK, "model": "nobody"})
    with pytest.raises(AppError, match="temperature"):
        client.predict(**ASK, temperature=-1)
    with pytest.raises(AppError, match="max_tokens"):
        client.predict(**{**ASK, "max_tokens": "many"})
    host.fail_at = 0
    with pytest.raises(AppError, match="unexpected error") as caught:
        client.predict(**ASK)
    assert "a mistake of ours" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_without_the_token_nothing_is_shown(url: str) -> None:
    answer = httpx.get(url + "config", timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    from gradio_client.exceptions import AuthenticationError

    with pytest.raises(AuthenticationError, match="credentials were not provided"):
        connect(url, {})
