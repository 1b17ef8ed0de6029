"""How a model of the server is used elsewhere: programs and commands of exactly this model, ready to be copied."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ui.addresses import public_api_address
from workbench.access.home_token import needs_token
from workbench.formatting.shell_command import shell_command
from workbench.settings import Settings

MAX_TOKENS = 64
_PROMPT = "Once upon a time"


def openai_lines(model: str, settings: Settings) -> str:
    """Python with OpenAI's client, which talks with the API server."""
    module, key = _python_token(settings)
    return "\n".join(
        [
            *([f"import {module}"] if module else []),
            "from openai import OpenAI",
            f'client = OpenAI(base_url="{public_api_address(settings)}/v1", api_key={key})',
            f"answer = client.completions.create(model={_quote(model)}, prompt={_quote(_PROMPT)}, "
            f"max_tokens={MAX_TOKENS})",
            "print(answer.choices[0].text)",
            'print(answer.model_extra["manifest"]["experts"][0]["sha256"])  # of the weights that wrote it',
        ]
    )


def notebook_lines(model: str, kind: str) -> str:
    """Python in this machine's own process, without a server; `kind` is expert or mixture."""
    return "\n".join(
        [
            "from ui.notebook import Workbench",
            f"model = Workbench().{kind}({_quote(model)})",
            f"print(model.generate({_quote(_PROMPT)}, max_tokens={MAX_TOKENS}))",
            f"print(model.posterior({_quote(_PROMPT)}))  # weight of each expert at each token",
            "print(model.card)",
        ]
    )


def curl_line(path: str, body: dict[str, Any], settings: Settings) -> str:
    """A call of the API server."""
    token = shell_header(settings)
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {public_api_address(settings)}{path}{token} -H 'Content-Type: application/json' -d {data}"


def completion_line(model: str, settings: Settings) -> str:
    """The same completion as a call of the API server."""
    body = {"model": model, "prompt": _PROMPT, "max_tokens": MAX_TOKENS}
    return curl_line("/v1/completions", body, settings)


def generate_line(model: str) -> str:
    """The same as a command."""
    return shell_command("generate", model, _PROMPT, "--max-tokens", str(MAX_TOKENS))


def shell_header(settings: Settings) -> str:
    """The option of curl that sends the token, without the token itself; empty where none is needed."""
    if not needs_token(settings):
        return ""
    token = "$WORKBENCH_TOKEN" if settings.token.get_secret_value() else "$(workbench token)"
    return f' -H "Authorization: Bearer {token}"'


def _python_token(settings: Settings) -> tuple[str, str]:
    """The module that gives the token, and the expression of it."""
    if not needs_token(settings):
        return "", '"none"'
    if settings.token.get_secret_value():
        return "os", 'os.environ["WORKBENCH_TOKEN"]'
    return "subprocess", 'subprocess.check_output(["workbench", "token"], text=True).strip()'


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
