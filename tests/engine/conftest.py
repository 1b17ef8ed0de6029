"""Small real things: a tokenizer, a model with experts that differ, texts of a few hundred tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from engine.config import LoraConfig, ModelConfig
from engine.methods.multi_expert_files import new_placement
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.text.blocks import Tokens
from engine.text.tokenizer import Tokenizer, train_tokenizer
from engine.training.data import DomainText

VOCAB = 300
KEYS = ["law", "code", "news", "verse"]


def small_shape(family: str = "llama") -> ModelConfig:
    return ModelConfig(family=family, num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)  # type: ignore[arg-type]


def model_with(keys: list[str], family: str = "llama", noise: float = 0.3, experts_in: str = "ffn") -> MultiExpertModel:
    """A model whose experts really differ, the same at every call."""
    lm = fresh_model(small_shape(family), VOCAB, seed=7)
    model = new_placement(experts_in).build(lm, keys, LoraConfig(rank=8)).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key in keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * noise)
    return model


def tokens_of(seed: int, length: int, low: int = 1, high: int = VOCAB) -> Tokens:
    ids = np.random.default_rng(seed).integers(low, high, length).astype(np.uint16)
    return Tokens(ids, np.zeros(1, dtype=np.int64))


@pytest.fixture(params=["ffn", "token", "adapter"])
def model(request: pytest.FixtureRequest) -> MultiExpertModel:
    """What holds for experts holds wherever they are."""
    return model_with(KEYS, experts_in=request.param)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., MultiExpertModel]:
    return model_with


@pytest.fixture(scope="session")
def make_tokens() -> Callable[..., Tokens]:
    return tokens_of


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    text = "the court held that the statute does not apply; def main(): return 0\n"
    return train_tokenizer([text * 20], VOCAB)


@pytest.fixture
def make_texts() -> Callable[[list[str]], list[DomainText]]:
    """Domains whose tokens come from different parts of the vocabulary: easy to tell apart."""

    def make(keys: list[str]) -> list[DomainText]:
        width = (VOCAB - 1) // len(keys)
        parts = [(1 + i * width, 1 + (i + 1) * width) for i in range(len(keys))]
        return [
            DomainText(f"domain {key}", key, tokens_of(i, 400, *part), tokens_of(50 + i, 100, *part))
            for i, (key, part) in enumerate(zip(keys, parts, strict=True))
        ]

    return make
