"""The model card of an export: README.md with the metadata that the Hugging Face hub renders.

Names are data: metadata is written by a YAML library, and every text of the body is escaped.
Sources: https://huggingface.co/docs/hub/model-cards, https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.exports.facts import DomainFacts, ExpertFacts

Format = Literal["hf", "peft", "moe", "gguf"]
_LIBRARY: dict[Format, str] = {"hf": "transformers", "peft": "peft", "moe": "transformers", "gguf": "gguf"}
_SPECIAL = re.compile(r"([!-/:-@\[-`{-~])")  # CommonMark: a backslash before ASCII punctuation makes it plain
_CARD_TAG = "expert-workbench"


@dataclass(frozen=True)
class CardFacts:
    """The facts on a model card. `weights`: the shares of several experts; `made_by` says how they became one."""

    title: str
    format: Format
    experts: tuple[ExpertFacts, ...]
    weights: tuple[float, ...] = (1.0,)
    made_by: str = ""

    @property
    def is_single(self) -> bool:
        return len(self.experts) == 1


def model_card(facts: CardFacts) -> str:
    """The text of README.md. Raises nothing for any name."""
    from huggingface_hub import ModelCard

    metadata = _metadata(facts).to_yaml(line_break="\n")
    text = f"---\n{metadata}\n---\n\n{chr(10).join(_body(facts))}"
    return str(ModelCard(text).content)  # reading it back fails where the metadata is broken


def _metadata(facts: CardFacts):  # type: ignore[no-untyped-def]  # ModelCardData, which is imported when it is needed
    from huggingface_hub import EvalResult, ModelCardData

    scores = facts.experts[0].scores if facts.is_single else ()
    bases = sorted({expert.seed_on_hub for expert in facts.experts} - {""})
    relation = {"peft": "adapter"}.get(facts.format, "finetune" if facts.is_single else "merge")
    datasets = sorted({one_line(domain.dataset) for expert in facts.experts for domain in expert.domains} - {""})
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=one_line(score.domain),
            dataset_name=one_line(score.domain),
            dataset_split=score.split,
            metric_type="perplexity",
            metric_name="Perplexity per token",
            metric_value=score.perplexity,
        )
        for score in scores
    ]
    return ModelCardData(
        base_model=bases or None,
        base_model_relation=relation if bases else None,
        datasets=datasets or None,
        eval_results=results or None,
        library_name=_LIBRARY[facts.format],
        model_name=one_line(facts.title) if results else None,
        pipeline_tag="text-generation",
        tags=[_CARD_TAG, *dict.fromkeys(expert.method for expert in facts.experts)],
    )


def one_line(text: str) -> str:
    """Text without control characters and line breaks, which YAML and Markdown read as more than text."""
    return " ".join("".join(letter if letter.isprintable() else "�" for letter in text).split())


def plain(text: str) -> str:
    """Text as Markdown that shows it as it is, on one line, without links, HTML or cells of a table."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def _body(facts: CardFacts) -> Iterator[str]:
    yield f"# {plain(facts.title)}"
    yield ""
    yield from _how_it_was_made(facts)
    yield from _options(facts)
    yield from _data(facts)
    yield from _scores(facts)
    yield from _certificates(facts)
    yield "## How to load it"
    yield ""
    yield _LOADING[facts.format]
    if facts.format == "peft":
        yield from _seed_model(facts.experts[0])


def _seed_model(expert: ExpertFacts) -> Iterator[str]:
    if expert.seed_on_hub:
        yield f"SEED_MODEL is {plain(expert.seed_on_hub)}, the seed model on the hub."
        return
    yield (
        f"SEED_MODEL is the folder of the seed model {plain(expert.seed)}, which is not on the hub: ask whoever gave "
        f"you the adapter. PEFT looks for it in the folder `{expert.base_model}` where the program runs. The metadata "
        "of adapter_model.safetensors has the SHA-256 of its weights."
    )


