"""Scores and generation have the logits of the model's own forward pass, with all that a family does after its head.

Some families scale their logits, some cap them, some multiply their states first. Their default numbers change little
in a small random model, or nothing: so each such number of a configuration is set to one that changes every logit.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.inference.ensemble import as_ensemble
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import new_placement
from engine.models.families import load_model
from engine.models.likelihoods import token_scores
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.test_all_families import EQUAL, METHODS, written_row
from tests.engine.models.tiny_families import FAMILIES, VOCAB, tiny_config

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.randint(1, VOCAB, (2, 9), generator=torch.Generator().manual_seed(1))
NUMBERS = r"(.*_)?(soft_?cap(ping)?|logits?_scal(e|ing)|multiplier)"
CHANGED = ("cohere", "gemma2", "gemma3_text", "granite", "nanochat", "recurrent_gemma")  # by what follows their head
BOTH = Rows(("a", "b"), (1, 1))


def supports(family: str, method: str) -> bool:
    """Whether docs/models.md says that the method works with the family."""
    row = written_row(family)
    return len(row) > 1 and row[METHODS.index(method)] == EQUAL


def hot_model(family: str, number: float = 1.5) -> Any:
    """A random model whose logits are far from 0, with numbers of its family that change them."""
    config = tiny_config(family)
    for name, value in config.to_dict().items():
        if re.fullmatch(NUMBERS, name) and isinstance(value, int | float | None):
            setattr(config, name, number)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in lm.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
            lm.get_output_embeddings().weight.mul_(20)
    return lm


def of_targets(logits_BTV: Tensor) -> Tensor:
    """The log-likelihood [B, T] of each token of IDS."""
    return logits_BTV.log_softmax(-1).gather(-1, IDS[..., None])[..., 0]


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=1e-5)  # sums over 8192 numbers, by two libraries


def rows_agree(lm: Any, keys: list[str], rows: Rows, logits_BTV: Tensor) -> None:
    """Scores, and the distributions that generation mixes, of experts that are copies of the model's networks."""
    model = MultiExpertModel(lm, keys, new_placement()).eval()
    same(model.token_scores(IDS, IDS, rows).logprobs_BT, of_targets(logits_BTV))
    for key in keys:
        same(as_ensemble(model, [key]).logprobs([key], IDS[0])[0], logits_BTV[0].log_softmax(-1))


def parts_agree(lm: Any, logits_BTV: Tensor) -> None:
    """The same of a MoDE model whose expert is closed, and so the backbone."""
    model = ModeModel(lm, 1).eval()
    model.add_expert("a", ModeConfig(1, 1))
    same(token_scores(model.lm, model.read(IDS, ["a"])[0], IDS).logprobs_BT, of_targets(logits_BTV))
    same(model(IDS, ["a"])[0], logits_BTV)


@pytest.mark.parametrize("family", [family for family in FAMILIES if supports(family, "dense, C-BTM")])
@torch.no_grad()
def test_scores_are_those_of_the_models_own_logits(tmp_path: Path, family: str) -> None:
    hot_model(family).save_pretrained(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    logits_BTV, seed = theirs(input_ids=IDS, use_cache=False).logits, load_model(tmp_path)
    same(seed(input_ids=IDS, use_cache=False).logits, logits_BTV)
    if supports(family, "DEMix"):
        rows_agree(copy.deepcopy(seed), ["a", "b"], BOTH, logits_BTV)
    if supports(family, "MoDE"):
        parts_agree(copy.deepcopy(seed), logits_BTV)
    rows_agree(seed, ["dense"], Rows.all_to("dense", 2), logits_BTV)


@pytest.mark.parametrize("family", ["gemma2", "vaultgemma"])
@torch.no_grad()
def test_attention_is_capped_where_transformers_would_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """transformers 5.17 computes these by PyTorch's fused attention, which leaves out the cap of their scores."""
    hot_model(family, 0.5).save_pretrained(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    for one in type(theirs).__mro__:
        if "_supports_sdpa" in vars(one) and issubclass(one, PreTrainedModel):
            monkeypatch.setattr(one, "_supports_sdpa", True)
    same(load_model(tmp_path)(input_ids=IDS).logits, theirs(input_ids=IDS).logits)


@pytest.mark.parametrize("family", CHANGED)
@torch.no_grad()
def test_the_numbers_after_the_head_change_the_logits(family: str) -> None:
    one, other = (hot_model(family, value) for value in (1.5, 3.0))
    assert not torch.allclose(*(lm(input_ids=IDS, use_cache=False).logits for lm in (one, other)), atol=1e-2)
