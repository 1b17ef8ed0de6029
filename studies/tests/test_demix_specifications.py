"""DEMix's tables 1 and 2 from what imports and trainings recorded."""

from __future__ import annotations

import pytest

from studies.tests.demix_worlds import DOMAINS, NOVEL, evidence_of
from workbench_studies.demix.measurements import TrainedModel, model_rows, word_rows
from workbench_studies.demix.names import PRINTED

SUBJECT = evidence_of({}).subject
SPEED = {"tokens_per_second": 1000.0, "flops_per_second": 4e9, "flops_per_update": 2e9}


def test_words_are_those_of_each_split_with_sums_where_all_domains_are_there() -> None:
    words = {name: {"train": 100 + place, "dev": 5, "test": 7} for place, name in enumerate(DOMAINS)}
    words[NOVEL[0]] = {"train": 50, "dev": 1, "test": 2}
    rows = word_rows(SUBJECT, words)
    by_name = {(row["role"], row["domain"]): (row["train"], row["held out"]) for row in rows}
    assert by_name["training", DOMAINS[1]] == (101, 12)
    assert by_name["training", "all"] == (100 + 101 + 102 + 103, 48)
    assert by_name["training", "paper, all"] == ("73.8B", "80M")
    assert (by_name["novel", NOVEL[0]], by_name["novel", NOVEL[1]]) == ((50, 3), (None, None))
    assert ("novel", "all") not in by_name


def test_networks_of_experts_stand_in_the_place_of_the_seeds_and_tokens_beside_them() -> None:
    demix = TrainedModel("demix", 0, 1000, (300,) * 4, SPEED)
    tokens = TrainedModel("domain-token", 0, 1000, (8,) * 4, SPEED)
    dense = TrainedModel("dense", 0, 1000, (300,), SPEED)
    assert [one.num_parameters for one in (demix, tokens, dense)] == [1900, 1032, 1000]
    used = [row["of them used at a token"] for row in model_rows([demix, tokens, dense])]
    assert used == [1000, 1008, 1000]


def test_speeds_are_means_over_the_seeds_that_were_measured() -> None:
    faster = SPEED | {"tokens_per_second": 3000.0}
    seeds = [TrainedModel("demix", seed, 1000, (300,) * 4, speed) for seed, speed in enumerate((SPEED, faster, {}))]
    (row,) = model_rows(seeds)
    assert (row["model"], row["experts"], row["seeds"], row["tokens/s"]) == ("DEMix", 4, 3, 2000.0)
    assert (row["GFLOPs an update"], row["GFLOP/s"]) == pytest.approx((2.0, 4.0))
    (unmeasured,) = model_rows(seeds[2:])
    assert unmeasured["tokens/s"] is None


def test_devices_are_those_that_jobs_recorded_beside_the_papers() -> None:
    old = TrainedModel("demix", 0, 1000, (300,) * 4, SPEED)
    two = TrainedModel("demix", 1, 1000, (300,) * 4, SPEED, 2)
    four = TrainedModel("demix", 2, 1000, (300,) * 4, SPEED, 4)
    (of_old,), (of_two,), (mixed,) = model_rows([old]), model_rows([old, two]), model_rows([two, four])
    assert [(row["devices"], row["GFLOP/s a device"]) for row in (of_old, of_two, mixed)] == [
        (None, None),
        ("2", 2.0),
        ("2 or 4", 1.5),
    ]
    papers = {row["model"]: row for row in PRINTED["table_2"]}
    assert list(papers) == [f"{name}, paper, {size}" for name in ("Dense", "DEMix") for size in PRINTED["sizes"]]
    largest = papers["DEMix, paper, 1.3B"]
    assert (largest["devices"], largest["parameters"], largest["GFLOP/s a device"]) == (128, "7.0B", 55_000)
    assert largest.keys() < of_old.keys()