def _how_it_was_made(facts: CardFacts) -> Iterator[str]:
    if facts.is_single:
        expert = facts.experts[0]
        yield _what_it_is(expert)
    else:
        yield plain(facts.made_by)
        yield ""
        rows = zip(facts.experts, facts.weights, strict=True)
        yield from _table(
            ("Expert", "Method", "Weight"),
            ((expert.name, expert.method_title, f"{weight:.6g}") for expert, weight in rows),
        )
        yield ""
        yield "The merged model was not scored; perplexities below are those of its single experts."
    yield ""
    for expert in facts.experts:
        yield f"- {plain(expert.name)}: {', '.join(_origin(expert))}"
        if expert.reproducible_from:
            yield f"  Its weights are reproducible from {plain(expert.reproducible_from)}"
    yield ""


def _what_it_is(expert: ExpertFacts) -> str:
    if expert.is_seed:
        return f"The seed model {plain(expert.seed)} as it is: no expert, and nothing of it was trained here."
    paper = f" ({plain(expert.paper)})" if expert.paper else ""
    trained = ", ".join(plain(name) for name in (*(d.name for d in expert.domains), *expert.unknown_domains))
    if expert.is_imported and not trained:
        return f"An expert by the method {plain(expert.method_title)}{paper}, trained elsewhere and imported here."
    return f"An expert by the method {plain(expert.method_title)}{paper}" + (
        f", trained on: {trained}." if trained else "."
    )


def _origin(expert: ExpertFacts) -> Iterator[str]:
    seed = plain(expert.seed) if expert.seed else "not recorded"
    yield f"seed model {seed}" + (f" ({plain(expert.seed_on_hub)} on the hub)" if expert.seed_on_hub else "")
    if expert.parent:
        yield f"trained from a copy of {plain(expert.parent)}"
    if expert.total_parameters is not None:
        yield f"{expert.total_parameters:,} parameters with its base"
    yield f"{expert.num_parameters:,} parameters of its own"
    if expert.code_version:
        yield f"made with Expert Workbench {plain(expert.code_version)}"


def _options(facts: CardFacts) -> Iterator[str]:
    for expert in facts.experts:
        if expert.options:
            yield f"## Training options{'' if facts.is_single else f' of {plain(expert.name)}'}"
            yield ""
            yield from _table(("Option", "Value"), expert.options)
            yield ""


def _data(facts: CardFacts) -> Iterator[str]:
    domains: dict[str, DomainFacts] = {domain.name: domain for expert in facts.experts for domain in expert.domains}
    if not domains:
        return
    yield "## Training data"
    yield ""
    yield "Counts are of all three splits; dev and test were held out."
    yield ""
    columns = ("Domain", "Documents", "Words", "Bytes", "Licence of the text", "Data set")
    rows = (
        (d.name, f"{d.num_documents:,}", f"{d.num_words:,}", f"{d.num_bytes:,}", d.licence or "not given", d.dataset)
        for d in domains.values()
    )
    yield from _table(columns, rows)
    yield ""


def _scores(facts: CardFacts) -> Iterator[str]:
    rows = [
        (expert.name, score.domain, score.split, f"{score.num_tokens:,}", f"{score.perplexity:.4f}")
        for expert in facts.experts
        for score in expert.scores
    ]
    if not rows:
        return
    yield "## Perplexity"
    yield ""
    yield "exp of the mean negative log-likelihood per token of the model's own tokenizer; lower is better."
    yield ""
    yield from _table(("Expert", "Domain", "Split", "Tokens", "Perplexity per token"), rows)
    yield ""


def _certificates(facts: CardFacts) -> Iterator[str]:
    lines = [(expert.name, words) for expert in facts.experts for words in expert.certificates]
    if lines:
        yield "## Certificates and reports"
        yield ""
        yield from (f"- {plain(name)}: {plain(words)}" for name, words in lines)
        yield ""


def _table(columns: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(plain(cell) for cell in row)} |"


_TRANSFORMERS = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER_OR_REPOSITORY)
model = AutoModelForCausalLM.from_pretrained(FOLDER_OR_REPOSITORY)
```
"""
_LOADING: dict[Format, str] = {
    "hf": _TRANSFORMERS,
    "moe": _TRANSFORMERS,
    "peft": """```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

seed = AutoModelForCausalLM.from_pretrained(SEED_MODEL)
model = PeftModel.from_pretrained(seed, FOLDER_OR_REPOSITORY)
```
""",
    "gguf": """```sh
llama-cli -m model.gguf -p "Once upon a time"
```
""",
}
