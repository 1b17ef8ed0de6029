"""What a plan calls untestable before the first job: what no measurement could decide, not what is not measured yet."""

from __future__ import annotations

from typing import Any

import pytest

from workbench_studies.cbtm.names import ReplicateCbtm
from workbench_studies.core.spec import SEEDS, Replicate
from workbench_studies.demix.names import ReplicateDemix
from workbench_studies.papers.forecast import Pace, forecast

PACE = Pace(1000.0, 4000.0, 2.0, 10_000, "cpu")
DOMAINS = [f"text-{number}" for number in range(8)]
NOVEL = [f"novel-{number}" for number in range(4)]


def demix(**fields: Any) -> ReplicateDemix:
    given = {"name": "rep", "size": "tiny", "domains": DOMAINS, "novel": NOVEL, "removed": DOMAINS[:1]}
    return ReplicateDemix.model_validate(given | fields)


def places(spec: Replicate) -> set[str]:
    """Where the claims stand that a plan calls untestable, without sentences of the paper that no arm judges."""
    return {one["where"] for one in forecast(spec, PACE).untestable if not one["sentence"].startswith("“")}


@pytest.mark.parametrize(
    "spec",
    [
        demix(),
        ReplicateCbtm(name="rep", size="tiny", domains=DOMAINS, novel=NOVEL, tasks="/tasks"),
    ],
)
def test_a_plan_of_enough_domains_calls_no_claim_untestable_that_its_jobs_will_measure(spec: Replicate) -> None:
    assert places(spec) == set()


def test_a_plan_names_the_claims_for_which_domains_or_blocks_are_too_few() -> None:
    assert places(demix(novel=NOVEL[:1])) == {"§5.2"}
    assert "Figures 7, 8" in places(demix(size="smoke"))


def test_a_replication_has_five_seeds_unless_another_number_is_given() -> None:
    assert demix().seeds == SEEDS == 5
    assert demix(seeds=2).seeds == 2
