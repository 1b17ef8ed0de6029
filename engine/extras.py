"""The extras of the package, as in `pip install 'expert-workbench[api]'`, and one sentence where one is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from engine.errors import Problem

# The modules that each extra brings in addition to those of `jobs`, which every front end needs; a test compares
# them with pyproject.toml.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "jobs": (
        "alembic",
        "celery",
        "fsspec",
        "honcho",
        "httpx",
        "kombu",
        "peft",
        "plotly",
        "psutil",
        "pydantic",
        "pydantic_core",
        "pydantic_settings",
        "rich",
        "sqlalchemy",
        "typer",
        "umap",
    ),
    "api": ("fastapi", "fastapi_offline", "gradio", "prometheus_client", "starlette", "uvicorn"),
    "studio": ("pandas", "starlette", "streamlit", "uvicorn"),
    "notebook": ("pandas",),
    "s3": ("s3fs",),
}
_USERS = {"jobs": "command line", "api": "API", "studio": "studio", "notebook": "notebook", "s3": "store on S3"}


class MissingExtraError(Problem, code="missing_extra"):
    """Libraries of an extra are not installed."""


def require_extras(*extras: str) -> None:
    """Raises MissingExtraError if a library of these extras is not installed; imports none."""
    for extra in extras:
        missing = [name for name in (*LIBRARIES["jobs"], *LIBRARIES[extra]) if not _is_installed(name)]
        if missing:
            raise MissingExtraError(
                f"The {_USERS[extra]} needs what is not installed: {', '.join(dict.fromkeys(missing))}.",
                install_line(extra),
            )


def install_line(extra: str) -> str:
    """The next step where an extra is missing."""
    return f"Install it with: pip install 'expert-workbench[{extra}]'"


def _is_installed(name: str) -> bool:
    # A loaded module may have no spec: Celery replaces its own.
    return sys.modules[name] is not None if name in sys.modules else find_spec(name) is not None
