"""Texts of one row whose positions begin anew: each is read as if it were alone, by every method, or refused.

Logits agree within 1e-5 in fp32: a row with a mask is computed by another kernel than a text by itself.
"""

from __future__ import annotations

import pytest
import torch

from engine.errors import ModelError, TrainingError
from engine.methods.multi_expert_files import new_placement
from engine.models.expert_model import require_separation
from engine.models.multi_expert import MultiExpertModel
from tests.engine.models.packed_rows import (
    IDS,
    METHODS,
    POSITIONS,
    by_itself,
    dense,
    largest_difference,
    pieces,
    rows_of,
)
from tests.engine.models.tiny_families import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers warns of in some family
EVERY_METHOD = (
    "falcon",
    "gemma",
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "mixtral",
    "olmo2",
    "opt",  # its masks are made without positions
    "phi3",
    "qwen2",
    "qwen3",
)
SEVERAL_KINDS_OF_LAYERS = ("cohere2", "gemma2", "gemma3_text", "gemma4_text", "gpt_oss", "olmo3")  # which MoDE refuses
CASES = [
    *((family, method) for family in EVERY_METHOD for method in METHODS),
    *((family, method) for family in SEVERAL_KINDS_OF_LAYERS for method in METHODS if method != "MoDE"),
]


@pytest.mark.parametrize(("family", "method"), CASES)
@torch.no_grad()
def test_each_text_of_a_row_is_read_as_if_it_were_the_only_one(family: str, method: str) -> None:
    model = METHODS[method](tiny_model(family))
    targets, rows = IDS.roll(1, 1), rows_of(model)
    assert largest_difference(model) <= 1e-5
    likelihoods = model.token_scores(IDS, targets, rows, position_ids_BT=POSITIONS).logprobs_BT
    for row, place in pieces():
        expected = by_itself(model, row, IDS[row, place]).log_softmax(-1).gather(-1, targets[row, place, None])[..., 0]
        torch.testing.assert_close(likelihoods[row, place], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(model(IDS, rows)[0, 5:14], by_itself(model, 0, IDS[0, 5:14]), atol=1e-3)
    require_separation(model, 64)


@pytest.mark.parametrize("family", ["gemma3_text", "gpt_oss", "mistral"])
@torch.no_grad()
def test_layers_with_a_window_keep_it_in_each_text(family: str) -> None:
    wide, narrow = dense(tiny_model(family)), dense(tiny_model(family))
    narrow.lm.config.sliding_window = 4
    assert largest_difference(narrow) <= 1e-5
    longest = IDS[1, :11]
    assert not torch.allclose(by_itself(wide, 1, longest), by_itself(narrow, 1, longest), atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_of_a_row_is_the_sum_of_those_of_its_texts(method: str) -> None:
    model = METHODS[method](tiny_model("qwen3"))
    parameters = {name: one for key in model.keys for name, one in model.expert_parameters(key).items()}
    model(IDS, rows_of(model), position_ids_BT=POSITIONS).logsumexp(-1).sum().backward()
    together = {name: parameter.grad for name, parameter in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = None
    for row, place in pieces():
        by_itself(model, row, IDS[row, place]).logsumexp(-1).sum().backward()
    for name, parameter in parameters.items():
        tolerance = 1e-5 * max(float(parameter.grad.norm()), 1.0)
        assert float((together[name] - parameter.grad).norm()) <= tolerance, name
    assert any(float(parameter.grad.norm()) > 1e-2 for parameter in parameters.values())


@torch.no_grad()
def test_what_comes_after_the_last_conversation_has_no_part_in_it() -> None:
    model = dense(tiny_model("gemma3_text"))
    other = IDS.clone()
    other[0, 14:] = 0
    ours, theirs = (model(ids, rows_of(model), position_ids_BT=POSITIONS) for ids in (IDS, other))
    assert torch.equal(ours[0, :14], theirs[0, :14])
    assert not torch.equal(ours[0, 14:], theirs[0, 14:])


@pytest.mark.parametrize("family", ["bart", "bloom", "jamba", "qwen3_next", "roberta", "xlnet"])
def test_a_family_that_does_not_keep_texts_apart_is_refused(family: str) -> None:
    """Positions that begin at another number, biases by distance, recurrent layers, and masks of another shape."""
    for dtype, block_size in ((torch.float32, 8), (torch.float32, 1024), (torch.bfloat16, 1024)):
        model = dense(tiny_model(family))
        model.lm.to(dtype)
        with pytest.raises(TrainingError) as refused:
            require_separation(model, block_size)
        assert "cannot keep the conversations of a block apart" in refused.value.cause


@pytest.mark.parametrize("family", ["gemma3_text", "mixtral", "qwen3"])
def test_a_family_that_does_is_not_refused_in_bf16(family: str) -> None:
    model = dense(tiny_model(family))
    model.lm.to(torch.bfloat16)
    for block_size in (8, 1024):
        require_separation(model, block_size)


def test_experts_before_the_text_are_refused() -> None:
    model = MultiExpertModel(tiny_model("llama"), ["a"], new_placement("token"))
    with pytest.raises(ModelError, match="stand before the text"):
        model(IDS, rows_of(model), position_ids_BT=POSITIONS)
