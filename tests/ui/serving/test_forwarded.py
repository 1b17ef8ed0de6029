"""What a proxy says of a request is believed only of a proxy of this machine that the settings name."""

from __future__ import annotations

import pytest
from starlette.types import Scope

from ui.serving.forwarded import as_forwarded, client_of

SENT = {"x-forwarded-for": "10.9.9.9, 192.0.2.1", "x-forwarded-proto": "https", "x-forwarded-host": "evil.example"}


def scope_from(peer: str, sent: dict[str, str], kind: str = "http") -> Scope:
    headers = [(name.encode(), value.encode()) for name, value in {"host": "a", **sent}.items()]
    return {"type": kind, "scheme": "ws" if kind == "websocket" else "http", "client": (peer, 5), "headers": headers}


@pytest.mark.parametrize(
    ("peer", "has_proxy", "client", "scheme"),
    [
        ("127.0.0.1", True, "192.0.2.1", "https"),
        ("::1", True, "192.0.2.1", "https"),
        ("127.0.0.1", False, "127.0.0.1", "http"),
        ("192.0.2.7", True, "192.0.2.7", "http"),
        ("testclient", True, "testclient", "http"),
    ],
)
def test_only_a_named_proxy_of_this_machine_is_believed(peer: str, has_proxy: bool, client: str, scheme: str) -> None:
    seen = as_forwarded(scope_from(peer, SENT), has_proxy)
    assert (client_of(seen), seen["scheme"]) == (client, scheme)
    assert seen["headers"] == [(b"host", b"a")]


@pytest.mark.parametrize("address", ["", "x", "192.0.2.1:80", "a, ", "127.0.0.1\0"])
def test_an_address_that_is_none_is_not_taken(address: str) -> None:
    assert client_of(as_forwarded(scope_from("127.0.0.1", {"x-forwarded-for": address}), True)) == "127.0.0.1"


def test_a_web_socket_behind_tls_keeps_its_kind() -> None:
    assert as_forwarded(scope_from("127.0.0.1", {"x-forwarded-proto": "https"}, "websocket"), True)["scheme"] == "wss"


def test_all_addresses_of_an_ipv6_network_are_one_client() -> None:
    addresses = ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:192.0.2.1")
    clients = [client_of(scope_from(address, {})) for address in addresses]
    assert clients == ["2001:db8::", "2001:db8::", "2001:db8:0:1::", "192.0.2.1"]
