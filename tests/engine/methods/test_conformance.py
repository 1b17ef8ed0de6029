"""What holds for every method that is installed, whatever its experts are made of.

Its forecast is compared with its job in `tests/journeys/test_forecast.py`, with the real probe.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from engine.config import DemixConfig, ModelConfig, TrainingConfig
from engine.errors import Problem
from engine.events import Step
from engine.files import EXPERT_CARD, ArtifactRef, new_folder, verify_folder, write_manifest
from engine.inference.scores import mix_scores
from engine.loading.loaded_base import HostedBase, load_base
from engine.methods.base import Method, StoredExpert
from engine.methods.joint_training import Recipe
from engine.methods.registry import get_method, joint_methods, method_of, method_of_files, methods
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.expert_model import TrainableModel
from engine.models.families import fresh_model, load_model, num_parameters
from engine.models.flops import Shape, forward_flops
from engine.models.rows import Rows
from engine.text.blocks import Tokens
from engine.training.data import DomainText
from engine.training.loop import train

VOCAB, CONTEXT = 300, 16
SHAPE = ModelConfig("llama", num_layers=3, width=32, num_heads=2, ffn_width=64, max_positions=64)
CONFIG = TrainingConfig(num_steps=2, block_size=CONTEXT, sequences_per_domain=2, learning_rate=1e-2, clip=1.0)
IDS = torch.randint(0, VOCAB, (1, 12), generator=torch.Generator().manual_seed(1))

trainable_methods = [name for name, method in methods().items() if method.is_trainable]
WITH_OPTIONS = {"demix in every second layer": Recipe("demix", DemixConfig(expert_every=2))}
every_method = pytest.mark.parametrize("made", [*trainable_methods, *WITH_OPTIONS], indirect=True)
of_several = [*(name for name in trainable_methods if not methods()[name].only_expert), *WITH_OPTIONS]


@dataclass
class Made:
    """Two trained experts of a method, or its only one, in memory and on disk."""

    method: Method
    seed: ArtifactRef
    base: ArtifactRef
    experts: dict[str, ArtifactRef] = field(default_factory=dict)
    models: dict[str, TrainableModel] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def logits(self, key: str) -> torch.Tensor:
        """The logits of an expert in the model that it was trained in."""
        model: Any = self.models[key].eval()
        return model(IDS, Rows.all_to(key, 1))  # type: ignore[no-any-return]

    def stored(self, key: str) -> StoredExpert:
        """What the registry knows of an expert."""
        card = json.loads((self.experts[key].folder / EXPERT_CARD).read_text())
        parameters = self.models[key].expert_parameters(key).values()
        return StoredExpert(sum(parameter.numel() for parameter in parameters), {"parts": card.get("parts", [])})


def folder_of(path: Path) -> ArtifactRef:
    return ArtifactRef(path, verify_folder(path))


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    folder = tmp_path_factory.mktemp("seed")
    fresh_model(SHAPE, VOCAB, seed=7).save_pretrained(folder)
    write_manifest(folder)
    return folder_of(folder)


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest,
    seed: ArtifactRef,
    make_tokens: Callable[..., Tokens],
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    """Made once for all that is asked of a method; nothing here changes it."""
    texts = [
        DomainText(key, key, make_tokens(number, 400), make_tokens(50 + number, 100))
        for number, key in enumerate(("law", "sea"))
    ]
    recipe = WITH_OPTIONS.get(request.param) or Recipe(request.param)
    return make(recipe, seed, texts, tmp_path_factory.mktemp("made"))


def make(recipe: Recipe, seed: ArtifactRef, texts: Sequence[DomainText], root: Path) -> Made:
    method = recipe.descriptor
    keys = [method.only_expert] if method.only_expert else ["law", "sea"]
    result = Made(method, seed, seed)
    for group in [keys] if method.is_joint else [[key] for key in keys]:
        own = [replace(text, expert=group[0]) if method.only_expert else text for text in texts]
        own = [text for text in own if text.expert in group]
        model = train_group(result, recipe, group, own, root / "-".join(["training", *group]))
        if not method.base_is_frozen:
            with new_folder(root / "base") as folder:
                method.save_base(model, folder)
            result.base = folder_of(root / "base")
        for key in group:
            with new_folder(root / key) as folder:
                method.save_expert(
                    model, key, folder, base_sha256=str(result.base.sha256), tokenizer_sha256="tokenizer"
                )
            result.experts[key], result.models[key] = folder_of(root / key), model
    return result


def train_group(
    made: Made, recipe: Recipe, keys: Sequence[str], texts: Sequence[DomainText], folder: Path
) -> TrainableModel:
    method = made.method
    config = recipe.config or (method.config() if method.config else None)
    model = method.build(made.seed.folder, keys, config, seed=3)
    only = recipe.learns(keys)
    events = train(model, texts, CONFIG, folder, only_experts=only, balanced=method.balanced)
    steps = [event for event in events if isinstance(event, Step)]
    each = model.training_flops(CONTEXT, experts_only=only is not None)
    assert [step.num_flops for step in steps] == [each * step.num_tokens for step in steps]
    made.steps += steps
    return model


@every_method
def test_it_trains(made: Made) -> None:
    assert len(made.steps) in (2, 2 * len(made.experts))
    assert all(math.isfinite(step.loss) and step.loss > 0 for step in made.steps)


@every_method
@torch.no_grad()
def test_what_it_saved_is_opened_and_answers_as_before_to_the_last_bit(made: Made) -> None:
    loaded = load_base(made.base, made.experts)
    for key in made.experts:
        assert method_of_files(made.experts[key].folder, made.base.folder).host_key == made.method.host_key
        assert torch.equal(loaded.view([key])(IDS, Rows.all_to(key, 1)), made.logits(key))


@every_method
def test_it_scores_and_mixes(made: Made) -> None:
    keys = list(made.experts)
    view = load_base(made.base, made.experts).view(keys)
    both = [ids.expand(len(keys), -1) for ids in (IDS[:, :-1], IDS[:, 1:])]
    scores_EX = view.token_scores(*both, Rows.one_each(keys)).logprobs_BT
    assert scores_EX.shape == (len(keys), IDS.shape[1] - 1)
    mixed_X = mix_scores(build_gate(PosteriorGateConfig(), [1.0] * len(keys)), scores_EX, scores_EX.shape[1])
    assert (mixed_X <= scores_EX.max(0).values + 1e-6).all()
    assert (mixed_X >= scores_EX.min(0).values - 1e-6).all()


@pytest.mark.parametrize("made", of_several, indirect=True)
@torch.no_grad()
def test_a_mixture_without_an_expert_is_one_that_never_loaded_it(made: Made) -> None:
    never = load_base(made.base, {"law": made.experts["law"]}).view(["law"])
    without = load_base(made.base, made.experts).view(["law"])
    rows = Rows.all_to("law", 1)
    assert torch.equal(without(IDS, rows), never(IDS, rows))
    assert torch.equal(without.token_scores(IDS, IDS, rows).logprobs_BT, never.token_scores(IDS, IDS, rows).logprobs_BT)


@pytest.mark.parametrize("made", of_several, indirect=True)
def test_adding_an_expert_changes_no_tensor(made: Made) -> None:
    loaded = HostedBase(made.base)
    loaded.add({"law": made.experts["law"]})
    before = {name: tensor.clone() for name, tensor in loaded.tensors().items()}
    coming = loaded.coming_bytes({"sea": made.experts["sea"]})
    assert coming == sum(file.stat().st_size for file in made.experts["sea"].folder.glob("*.safetensors"))
    loaded.add({"sea": made.experts["sea"]})
    assert all(torch.equal(loaded.tensors()[name], tensor) for name, tensor in before.items())
    assert len(loaded.tensors()) > len(before)


@every_method
def test_its_parameters_and_operations_are_counted(made: Made) -> None:
    shape = Shape.of(json.loads((made.base.folder / "config.json").read_text()))
    for key, model in made.models.items():
        stored = made.stored(key)
        assert stored.num_parameters > 0
        assert made.method.forward_flops(shape, CONTEXT, stored) >= forward_flops(shape, CONTEXT)
        expected = model.training_flops(CONTEXT, experts_only=True)
        assert made.method.adapting_flops(shape, CONTEXT, stored) == expected > forward_flops(shape, CONTEXT)
        composing = made.method.composing_flops(shape, CONTEXT, stored)
        assert bool(composing) == made.method.has_parts


@every_method
def test_its_parameters_are_those_of_its_model_each_tensor_once(made: Made) -> None:
    of_seed = num_parameters(load_model(made.seed.folder))
    config = json.loads((made.seed.folder / "config.json").read_text())
    for key, model in made.models.items():
        others = {
            id(parameter)
            for other in model.keys
            if other != key
            for parameter in model.expert_parameters(other).values()
        }
        its_own = [parameter for parameter in cast(nn.Module, model).parameters() if id(parameter) not in others]
        stored = made.stored(key)
        counted = made.method.parameters(of_seed, config, stored)
        assert counted.own == stored.num_parameters
        assert counted.total == sum(one.numel() for one in its_own)
        of_networks = [one for one in its_own if one.ndim == 3]  # those of a mixture of experts lie in one tensor
        unused = sum(network.numel() * (8 - 2) // 8 for network in of_networks)
        assert (counted.total - counted.active, bool(of_networks)) == (unused, made.method.name == "moe")


@every_method
def test_a_copy_can_be_trained_if_it_says_so(made: Made) -> None:
    key, kept = next(iter(made.experts.items()))
    if not made.method.can_be_copied:
        with pytest.raises(Problem, match=f"{made.method.name} cannot be copied"):
            made.method.load(made.base, {key: kept})
        return
    model = made.method.load(made.base, {"new": kept})
    assert (model.keys, get_method(made.method.copy_name).copy_name) == (["new"], made.method.copy_name)
    assert model.expert_parameters("new")


@every_method
@torch.no_grad()
def test_it_is_a_plain_decoder_with_its_base_if_it_says_so(made: Made) -> None:
    key, kept = next(iter(made.experts.items()))
    if not made.method.is_full_model:
        with pytest.raises(Problem):
            made.method.load_full_model(made.base, kept)
        return
    lm = made.method.load_full_model(made.base, kept).eval()
    torch.testing.assert_close(lm(input_ids=IDS).logits, made.logits(key), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", trainable_methods)
def test_its_settings_come_back_from_json_and_wrong_ones_are_refused(name: str) -> None:
    method = get_method(name)
    with pytest.raises(Problem, match=name):
        method.config_from({"no_such_option": 1})
    assert method.config_from({}) == (method.config() if method.config else None)
    assert Recipe.from_json({"method": name, "config": None}).descriptor is method


def test_a_method_that_is_not_installed_is_described_and_not_used() -> None:
    missing = method_of("of-yesterday")
    assert (missing.name, missing.can_be_copied, missing.is_full_model) == ("of-yesterday", False, False)
    with pytest.raises(Problem, match=r"no method “of-yesterday”; there are: .*demix"):
        get_method("of-yesterday")


def test_all_that_is_trained_jointly_is_trainable() -> None:
    assert set(joint_methods()) <= set(trainable_methods)


def test_describing_methods_loads_no_torch() -> None:
    code = "import sys; from engine.methods.registry import methods; methods(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
