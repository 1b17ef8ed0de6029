"""The form of the counting of words on the page Train."""

from __future__ import annotations

from ui.kinds.form import DOMAINS, TrainForm

FORM = TrainForm(title="Word count", about="How many words a domain has.", label="Count the words", needs=(DOMAINS,))
