"""Kinds of job: the spec of each, and which registry objects its jobs create and require; and how specs are parsed.

A spec validates itself, is stored as JSON with its job, and is the job's only input. Every description of a field is
shown as form help and in `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from engine.plugins import find_plugins, missing_package
from workbench.errors import BadSpecError, Complaint
from workbench.formatting.number_format import pluralize
from workbench.specs.base import SEED, RegistryObject, Sane, Spec, What

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


GROUP = "expert_workbench.kinds"  # of entry points
FirstStep = Literal["", "domains", "seeds", "experts", "evaluations"]
SpecType = TypeVar("SpecType", bound=Spec)
Result = Mapping[str, Any]  # of a job, as its runner stored it


@dataclass(frozen=True)
class ResultLink:
    """Where a result is shown: the address of a page of the studio, the label of the link, and the page's choices."""

    address: str
    label: str
    state: Callable[[Result], dict[str, Any]] = field(default=lambda _: {})
    beside: ResultLink | None = None  # another page to go on with


def stored_sentence(result: Result) -> str:
    """The sentence or summary in a result, or else its short values by their names."""
    for name in ("sentence", "summary"):
        if isinstance(sentence := result.get(name), str):
            return sentence
    values = [f"{name}: {value}" for name, value in result.items() if isinstance(value, str | int | float)]
    return f"{', '.join(values)}." if values else ""


def expert_link(label: str, beside: ResultLink | None = None) -> ResultLink:
    """A link to the expert that a result names."""
    return ResultLink("experts", label, lambda result: {"experts.chosen": [result["expert"]]}, beside)


def _side_by_side(result: Result) -> dict[str, Any]:
    seed = f"{SEED}{result['seed']}" if result.get("seed") else ""
    names = [name for name in (seed, result.get("mixture"), result.get("expert")) if name]
    return {**dict(zip(("left", "right"), names, strict=False)), "format": "chat"}


# The playground with the seed model and the mixture that a result names; the expert in the place of one that it lacks.
CHAT_LINK = ResultLink("playground", "Chat with it", _side_by_side)


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[SpecType]):
    """A kind of job. Its name is the default of the field `kind` of its spec.

    `creates`, `requires` and `reads` have no default: use `nothing` and `no_path` for a kind that touches nothing.
    The built-in kinds are run by the module of their name in `jobs.kinds`, or by the function that `runner` names;
    those with a form on the page Train have it in `ui.kinds`. Other packages name both.
    """

    spec: type[SpecType]
    title: str  # start of its jobs' titles, before the name of their subject, such as “Train expert”
    creates: Callable[[SpecType], list[RegistryObject]]  # there afterwards, if names are known beforehand
    requires: Callable[[SpecType], list[RegistryObject]]  # what must be there before
    reads: Callable[[SpecType], str]  # the local file or folder that it reads; empty for none
    complaints: Callable[[Session, SpecType], list[str]] | None = None  # further reasons why it is impossible
    settled: Callable[[Session, SpecType], SpecType] | None = None  # the spec with defaults that the registry decides
    advice: Callable[[Session, SpecType], list[str]] | None = None  # what to know before it starts, if anything
    may_replace: Callable[[SpecType], bool] = lambda _: False  # whether the names that it creates may be taken
    # whether it also creates domains whose names are known only afterwards
    creates_unnamed_domains: Callable[[SpecType], bool] = lambda _: False
    empty_means_all_domains: bool = False  # whether an empty field `domains` stands for every domain
    # whether its jobs compute on a GPU, where their worker has one to lease: all, or those with such a stored spec
    uses_gpu: bool | Callable[[Session, Mapping[str, Any]], bool] = False
    # whether its training uses WORKBENCH_PROCESSES processes, on a GPU each: all, or those with such a stored spec
    uses_processes: bool | Callable[[Mapping[str, Any]], bool] = False
    first_step: FirstStep = ""  # what a new workbench lacks and its jobs bring
    leaves_backbone: bool = False  # whether its training changes nothing of the model beneath the experts
    probe: Callable[[SpecType], Probe[SpecType]] | None = None  # what of it is run to forecast its costs
    replayed: Callable[[SpecType], SpecType] | None = None  # of a training: the spec that makes the same weights again
    follow_up: Callable[[SpecType], Spec | None] = lambda _: None  # the job that scores what its training has made
    command: str = ""  # that submits it, with the fields that go without a flag: `expert certify EXPERT`
    sentence: Callable[[Result], str] = stored_sentence  # what a result says
    link: ResultLink | None = None  # where a result is shown
    runner: str = ""  # `package.module:function`, imported when a job runs
    form: str | None = ""  # `package.module:FORM`, its form on the page Train; empty: one from its spec; None: none

    @property
    def name(self) -> str:
        """The value of the spec's field `kind`."""
        return str(self.spec.model_fields["kind"].default)

    @property
    def module(self) -> str:
        """The module of a built-in kind in `jobs.kinds` and `ui.kinds`, such as `training.make_seed`; else empty."""
        package, folder, *group = self.spec.__module__.split(".")
        return f"{group[0]}.{self.name.replace('-', '_')}" if (package, folder) == ("workbench", "kinds") else ""

    def computes_on_gpu(self, session: Session, spec: Mapping[str, Any]) -> bool:
        """Whether a job with this stored spec computes on a GPU, where its worker has one to lease."""
        return self.uses_gpu(session, spec) if callable(self.uses_gpu) else self.uses_gpu

    def spreads(self, spec: Mapping[str, Any]) -> bool:
        """Whether a job with this stored spec uses WORKBENCH_PROCESSES processes."""
        return self.uses_processes(spec) if callable(self.uses_processes) else self.uses_processes


