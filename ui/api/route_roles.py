"""The role that each route of the API needs. A route that is not listed needs an admin; a test holds the list complete.

Viewers read, generate, compare answers and vote. All of the playground is for them.
"""

from __future__ import annotations

from fastapi import Request

from engine.plugins import BadPluginError
from workbench.access.actor import Role, require
from workbench.questions.question import known_questions

_ROUTES: dict[Role, str] = {
    Role.VIEWER: """
        GET /openapi.json
        GET /docs
        GET /docs/assets
        GET /favicon.ico
        GET /
        GET /health
        GET /healthz
        GET /ready
        GET /metrics
        GET /v1/models
        GET /v1/models/{name:path}
        POST /v1/completions
        POST /v1/chat/completions
        POST /v1/workbench/posterior
        POST /v1/workbench/comparisons
        GET /v1/workbench/comparisons
        GET /v1/workbench/comparisons/{id}
        GET /v1/workbench/comparisons/{id}/link
        POST /v1/workbench/comparisons/{id}/verify
        POST /v1/workbench/comparisons/{id}/vote
        DELETE /v1/workbench/comparisons/{id}/vote
        GET /v1/workbench/ratings
        GET /v1/workbench/jobs
        GET /v1/workbench/jobs/{job_id}
        GET /v1/workbench/jobs/{job_id}/metrics
        GET /v1/workbench/jobs/{job_id}/log
        GET /v1/workbench/devices
        GET /v1/workbench/search
        GET /v1/workbench/seed-offers
        GET /v1/workbench/domains
        GET /v1/workbench/clusterings/{name:path}/changes
        GET /v1/workbench/reports
        GET /v1/workbench/reports/{id}
    """,
    Role.EDITOR: """
        POST /v1/workbench/jobs
        POST /v1/workbench/jobs/forecast
        POST /v1/workbench/jobs/{job_id}/cancel
        POST /v1/workbench/jobs/{job_id}/pause
        POST /v1/workbench/jobs/{job_id}/resume
        POST /v1/workbench/jobs/{job_id}/retry
        PUT /v1/workbench/jobs/{job_id}/priority
        DELETE /v1/workbench/jobs/{job_id}
        PATCH /v1/workbench/experts/{name:path}
        POST /v1/workbench/mixtures
        PATCH /v1/workbench/mixtures/{name:path}
        POST /v1/workbench/mixtures/{name:path}/copy
        POST /v1/workbench/mixtures/{name:path}/add
        POST /v1/workbench/mixtures/{name:path}/remove
        POST /v1/workbench/mixtures/{name:path}/calibrate
        PUT /v1/workbench/aliases/{name:path}
        PUT /v1/workbench/views/{name:path}
        POST /v1/workbench/priors
        PUT /v1/workbench/priors/{name:path}
        PATCH /v1/workbench/clusterings/{name:path}/clusters/{cluster:path}
        DELETE /v1/workbench/reports/{id}
        DELETE /v1/workbench/comparisons/{id}
    """,
    Role.ADMIN: """
        DELETE /v1/workbench/comparisons
        GET /v1/workbench/audit
    """,
}
_THINGS = ("aliases", "clusterings", "corpora", "experts", "mixtures", "priors", "seeds", "views")
ROLES = {line.strip(): role for role, lines in _ROUTES.items() for line in lines.strip().splitlines()}
for _path in (f"/v1/workbench/{things}" for things in _THINGS):
    ROLES |= {f"GET {_path}": Role.VIEWER, f"GET {_path}/{{name:path}}": Role.VIEWER}
    ROLES |= {f"DELETE {_path}/{{name:path}}": Role.EDITOR}
_QUESTIONS = {f"POST /v1/workbench/{path}": Role.VIEWER for path in known_questions()}
if taken := sorted(ROLES.keys() & _QUESTIONS):
    raise BadPluginError(f"A question has the path of another route: {', '.join(taken)}.", "Rename it.")
ROLES |= _QUESTIONS


def role_of(method: str, path: str) -> Role:
    """The role that a route needs, by its path with the names of its parameters."""
    return ROLES.get(f"{'GET' if method == 'HEAD' else method} {path}", Role.ADMIN)


async def check_role(request: Request) -> None:
    """Raises ForbiddenError for users without the role of the route."""
    require(role_of(request.method, request.scope["route"].path))
