"""Making a mixture at the end of a plan."""

from __future__ import annotations

from ui.kinds.screen import ResultLink, Screen
from ui.present.pages import MIXTURES
from ui.present.text.formatting import pluralize

SCREEN = Screen(
    command=None,
    sentence=lambda result: f"{pluralize(len(result['experts']), 'expert')} in the mixture {result['mixture']}.",
    link=ResultLink(MIXTURES, "See the mixture", lambda result: {"mixture": result["mixture"]}),
    form=None,
)