def nothing(_: Any) -> list[RegistryObject]:
    """For a kind that creates, or requires, nothing in the registry."""
    return []


def no_path(_: Any) -> str:
    """For a kind that reads no file or folder of this machine."""
    return ""


def named(what: What, *names: str | None) -> list[RegistryObject]:
    """Objects of one sort; names that are None or empty are left out."""
    return [(what, name) for name in names if name]


@cache
def known_kinds() -> dict[str, Kind[Any]]:
    """Every kind by its name. Raises BadPluginError."""
    return find_plugins("workbench.kinds", GROUP, "KIND", Kind, lambda kind: kind.name)


def kind_named(name: object) -> Kind[Any]:
    """One kind. Raises BadSpecError that lists the kinds."""
    kinds = known_kinds()
    if not isinstance(name, str) or name not in kinds:
        shown = f"is unknown: {name!r}" if name else "is missing"
        problems = [f"kind: {shown}; choose one of {', '.join(sorted(kinds))}.", missing_package(str(name))]
        raise BadSpecError(list(filter(None, problems)))
    return kinds[name]


_STEPS = 4  # the first is slower than the others, which are measured
_SHORTEST = 32  # tokens of a block that is offered


@dataclass(frozen=True)
class Probe(Generic[SpecType]):
    """A job as short as shows what the full one takes, and how often the full one does what the short one does."""

    short: SpecType
    num_steps: int = 0  # 0: nothing is trained, and the short job is the full one
    num_evaluations: int = 0  # without the one before the first update
    num_checkpoints: int = 0
    base: RegistryObject | None = None  # where the tokenizer is: a seed model, an expert, or a mixture of one base
    smaller: tuple[SpecType, ...] = ()  # the full job with less memory, the nearest first
    num_processes: int = 1  # that train together; the short job is then the largest share that one of them has
    batch_shares: float = 1.0  # sequences of the full job's batch for each of the short one's
    domain_shares: float = 1.0  # domains of the full job for each of the short one's
    expert_shares: float = 1.0  # and experts


