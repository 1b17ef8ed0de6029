"""One conformance test for every embedder, law L10, and what tf-idf counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel

from engine.clusters.artifact import load_embedder
from engine.clusters.config import TfidfConfig
from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.hidden_states import HiddenStateEmbedder
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf, top_terms, words
from engine.config import ModelConfig
from engine.errors import DamagedFileError, EngineError, ModelError
from engine.events import Progress
from engine.models.families import fresh_model, load_model
from engine.text.tokenizer import load_tokenizer, train_tokenizer

TEXTS = [
    "The court held that the statute of 1984 does not apply to the plaintiff.",
    "Whisk three eggs with 200 grams of sugar; bake the cake for 40 minutes.",
    "def main(): return 0  # the function returns nothing of use",
    "The appeal was dismissed, and the court ordered the plaintiff to pay 12,000 dollars.",
    "Stir the sugar into the butter. Bake until golden, 25 minutes at most.",
    "A function that returns a class; a class that calls the function.",
    "Ships sailed past the harbour while the storm broke over the bay.",
]
STRANGE = "İSTANBUL ΣΊΣΥΦΟΣ ΟΔΟΣ.Α naïve 3D 2nd x1 a _ __ 日本語テキスト don't e\u0301tude 𝒜𝒷 court"


def tfidf(texts: list[str] = TEXTS, **knobs: object) -> TfidfEmbedder:
    *progress, result = fit_tfidf(texts, TfidfConfig(**{"dimension": 4, **knobs}))  # type: ignore[arg-type]
    assert all(isinstance(one, Progress) for one in progress)
    assert isinstance(result, TfidfEmbedder)
    return result


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny seed model's folder."""
    folder = tmp_path_factory.mktemp("seed")
    fresh_model(ModelConfig("llama", 2, 32, 2, 64, 64), 300, seed=7).save_pretrained(folder)
    train_tokenizer(TEXTS, 300).save(folder)
    return folder


def hidden_states(seed: Path) -> HiddenStateEmbedder:
    return HiddenStateEmbedder(load_model(seed), load_tokenizer(seed))


MAKERS: dict[str, Callable[[Path], AnyEmbedder]] = {
    "tfidf": lambda _: tfidf(),
    "tfidf as printed": lambda _: tfidf(scaling="standardise"),
    "tfidf as released": lambda _: tfidf(numbers="drop", scaling="unit_rows"),
    "hidden states": hidden_states,
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys())
def embedder(request: pytest.FixtureRequest, seed: Path) -> AnyEmbedder:
    return request.param(seed)  # type: ignore[no-any-return]


def test_a_batch_has_a_finite_vector_for_every_text(embedder: AnyEmbedder) -> None:
    result = embedder.embed([*TEXTS, "", "the of"])
    assert result.vectors_ND.shape == (9, embedder.dimension)
    assert np.isfinite(result.vectors_ND).all()
    assert result.vectors_ND.std(0).min() > 0
    assert embedder.embed([]).vectors_ND.shape == (0, embedder.dimension)


def test_a_vector_does_not_depend_on_the_batch_around_it(embedder: AnyEmbedder) -> None:
    together = embedder.embed(TEXTS * 2).vectors_ND  # more than fit into one batch of a model
    by_itself = [embedder.embed([text]).vectors_ND[0] for text in TEXTS * 2]
    np.testing.assert_allclose(together, by_itself, atol=1e-5)


def test_blank_documents_are_counted_and_lie_in_one_place(embedder: AnyEmbedder) -> None:
    result = embedder.embed([TEXTS[0], "", ""])
    assert result.is_blank_N.tolist() == [False, True, True]
    np.testing.assert_allclose(result.vectors_ND[1], result.vectors_ND[2], atol=1e-6)


def test_a_loaded_embedder_gives_the_same_vectors_to_the_last_bit(
    embedder: AnyEmbedder, seed: Path, tmp_path: Path
) -> None:
    embedder.save(tmp_path)
    loaded = load_embedder(tmp_path, seed)
    assert loaded.sha256 == embedder.sha256
    np.testing.assert_array_equal(loaded.embed(TEXTS).vectors_ND, embedder.embed(TEXTS).vectors_ND)
    assert not list(tmp_path.rglob("*.pkl"))


