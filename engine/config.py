"""The engine's knobs. Each field is written once: its description becomes form help, `--help` and the docs.

Bounds stand in the field's metadata (`ge`, `gt`, `le`, `lt`), under the names pydantic knows, so that a spec
holding one of these validates it without a second list. A number that names no upper bound has one all the same.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from engine.errors import EngineError

PAPER_BLOCKS = 100  # behind a cached prior, DEMix §5.1: “100 sequences” of development data
PAPER_NEWEST_WEIGHT = 0.7  # of the newest block in an updating prior, DEMix §5.1: 1 − λ, λ = 0.3 in Eq. 9; code: 0.3
PAPER_TEMPERATURE = 0.1  # between clusters, C-BTM §3.2: “setting T=0.1 works well for most settings”
PAPER_DISTANCE_POWER = 2.0  # of the distance to a cluster, C-BTM Eq. 3; code: 4


Family = Literal["llama", "gpt2", "opt"]
Precision = Literal["auto", "fp32", "bf16", "bf16_weights"]
ServePrecision = Literal["stored", "bf16", "float32"]
ServeEngine = Literal["own", "vllm", "vllm-route"]  # what computes answers; route: by one expert for each request
RequestedPrecision = Literal["auto", ServePrecision]  # auto: what this machine computes in quickly
Targets = Literal["all", "attention", "ffn"]
Optimizer = Literal["adamw", "adamw_8bit"]
Evidence = Literal["prefix", "last_token"]
TaskRouting = Literal["cluster", "updating", "fixed", "fixed-validation"]
Normalise = Literal["none", "tokens"]


MOST = 2**31 - 1  # of whole numbers without a tighter bound
LARGEST = 1e30  # of other numbers: float32 still holds it
SMALLEST = sys.float_info.min  # but 0: what is nearer has lost digits
MOST_SEED = 2**63 - 1
MOST_TOKENS = 2**20  # of one sequence
MOST_BATCH_TOKENS = 2**24  # of one domain in one batch


def knob(default: Any, description: str, *, title: str = "", **bounds: float) -> Any:
    """A dataclass field with its description and bounds; a number without an upper bound gets a usual one.

    `title` is its label in forms, where its name does not say enough.
    """
    titled = {"title": title} if title else {}
    usual = {"le": MOST} if type(default) is int else {"le": LARGEST} if type(default) is float else {}
    return field(default=default, metadata={"description": description, **titled, **usual, **bounds})


def absurdity(value: Any, has_bound: bool = False) -> str | None:
    """The bound that a number, or one of several, violates; None when nothing is wrong.

    `has_bound`: its own upper bound is looked at elsewhere.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        if set(map(type, value)) == {int}:  # as of a hundred thousand token ids
            return absurdity(max(value, key=abs), has_bound)
        return next(filter(None, (absurdity(one, has_bound) for one in value)), None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return None if has_bound or abs(value) <= MOST else f"at most {MOST}"
    if not math.isfinite(value):
        return "finite"
    if abs(value) > LARGEST:
        return f"at most {LARGEST:g}"
    return f"0 or at least {SMALLEST:g}" if 0 < abs(value) < SMALLEST else None


_TESTS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (lambda v, b: v >= b, "at least"),
    "gt": (lambda v, b: v > b, "above"),
    "le": (lambda v, b: v <= b, "at most"),
    "lt": (lambda v, b: v < b, "below"),
}


def complaints(config: Any) -> list[str]:
    """All problems of a config's numbers."""
    problems = []
    for option in fields(config):
        value = getattr(config, option.name)
        for name, (holds, relation) in _TESTS.items():
            bound = option.metadata.get(name)
            if bound is not None and value is not None and not holds(value, bound):
                problems.append(f"{option.name} must be {relation} {bound}; got {value}.")
                break
        else:
            is_fraction = option.type in ("int", "int | None") and isinstance(value, float)
            wanted = "a whole number" if is_fraction else absurdity(value, not {"le", "lt"}.isdisjoint(option.metadata))
            if wanted:
                problems.append(f"{option.name} must be {wanted}; got {value}.")
    return problems


class Checked:
    """A dataclass that refuses numbers out of bounds."""

    def __post_init__(self) -> None:
        problems = complaints(self)
        if problems:
            raise EngineError(" ".join(problems), "Change the values named and try again.")


