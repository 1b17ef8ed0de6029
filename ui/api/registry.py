"""What the registry holds: experts, mixtures, domains, corpora, seed models, clusterings, priors and reports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from ui.api.deps import State, read, write
from ui.api.etags import tagged
from ui.api.schemas.registry import AliasTarget, MixtureCopy, MixtureToMake, ViewAddress
from ui.generation.mix_names import with_clustering_id
from workbench.answers.documents import TextChanges
from workbench.gate_configs import changed_gate, default_gate, dump_gate
from workbench.job_records import devices
from workbench.questions import new_mixtures
from workbench.registry import aliases, corpora, experts, mixtures, priors, reports, seeds, views
from workbench.registry.card_lists import (
    AliasList,
    ClusteringList,
    CorpusList,
    DeviceList,
    DomainList,
    ExpertList,
    MixtureList,
    PriorList,
    ReportList,
    SeedList,
    ViewList,
)
from workbench.registry.cards import (
    AliasCard,
    ClusteringCard,
    CorpusCard,
    ExpertCard,
    MixtureCard,
    PriorCard,
    ReportCard,
    SeedCard,
    ViewCard,
)
from workbench.registry.clusters import cluster_documents, clusterings
from workbench.request_specs import MixtureSpec
from workbench.requests.gate_changes import gate_changes
from workbench.specs import parse_as
from workbench.store.storage import get_storage

router = APIRouter(prefix="/v1/workbench")


@router.get("/experts")
def list_experts(state: State) -> ExpertList:
    """Every expert: how it was made, from what and with which results."""
    return ExpertList(data=read(state, experts.list_experts))


@router.get("/experts/{name:path}")
def show_expert(name: str, state: State) -> ExpertCard:
    """One expert, by its name."""
    return read(state, experts.get_expert, name)


@router.get("/mixtures")
def list_mixtures(state: State) -> MixtureList:
    """Every mixture with its gate and its members."""
    return MixtureList(data=read(state, mixtures.list_mixtures))


@router.get("/mixtures/{name:path}")
def show_mixture(name: str, state: State, response: Response) -> MixtureCard:
    """One mixture, by its name. Its ETag is for `If-Match` of a change."""
    return tagged(response, read(state, mixtures.get_mixture, name))


@router.post("/mixtures", status_code=201)
def make_mixture(body: MixtureToMake, state: State) -> new_mixtures.NewMixture:
    """Makes a mixture; where dev text of its training domains is scored, calibrated evidence is proposed with its gain.

    Novel and test text are not read.
    """
    changes = gate_changes(body.gate)
    gate = dump_gate(changed_gate(default_gate(), with_clustering_id(changes, state.settings)))
    spec = parse_as(MixtureSpec, {**body.model_dump(include={"name", "experts", "weights"}), "gate": gate})
    has_evidence = new_mixtures.names_evidence(changes)
    return new_mixtures.make_mixture(spec, calibrate=body.calibrate, has_evidence=has_evidence, settings=state.settings)


@router.post("/mixtures/{name:path}/copy", status_code=201)
def copy_mixture(name: str, body: MixtureCopy, state: State) -> MixtureCard:
    """Copies a mixture as it is now: its experts, weights, switches and gate."""
    return write(state, mixtures.copy_mixture, name, body.name)


@router.get("/aliases")
def list_aliases(state: State) -> AliasList:
    """Every alias with the model that it means."""
    return AliasList(data=read(state, aliases.list_aliases))


@router.get("/aliases/{name:path}")
def show_alias(name: str, state: State) -> AliasCard:
    """One alias, such as law@production."""
    return read(state, aliases.get_alias, name)


@router.put("/aliases/{name:path}")
def set_alias(name: str, body: AliasTarget, state: State) -> AliasCard:
    """Sets an alias of a mixture or an expert; an existing one is moved."""
    return write(state, aliases.set_alias, name, body.model)


@router.delete("/aliases/{name:path}")
def delete_alias(name: str, state: State) -> AliasCard:
    """Deletes an alias, not its model; the answer is what it meant."""
    return write(state, aliases.delete_alias, name)


@router.get("/devices")
def list_devices(state: State) -> DeviceList:
    """The GPUs that workers lease to jobs, with the jobs and API servers that use them."""
    return DeviceList(data=read(state, devices.list_devices))


@router.get("/views")
def list_views(
    state: State, page: Annotated[str, Query(max_length=200, description="Only of this page, such as /experts.")] = ""
) -> ViewList:
    """Every saved view with its address in the studio."""
    return ViewList(data=read(state, views.list_views, page))


@router.get("/views/{name:path}")
def show_view(name: str, state: State) -> ViewCard:
    """One saved view."""
    return read(state, views.get_view, name)


@router.put("/views/{name:path}")
def save_view(name: str, body: ViewAddress, state: State) -> ViewCard:
    """Saves the address of a page with all that is chosen on it; a view of this name is replaced."""
    return write(state, views.save_view, name, body.address)


@router.delete("/views/{name:path}")
def delete_view(name: str, state: State) -> ViewCard:
    """Deletes a saved view; the answer is what it was."""
    return write(state, views.delete_view, name)


@router.get("/domains")
def list_domains(state: State) -> DomainList:
    """Every domain with its corpus and the size of each split."""
    return DomainList(data=read(state, corpora.list_domains))


@router.get("/corpora")
def list_corpora(state: State) -> CorpusList:
    """Every corpus with its domains and what its import refused."""
    return CorpusList(data=read(state, corpora.list_corpora))


@router.get("/corpora/{name:path}")
def show_corpus(name: str, state: State) -> CorpusCard:
    """One corpus, by its name."""
    return read(state, corpora.get_corpus, name)


@router.get("/seeds")
def list_seeds(state: State) -> SeedList:
    """Every seed model."""
    return SeedList(data=read(state, seeds.list_seeds))


@router.get("/seeds/{name:path}")
def show_seed(name: str, state: State) -> SeedCard:
    """One seed model, by its name."""
    return read(state, seeds.get_seed, name)


@router.get("/clusterings")
def list_clusterings(state: State) -> ClusteringList:
    """Every clustering with its clusters."""
    return ClusteringList(data=read(state, clusterings.list_clusterings))


@router.get("/clusterings/{name:path}/changes")
def show_changes(name: str, state: State) -> TextChanges:
    """Which documents are missing from the text of now or new in it, since the clustering was made."""
    return read(state, cluster_documents.changes, get_storage(state.settings), name)


@router.get("/clusterings/{name:path}")
def show_clustering(name: str, state: State) -> ClusteringCard:
    """One clustering, by its name."""
    return read(state, clusterings.get_clustering, name)


@router.get("/priors")
def list_priors(state: State) -> PriorList:
    """Every prior with the share of each expert."""
    return PriorList(data=read(state, priors.list_priors))


@router.get("/priors/{name:path}")
def show_prior(name: str, state: State) -> PriorCard:
    """One prior, by its name."""
    return read(state, priors.get_prior, name)


@router.get("/reports")
def list_reports(
    state: State,
    kind: Annotated[str | None, Query(max_length=200, description="Only of this kind, such as removal.")] = None,
) -> ReportList:
    """Every report of a job, the newest first."""
    return ReportList(data=read(state, reports.list_reports, kind=kind))


@router.get("/reports/{id}")
def show_report(id: str, state: State) -> ReportCard:
    """One report, by its id or the first digits of it."""
    return read(state, reports.get_report, id)