def test_a_growing_text_has_the_vector_of_the_text_so_far(embedder: AnyEmbedder) -> None:  # L10
    text = f"{TEXTS[0]} {STRANGE} {TEXTS[3]}"
    state, size = embedder.start(), 0
    for length in [1, 3, 2, 7, 1, 1, 5] * 20:
        np.testing.assert_allclose(embedder.vector(state), embedder.embed([text[:size]]).vectors_ND[0], atol=1e-6)
        state, size = embedder.extend(state, text[size : size + length]), size + length


def test_a_state_can_be_extended_by_two_methods(embedder: AnyEmbedder) -> None:
    trunk = embedder.extend(embedder.start(), "The cour")
    left, right = embedder.extend(trunk, "t held"), embedder.extend(trunk, "age of sugar")
    for state, text in [(left, "The court held"), (right, "The courage of sugar"), (trunk, "The cour")]:
        np.testing.assert_allclose(embedder.vector(state), embedder.embed([text]).vectors_ND[0], atol=1e-6)


PIECES = st.lists(st.text(alphabet="court suga12é_ΣσΟ'.́ İ", max_size=6) | st.sampled_from(STRANGE.split()), max_size=40)
FITTED = tfidf([*TEXTS, STRANGE], dimension=8)


@settings(max_examples=100)
@given(pieces=PIECES)
def test_any_chunks_give_the_vector_of_the_full_text(pieces: list[str]) -> None:  # L10
    state = FITTED.start()
    for number, piece in enumerate(pieces):
        state = FITTED.extend(state, piece)
        full = FITTED.embed(["".join(pieces[: number + 1])]).vectors_ND[0]
        np.testing.assert_allclose(FITTED.vector(state), full, atol=1e-6)


def test_words_are_lower_case_runs_without_stop_words() -> None:
    assert list(words("The Court's I a 2nd x1 1984 été", "token")) == ["court", "#NUMBER", "x1", "#NUMBER", "été"]
    assert list(words("The Court's I a 2nd x1 1984 été", "drop")) == ["court", "x1", "été"]


def test_numbers_are_one_word_or_none() -> None:
    assert "#NUMBER" in tfidf().vocabulary
    assert "#NUMBER" not in tfidf(numbers="drop").vocabulary
    assert not any(word[0].isdigit() for word in tfidf().vocabulary)


def test_vectors_before_scaling_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import StandardScaler

    plain = [text.replace("1984", "") for text in TEXTS if not any(sign.isdigit() for sign in text.replace("1984", ""))]
    embedder = tfidf(plain, dimension=2, scaling="standardise")
    rows = TfidfVectorizer(stop_words="english").fit_transform(plain)
    expected = StandardScaler().fit_transform(TruncatedSVD(2, random_state=0).fit_transform(rows))
    np.testing.assert_allclose(np.abs(embedder.embed(plain).vectors_ND), np.abs(expected), atol=1e-4)


def test_standardised_dimensions_have_no_mean_and_unit_variance_on_the_sample() -> None:
    vectors = tfidf(scaling="standardise").embed(TEXTS).vectors_ND
    np.testing.assert_allclose(vectors.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.std(0), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(tfidf(scaling="unit_rows").embed(TEXTS).vectors_ND, axis=1), 1, atol=1e-9)


def test_only_the_most_frequent_words_are_known() -> None:
    assert tfidf(["sugar sugar butter", "sugar butter flour"], max_words=2).vocabulary == ["butter", "sugar"]


def test_a_document_of_only_unknown_words_is_blank() -> None:
    result = tfidf().embed(["zyzzyva quux"])
    assert result.is_blank_N.sum() == 1
    np.testing.assert_array_equal(result.vectors_ND, tfidf().embed([""]).vectors_ND)


@pytest.mark.parametrize("texts", [["sugar butter"] * 5, ["sugar"], ["sugar", "", "the"]])
@pytest.mark.parametrize("scaling", ["standardise", "unit_rows"])
def test_a_sample_with_fewer_directions_than_requested_has_fewer_dimensions(texts: list[str], scaling: str) -> None:
    embedder = tfidf(texts, dimension=100, scaling=scaling)
    vectors = embedder.embed(texts).vectors_ND
    assert embedder.dimension == 1
    assert np.isfinite(vectors).all()
    assert np.abs(vectors).max() < 3


