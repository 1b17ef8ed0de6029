"""The choice of a held-out split."""

from streamlit.delta_generator import DeltaGenerator

from engine.text.split_names import HELD_OUT_SPLITS, HeldOutSplit
from ui.widgets.address import choose_one


def choose_split(
    place: DeltaGenerator, key: str, *, default: HeldOutSplit = "test", help: str | None = None
) -> HeldOutSplit:
    """The split that the user chose; the default comes first."""
    options = sorted(HELD_OUT_SPLITS, key=lambda split: split != default)
    return choose_one(
        place.segmented_control, "Held-out text", options, default=default, key=key, required=True, help=help
    )
