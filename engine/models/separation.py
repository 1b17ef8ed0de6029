"""Texts of one row that do not read each other: their positions start again at 0.

transformers makes masks of such positions (`find_packed_sequence_indices`). Not every family does so itself, but most
take masks that are made for them. Some ignore both, and recurrent layers carry a state over: so the model is tried.

Shapes: B rows, T positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from engine.errors import Problem, TrainingError
from engine.models.discovery import family_of
from engine.models.rows import Rows

if TYPE_CHECKING:
    from engine.models.expert_model import TrainableModel

_MOST_TOKENS: Final = 24  # of the row that is tried
# In nats. Of the families of transformers 5.23, as tiny random models, those that keep texts apart change by less than
# 3e-7 and round by less than 2e-6 (bf16: 1e-2); of all others one of the two is above 1e-4.
_MOST_CHANGE: Final = 1e-5  # of any token, by another text before it: what is masked has no part in the result
_MOST_ROUNDING: Final = {False: 5e-5, True: 0.05}  # on average, beside a text by itself; by whether it is in bf16


def separated(lm: Any, input_ids_BT: Tensor, position_ids_BT: Tensor) -> dict[str, Any]:
    """What a decoder reads so that it keeps texts apart: masks are by the kind of layer where a family has several."""
    from transformers.masking_utils import create_masks_for_generate

    embedding = lm.get_input_embeddings().weight  # only shape, type and device matter
    masks = create_masks_for_generate(
        config=lm.config,
        inputs_embeds=embedding.new_empty(1).expand(*input_ids_BT.shape, 1),
        attention_mask=None,
        past_key_values=None,
        position_ids=position_ids_BT,
    )
    return {"input_ids": input_ids_BT, "position_ids": position_ids_BT, "attention_mask": masks}


@torch.no_grad()
def require_separation(model: TrainableModel, block_size: int) -> None:
    """Raises TrainingError unless a text's log-likelihoods in a row are those that it has in a row of its own.

    The second of two random texts is read after the first, after another one in its place, and alone: in float32, or in
    bf16 where weights are held in less. Leaves the model in evaluation mode.
    """
    model.eval()
    is_half = any(parameter.dtype != torch.float32 for parameter in model.parameters())
    length = min(block_size, _MOST_TOKENS)
    half = length // 2
    generator = torch.Generator().manual_seed(0)
    rows_2T = torch.randint(int(model.lm.config.vocab_size), (2, length + 1), generator=generator)
    rows_2T[1, half:] = rows_2T[0, half:]
    positions_T = torch.cat([torch.arange(half), torch.arange(length - half)])
    try:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=is_half):
            after_one, after_other = _log_likelihoods(model, rows_2T, positions_T)[:, half:]
            (by_itself,) = _log_likelihoods(model, rows_2T[:1, half:], None)
    except Problem:
        raise
    except Exception as error:  # its code takes no such positions or masks
        raise _refusal(model) from error
    change_T, rounding_T = (after_one - after_other).abs(), (after_one - by_itself).abs()
    if not (change_T.max() <= _MOST_CHANGE and rounding_T.mean() <= _MOST_ROUNDING[is_half]):
        raise _refusal(model)


def _log_likelihoods(model: TrainableModel, rows_BT: Tensor, positions_T: Tensor | None) -> Tensor:
    """Of each token but the first of rows [B, 1 + T]; without positions as a model reads one text."""
    inputs_BT, targets_BT = rows_BT[:, :-1].to(model.device), rows_BT[:, 1:].to(model.device)
    positions_BT = None if positions_T is None else positions_T.to(model.device).expand_as(inputs_BT)
    rows = Rows.all_to(model.keys[0], len(rows_BT))
    return model.token_scores(inputs_BT, targets_BT, rows, position_ids_BT=positions_BT).logprobs_BT


def _refusal(model: TrainableModel) -> TrainingError:
    return TrainingError(
        f"A model of the family “{family_of(model.lm)}” cannot keep the conversations of a block apart.",
        "Train without separate_conversations, or choose another seed model.",
    )