@pytest.mark.parametrize("texts", [[], [""], ["the of and", "!?"]])
def test_a_sample_without_a_word_is_refused(texts: list[str]) -> None:
    with pytest.raises(
        EngineError, match=f"None of the {len(texts)} documents of the sample has a word .*: --embedder hidden_states"
    ):
        tfidf(texts)


def test_an_embedder_without_words_gives_every_document_one_vector_and_is_saved(tmp_path: Path) -> None:
    *_, embedder = fit_tfidf(["the of and", "!?"], TfidfConfig(), needs_words=False)
    assert isinstance(embedder, TfidfEmbedder)
    embedder.save(tmp_path)
    embedding = load_embedder(tmp_path).embed(["the", "a word"])
    assert (embedding.vectors_ND.tolist(), embedding.is_blank_N.sum()) == ([[0.0], [0.0]], 2)
    assert top_terms(embedder, embedding.vectors_ND) == [[], []]


def test_another_sample_is_another_embedder() -> None:
    assert tfidf().sha256 == tfidf().sha256
    assert len({tfidf().sha256, tfidf(seed=1).sha256, tfidf(TEXTS[:4]).sha256, tfidf(numbers="drop").sha256}) == 4


def test_a_changed_tensor_is_noticed(tmp_path: Path) -> None:
    tfidf().save(tmp_path)
    tensors = load_file(tmp_path / "embedder.safetensors")
    save_file({**tensors, "idf_W": tensors["idf_W"] * 2}, tmp_path / "embedder.safetensors")
    with pytest.raises(DamagedFileError, match="not the one that was saved"):
        load_embedder(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "tfidf"}', '{"kind": "word2vec"}'])
def test_a_folder_without_an_embedder_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "embedder.json").write_text(text)
    with pytest.raises(DamagedFileError, match="embedder"):
        load_embedder(tmp_path)


def test_hidden_states_need_the_very_model_they_were_made_with(seed: Path, tmp_path: Path) -> None:
    hidden_states(seed).save(tmp_path)
    with pytest.raises(ModelError, match="Name the seed"):
        load_embedder(tmp_path)
    other = tmp_path / "other"
    fresh_model(ModelConfig("llama", 2, 32, 2, 64, 64), 300, seed=8).save_pretrained(other)
    train_tokenizer(TEXTS, 300).save(other)
    with pytest.raises(DamagedFileError, match="is not the one"):
        load_embedder(tmp_path, other)


def test_the_model_of_hidden_states_computes_on_the_requested_device(
    seed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden_states(seed).save(tmp_path)
    placed: list[Any] = []
    monkeypatch.setattr("engine.clusters.embedders.hidden_states.choose_device", lambda name: f"chosen for {name}")
    monkeypatch.setattr(PreTrainedModel, "to", lambda model, device: placed.append(device) or model)
    load_embedder(tmp_path, seed, "cuda:1")
    load_embedder(tmp_path, seed)
    assert placed == ["chosen for cuda:1", "chosen for cpu"]


def test_hidden_states_are_the_mean_of_the_last_layer(seed: Path) -> None:
    import torch

    embedder = hidden_states(seed)
    ids = [embedder._tokenizer.bos_id, *embedder._tokenizer.encode(TEXTS[1])][:64]
    with torch.inference_mode():
        states = embedder._lm(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1]
    np.testing.assert_allclose(embedder.embed(TEXTS[:3]).vectors_ND[1], states[0].mean(0), atol=1e-5)


def test_a_long_text_is_read_up_to_the_models_length(seed: Path) -> None:
    embedder = hidden_states(seed)
    assert embedder.max_tokens == 64
    long = " ".join(TEXTS) * 9
    np.testing.assert_allclose(
        embedder.embed([long]).vectors_ND, embedder.embed([f"{long} and more"]).vectors_ND, atol=1e-6
    )


def test_the_card_names_no_path(embedder: AnyEmbedder, tmp_path: Path) -> None:  # L16
    embedder.save(tmp_path)
    assert "/" not in json.dumps(json.loads((tmp_path / "embedder.json").read_text()))
