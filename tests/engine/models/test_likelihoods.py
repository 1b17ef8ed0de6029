"""Which token a model finds most probable, where several are equally so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.models.likelihoods import token_scores


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equally_probable_tokens_the_lowest_id_is_the_most_probable(dtype: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 3, (40, 50, 6), generator=chance).to(dtype)  # most rows have several greatest ones
    targets = torch.randint(0, 6, (40, 50), generator=chance)
    head_gives = SimpleNamespace(config=SimpleNamespace(vocab_size=6), get_output_embeddings=lambda: torch.clone)
    result = token_scores(head_gives, logits, targets)
    assert torch.equal(result.hits_BT, logits.argmax(-1) == targets)
    wanted = logits.float().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(result.logprobs_BT, wanted)
    assert result.logprobs_BT.dtype == torch.float32
