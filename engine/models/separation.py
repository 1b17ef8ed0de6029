"""Whether a model keeps texts of one row apart when their positions begin anew at 0.

transformers makes masks of such positions (`find_packed_sequence_indices`), but not for every family: some make theirs
without them, some ignore positions, and recurrent layers carry a state over. So the model itself is tried.

Shapes: B rows, T positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from engine.errors import TrainingError
from engine.models.rows import Rows

if TYPE_CHECKING:
    from engine.models.trainable_model import TrainableModel

_MOST_TOKENS: Final = 24  # of the row that is tried
# In nats per token. Of the families of transformers 5.23, as tiny random models, those that keep texts apart change by
# at most 1e-6 in fp32, all others by at least 2e-4. What is masked has no part in the result in any precision, but a
# text by itself is computed in another order, which bf16 shows.
_MOST_CHANGE: Final = 1e-4
_MOST_ROUNDING: Final = {False: 1e-4, True: 0.05}  # by whether autocast is on


@torch.no_grad()
def require_separation(model: TrainableModel, block_size: int) -> None:
    """Raises TrainingError unless a text's log-likelihoods in a row are those that it has by itself.

    The second of two random texts is read after the first, after another one in its place, and alone, in the caller's
    precision. Leaves the model in evaluation mode.
    """
    model.eval()
    length = min(block_size, _MOST_TOKENS)
    half = length // 2
    generator = torch.Generator().manual_seed(0)
    rows_2T = torch.randint(int(model.lm.config.vocab_size), (2, length + 1), generator=generator)
    rows_2T[1, half:] = rows_2T[0, half:]
    positions_T = torch.cat([torch.arange(half), torch.arange(length - half)])
    try:
        after_one, after_other = _log_likelihoods(model, rows_2T, positions_T)[:, half:]
    except TypeError:  # its forward pass takes no positions
        raise _refusal(model) from None
    (alone,) = _log_likelihoods(model, rows_2T[:1, half:], torch.arange(length - half))
    rounding = _MOST_ROUNDING[torch.is_autocast_enabled(model.device.type)]
    if not (_distance(after_one, after_other) <= _MOST_CHANGE and _distance(after_one, alone) <= rounding):
        raise _refusal(model)


def _log_likelihoods(model: TrainableModel, rows_BT: Tensor, positions_T: Tensor) -> Tensor:
    """Of each token but the first of rows [B, 1 + T]."""
    inputs_BT, targets_BT = rows_BT[:, :-1].to(model.device), rows_BT[:, 1:].to(model.device)
    positions_BT = positions_T.to(model.device).expand_as(inputs_BT)
    return model.log_likelihoods(
        inputs_BT, targets_BT, Rows.all_to(model.keys[0], len(rows_BT)), position_ids_BT=positions_BT
    )


def _distance(one: Tensor, other: Tensor) -> float:
    """The mean difference in nats."""
    return float((one - other).abs().mean())


def _refusal(model: TrainableModel) -> TrainingError:
    from engine.models.discovery import family_of

    return TrainingError(
        f"A model of the family “{family_of(model.lm)}” cannot keep the conversations of a block apart.",
        "Train without separate_conversations, or choose another seed model.",
    )
