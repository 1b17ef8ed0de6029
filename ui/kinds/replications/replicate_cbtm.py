"""Reporting on a replication of C-BTM."""

from __future__ import annotations

from ui.kinds.replications.report_screen import REPORT_SCREEN

SCREEN = REPORT_SCREEN
