"""The registry over HTTP: what it holds, changes of it that need no job, and its audit log.

A change answers with the card as it is afterwards; a deletion answers with the card as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from fastapi import APIRouter, Header, Path, Query
from pydantic import Field, create_model
from starlette.responses import Response

from ui.api.deps import State
from ui.generation.model_host import with_clustering_id
from workbench.access import audit
from workbench.analysis.search import LONGEST_QUERY, search
from workbench.answers.card_lists import AuditList, DeviceList, ListAnswer, ReportList, SeedOfferList, ViewList
from workbench.answers.cards import AliasCard, ClusteringCard, ExpertCard, MixtureCard, PriorCard, ReportCard, ViewCard
from workbench.answers.posteriors import TextChanges
from workbench.answers.search import SearchAnswer
from workbench.errors import NotFoundError
from workbench.job_records import devices
from workbench.kinds.kind import parse_as
from workbench.questions import calibration
from workbench.registry import aliases, experts, mixtures, priors, reports, seed_offers, views
from workbench.registry.clusters import cluster_documents, clusterings
from workbench.registry.resources import RESOURCES, Resource
from workbench.requests.body import MAX_NAMED, AnyGateChange, Names, Nullable, RequestBody, gate_changes
from workbench.specs.gates import changed_gate, default_gate, dump_gate, load_gate
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

router = APIRouter(prefix="/v1/workbench")
MOST_ENTRIES = 1000  # of the audit log, in one answer
P = ParamSpec("P")
T = TypeVar("T")

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag of the mixture to change; 412 if it was changed since."),
]
_ENTITY_TAG = re.compile(r'(W/)?"([^"]*)"')


def with_etag(response: Response, card: MixtureCard) -> MixtureCard:
    """The card, whose version is the ETag of the response."""
    response.headers["ETag"] = f'"{card.version}"'
    return card


def write_if(
    if_match: str | None,
    state: State,
    change: Callable[Concatenate[Any, str, P], T],
    name: str,
    *arguments: P.args,
    **options: P.kwargs,
) -> T:
    """Changes a mixture in one transaction. Raises ChangedMeanwhileError if the header does not name it."""

    def change_if_same(session: Any) -> T:
        if if_match is not None and if_match.strip() != "*":
            mixtures.require_version(session, name, [tag for weak, tag in _ENTITY_TAG.findall(if_match) if not weak])
        return change(session, name, *arguments, **options)

    return state.write(change_if_same)


LONGEST_NOTES = 100_000  # characters
NewName = Annotated[str, Field(max_length=200)]
Weights = Annotated[dict[str, float], Field(max_length=MAX_NAMED)]


class ExpertChange(Nullable):
    """Changes to an expert; what is left out stays as it is."""

    name: NewName | None = Field(None, description="Its new name; its id and files stay the same.")
    enabled: bool | None = Field(None, description="False: disabled in every mixture, without being deleted.")
    notes: str | None = Field(None, max_length=LONGEST_NOTES, description="They replace the old ones.")
    tags: Names | None = Field(None, description="They replace the old ones.")


class MixtureChange(Nullable):
    """Changes to a mixture; what is left out stays as it is."""

    active: Names | None = Field(None, description="Its experts that are active; the others are switched off.")
    weights: Weights | None = Field(None, description="New weights by expert; the other weights stay the same.")
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")


class NewMember(Nullable):
    """The expert that a mixture shall get."""

    expert: str = Field(max_length=200, description="Name of an expert with the same tokenizer.")
    weight: float | None = Field(None, description="Its weight; left out: the mean weight of the others.")


class FormerMember(RequestBody):
    """The expert that a mixture shall lose."""

    expert: str = Field(max_length=200, description="Name of an expert of the mixture.")


class PriorWeights(RequestBody):
    """The weights of a prior, which need not sum to one."""

    weights: Weights = Field(description="By expert, numbers of 0 or more.")


class ClusterChange(Nullable):
    """Changes to a cluster; no document moves."""

    name: NewName | None = Field(None, description="Its new name.")
    notes: str | None = Field(None, max_length=LONGEST_NOTES, description="They replace the old ones.")


class MixtureCopy(RequestBody):
    """The request to copy a mixture under a new name."""

    name: str = Field("", max_length=200, description="Left out: the next free name, such as duo.2.")


class MixtureToMake(Nullable):
    """A new mixture of experts that have the same tokenizer."""

    name: NewName = Field(description="Name of the mixture.")
    experts: Names = Field(min_length=1, description="Names of experts; seed:NAME is a seed model as it is.")
    weights: Annotated[list[float], Field(max_length=MAX_NAMED)] | None = Field(
        None, description="Prior (or fixed) weight of each expert; left out: equal."
    )
    gate: AnyGateChange | None = Field(
        None, description="Gate that weighs the experts; left out: the default one. Evidence that is named here stays."
    )
    calibrate: bool | None = Field(
        None,
        description="Accept the evidence fitted on stored dev scores (true), or fit none (false); left out: it "
        "is proposed.",
    )


class ViewAddress(RequestBody):
    """The address that a view shall have."""

    address: str = Field(max_length=2000, description="In the studio, such as /experts?method=lora.")


class AliasTarget(RequestBody):
    """The model that an alias shall mean."""

    model: str = Field(max_length=200, description="Name of a mixture or an expert, or an alias of it.")


@router.patch("/experts/{name:path}")
def change_expert(name: str, body: ExpertChange, state: State) -> ExpertCard:
    """Enables or disables an expert, renames it, or replaces its notes and tags."""
    return state.write(_change_expert, name, body)


def _change_expert(session: Any, name: str, body: ExpertChange) -> ExpertCard:
    card = experts.describe(session, name, notes=body.notes, tags=body.tags)
    if body.enabled is not None:
        [card] = experts.set_enabled(session, [name], body.enabled)
    return card if body.name is None else experts.rename(session, card.name, body.name)


@router.get("/mixtures/{name:path}")
def show_mixture(name: str, state: State, response: Response) -> MixtureCard:
    """One mixture, by its name. Its ETag is for `If-Match` of a change."""
    return with_etag(response, state.read(mixtures.get_mixture, name))


@router.patch("/mixtures/{name:path}")
def change_mixture(
    name: str, body: MixtureChange, state: State, response: Response, if_match: IfMatch = None
) -> MixtureCard:
    """Sets which experts of a mixture are active, their weights and its gate, all of it or nothing."""
    return with_etag(response, write_if(if_match, state, _change_mixture, name, body))


@router.post("/mixtures/{name:path}/add")
def add_member(name: str, body: NewMember, state: State, response: Response, if_match: IfMatch = None) -> MixtureCard:
    """Adds an expert to a mixture."""
    return with_etag(response, write_if(if_match, state, mixtures.add_member, name, body.expert, body.weight))


@router.post("/mixtures/{name:path}/remove")
def remove_member(
    name: str, body: FormerMember, state: State, response: Response, if_match: IfMatch = None
) -> MixtureCard:
    """Removes an expert from a mixture; the expert itself is kept."""
    return with_etag(response, write_if(if_match, state, mixtures.remove_member, name, body.expert))


@router.post("/mixtures/{name:path}/calibrate")
def save_calibration(name: str, state: State, response: Response, if_match: IfMatch = None) -> MixtureCard:
    """Fits the evidence on dev text, as /v1/workbench/calibration does, and saves it if it lowers perplexity."""
    fitted = state.read(calibration.calibrate_evidence, get_storage(state.settings), name)
    card = write_if(if_match, state, lambda session, _name: mixtures.save_calibration(session, fitted), name)
    return with_etag(response, card)


@router.delete("/mixtures/{name:path}")
def delete_mixture(name: str, state: State, if_match: IfMatch = None) -> MixtureCard:
    """Deletes a mixture, not its experts; refused while an alias or a job uses it."""
    card: MixtureCard = write_if(if_match, state, RESOURCES["mixture"].delete_one, name)
    return card


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


@router.post("/mixtures", status_code=201)
def make_mixture(body: MixtureToMake, state: State) -> calibration.NewMixture:
    """Makes a mixture; where dev text of its training domains is scored, calibrated evidence is proposed with its gain.

    Novel and test text are not read.
    """
    changes = gate_changes(body.gate)
    gate = dump_gate(changed_gate(default_gate(), with_clustering_id(changes, state.settings)))
    spec = parse_as(MixtureSpec, {**body.model_dump(include={"name", "experts", "weights"}), "gate": gate})
    has_evidence = calibration.names_evidence(changes)
    return calibration.make_mixture(spec, calibrate=body.calibrate, has_evidence=has_evidence, settings=state.settings)


@router.post("/mixtures/{name:path}/copy", status_code=201)
def copy_mixture(name: str, body: MixtureCopy, state: State) -> MixtureCard:
    """Copies a mixture as it is now: its experts, weights, switches and gate."""
    return state.write(mixtures.copy_mixture, name, body.name)


@router.put("/priors/{name:path}", status_code=201)
def set_prior(name: str, body: PriorWeights, state: State) -> PriorCard:
    """Creates a prior with given weights; an existing one is not replaced."""
    return state.write(priors.give_prior, name, body.weights)


@router.get("/clusterings/{name:path}/changes")
def show_changes(name: str, state: State) -> TextChanges:
    """Which documents are missing from the text of now or new in it, since the clustering was made."""
    return state.read(cluster_documents.changes, get_storage(state.settings), name)


@router.patch("/clusterings/{name:path}/clusters/{cluster:path}")
def change_cluster(
    name: str,
    cluster: Annotated[str, Path(description="Name or number of the cluster.")],
    body: ClusterChange,
    state: State,
) -> ClusteringCard:
    """Renames a cluster or replaces its notes; no document moves, and no expert becomes stale."""
    return state.write(clusterings.change_cluster, name, cluster, name=body.name, notes=body.notes)


@router.put("/aliases/{name:path}")
def set_alias(name: str, body: AliasTarget, state: State) -> AliasCard:
    """Sets an alias of a mixture or an expert; an existing one is moved."""
    return state.write(aliases.set_alias, name, body.model)


@router.get("/search")
def search_registry(
    state: State,
    q: Annotated[str, Query(min_length=1, max_length=LONGEST_QUERY, description="Words that a hit must hold.")],
) -> SearchAnswer:
    """What holds every word in its name, title, notes, tags, aliases or id: at most ten of each kind, and how many."""
    return state.read(search, q)


@router.get("/seed-offers")
def list_seed_offers(state: State) -> SeedOfferList:
    """Small real models that a seed model can be made of, with what each method takes on the server's machine."""
    return SeedOfferList(data=state.read(seed_offers.list_offers))


