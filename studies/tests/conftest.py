"""The fixtures of the workbench's own tests that those of the studies use."""

from tests.conftest import _no_login, _no_settings, _same_answers, empty_registry, home, session
from tests.journeys.conftest import novel_and_training
from tests.ui.conftest import _nobody_answers
from tests.ui.studio.conftest import _no_probes, _opened, folders_named
from tests.workbench.conftest import world

__all__ = [
    "_no_login",
    "_no_probes",
    "_no_settings",
    "_nobody_answers",
    "_opened",
    "_same_answers",
    "empty_registry",
    "folders_named",
    "home",
    "novel_and_training",
    "session",
    "world",
]
