"""Changes of the registry that need no job: what the buttons of the studio and the commands change at once.

Each answers with the card as it is afterwards; a deletion answers with the card as it was.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import Response

from ui.api.deps import State, read, write
from ui.api.etags import IfMatch, tagged, write_if
from ui.api.schemas.registry import (
    ClusterChange,
    ExpertChange,
    FormerMember,
    MixtureChange,
    NewMember,
    PriorWeights,
)
from workbench.answers.cards import (
    ClusteringCard,
    ExpertCard,
    MixtureCard,
    PriorCard,
    ReportCard,
)
from workbench.answers.posteriors import EvidenceCalibration
from workbench.errors import NotFoundError
from workbench.questions import calibration
from workbench.registry import experts, mixtures, priors
from workbench.registry.clusters import clusterings
from workbench.registry.things import THINGS
from workbench.requests.body import gate_changes
from workbench.specs.gates import changed_gate, load_gate
from workbench.store.storage import get_storage

router = APIRouter(prefix="/v1/workbench")


# experts ------------------------------------------------------------------------------------------


@router.patch("/experts/{name:path}")
def change_expert(name: str, body: ExpertChange, state: State) -> ExpertCard:
    """Enables or disables an expert, renames it, or replaces its notes and tags."""
    return write(state, _change_expert, name, body)


def _change_expert(session: Any, name: str, body: ExpertChange) -> ExpertCard:
    card = experts.describe(session, name, notes=body.notes, tags=body.tags)
    if body.enabled is not None:
        [card] = experts.set_enabled(session, [name], body.enabled)
    return card if body.name is None else experts.rename(session, card.name, body.name)


# mixtures -----------------------------------------------------------------------------------------


@router.patch("/mixtures/{name:path}")
def change_mixture(
    name: str, body: MixtureChange, state: State, response: Response, if_match: IfMatch = None
) -> MixtureCard:
    """Sets which experts of a mixture are active, their weights and its gate, all of it or nothing."""
    return tagged(response, write_if(if_match, state, _change_mixture, name, body))


@router.post("/mixtures/{name:path}/add")
def add_member(name: str, body: NewMember, state: State, response: Response, if_match: IfMatch = None) -> MixtureCard:
    """Adds an expert to a mixture."""
    return tagged(response, write_if(if_match, state, mixtures.add_member, name, body.expert, body.weight))


@router.post("/mixtures/{name:path}/remove")
def remove_member(
    name: str, body: FormerMember, state: State, response: Response, if_match: IfMatch = None
) -> MixtureCard:
    """Removes an expert from a mixture; the expert itself is kept."""
    return tagged(response, write_if(if_match, state, mixtures.remove_member, name, body.expert))


@router.post("/mixtures/{name:path}/calibrate")
def save_calibration(name: str, state: State, response: Response, if_match: IfMatch = None) -> MixtureCard:
    """Fits the evidence on dev text, as /v1/workbench/calibration does, and saves it if it lowers perplexity."""
    fitted: EvidenceCalibration = read(state, calibration.calibrate_evidence, get_storage(state.settings), name)
    return tagged(response, write_if(if_match, state, _save_calibration, name, fitted))


@router.delete("/mixtures/{name:path}")
def delete_mixture(name: str, state: State, if_match: IfMatch = None) -> MixtureCard:
    """Deletes a mixture, not its experts; refused while an alias or a job uses it."""
    card: MixtureCard = write_if(if_match, state, THINGS["mixture"].delete_one, name)
    return card


def _save_calibration(session: Any, _name: str, fitted: EvidenceCalibration) -> MixtureCard:
    return mixtures.save_calibration(session, fitted)


def _change_mixture(session: Any, name: str, body: MixtureChange) -> MixtureCard:
    card = mixtures.get_mixture(session, name)
    if body.active is not None or body.weights is not None:
        active, weights = body.active, body.weights or {}
        members = [member.expert for member in card.members]
        for expert in (*(active or ()), *weights):
            if expert not in members:
                raise NotFoundError("expert", expert, members, where=f"in “{card.name}”")
        if active is None:
            active = [member.expert for member in card.members if member.active]
        card = mixtures.arrange(session, name, active, weights)
    if body.gate is not None:
        card = mixtures.set_gate(session, name, changed_gate(load_gate(card.gate), gate_changes(body.gate)))
    return card


# priors -------------------------------------------------------------------------------------------


@router.put("/priors/{name:path}", status_code=201)
def set_prior(name: str, body: PriorWeights, state: State) -> PriorCard:
    """Creates a prior with given weights; an existing one is not replaced."""
    return write(state, priors.give_prior, name, body.weights)


# clusterings --------------------------------------------------------------------------------------


@router.patch("/clusterings/{name:path}/clusters/{cluster:path}")
def change_cluster(
    name: str,
    cluster: Annotated[str, Path(description="Name or number of the cluster.")],
    body: ClusterChange,
    state: State,
) -> ClusteringCard:
    """Renames a cluster or replaces its notes; no document moves, and no expert becomes stale."""
    return write(state, _change_cluster, name, cluster, body)


def _change_cluster(session: Any, name: str, cluster: str, body: ClusterChange) -> ClusteringCard:
    row = clusterings.cluster_row(clusterings.clustering_row(session, name), cluster)
    notes = row.notes if body.notes is None else body.notes
    return clusterings.describe_cluster(session, row.id, row.name if body.name is None else body.name, notes)


# corpora, seed models and reports -----------------------------------------------------------------


@router.delete("/reports/{id}")
def delete_report(id: str, state: State) -> ReportCard:
    """Deletes a report with its pages; the experts and mixtures that it is about are kept."""
    card: ReportCard = write(state, THINGS["report"].delete_one, id)
    return card
