"""Goal: a single stream of a trained mixture of 8 experts of width 512 has at least 2x the tokens per second with
speculation; nowhere is it much slower than without.

Experts start as copies of one model that has learnt all domains, and train a little on a domain each (synthetic text:
each domain is a random chain of words of its own among shared ones), so that they differ and agree as experts of one
seed do. Both ways take turns on the same prompts; their texts are compared. Times are the
processor's, so that others may use it. What is written is their ratio, the share of accepted drafts, and in how many
answers every token is equal.
With `--random` experts are not trained: each has random weights of its own and is sure of other tokens, so that under
gates that do not follow one expert drafts are mostly refused. Goal there: at least 0.97x.
Run: python benchmarks/speculation.py --width 512 [--random]
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import copy  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from engine.config import ModelConfig, SamplingConfig  # noqa: E402
from engine.events import Token  # noqa: E402
from engine.inference.ensemble import Ensemble, Group  # noqa: E402
from engine.inference.generate import DraftCount, generate  # noqa: E402
from engine.inference.shared_passes import SharedPasses  # noqa: E402
from engine.methods.multi_expert_files import new_placement  # noqa: E402
from engine.mixing.base import FixedGate, Gate  # noqa: E402
from engine.mixing.evidence import name_of_reading  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from engine.text.tokenizer import Tokenizer, train_tokenizer  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402

SIZES = {
    "width": (512, 16),
    "layers": (4, 1),
    "vocabulary": (2048, 512),
    "steps": (160, 8),
    "prompts": (4, 1),
    "tokens": (64, 4),
    "random": (False, False, "experts are not trained"),
    "gates": (["prefix", "last_token", "fixed"], ["prefix", "fixed"]),
    "methods": (["demix", "c-btm"], ["demix", "c-btm"]),
}
GOALS = {False: 2.0, True: 0.97}  # of trained experts, and of random ones
NUM_EXPERTS, NUM_NEXT = 8, 4  # experts; tokens that may follow a token
SHARPNESS = 8.0  # of random experts: logits of a fresh model are nearly equal, and drafts from them right


class Chains:
    """Text of each domain: what follows a token is shared by all domains for half of the tokens."""

    def __init__(self, vocab_size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (NUM_EXPERTS, vocab_size, NUM_NEXT)
        self.next_DVN = torch.randint(300, vocab_size, shape, generator=generator)
        self.next_DVN[:, ::2] = self.next_DVN[:1, ::2]
        self.chances_N = torch.tensor([0.7, 0.15, 0.1, 0.05])
        self.generator = torch.Generator().manual_seed(1)

    def text(self, domains_B: Tensor, length: int) -> Tensor:
        """Token ids [B, length]."""
        ids = [torch.randint(300, self.next_DVN.shape[1], domains_B.shape, generator=self.generator)]
        for _ in range(length - 1):
            place = self.chances_N.multinomial(len(domains_B), replacement=True, generator=self.generator)
            ids.append(self.next_DVN[domains_B, ids[-1], place])
        return torch.stack(ids, 1)


def train(model: MultiExpertModel, chains: Chains, steps: int, key: str, domain: int | None) -> float:
    """Trains on all domains, or on one: only the expert where the model has others. Gives the last loss."""
    own = model.expert_parameters(key).values() if len(model.keys) > 1 else model.parameters()
    optimizer = torch.optim.AdamW(list(own), lr=2e-3 if domain is None else 5e-4)
    domains_B = torch.arange(NUM_EXPERTS) if domain is None else torch.full((NUM_EXPERTS,), domain)
    model.train()
    loss = torch.zeros(())
    for _ in range(steps):
        ids_BT = chains.text(domains_B, 65)
        logits_BTV = model(ids_BT[:, :-1], Rows.all_to(key, NUM_EXPERTS))
        loss = cross_entropy(logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    return float(loss.detach())


def trained(shape: ModelConfig, chains: Chains, vocab_size: int, steps: int, *, shared: bool) -> list[MultiExpertModel]:
    """Experts in one model (DEMix), or as many models with all weights of their own (C-BTM)."""
    seed = MultiExpertModel(fresh_model(shape, vocab_size), ["e0"], new_placement())
    train(seed, chains, steps, "e0", None)
    keys = [f"e{number}" for number in range(NUM_EXPERTS)]
    if shared:
        for key in keys[1:]:
            seed.add_expert(key, copy_of="e0")
        for number, key in enumerate(keys):
            train(seed, chains, steps // 8, key, number)
        return [seed]
    models = [copy.deepcopy(seed) for _ in keys]
    for number, (model, key) in enumerate(zip(models, keys, strict=True)):
        if number:
            model.add_expert(key, copy_of="e0")
            model.remove_expert("e0")
        train(model, chains, steps // 8, key, number)
    return models


def random_experts(shape: ModelConfig, vocab_size: int, *, shared: bool) -> list[MultiExpertModel]:
    """The same without training: each expert is sure of tokens of its own."""
    keys = [f"e{number}" for number in range(NUM_EXPERTS)]
    models = [
        MultiExpertModel(fresh_model(shape, vocab_size), some, new_placement()).eval()
        for some in ([keys] if shared else [[key] for key in keys])
    ]
    with torch.no_grad():
        for model in models:
            for key in model.keys:
                for weight in model.expert_parameters(key).values():
                    weight.add_(torch.randn_like(weight), alpha=0.05)
            for name, weight in model.named_parameters():
                if name.endswith("ln_f.weight"):
                    weight.mul_(SHARPNESS)
    return models


def gates_of(evidences: Sequence[str]) -> dict[str, Gate]:
    """The gates to measure, by name."""
    even = [1.0] * NUM_EXPERTS
    return {
        name: FixedGate(even) if name == "fixed" else PosteriorGate(even, name_of_reading(name)) for name in evidences
    }


def sharing(models: list[MultiExpertModel]) -> Ensemble:
    """The experts of all models, as a server runs them."""
    passes = SharedPasses()

    def group(model: MultiExpertModel) -> Group:
        return Group(tuple(model.keys), lambda: passes.view(model), model.max_positions, model.vocab_size)

    return Ensemble(tuple(group(model) for model in models))


def answer(
    ensemble: Ensemble, gate: Gate, tokenizer: Tokenizer, prompt: list[int], sampling: SamplingConfig, count: DraftCount
) -> tuple[list[int], float]:
    """The tokens of an answer, and how many there are in a second of processor time after the first."""
    ids, began = [], 0.0
    for event in generate(ensemble, ensemble.keys, gate, tokenizer, prompt, sampling, stop_ids=(), drafts=count):
        if isinstance(event, Token):
            began = began or time.process_time()
            ids.append(event.id)
    return ids, (len(ids) - 1) / (time.process_time() - began)


def compare(
    ensemble: Ensemble, gate: Gate, tokenizer: Tokenizer, prompts: list[list[int]], sampling: SamplingConfig
) -> tuple[list[float], dict[str, Any]]:
    """The ratio of each prompt's speed with speculation to that without, and what became of drafts and answers."""
    count, ratios, equal = DraftCount(), [], 0
    for number, prompt in enumerate([prompts[0], *prompts]):
        plain = replace(sampling, seed=number)
        one = partial(answer, ensemble, gate, tokenizer, prompt)
        if number % 2:
            theirs, slow = one(plain, DraftCount())
        ours, fast = one(replace(plain, speculate=True), count)
        if not number % 2:
            theirs, slow = one(plain, DraftCount())
        if number:  # the first warms up
            ratios.append(fast / slow)
            equal += ours == theirs
    accepted = count.num_accepted / max(1, count.num_judged)
    return ratios, {"accepted_share": accepted, "equal_answers": f"{equal} of {len(ratios)}"}


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    torch.manual_seed(0)
    width, figures, drafts = options.width, [], {}
    shape = ModelConfig(num_layers=options.layers, width=width, num_heads=8, ffn_width=4 * width, max_positions=512)
    chains, tokenizer = Chains(options.vocabulary), train_tokenizer(["a b c d e f g"] * 9, 300)
    for method in options.methods:
        if options.random:
            models = random_experts(shape, options.vocabulary, shared=method == "demix")
        else:
            models = trained(shape, chains, options.vocabulary, options.steps, shared=method == "demix")
        ensemble = sharing(models)
        prompts = chains.text(torch.arange(options.prompts) % NUM_EXPERTS, 32).tolist()
        for evidence, gate in gates_of(options.gates).items():
            for temperature in (0.0, 1.0):
                sampling = SamplingConfig(options.tokens, temperature, speculate=False)
                ratios, facts = compare(ensemble, gate, tokenizer, prompts, sampling)
                name = f"speed with speculation, {'random ' * options.random}{method}, {evidence}, {temperature:g}"
                figures.append(Figure(name, ratios, at_least=GOALS[options.random]))
                drafts[name] = facts
                print(figures[-1], facts, flush=True)
    report(options, figures, drafts=drafts)


if __name__ == "__main__":
    main()