@router.get("/devices")
def list_devices(state: State) -> DeviceList:
    """The GPUs that workers lease to jobs, with the jobs and API servers that use them."""
    return DeviceList(data=state.read(devices.list_devices))


@router.get("/views")
def list_views(
    state: State, page: Annotated[str, Query(max_length=200, description="Only of this page, such as /experts.")] = ""
) -> ViewList:
    """Every saved view with its address in the studio."""
    return ViewList(data=state.read(views.list_views, page))


@router.put("/views/{name:path}")
def save_view(name: str, body: ViewAddress, state: State) -> ViewCard:
    """Saves the address of a page with all that is chosen on it; a view of this name is replaced."""
    return state.write(views.save_view, name, body.address)


@router.get("/reports")
def list_reports(
    state: State,
    kind: Annotated[str | None, Query(max_length=200, description="Only of this kind, such as removal.")] = None,
) -> ReportList:
    """Every report of a job, the newest first."""
    return ReportList(data=state.read(reports.list_reports, kind=kind))


@router.get("/reports/{id}")
def show_report(id: str, state: State) -> ReportCard:
    """One report, by its id or the first digits of it."""
    return state.read(reports.get_report, id)


@router.get("/audit")
def list_audit(
    state: State,
    user: Annotated[str, Query(max_length=200, description="Only what this user did.")] = "",
    action: Annotated[str, Query(max_length=32, description="Only this action, such as delete.")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = audit.NEWEST,
    offset: Annotated[int, Query(ge=0, le=2**31, description="Newer entries to leave out.")] = 0,
) -> AuditList:
    """Who submitted, added, changed and deleted what, the newest first."""
    return AuditList(data=state.read(audit.list_entries, user=user, action=action, limit=limit, offset=offset))


@router.delete("/reports/{id}")
def delete_report(id: str, state: State) -> ReportCard:
    """Deletes a report with its pages; the experts and mixtures that it is about are kept."""
    card: ReportCard = state.write(RESOURCES["report"].delete_one, id)
    return card


OTHER_ROUTES = {  # above: by id, with a filter, with the version of a mixture; or none
    "list": ("view", "report"),
    "show": ("mixture", "domain", "report"),
    "delete": ("mixture", "domain", "report"),
}


def _add_routes(kind: str, resource: Resource) -> None:
    list_type: Any = create_model(
        f"{kind.title()}List",
        __base__=ListAnswer,
        __doc__=f"All {resource.plural}.",
        data=(list[resource.card], ...),  # type: ignore[name-defined]
    )

    def list_all(state: State) -> Any:
        return list_type(data=state.read(resource.list_all))

    def show(name: str, state: State) -> Any:
        return state.read(resource.get, name)

    def delete(name: str, state: State) -> Any:
        return state.write(resource.delete_one, name)

    path, shown = resource.path or resource.plural, resource.shown or f"One {resource.noun}, by its name."
    for verb, method, route, name, sentence, answer, function in (
        ("list", "GET", f"/{path}", f"list_{path}", resource.listed, list_type, list_all),
        ("show", "GET", f"/{path}/{{name:path}}", f"show_{kind}", shown, resource.card, show),
        ("delete", "DELETE", f"/{path}/{{name:path}}", f"delete_{kind}", resource.deleted, resource.card, delete),
    ):
        if kind not in OTHER_ROUTES[verb]:
            options: Any = {"name": name, "description": sentence, "response_model": answer}
            router.add_api_route(route, function, methods=[method], **options)


for _kind, _resource in RESOURCES.items():
    _add_routes(_kind, _resource)
