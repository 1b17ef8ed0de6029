"""The page's connection to its server: what to do while it is away, and a fresh page once a new server answers."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

_ADVICE = (
    "The studio's server does not answer. If it was stopped, start it again with “workbench up”. "
    "This page reconnects by itself, and jobs resume."
)

# Streamlit reconnects without drawing the page again, but a new server knows nothing of it: a change of a widget in a
# fragment does nothing. So a page that has reconnected asks to be drawn, and loads anew where its session is another;
# its address holds its choices.
_JS = """
const STATE = "data-test-connection-state";
const app = () => document.querySelector('[data-testid="stApp"]');
const isAway = () => app()?.getAttribute(STATE) !== "CONNECTED";
const advise = (words) => {
  if (!isAway()) return;
  for (const title of document.querySelectorAll('[data-testid="stDialog"] h2')) {
    const body = title.nextElementSibling;
    if (title.textContent.trim() !== "Connection error" || !body || body.querySelector(".server-away")) continue;
    const text = document.createElement("p");
    text.className = "server-away";
    text.setAttribute("role", "alert");
    text.textContent = words;
    body.append(text);
  }
};
export default function (component) {
  const {data, setTriggerValue} = component;
  const page = (window.workbenchPage ??= {session: data.session});
  if (page.session !== data.session) location.reload();
  let wasAway = isAway();
  const dialogs = new MutationObserver(() => advise(data.advice));
  const connection = new MutationObserver(() => {
    if (isAway()) {
      dialogs.observe(document.body, {childList: true, subtree: true});
      advise(data.advice);
    } else {
      dialogs.disconnect();
      if (wasAway) setTriggerValue("reconnected", true);
    }
    wasAway = isAway();
  });
  page.stop?.();
  page.stop = () => { connection.disconnect(); dialogs.disconnect(); };
  connection.observe(app(), {attributeFilter: [STATE]});
  return page.stop;
}
"""

_draw = st.components.v2.component("connection", html="", js=_JS)


def watch_connection() -> None:
    """Draws nothing. Called once for each page."""
    context = get_script_run_ctx()
    data = {"session": context.session_id if context else "", "advice": _ADVICE}
    _draw(key="connection", data=data, on_reconnected_change=lambda: None)
