"""The address by which the nodes of a training reach this machine."""

from __future__ import annotations

import ipaddress
import socket

from workbench.errors import BadSpec
from workbench.settings import Settings


def node_address(settings: Settings) -> str:
    """The address that the setting or this machine's name stands for; raises BadSpec for one of this machine alone."""
    name = settings.node_address or socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        raise BadSpec(
            [f"The name {name} of this machine has no address: {error}."], "Set WORKBENCH_NODE_ADDRESS."
        ) from None
    if ipaddress.ip_address(address).is_loopback:
        raise BadSpec(
            [f"The other machines cannot reach this one as {name}, which is {address} here."],
            "Set WORKBENCH_NODE_ADDRESS to an address that they reach.",
        )
    return address
