"""Visits to the studio's pages: open one, wait for its answers, find what it shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from ui.client import Client
from workbench.questions.question import Question
from workbench.registry.database import reading

STUDIO = str(Path(__file__).parents[3] / "ui" / "studio" / "app.py")


def open_page(name: str, **state: Any) -> AppTest:
    """A page with its answers, by its name or its script; in the names of what is chosen, "__" stands for a dot."""
    app = AppTest.from_file(STUDIO, default_timeout=120)
    for key, value in state.items():
        app.session_state[key.replace("__", ".")] = value
    app.run()
    return settled(app.switch_page(name if name.endswith(".py") else f"app_pages/{name}.py").run())


def answer_as(monkeypatch: pytest.MonkeyPatch, method: str, answer: Callable[..., Any]) -> None:
    """Answers a question with `answer(client, **fields)`, or another request of that method's name."""
    before = Client.ask
    if method in ("posterior", "estimate_prior"):
        monkeypatch.setattr(Client, method, answer)

    def ask(self: Client, question: Question[Any]) -> Any:
        if question.path != method.replace("_", "-"):
            return before(self, question)
        return answer(self, **{name: getattr(question, name) for name in question.model_fields_set})

    monkeypatch.setattr(Client, "ask", ask)


def named(elements: Any, label: str) -> Any:
    """The first element whose label holds these words."""
    return next(element for element in elements if label in element.label.replace("\\", ""))


def output(app: AppTest) -> str:
    """All that the page says, but for labels and tables."""
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.success)
    return "\n".join(one.value for kind in kinds for one in kind).replace("\\", "")


def drawn_tokens(app: AppTest) -> list[dict[str, Any]]:
    """What the page gives to its drawings of tokens."""
    return [json.loads(one.proto.json) for one in app.get("bidi_component") if one.proto.component_name == "token_view"]


def settled(app: AppTest, patience: float = 120.0) -> AppTest:
    """The page once no answer is on its way any more: a busy machine takes longer than the page waits at first."""
    until = time.monotonic() + patience
    while ":material/hourglass_top:" in output(app) and time.monotonic() < until:
        time.sleep(0.1)
        app.run()
    return app


def read(look: Callable[..., Any], *args: Any) -> Any:
    """What a service says of the registry."""
    with reading() as session:
        return look(session, *args)
