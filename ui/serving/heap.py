"""Keeps what a server has imported out of the searches for garbage.

Python's full collection visits every object there is. Most belong to libraries and stay as long as the process does:
with them, a list of 1,000 experts took twice as long at the 95th percentile (`benchmarks/registry.py`).
"""

from __future__ import annotations

import gc


def settle() -> None:
    """To be called once, when a server has imported its libraries: what is there now is not searched again."""
    gc.collect()
    gc.freeze()
