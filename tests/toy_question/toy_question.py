"""A question from another package: the largest domains."""

from __future__ import annotations

from pydantic import Field
from sqlalchemy.orm import Session

from workbench.answers.base import Answer
from workbench.questions.question import Question
from workbench.registry.corpora import list_domains
from workbench.store.storage import Storage


class DomainSize(Answer):
    """A domain with its number of words."""

    domain: str
    num_words: int


class LargestDomains(Answer):
    """Domains, the largest first."""

    rows: list[DomainSize]


class LargestDomainsRequest(Question[LargestDomains]):
    """The domains with the most words."""

    path = "largest-domains"
    rows = "rows"

    corpus: str = Field(description="Name of a corpus.")
    most: int = Field(3, ge=1, description="How many domains.")

    def answer(self, session: Session, _: Storage) -> LargestDomains:
        domains = [one for one in list_domains(session) if one.corpus == self.corpus]
        ranked = sorted(domains, key=lambda domain: -domain.num_words)[: self.most]
        return LargestDomains(rows=[DomainSize(domain=one.name, num_words=one.num_words) for one in ranked])