def training_probe(spec: Any, base: RegistryObject) -> Probe[Any]:
    """The probe of a spec whose field `training` says how it is trained, from a base in the registry."""
    training = spec.training
    num_steps = min(_STEPS, training.max_steps)
    # A checkpoint before the last: with patience, that one has no best weights next to it.
    short = replace(training, num_steps=num_steps, checkpoint_every=max(1, num_steps // 2))
    return Probe(
        short=spec.model_copy(update={"training": short}),
        num_steps=training.max_steps,
        num_evaluations=-(-training.max_steps // training.evaluate_every),
        num_checkpoints=-(-training.max_steps // training.checkpoint_every),
        base=base,
        smaller=tuple(_smaller(spec)),
    )


def _smaller(spec: Any) -> Iterator[Any]:
    """Computes activations again, which changes no number; or halves the sequences, and afterwards the block.

    Gradients of half the sequences are summed over twice the batches.
    """
    training = spec.training
    if not training.activation_checkpointing:
        yield spec.model_copy(update={"training": replace(training, activation_checkpointing=True)})
    while training.sequences_per_domain > 1:
        half = training.sequences_per_domain // 2
        factor = -(-training.sequences_per_domain // half)
        training = replace(training, sequences_per_domain=half, accumulate=training.accumulate * factor)
        yield spec.model_copy(update={"training": training})
    while training.block_size // 2 >= _SHORTEST:
        training = replace(training, block_size=training.block_size // 2)
        yield spec.model_copy(update={"training": training})


SaneType = TypeVar("SaneType", bound=Sane)


def parse_spec(data: dict[str, Any]) -> Any:
    """A job's spec from its JSON. Raises BadSpecError with all complaints at once."""
    return parse_as(kind_named(data.get("kind")).spec, data)


def unreadable_reason(data: dict[str, Any]) -> str:
    """Why a queued job with this spec waits for another worker, as a sentence; empty if this version can read it."""
    try:
        parse_spec(data)
    except BadSpecError as bad:
        fault = bad.complaints[0].partition(";")[0].rstrip(".")  # without the list of all kinds
        return f"Waits for a newer worker, or one with its plug-in: its spec cannot be read here ({fault})."
    return ""


def paths_read(data: dict[str, Any]) -> list[str]:
    """The local file or folder that a job with this spec reads, if any.

    If the spec is invalid or its kind is not installed: every text in it, since any of them may be that path.
    """
    try:
        path = kind_named(data.get("kind")).reads(parse_spec(data))
    except BadSpecError:
        return [*_texts(data)]
    return [path] if path else []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def parse_as(spec: type[SaneType], data: dict[str, Any]) -> SaneType:
    """A spec, or a question, of this type. Raises BadSpecError with all complaints at once."""
    try:
        return spec.model_validate(data)
    except ValidationError as error:
        raise BadSpecError(complaints_of(error)) from None


def complaints_of(error: ValidationError) -> list[Complaint]:
    """A complaint for each validation error, with the path of its field."""
    complaints = []
    for details in error.errors():
        if details["type"] != "default_factory_not_called":  # the field that it waits for has a fault of its own
            field = tuple(str(part) for part in details["loc"])
            complaints.append(Complaint(f"{_complaint(details)}.", field))
    return complaints


def _complaint(details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return "is missing"
        case "too_short":
            fewest = pluralize(context["min_length"], "entry", "entries")
            return f"must have at least {fewest}, not {context['actual_length']}"
        case "too_long":
            most = pluralize(context["max_length"], "entry", "entries")
            return f"must have at most {most}, not {context['actual_length']}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "there is no such field"
        case "string_too_short":
            return "must not be empty"
        case "value_error" | "assertion_error":
            return str(context["error"])
        case type if type in _EXPECTED:
            return f"must be {_EXPECTED[type].format(**context)}, not {details['input']!r}"
    return details["msg"]


_EXPECTED = {  # by the type of pydantic's errors
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a JSON object",
    "dataclass_type": "a JSON object",
    "model_type": "a JSON object",
    "model_attributes_type": "a JSON object",
}
