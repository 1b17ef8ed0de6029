"""workbench serve: the API with the playground alone, or with vLLM behind it."""

from __future__ import annotations

import secrets
import shlex
import sys
from typing import Annotated, Literal

import typer
from pydantic import SecretStr

from ui.cli.options import Json
from ui.cli.output import print_json, say
from ui.errors import BadUsageError

Engine = Literal["own", "vllm"]
Mode = Literal["mix", "route"]


def serve(
    engine: Annotated[
        Engine, typer.Option(help="own: this server computes; vllm: a vLLM server computes what it can.")
    ] = "own",
    python: Annotated[
        str, typer.Option(help="With vllm: the Python that has vLLM and its plug-in, such as .venv/vllm/bin/python.")
    ] = "",
    seed_model: Annotated[
        str, typer.Option(help="With vllm: the seed model that it holds; left out: the one with the most adapters.")
    ] = "",
    url: Annotated[str, typer.Option(help="With vllm: the URL of a server that runs already; starts none.")] = "",
    port: Annotated[int, typer.Option(help="With vllm: the port of the server that is started.")] = 8100,
    mode: Annotated[
        Mode | None,
        typer.Option(help="With vllm: mix, token by token; or route, by one expert for each request."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start the API server with the playground, without studio, worker and scheduler. Ctrl-C stops it."""
    from ui.addresses import playground_address, public_api_address, require_free_port
    from ui.serving import up
    from ui.serving.vllm_process import KEY_VARIABLE, require_vllm, vllm_command
    from workbench.exports.serve_config import served_seed
    from workbench.registry.database import migrate, reading
    from workbench.settings import get_settings, read_settings
    from workbench.store.storage import get_storage

    settings, command = get_settings(), None
    if engine == "own" and (url or python or seed_model):
        raise BadUsageError("These options are of vLLM.", "Add: --engine vllm")
    migrate(settings)
    if engine == "own":
        settings = read_settings(vllm_url="")
    if engine == "vllm":
        if bool(url) == bool(python):
            raise BadUsageError("Give either the Python that has vLLM, or the URL of a server.", "See --help.")
        key = settings.vllm_key.get_secret_value() if url else secrets.token_urlsafe(32)
        address = url or f"http://127.0.0.1:{port}"
        settings = read_settings(vllm_url=address, vllm_key=SecretStr(key), vllm_mode=mode or settings.vllm_mode)
        if python:
            require_vllm(python)
            require_free_port(port, "--port", "127.0.0.1")
            with reading(settings) as session:
                served = served_seed(session, get_storage(settings), seed_model)
            command = vllm_command(served, python, port, key)
    if as_json:
        print_json({"api": f"{public_api_address(settings)}/v1", "playground": playground_address(settings)})
    else:
        if command:
            say(f"vLLM starts with {command.seed_model}, in a minute or more; requests before that are refused.")
            variables = [f"{name}={value}" for name, value in command.environment.items() if name != KEY_VARIABLE]
            say(f"Its command: {' '.join(variables)} {KEY_VARIABLE}=… {shlex.join(command.words)}")
        say(f"The API listens at {public_api_address(settings)}/v1, the playground at {playground_address(settings)}.")
    raise typer.Exit(up.serve_api(settings, command, sys.stderr if as_json else sys.stdout))
