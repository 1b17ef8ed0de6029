"""The table of all actions of the pages: each with the command and the HTTP route that do the same.

An action is a button, a switch or a download that is drawn in `ui/studio`, `ui/widgets` or `ui/playground`. It is known
by its module and by its label as the source has it: `{…}` stands for what is filled in, and a label that is computed is
the expression. A test walks the pages and fails for an action that is missing here, for a command that `workbench` does
not have and for a route that is not in the OpenAPI schema.
"""

from __future__ import annotations

from dataclasses import dataclass

STUDIO, WIDGETS, PLAYGROUND = "studio", "widgets", "playground"  # the folders of `ui` whose actions are listed


@dataclass(frozen=True)
class Twin:
    """The commands, without `workbench`, and the routes that do what an action does."""

    commands: tuple[str, ...]
    routes: tuple[str, ...]
    gap: str = ""  # why there is no command


@dataclass(frozen=True)
class ViewOnly:
    """An action that stores and sends nothing."""

    reason: str


Action = Twin | ViewOnly
_V1 = "/v1/workbench"


def _twin(commands: str, *routes: str) -> Twin:
    """A twin; commands are separated by commas, and routes are written as `METHOD /path` below /v1/workbench."""
    parts = [route.partition(" ") for route in routes]
    return Twin(
        tuple(command.strip() for command in commands.split(",")),
        tuple(f"{method} {path if path.startswith('/v1') else _V1 + path}" for method, _, path in parts),
    )


def _job(commands: str) -> Twin:
    """A job: over HTTP every kind is submitted with its spec."""
    return _twin(commands, "POST /jobs")


_FILLS = ViewOnly("It fills in fields of a form of this page.")
_OPENS = ViewOnly("It opens a page or a form.")
_SHOWS = ViewOnly("It changes only what the page shows.")
_TABLE = ViewOnly("It saves a table of the page; `list --json` and the GET routes have its rows.")
_SAVE_GATE = _twin("mixture gate", "PATCH /mixtures/{name}")
_READ_TEXT = Twin((), ("POST /v1/workbench/posterior",), gap="No command reads the weights of a given text yet.")

