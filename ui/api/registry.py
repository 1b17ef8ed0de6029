"""What the registry holds: experts, mixtures, domains, corpora, seed models, clusterings, priors and reports."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import create_model
from starlette.responses import Response

from ui.api.deps import State, read, write
from ui.api.etags import tagged
from ui.api.schemas.registry import AliasTarget, MixtureCopy, MixtureToMake, ViewAddress
from ui.generation.mix_names import with_clustering_id
from workbench.answers.card_lists import DeviceList, ListAnswer, ReportList, ViewList
from workbench.answers.cards import AliasCard, MixtureCard, ReportCard, ViewCard
from workbench.answers.posteriors import TextChanges
from workbench.job_records import devices
from workbench.kinds.parse_spec import parse_as
from workbench.questions import calibration
from workbench.registry import aliases, mixtures, reports, views
from workbench.registry.clusters import cluster_documents
from workbench.registry.things import THINGS, Thing
from workbench.requests.body import gate_changes
from workbench.specs.gates import changed_gate, default_gate, dump_gate
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

router = APIRouter(prefix="/v1/workbench")


@router.get("/mixtures/{name:path}")
def show_mixture(name: str, state: State, response: Response) -> MixtureCard:
    """One mixture, by its name. Its ETag is for `If-Match` of a change."""
    return tagged(response, read(state, mixtures.get_mixture, name))


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
    return write(state, mixtures.copy_mixture, name, body.name)


@router.put("/aliases/{name:path}")
def set_alias(name: str, body: AliasTarget, state: State) -> AliasCard:
    """Sets an alias of a mixture or an expert; an existing one is moved."""
    return write(state, aliases.set_alias, name, body.model)


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


@router.put("/views/{name:path}")
def save_view(name: str, body: ViewAddress, state: State) -> ViewCard:
    """Saves the address of a page with all that is chosen on it; a view of this name is replaced."""
    return write(state, views.save_view, name, body.address)


@router.get("/clusterings/{name:path}/changes")
def show_changes(name: str, state: State) -> TextChanges:
    """Which documents are missing from the text of now or new in it, since the clustering was made."""
    return read(state, cluster_documents.changes, get_storage(state.settings), name)


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


OTHER_ROUTES = {  # above, or in registry_changes: by id, with a filter, with the version of a mixture; or none
    "list": ("view", "report"),
    "show": ("mixture", "domain", "report"),
    "delete": ("mixture", "domain", "report"),
}


def _add_routes(kind: str, thing: Thing) -> None:
    list_type: Any = create_model(
        f"{kind.title()}List",
        __base__=ListAnswer,
        __doc__=f"All {thing.plural}.",
        data=(list[thing.card], ...),  # type: ignore[name-defined]
    )

    def list_things(state: State) -> Any:
        return list_type(data=read(state, thing.list_all))

    def show(name: str, state: State) -> Any:
        return read(state, thing.get, name)

    def delete(name: str, state: State) -> Any:
        return write(state, thing.delete_one, name)

    path, shown = thing.path or thing.plural, thing.shown or f"One {thing.noun}, by its name."
    for verb, method, route, name, sentence, answer, function in (
        ("list", "GET", f"/{path}", f"list_{path}", thing.listed, list_type, list_things),
        ("show", "GET", f"/{path}/{{name:path}}", f"show_{kind}", shown, thing.card, show),
        ("delete", "DELETE", f"/{path}/{{name:path}}", f"delete_{kind}", thing.deleted, thing.card, delete),
    ):
        if kind not in OTHER_ROUTES[verb]:
            options: Any = {"name": name, "description": sentence, "response_model": answer}
            router.add_api_route(route, function, methods=[method], **options)


for _kind, _thing in THINGS.items():
    _add_routes(_kind, _thing)
