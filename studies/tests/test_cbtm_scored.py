"""Losses of C-BTM's arms come from stored scores and distances by the engine's own gates, or are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.clusters.distances import Distances
from engine.config import TrainingConfig
from engine.files import ArtifactRef
from engine.inference.scores import mix_scores, perplexity
from engine.mixing.cluster import ClusterGate, Routing
from engine.mixing.cluster_gate_grid import cluster_gate_grid
from engine.mixing.posterior import PosteriorGate
from studies.tests.score_files import BLOCK, COUNTS, write_scores
from workbench_studies.cbtm.measurements import CbtmMeasurements, DistanceKey, frozen, in_grid, top_ks
from workbench_studies.cbtm.names import (
    DENSE,
    DENSE_AT_LESS,
    SEED,
    SIZES,
    TEMPERATURES,
    Arm,
    CbtmRun,
    ReplicateCbtm,
    System,
    balanced,
    sparse,
)
from workbench_studies.core.measurements import Loaded, ScoreKey, Stored, best_expert

TEST, DEV = COUNTS.values()
SIZE = replace(
    SIZES["smoke"],
    training=TrainingConfig(block_size=BLOCK),
    test_tokens=TEST,
    prior_blocks=DEV // BLOCK,
    clusters=(1, 4),
    num_ablated=4,
    clusters_at_less=(1,),
)
SUBJECT = ReplicateCbtm(name="rep", seeds=1, domains=["law", "sea"], novel=["poems"], budget=SIZE)
RUN, MAIN = CbtmRun("rep", 0), SUBJECT.main


@pytest.fixture
def scores(tmp_path: Path) -> dict[ScoreKey, Stored]:
    """Scores of the dense model, four clusters and the seed model everywhere; of the clusters at home, too."""
    experts = [RUN.seed_expert, *RUN.experts(DENSE, SUBJECT.domains), *RUN.experts(MAIN, SUBJECT.domains)]
    experts += [RUN.moe_expert(DENSE), RUN.moe_expert(DENSE_AT_LESS), RUN.average_expert(MAIN)]
    texts = [*SUBJECT.everywhere, *RUN.domains(MAIN, SUBJECT.domains)]
    return write_scores(tmp_path, ((e, d, s) for e in experts for d in texts for s in ("test", "dev")))


@pytest.fixture
def distances(tmp_path: Path) -> dict[DistanceKey, Stored]:
    """Of every text to the four clusters."""
    draw, result = np.random.default_rng(1), {}
    for domain in SUBJECT.everywhere:
        folder = tmp_path / f"distances {domain}"
        folder.mkdir()
        further_KX = draw.uniform(0, 0.5, (4, TEST)).astype(np.float32)
        np.save(folder / "further.npy", further_KX - further_KX.min(0))
        np.save(folder / "nearest.npy", np.full(TEST, 0.5, dtype=np.float32))
        np.save(folder / "known.npy", (np.arange(TEST) % BLOCK).astype(np.int32))
        (folder / "distances.json").write_text(json.dumps({"block_size": BLOCK, "num_tokens": TEST}))
        result[RUN.clustering(MAIN), domain] = Stored(ArtifactRef(folder, ""), TEST)
    return result


def measured(scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]) -> CbtmMeasurements:
    into = CbtmMeasurements(SUBJECT, distances=distances)
    assert len(list(into.measure(scores))) == 3 + 4
    return into


def rows(scores: dict[ScoreKey, Stored], domain: str) -> torch.Tensor:
    folders = [scores[expert, domain, "test"].kept.folder for expert in RUN.experts(MAIN, SUBJECT.domains)]
    return torch.stack([torch.from_numpy(np.load(folder / "logprobs.npy")) for folder in folders])


def opened(distances: dict[DistanceKey, Stored], domain: str) -> Distances:
    folder = distances[RUN.clustering(MAIN), domain].kept.folder
    tensors = [torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("further", "nearest", "known")]
    return Distances(tensors[0], tensors[1], tensors[2], BLOCK)


def test_every_cell_of_table_9_is_that_of_the_grid(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    losses, stored = measured(scores, distances).losses, opened(distances, "sea")
    expected = cluster_gate_grid(rows(scores, "sea"), stored.further_KX, TEMPERATURES, top_ks(MAIN))
    for row, temperature in enumerate(TEMPERATURES):
        for column, top_k in enumerate(top_ks(MAIN)):
            result = losses[in_grid(MAIN, top_k, temperature), 0, "sea"].value
            assert result == pytest.approx(float(expected[row, column]), rel=1e-5)
    assert top_ks(MAIN) == [1, 2, 4]


def test_the_main_arm_is_weighed_by_nearness_sparse_frozen_and_by_bayes(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    losses, stored = measured(scores, distances).losses, opened(distances, "law")
    gates = {System(MAIN): {}, sparse(MAIN, 2): {"top_k": 2}, frozen(SUBJECT): {"freeze_after": BLOCK // 2}}
    for system, knobs in gates.items():
        gate = ClusterGate([1.0] * 4, Routing(range(4)), **knobs)
        expected = perplexity(mix_scores(gate, rows(scores, "law"), BLOCK, stored))
        assert losses[system, 0, "law"].value == pytest.approx(expected)
    uniform = mix_scores(PosteriorGate([1.0] * 4), rows(scores, "law"), BLOCK)
    assert losses[System(MAIN, "uniform"), 0, "law"].value == pytest.approx(perplexity(uniform))
    assert len({losses[system, 0, "law"].value for system in [*gates, System(MAIN, "cached")]}) == 4


def test_an_upcycled_model_and_an_average_are_their_own_scores(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    losses = measured(scores, distances).losses
    systems = {
        System(DENSE, "moe"): RUN.moe_expert(DENSE),
        System(DENSE_AT_LESS, "moe"): RUN.moe_expert(DENSE_AT_LESS),
        System(MAIN, "average"): RUN.average_expert(MAIN),
    }
    for system, expert in systems.items():
        own = np.load(scores[expert, "law", "test"].kept.folder / "logprobs.npy")
        assert losses[system, 0, "law"].value == pytest.approx(np.exp(-own.astype(float).mean()))
    assert len({losses[system, 0, "law"].value for system in systems}) == 3


def test_one_cluster_is_its_model_and_each_single_model_is_listed_at_every_home(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    result = measured(scores, distances)
    dense = np.load(scores[RUN.experts(DENSE, ())[0], "poems", "test"].kept.folder / "logprobs.npy")
    assert result.losses[System(DENSE), 0, "poems"].value == pytest.approx(np.exp(-dense.astype(float).mean()))
    assert (SEED, 0, "poems") in result.losses
    for home in RUN.domains(MAIN, ()):
        expected = np.exp(-rows(scores, home).double().mean(1).numpy())
        assert [result.losses[System(MAIN, "alone", expert=n), 0, home].value for n in range(4)] == pytest.approx(
            expected.tolist()
        )
    assert result.prior_blocks == dict.fromkeys(SUBJECT.everywhere, DEV // BLOCK)


def test_the_pieces_of_a_document_are_one_and_full_documents_stay_what_they_are(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    stored = np.repeat(np.arange(5), 2)  # two blocks of each row of the split
    assert documents(measured(scores, distances)) == stored.tolist()
    complete = {key: replace(score, wholes_D=np.arange(5)) for key, score in scores.items()}
    assert documents(measured(complete, distances)) == stored.tolist()
    cut = {key: replace(score, wholes_D=np.array([0, 1, 0, 0, 1])) for key, score in scores.items()}
    result = measured(cut, distances)
    assert documents(result) == [0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert [row["test documents"] for row in result.text_rows()] == [2, 2, 2]


def documents(result: CbtmMeasurements) -> list[int]:
    return result.losses[System(MAIN), 0, "law"].documents_N.tolist()


def test_what_has_no_distances_or_no_scores_is_left_out(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    del distances[RUN.clustering(MAIN), "sea"]
    stale = distances[RUN.clustering(MAIN), "poems"]
    distances[RUN.clustering(MAIN), "poems"] = replace(stale, num_tokens=TEST - 1)  # of another text
    names = {(system, domain) for system, _, domain in measured(scores, distances).losses}
    assert (System(MAIN), "law") in names
    assert not names & {(System(MAIN), "sea"), (System(MAIN), "poems")}
    assert (System(MAIN, "uniform"), "sea") in names
    assert not {system for system, _ in names} & {System(Arm("random", 4)), System(balanced(1, at_less=True))}


def test_the_calibrated_reading_is_fitted_on_dev_text_of_the_training_domains(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    for (expert, domain, _), stored in scores.items():  # law suits the first model, sea the second
        if domain in SUBJECT.domains and expert == RUN.experts(MAIN, SUBJECT.domains)[SUBJECT.domains.index(domain)]:
            path = stored.kept.folder / "logprobs.npy"
            np.save(path, np.load(path) + np.float32(0.2))
    first = measured(scores, distances)
    fitted = first.fits[0]
    assert list(fitted.domains) == SUBJECT.domains
    texts = [rows(scores, domain) for domain in SUBJECT.everywhere]
    for domain, test_EX in zip(SUBJECT.everywhere, texts, strict=True):
        gate = PosteriorGate([1.0] * 4, fitted.rule)
        expected = perplexity(mix_scores(gate, test_EX, BLOCK))
        assert first.losses[System(MAIN, "calibrated"), 0, domain].value == pytest.approx(expected)
    for (_, domain, split), stored in scores.items():
        if split == "test" or domain in SUBJECT.novel:
            path = stored.kept.folder / "logprobs.npy"
            np.save(path, np.load(path)[::-1].copy() - np.float32(1))
    assert measured(scores, distances).fits[0].rule == fitted.rule


def test_without_dev_scores_there_is_no_calibrated_reading(
    scores: dict[ScoreKey, Stored], distances: dict[DistanceKey, Stored]
) -> None:
    tests = {key: score for key, score in scores.items() if key[2] == "test"}
    result = measured(tests, distances)
    assert result.fits == {}
    assert not [system for system, _, _ in result.losses if system == System(MAIN, "calibrated")]


def test_the_model_left_out_of_a_domain_is_the_one_that_fits_its_text_best() -> None:
    logprobs_EX = torch.tensor([[-2.0, -2.0], [-1.0, -1.5], [-3.0, -1.0]])
    assert best_expert(Loaded(logprobs_EX, np.zeros(1, dtype=np.int64))) == 1