@dataclass(frozen=True)
class ModelConfig(Checked):
    """The shape of a fresh small decoder."""

    family: Family = knob("llama", "Architecture of the decoder: llama, gpt2 or opt.")
    num_layers: int = knob(4, "Transformer layers.", ge=1, le=200)
    width: int = knob(128, "Hidden size; must be a multiple of the number of heads.", ge=8, le=2**16)
    num_heads: int = knob(4, "Attention heads.", ge=1, le=2**12)
    ffn_width: int = knob(512, "Inner size of each feed-forward network.", ge=8, le=2**18)
    max_positions: int = knob(1024, "Longest context in tokens.", ge=16, le=MOST_TOKENS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.num_heads:
            raise EngineError(
                f"width must be a multiple of num_heads; got {self.width} with {self.num_heads} heads.",
                "Choose a width that the heads divide.",
            )


NEW_RATE, TRAINED_RATE = 1e-3, 3e-5  # peak learning rates of new weights, and of those that were trained before
NEW_STEPS, PRETRAINED_STEPS = 300, 100  # updates of a training from random weights, and from a pretrained seed model


@dataclass(frozen=True)
class AdaptingConfig(Checked):
    """Settings to train a copied expert: as `TrainingConfig`, but the peak rate may follow from its lineage's (§6)."""

    num_steps: int | None = knob(
        None,
        f"Optimizer updates; empty: {PRETRAINED_STEPS} where the seed model is pretrained, else {NEW_STEPS}.",
        ge=1,
        le=MOST,
    )
    block_size: int = knob(256, "Tokens per sequence (the paper: 1024).", ge=8, le=MOST_TOKENS)
    sequences_per_domain: int = knob(2, "Sequences of each domain in one batch.", ge=1, le=2**16)
    max_sequences: int | None = knob(
        None,
        "Most different sequences of each domain to train on, evenly spread over its text; empty: all.",
        ge=1,
        le=MOST,
    )
    accumulate: int = knob(1, "Batches whose gradients are summed before an update (the paper: 8).", ge=1, le=2**16)
    learning_rate: float | None = knob(
        None,
        "Peak learning rate; empty: a tenth of the rate of the first expert in the parent's lineage (paper).",
        gt=0,
        le=100,
    )
    warmup: float = knob(0.08, "Share of the steps in which the learning rate rises from zero.", ge=0, le=1)
    decay_power: float = knob(
        1.0, "Power of the polynomial decay of the learning rate; 1: linear to zero.", ge=0, le=100
    )
    weight_decay: float = knob(0.1, "Decoupled weight decay.", ge=0, le=100)
    beta1: float = knob(0.9, "Adam's beta1.", ge=0, lt=1)
    beta2: float = knob(0.95, "Adam's beta2.", ge=0, lt=1)
    epsilon: float = knob(1e-8, "Adam's epsilon.", ge=1e-30, le=1)
    clip: float = knob(0.1, "Gradient clipping: largest norm of all gradients together; 0: no clipping.", ge=0)
    separate_conversations: bool = knob(
        False,
        "Each conversation of a block attends only to itself and has positions of its own, instead of reading the "
        "ones before it (neat_packing of LLaMA-Factory; reset_attention_mask with reset_position_ids of Megatron).",
        title="Keep attention inside each conversation",
    )
    precision: Precision = knob(
        "auto",
        "Precision of the forward and backward pass: fp32, bf16, or auto (bf16 on GPUs that have it, fp32 elsewhere); "
        "what is trained is held in float32. bf16_weights: bf16, and what is trained is also held in bf16, with its "
        "gradients: 12 bytes a parameter instead of 16, with AdamW's moments in float32 (in one process).",
    )
    optimizer: Optimizer = knob(
        "adamw",
        "adamw, or adamw_8bit: AdamW with its moments in 8 bits, a quarter of their memory (bitsandbytes, the extra "
        "low-bits; in one process).",
    )
    load_in_4bit: bool = knob(
        False,
        "Hold the frozen linear maps in 4 bits (NF4, as QLoRA) as long as an adapter or a MoDE expert trains: an "
        "eighth of their memory in fp32, a quarter in bf16, and a little noise. What was trained is then used with the "
        "exact weights. Needs bitsandbytes, the extra low-bits; in one process.",
        title="Less memory: frozen weights in 4 bits",
    )
    activation_checkpointing: bool = knob(
        False,
        "Layers keep no activations for the backward pass and are computed again in it: less memory, about a third "
        "more operations, the same losses and weights.",
        title="Less memory: compute activations again in the backward pass",
    )
    compile: bool = knob(
        False,
        "Layers and loss are compiled by torch.compile, which takes 10 to 30 seconds at the start: 1.3 times the "
        "tokens per second of a DEMix model of 125M parameters on a GPU. Needs a C++ compiler, and Triton for a GPU. "
        "In one process; losses differ in the last digits.",
        title="Faster on a GPU: compile layers and loss",
    )
    checkpoint_every: int = knob(50, "Steps between checkpoints.", ge=1)
    evaluate_every: int = knob(100, "Steps between evaluations on held-out text.", ge=1)
    evaluation_blocks: int = knob(8, "Held-out blocks per domain in each of these evaluations.", ge=1, le=2**20)
    sample_tokens: int = knob(
        24,
        "Tokens of text that each of up to 8 domains' experts writes at an evaluation, to be read on the job's page; "
        "0: none. The training itself does not change. Only in one process.",
        title="Sample text: tokens at an evaluation",
        ge=0,
        le=256,
    )
    patience: int | None = knob(
        None,
        "Early stopping: stop after this many evaluations in a row without a better held-out loss, and keep the "
        "best weights; empty: run every step and keep the last weights.",
        title="Patience: stop after so many evaluations without a better one",
        ge=1,
        le=MOST,
    )
    seed: int = knob(0, "Random seed.", ge=0, le=MOST_SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequences_per_domain * self.block_size > MOST_BATCH_TOKENS:
            raise EngineError(
                f"A batch must hold at most {MOST_BATCH_TOKENS:,} tokens of each domain, but sequences_per_domain "
                f"{self.sequences_per_domain:,} of block_size {self.block_size:,} are more.",
                "Choose fewer or shorter sequences; accumulate sums the gradients of several batches.",
            )
        if self.precision == "bf16_weights" and self.optimizer != "adamw":
            raise EngineError(
                f"The precision bf16_weights needs the optimizer adamw, but it is {self.optimizer}.",
                "Choose one of the two.",
            )

    @property
    def max_steps(self) -> int:
        """The updates, or where no job has chosen their number that for a seed with random weights."""
        return NEW_STEPS if self.num_steps is None else self.num_steps

    @property
    def of_one_process(self) -> tuple[str, ...]:
        """The options that were never tried in several processes that train together, as they are written."""
        options = {
            "compile": self.compile,
            "optimizer adamw_8bit": self.optimizer != "adamw",
            "load_in_4bit": self.load_in_4bit,
            "precision bf16_weights": self.precision == "bf16_weights",
        }
        return tuple(name for name, is_used in options.items() if is_used)


def adapting_rate(first_rate: float) -> float:
    """The learning rate of an adapted copy: a tenth of that of the first expert in the lineage (DEMix §6.1)."""
    return first_rate / 10


def default_rate(learns_trained_weights: bool) -> float:
    """The peak learning rate of a training that names none."""
    return TRAINED_RATE if learns_trained_weights else NEW_RATE


@dataclass(frozen=True)
class TrainingConfig(AdaptingConfig):
    """Training settings. Defaults follow DEMix tables 9–12 where they carry over to any size."""

    learning_rate: float | None = knob(
        None,
        f"Peak learning rate; empty: {default_rate(True):g} where weights that were trained before learn, "
        f"{default_rate(False):g} for a seed with random weights, and for LoRA and MoDE (DEMix at 125M: 1e-4 to 5e-4).",
        gt=0,
        le=100,
    )
    shard: bool = knob(
        False,
        "Processes of one training divide parameters, gradients and optimizer states among themselves (FSDP2) and hold "
        "no copies of what they share: less memory each, more communication. In one process it changes nothing.",
        title="Less memory: divide the model among the processes",
    )

    @property
    def peak_rate(self) -> float:
        """The learning rate; raises EngineError where none is chosen, since it depends on what learns."""
        if self.learning_rate is None:
            raise EngineError(
                "The training has no learning_rate.",
                f"Give one: {TRAINED_RATE:g} where weights that were trained before learn, {NEW_RATE:g} for new ones.",
            )
        return self.learning_rate


@dataclass(frozen=True)
class LoraConfig(Checked):
    """The shape of a low-rank adapter (Hu et al. 2021)."""

    rank: int = knob(16, "LoRA: rank of each adapter (MoDE's paper: 16).", ge=1, le=2**16)
    alpha: float = knob(32.0, "LoRA: the adapter's output is multiplied by alpha / rank.", gt=0, le=1e6)
    targets: Targets = knob(
        "attention",
        "LoRA: the linear maps that get an adapter: attention (MoDE's table 2), feed-forward networks (ffn), or all.",
    )
    embeddings: bool = knob(
        False, "LoRA: the vectors by which tokens enter the model also get an adapter (a row of MoDE's table 2)."
    )
    first_layer: int = knob(
        0,
        "LoRA: layers before this one, counted from 0, get no adapter, and experts on one text compute them once "
        "(0: every layer gets one).",
        ge=0,
        le=2**12,
    )


@dataclass(frozen=True)
class DemixConfig(Checked):
    """Which layers of a DEMix model have experts (Gururangan et al. 2021, §3.2)."""

    expert_every: int = knob(
        1,
        "DEMix: experts in every k-th layer, the others are shared; 1: in every layer (the paper, to which 2 was worse "
        "on the training domains).",
        ge=1,
        le=2**12,
    )


@dataclass(frozen=True)
class MoeConfig(Checked):
    """The shape of a sparsely upcycled mixture of experts (Komatsuzaki et al. 2022)."""

    num_experts: int = knob(
        8, "MoE: feed-forward networks in each layer, copies of one at first (C-BTM §6: 32).", ge=2, le=2**12
    )
    active_experts: int = knob(2, "MoE: networks that each token is routed to (C-BTM §6: 2).", ge=1, le=2**12)
    balance: float = knob(0.01, "MoE: weight of the load-balancing loss.", ge=0, le=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.active_experts > self.num_experts:
            raise EngineError(
                f"active_experts must be at most num_experts; got {self.active_experts} of {self.num_experts}.",
                "Choose fewer active experts, or more experts.",
            )


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """Settings for sampling the next token from the mixture."""

    max_tokens: int = knob(128, "Most tokens to generate.", ge=1, le=MOST_TOKENS)
    temperature: float = knob(
        1.0, "0: the most probable token; 1: sample from the mixture's distribution.", ge=0, le=1e6
    )
    top_p: float = knob(1.0, "Sample from the smallest set of tokens whose probabilities add up to this.", gt=0, le=1)
    seed: int | None = knob(None, "Random seed of the sampling; empty: a new one each time.", ge=0, le=2**64 - 1)
    top_k: int = knob(0, "Sample from this many most probable tokens; 0: from all.", ge=0)
    min_p: float = knob(
        0.0, "Leave out tokens with less than this share of the most probable token's probability.", ge=0, le=1
    )
    presence_penalty: float = knob(
        0.0, "Subtracted from the log-probability of every token that the answer already has.", ge=-2, le=2
    )
    frequency_penalty: float = knob(0.0, "Subtracted for each time that the answer already has the token.", ge=-2, le=2)
    repetition_penalty: float = knob(
        1.0,
        "Multiplies the log-probability of every token that prompt or answer already have. Other programs change "
        "logits: the same number has another effect there.",
        gt=0,
        le=100,
    )
    logit_bias: Mapping[int, float] = field(
        default_factory=dict,
        metadata={"description": "By token id, what is added to its log-probability (-100: never, 100: always)."},
    )
    ignore_eos: bool = knob(False, "Go on after tokens that end a document or a turn.")
    num_candidates: int = knob(0, "The most probable tokens to name in the place of each token.", ge=0, le=1000)
    speculate: bool = knob(
        False,
        "Let the leading expert draft tokens that all experts then read at once. The answer is the same, and faster "
        "where drafts are mostly right; where they are not, nothing is drafted.",
    )
    draw_expert: bool = knob(
        False,
        "Draw one expert for each token by the weights, and the token from it: the same distribution, and models that "
        "are not drawn need not run. With a gate that reads only the text (fixed, cluster), at temperature 1, without "
        "other options of sampling.",
    )
