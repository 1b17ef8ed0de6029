"""Importing a corpus; its form is on the page Corpora & domains."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Result, ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import CORPORA, TRAIN
from ui.present.text.formatting import listed, pluralize
from workbench.kinds.data.import_corpus import ImportCorpus


def _sentence(result: Result) -> str:
    documents = f"{pluralize(result['num_documents'], 'document')} in {listed(result['domains'])}."
    return " ".join(filter(None, (documents, result.get("cut"), result.get("kept"))))


_TRAIN = ResultLink(TRAIN, "Train an expert on it", lambda result: {"train.text": result["domains"], "train.kind": ""})

SCREEN = Screen(
    command=partial(command_line, "corpus add", ImportCorpus, ("name", "path")),
    sentence=_sentence,
    link=ResultLink(
        CORPORA, "See the domains", lambda result: {"part": "Domains", "domain": result["domains"][0]}, _TRAIN
    ),
    form=None,
)
