"""The perplexities and accuracies of experts on the domains that they were scored on."""

from __future__ import annotations

from pydantic import Field
from sqlalchemy.orm import Session

from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import PerplexityTable, perplexity_table
from workbench.questions.question import Question
from workbench.store.storage import Storage


class PerplexitiesRequest(Question[PerplexityTable]):
    """The perplexity and accuracy of each expert on each domain, and its ratio to the in-domain expert."""

    path = "perplexities"

    mixture: str | None = Field(None, description="Name of a mixture; left out: all experts.")
    split: HeldOutSplit = Field("test", description="Which held-out part.")

    def answer(self, session: Session, storage: Storage) -> PerplexityTable:
        return perplexity_table(session, self.mixture, self.split)


QUESTION = PerplexitiesRequest
