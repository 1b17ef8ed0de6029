"""The forms of the page Train: what each asks, what it needs, and what a person gets by it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.methods.base import Method
from ui.present.forms.questions import Answers, Offers
from ui.present.pages import COMPOSITION, CORPORA, SEEDS, Page
from workbench.specs.base import Spec


@dataclass(frozen=True)
class Need:
    """What must be in the registry before a form makes sense."""

    field: str  # of the offers
    problem: str
    next_step: str
    kind: str  # of the jobs that make it
    page: Page | None = None  # where they are submitted, if elsewhere than on the page Train
    option: str = ""  # the outcome on the page Train that makes it, where the form has several


@dataclass(frozen=True)
class TrainOutcome:
    """What a person can get from some text: a row of the page Train."""

    title: str
    about: str
    method: str
    others: str  # what becomes of other experts
    answers: Callable[[Offers], Answers] = field(default=lambda _: {})  # besides text, name and what is required
    position: int = 100  # among the rows, smallest first
    freezes_seed: bool = False  # worth little on a seed model that has not been trained


@dataclass(frozen=True, kw_only=True)
class TrainForm:
    """A form on the page Train: the questions of a kind's spec."""

    title: str  # in the choice of what to make
    about: str
    label: str = "Submit"  # of its button
    tucked: Collection[str] = ()  # fields that seldom need an answer
    # draws what it asks in its own manner above the questions; returns options of `show_job_form`
    draw: Callable[[Offers], dict[str, Any]] = field(default=lambda _: {})
    needs: tuple[Need, ...] = ()
    outcomes: tuple[TrainOutcome, ...] = ()  # of a kind that trains on text; none: it has one row, under its title
    methods: Callable[[], Mapping[str, Method]] = field(default=dict)  # that it offers, the usual one first
    position: int = 100  # among the forms, smallest first
    # of a spec's JSON: the state of widgets that are not named by a field's place in the spec
    widgets_of: Callable[[Mapping[str, Any]], dict[str, Any]] = field(default=lambda _: {})
    command: Callable[[Answers], str] | None = None  # where the kind's command does not hold for all answers


SEED, JOINT, EXPERT = "Seed model", "DEMix, LoRA, MoE or dense", "New expert"
TOGETHER = "Several experts together"  # an outcome of the form JOINT
AVERAGE, JOIN, CLASSIFY = "Average", "Joined model", "Few-shot classification"
MODE = "MoDE expert"

DOMAINS = Need("domains", "There is no domain yet.", "Import some text first.", "import-corpus", CORPORA)
SEED_MODEL = Need(
    "seed_model", "There is no seed model yet.", f"Make one on the page {SEEDS.title}.", "make-seed", SEEDS
)
MIXTURE = Need(
    "mixture", "There is no mixture yet.", f"Choose “{TOGETHER}”: they make one.", "train-joint", option=TOGETHER
)
MIXTURE_TO_EXTEND = Need(
    "mixture_to_extend",
    "There is no mixture yet with an expert that can be copied.",
    f"Choose “{TOGETHER}” and add to their mixture, or “{MODE}”, and train another on the same seed model.",
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
    "mode_expert", "There is no MoDE expert yet.", f"Choose “{MODE}”, once for each domain.", "train-mode"
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
