"""MoDE's numbers (Schafhalter et al., 2024), as printed, and where the paper does not agree with itself.

Accuracies are of the next token, in %. Of figures 3 to 5 the paper prints no numbers but two step times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Row = Literal["full", "lora", "one", "two", "frozen", "composed"]
TABLE_1: Mapping[Row, tuple[float, float, float, float]] = {  # Math, Code, English, average
    "full": (77.18, 67.89, 47.95, 64.34),
    "lora": (75.79, 65.71, 49.05, 63.52),
    "one": (76.71, 67.30, 49.17, 64.39),
    "two": (76.87, 67.39, 49.47, 64.58),
    "frozen": (76.99, 66.94, 49.07, 64.33),
    "composed": (77.47, 67.83, 49.50, 64.93),
}
PARAMETERS: Mapping[Row, float] = {  # billions; the backbone has 1.583
    "full": 1.583,
    "lora": 1.585,
    "one": 1.979,
    "two": 2.376,
    "frozen": 2.376,
    "composed": 2.376,
}
TABLE_2: Mapping[int, tuple[float, float]] = {  # rank, of attention alone: Code, English
    8: (76.02, 48.76),
    16: (76.17, 48.64),
    32: (76.51, 46.99),
    64: (76.25, 48.25),
    128: (76.25, 47.75),
    256: (76.05, 46.62),
    512: (75.84, 44.39),
    1024: (76.04, 43.91),
    2048: (66.55, 32.27),
}
IN_FFN = (76.44, 47.78)  # rank 16, in feed-forward networks, too
IN_EMBEDDINGS = (75.81, 48.03)  # rank 16, in token embeddings, too
IN_BOTH = (76.23, 47.04)
TABLE_3: Mapping[tuple[int, int], tuple[float, float]] = {  # blocks, layers of the expert in each: Code, English
    (2, 1): (76.98, 47.87),
    (2, 2): (77.17, 47.86),
    (3, 1): (77.26, 47.49),
    (3, 2): (77.51, 47.95),
    (6, 1): (77.79, 47.61),
    (6, 2): (77.96, 47.65),
}
_ONE_EXPERT = 3 * 2  # layers of the expert of table 1's third row: what it has more than full fine-tuning is theirs


def share_of_backbone(num_blocks: int, expert_layers: int) -> float:
    """What an expert of so many layers would add to the paper's backbone, as a share of its parameters."""
    added = PARAMETERS["one"] - PARAMETERS["full"]
    return num_blocks * expert_layers / _ONE_EXPERT * added / PARAMETERS["full"]


IN_FIGURE = "in the figure, without numbers"

DISAGREEMENTS = (
    "*Math against full fine-tuning*: +0.28 in §4.2; table 1 has 77.47 − 77.18 = 0.29, and prints 0.29.",
    "*English against full fine-tuning*: table 1 has 49.50 − 47.95 = 1.55, as §4.2 says; its own last rows and the "
    "abstract say 1.65, the conclusion 1.5.",
    "*Parameters against LoRA*: table 1 has 2.376 − 1.585 = 0.791 billion, and prints 0.789.",
    "*Average*: 0.59 and 1.41 in table 1 and §4.2 are 0.6 % and 1.4 % in the introduction and the conclusion. They are "
    "percentage points.",
    "*Which column is Code*: trained on Code alone, LoRA of rank 16 has 76.17 on Code in table 2, and one expert 77.51 "
    "in table 3; trained on both, 65.71 and 67.30 in table 1, where Math has 75.79 and 76.71. Ten points for a second "
    "domain would be more than anything else in the paper; the columns of table 1 may be exchanged.",
    "*Steps*: all methods train for 50,000 steps (§4.1), and composing is “lightweight” (§3.2). Whether the steps of "
    "the two experts come on top is not said: with 50,000 each, the composed model has had three times as many as what "
    "it is compared with.",
    "*How experts start*: those of rows 3 and 4 of table 1 are “uninitialized”, that is “randomly initialized” (§4.2). "
    "Of those of stage 1 nothing is said.",
    "*More examples*: LoRA stops gaining at “∼1k” (figure 3), beyond “one thousand” and over “hundreds to thousands” "
    "(both §4.3).",
    "*Blocks*: accuracy grows with expert layers by the caption of table 3, with blocks, too, by the text; in its rows "
    "both change.",
    "*Highest on all mixed text*: appendix C has MoDE highest “across all domains”; in table 1, which is all mixed "
    "text, full fine-tuning has 67.89 on Code and MoDE 67.83.",
    "*Speed*: 329 to 204 ms is 38 % less time (figure 4a), which is 61 % more speed; “improves training speeds by up "
    "to 38 %” (abstract) is the former.",
    "*Machines*: 128 TPUv3 train (§4.1), 8 TPUv5e are timed, with four experts in two blocks (§4.4): no model whose "
    "accuracy is printed was timed.",
)
