"""A question to what is stored, written once: its fields, its typed answer, and how that is computed.

The route of the API, the verb of the command line, the client's request, the notebook and its table follow from the
class. Other packages offer theirs in their pyproject.toml:

    [project.entry-points."expert_workbench.questions"]
    largest-domains = "largest_domains:LargestDomainsRequest"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import Field
from sqlalchemy.orm import Session

from engine.mixing.evidence import AnyEvidence
from engine.mixing.gates.updating import UpdatingGateConfig
from engine.plugins import find_plugins
from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer
from workbench.integrity.check import naming_damage
from workbench.registry.database import reading
from workbench.requests.body import RequestBody
from workbench.settings import Settings, get_settings
from workbench.store.storage import Storage, get_storage

GROUP = "expert_workbench.questions"  # of entry points
AnswerType = TypeVar("AnswerType", bound=Answer)
Result = TypeVar("Result")

_HELP = {field.name: field.metadata.get("description", "") for field in fields(UpdatingGateConfig)}
Evidence = Annotated[AnyEvidence, Field(description=_HELP["evidence"])]
NewestWeight = Annotated[float, Field(ge=0, le=1, description=_HELP["newest_weight"])]
MixtureName = Annotated[str, Field(description="Name of a mixture.")]
Split = Annotated[HeldOutSplit, Field(description="Which held-out part.")]
LeftOut = Annotated[
    list[str], Field(description="Experts that take part and lack scores: all numbers are of the mixture without them.")
]
Unrouted = Annotated[
    list[str], Field(description="Scored domains left out, whose distances to the gate's clusters are not measured.")
]


class Question(RequestBody, Generic[AnswerType]):
    """The fields of a question. Its docstring is its help; a module has it as `QUESTION`."""

    path: ClassVar[str]  # of its route, below /v1/workbench/; its name
    operation: ClassVar[str] = ""  # of the route in the API's schema, if another than the path
    rows: ClassVar[str] = ""  # the field of the answer that is a table

    def answer(self, session: Session, storage: Storage) -> AnswerType:
        """The answer, from the registry and from stored scores; nothing is changed."""
        raise NotImplementedError

    @classmethod
    def answer_type(cls) -> type[AnswerType]:
        """The type of its answers."""
        bases = [base.__pydantic_generic_metadata__["args"] for base in cls.__mro__ if issubclass(base, Question)]
        [answer_type] = next(filter(None, bases))
        return answer_type  # type: ignore[no-any-return]


@cache
def known_questions() -> dict[str, type[Question[Any]]]:
    """Every question by its path. Raises BadPluginError."""
    questions: Any = find_plugins("workbench.questions", GROUP, "QUESTION", type(Question), lambda one: one.path)
    return dict(questions)


def ask(service: Callable[[Session, Storage], Result], settings: Settings | None = None) -> Result:
    """What a question answers (`ask(question.answer)`), read in one short transaction; what is damaged is named."""
    settings = settings or get_settings()
    with naming_damage(settings), reading(settings) as session:
        return service(session, get_storage(settings))
