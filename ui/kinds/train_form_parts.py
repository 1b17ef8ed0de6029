"""Shared parts of the forms on the page Train: titles and requirements."""

from __future__ import annotations

from ui.kinds.screen import Need
from ui.present.pages import COMPOSITION, CORPORA
from workbench.specs.base import Spec

SEED, JOINT, EXPERT = "Seed model", "DEMix, LoRA, MoE or dense", "New expert"
TOGETHER = "Several experts together"  # an outcome of the form JOINT
AVERAGE, CLASSIFY = "Average", "Few-shot classification"
MODE = "MoDE expert"

DOMAINS = Need("domains", "There is no domain yet.", "Import some text first.", "import-corpus", CORPORA)
SEED_MODEL = Need("seed_model", "There is no seed model yet.", f"Choose “{SEED}” and make one.", "make-seed")
MIXTURE = Need(
    "mixture", "There is no mixture yet.", f"Choose “{TOGETHER}”: they make one.", "train-joint", option=TOGETHER
)
MIXTURE_TO_EXTEND = Need(
    "mixture_to_extend",
    "There is no mixture yet with an expert that can be copied.",
    f"Choose “{TOGETHER}” and add to their mixture, or “{MODE}”, and train another beside the same seed model.",
    "train-joint",
    option=TOGETHER,
)
EXPERTS = Need(
    "experts",
    "There is no expert yet.",
    f"Choose “{TOGETHER}”: it makes one for each domain.",
    "train-joint",
    option=TOGETHER,
)
PARENT = Need(
    "parent", "No expert here can be copied, so none can be averaged.", f"Choose “{COMPOSITION}”.", "train-joint"
)
MODE_EXPERT = Need(
    "mode_expert", "There is no expert of MoDE yet.", f"Choose “{MODE}”, once for each domain.", "train-mode"
)

UNTRAINED = (
    "This seed model has not been trained: its weights are random and stay frozen, so the expert learns little. "
    "Train several experts together, or a dense model and make a seed model of it."
)

_BY_FIELD = {"domain": DOMAINS, **{need.field: need for need in (DOMAINS, SEED_MODEL, MIXTURE, EXPERTS)}}


def needs_of(spec: type[Spec]) -> tuple[Need, ...]:
    """What the required fields of a spec take from the registry."""
    required = [name for name, field in spec.model_fields.items() if field.is_required()]
    return tuple(_BY_FIELD[name] for name in required if name in _BY_FIELD)
