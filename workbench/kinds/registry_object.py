"""The objects of the registry that jobs create and require, by what they are and by name."""

from __future__ import annotations

from typing import Literal

What = Literal["corpus", "domain", "seed model", "expert", "mixture", "clustering", "prior"]
RegistryObject = tuple[What, str]  # what, name