ACTIONS: dict[str, dict[str, Action]] = {
    "studio/analysis/opening_text.py": {
        "_READ": _READ_TEXT,
        "Take an example": _FILLS,
    },
    "studio/analysis/specialization_views.py": {
        "Compare learning and forgetting": _OPENS,
        "Score what is missing": _job("evaluate run"),
        "label": _SHOWS,
    },
    "studio/app_pages/experts.py": {
        "All experts": _SHOWS,
        "Delete": _twin("view delete", "DELETE /views/{name}"),
        "Save this view": _twin("view save", "PUT /views/{name}"),
        "view.name": _OPENS,
    },
    "studio/app_pages/overview.py": {
        "label": _job("up"),  # `up --demo` and `up --demo small`
    },
    "studio/app_pages/playground.py": {
        "Open in a new window": _OPENS,
        "Retry": ViewOnly("It looks again whether the API server runs."),
    },
    "studio/app_pages/posteriors.py": {
        "Show the posterior": _READ_TEXT,
        "Take an example": _FILLS,
    },
    "studio/app_pages/seeds.py": {
        "Open the form “{…}”": _OPENS,
        "Train experts on it": _OPENS,
        "label": _job("seed add"),
    },
    "studio/app_pages/selfcheck.py": {
        "label": _job("selfcheck"),
    },
    "studio/app_pages/specialization.py": {
        "label": _job("evaluate overlap"),
    },
    "studio/app_pages/train.py": {
        "form.title": _OPENS,
        "label": _OPENS,
        "Make it: {…}": _OPENS,
    },
    "studio/clusters/cluster_map_view.py": {
        "Move": _job("cluster pin"),
    },
    "studio/clusters/cluster_view.py": {
        "Compare with the current text": _twin("cluster changes", "GET /clusterings/{name}/changes"),
        "Save": _twin("cluster rename, cluster note", "PATCH /clusterings/{name}/clusters/{cluster}"),
        "Fill in what {…} was trained with": _FILLS,
    },
    "studio/clusters/map_selection.py": {
        "Make a domain of these {…}": _job("cluster choose"),
        "Start both": _job("cluster choose, train expert, train joint"),
        "Train an expert on it": _OPENS,
    },
    "studio/experts/expert_card.py": {
        "Enabled": _twin("expert enable, expert disable", "PATCH /experts/{name}"),
        "{…} {…}": _twin("expert enable, expert disable", "PATCH /experts/{name}"),
        "Save": _twin("expert note", "PATCH /experts/{name}"),
        "Delete": _twin("expert delete", "DELETE /experts/{name}"),
        "Remove from {…}": _twin("mixture remove", "POST /mixtures/{name}/remove"),
        "Rename": _twin("expert rename", "PATCH /experts/{name}"),
        "label": _OPENS,
    },
    "studio/experts/certificates.py": {
        "Certify the addition": _job("expert certify"),
    },
    "studio/job_views/job_view.py": {
        "Cancel the job": _twin("job cancel", "POST /jobs/{job_id}/cancel"),
        "Delete for good": _twin("job delete", "DELETE /jobs/{job_id}"),
        "label": _twin(
            "job cancel, job pause, job resume, job retry",
            *(f"POST /jobs/{{job_id}}/{action}" for action in ("cancel", "pause", "resume", "retry")),
        ),
    },
    "studio/job_views/pending_jobs.py": {"Score what is missing": _job("evaluate run")},
    "studio/mixtures/mixture_controls.py": {
        "plain(member.expert) + away": _SHOWS,  # saved with the whole mixture
    },
    "studio/mixtures/mixture_edit.py": {
        "Make the mixture": _twin("mixture create", "POST /mixtures"),
        "Copy the mixture": _twin("mixture copy", "POST /mixtures/{name}/copy"),
        "Discard changes": _SHOWS,
        "Load what is saved": _SHOWS,
        "Save to the mixture": _twin("mixture toggle, mixture weights, mixture gate", "PATCH /mixtures/{name}"),
        "Calibrate": _twin("mixture calibrate", "POST /calibration"),
        "Keep {…}": _SHOWS,  # the mixture was made with this evidence
        "Score dev text and calibrate": _job("evaluate run"),
        "Save this evidence": _twin("mixture calibrate", "POST /mixtures/{name}/calibrate"),
        "Propose a temperature from dev text": _twin("evaluate grid", "POST /cluster-grid"),
        "Save this temperature": _SAVE_GATE,
    },
    "studio/app_pages/mixtures.py": {
        "Apply to the mixture": _FILLS,
        "Delete this prior": _twin("prior delete", "DELETE /priors/{name}"),
        "Estimate": _twin("prior estimate", "POST /priors"),
        "Keep": _twin("prior set", "PUT /priors/{name}"),
    },
    "studio/shared/use_it.py": {
        "Remove": _twin("alias delete", "DELETE /aliases/{name}"),
        "Set the alias": _twin("alias set", "PUT /aliases/{name}"),
    },
    "studio/training/want_view.py": {
        "Import an expert": _OPENS,
        "Make a seed model of a model": _OPENS,
        "label": _OPENS,
        "Continue: {…}{…}": _OPENS,
        "Measure them": _twin("train expert", "POST /jobs/forecast"),
    },
    "widgets/address.py": {
        "label": _OPENS,
    },
    "widgets/background.py": {
        "Retry": ViewOnly("It computes again what the page could not show."),
    },
    "widgets/charts_and_tables.py": {
        "Download as CSV": _TABLE,
    },
    "widgets/job_form.py": {
        "Use these settings": _FILLS,
        "words": _twin("train expert", "POST /jobs/forecast"),
        "label": _job(
            "train joint, train expert, train clusters"
        ),  # of every kind of job: the test asks each for its command,
    },
    "widgets/notices.py": {
        "label": _OPENS,
        "Delete for good": _twin(
            "report delete, cluster delete, corpus delete, mixture delete",
            *(
                f"DELETE /{things}"
                for things in ("reports/{id}", "clusterings/{name}", "corpora/{name}", "mixtures/{name}")
            ),
        ),
    },
    "playground/app.py": {
        "Ablation: leave out each expert and part": _SHOWS,
        "Active parts": _SHOWS,
        "Blind": _SHOWS,
        "Copy": ViewOnly("It copies an answer to the clipboard."),
        "Copy link": _twin("comparison link", "GET /comparisons/{id}/link"),
        "Copy the grid's link": ViewOnly("It copies the page's address to the clipboard."),
        "Fill the grid": _twin("generate", "POST /v1/completions"),
        "Generate": _twin("generate, comparison create", "POST /v1/completions", "POST /comparisons"),
        "New chat": ViewOnly("It forgets what this window shows; a conversation is a request's own."),
        "PNG": ViewOnly("The browser draws the strip that the page holds."),
        "SVG": ViewOnly("The browser draws the strip that the page holds."),
        "History": _twin("comparison list", "GET /comparisons"),
        "Regenerate": _twin("generate", "POST /v1/completions"),
        "Sampling": _OPENS,
        "Stop": ViewOnly("It ends an answer; a command and a client of the API are interrupted instead."),
        "Stop filling": ViewOnly("It ends a grid; a command and a client of the API are interrupted instead."),
        "Verify": _twin("comparison verify", "POST /comparisons/{id}/verify"),
        "X/Y grid": _OPENS,
        "label": _twin("comparison vote", "POST /comparisons/{id}/vote"),
    },
}

PLANNED_KINDS = {  # kinds of job without a form: the command that submits them as a part of its plan
    "cluster-part": "cluster find",
    "make-mixture": "train clusters",
}
