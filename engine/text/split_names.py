"""The splits of a domain. Imports nothing heavy: commands and request specs take them as types."""

from typing import Literal, get_args

Split = Literal["train", "dev", "test"]
HeldOutSplit = Literal["test", "dev"]

SPLITS: tuple[Split, ...] = get_args(Split)
HELD_OUT_SPLITS: tuple[HeldOutSplit, ...] = get_args(HeldOutSplit)
HELD_OUT_FIRST: tuple[Split, ...] = (*HELD_OUT_SPLITS, "train")
