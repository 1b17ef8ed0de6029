"""The product of one position of many rows is that of each row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.methods.demix.placement import ExpertLinear
from engine.models.rows import Rows, with_rows


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [(1, 1), (7, 8), (9, 64), (65, 16)])
def test_many_rows_of_one_position_are_mapped_as_each_by_itself(num_rows: tuple[int, int], has_bias: bool) -> None:
    torch.manual_seed(0)
    layer = ExpertLinear(nn.Linear(24, 40, bias=has_bias), ["law", "sea"])
    nn.init.normal_(layer.experts["sea"].weight)
    x = torch.randn(sum(num_rows), 1, 24)
    with torch.inference_mode(), with_rows(Rows(("law", "sea"), num_rows)):
        together = layer(x)
    keys = ["law"] * num_rows[0] + ["sea"] * num_rows[1]
    single = torch.stack([layer.experts[key](row) for key, row in zip(keys, x, strict=True)])
    torch.testing.assert_close(together, single)


def test_rows_of_one_expert_are_mapped_as_they_are_beside_another() -> None:
    layer = ExpertLinear(nn.Linear(24, 40), ["law", "sea"])
    x = torch.randn(32, 1, 24)
    with torch.inference_mode():
        with with_rows(Rows(("law", "sea"), (16, 16))):
            beside = layer(x)[:16]
        with with_rows(Rows.all_to("law", 16)):
            single = layer(x[:16])
    assert torch.equal(beside, single)
