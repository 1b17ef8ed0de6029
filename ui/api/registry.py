"""What the registry holds: experts, mixtures, domains, corpora, seed models, clusterings and priors."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ui.api.deps import State
from ui.api.schemas import AliasTarget, MixtureCopy, ViewAddress
from workbench.registry import aliases, clusterings, corpora, experts, mixtures, priors, seeds, views
from workbench.registry.card_lists import (
    AliasList,
    ClusteringList,
    CorpusList,
    DomainList,
    ExpertList,
    MixtureList,
    PriorList,
    SeedList,
    ViewList,
)
from workbench.registry.cards import AliasCard, ExpertCard, MixtureCard, ViewCard
from workbench.registry.database import reading, transaction

router = APIRouter(prefix="/v1/workbench")


@router.get("/experts")
def list_experts(state: State) -> ExpertList:
    """Every expert: how it was made, from what and with which results."""
    with reading(state.settings) as session:
        return ExpertList(data=experts.list_experts(session))


@router.get("/experts/{name:path}")
def show_expert(name: str, state: State) -> ExpertCard:
    """One expert, by its name."""
    with reading(state.settings) as session:
        return experts.get_expert(session, name)


@router.get("/mixtures")
def list_mixtures(state: State) -> MixtureList:
    """Every mixture with its gate and its members."""
    with reading(state.settings) as session:
        return MixtureList(data=mixtures.list_mixtures(session))


@router.get("/mixtures/{name:path}")
def show_mixture(name: str, state: State) -> MixtureCard:
    """One mixture, by its name."""
    with reading(state.settings) as session:
        return mixtures.get_mixture(session, name)


@router.post("/mixtures/{name:path}/copy", status_code=201)
def copy_mixture(name: str, body: MixtureCopy, state: State) -> MixtureCard:
    """Copies a mixture as it is now: its experts, weights, switches and gate."""
    with transaction(state.settings) as session:
        return mixtures.copy_mixture(session, name, body.name)


@router.get("/aliases")
def list_aliases(state: State) -> AliasList:
    """Every alias with the model that it means."""
    with reading(state.settings) as session:
        return AliasList(data=aliases.list_aliases(session))


@router.get("/aliases/{name:path}")
def show_alias(name: str, state: State) -> AliasCard:
    """One alias, such as law@production."""
    with reading(state.settings) as session:
        return aliases.get_alias(session, name)


@router.put("/aliases/{name:path}")
def set_alias(name: str, body: AliasTarget, state: State) -> AliasCard:
    """Sets an alias of a mixture or an expert; an existing one is moved."""
    with transaction(state.settings) as session:
        return aliases.set_alias(session, name, body.model)


@router.delete("/aliases/{name:path}")
def delete_alias(name: str, state: State) -> AliasCard:
    """Deletes an alias, not its model; the answer is what it meant."""
    with transaction(state.settings) as session:
        card = aliases.get_alias(session, name)
        aliases.delete_alias(session, name)
    return card


@router.get("/views")
def list_views(
    state: State, page: Annotated[str, Query(max_length=200, description="Only of this page, such as /experts.")] = ""
) -> ViewList:
    """Every saved view with its address in the studio."""
    with reading(state.settings) as session:
        return ViewList(data=views.list_views(session, page))


@router.get("/views/{name:path}")
def show_view(name: str, state: State) -> ViewCard:
    """One saved view."""
    with reading(state.settings) as session:
        return views.get_view(session, name)


@router.put("/views/{name:path}")
def save_view(name: str, body: ViewAddress, state: State) -> ViewCard:
    """Saves the address of a page with all that is chosen on it; a view of this name is replaced."""
    with transaction(state.settings) as session:
        return views.save_view(session, name, body.address)


@router.delete("/views/{name:path}")
def delete_view(name: str, state: State) -> ViewCard:
    """Deletes a saved view; the answer is what it was."""
    with transaction(state.settings) as session:
        return views.delete_view(session, name)


@router.get("/domains")
def list_domains(state: State) -> DomainList:
    """Every domain with its corpus and the size of each split."""
    with reading(state.settings) as session:
        return DomainList(data=corpora.list_domains(session))


@router.get("/corpora")
def list_corpora(state: State) -> CorpusList:
    """Every corpus with its domains and what its import refused."""
    with reading(state.settings) as session:
        return CorpusList(data=corpora.list_corpora(session))


@router.get("/seeds")
def list_seeds(state: State) -> SeedList:
    """Every seed model."""
    with reading(state.settings) as session:
        return SeedList(data=seeds.list_seeds(session))


@router.get("/clusterings")
def list_clusterings(state: State) -> ClusteringList:
    """Every clustering with its clusters."""
    with reading(state.settings) as session:
        return ClusteringList(data=clusterings.list_clusterings(session))


@router.get("/priors")
def list_priors(state: State) -> PriorList:
    """Every prior with the share of each expert."""
    with reading(state.settings) as session:
        return PriorList(data=priors.list_priors(session))
