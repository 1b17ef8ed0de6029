"""Make a seed model: a new small one with its own tokenizer, or one that exists, wherever it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import ChatTemplateError, ModelError, TokenizerError
from engine.events import Note, Progress
from engine.foreign_files import confined, short
from engine.methods.export import set_special_tokens
from engine.methods.registry import method_of
from engine.models.families import fresh_model, num_parameters
from engine.models.gguf_header import only_gguf, read_header
from engine.models.gguf_model import ORIGIN, GgufOrigin, convert_gguf, require_space
from engine.models.imported_model import Fingerprint, ImportedModel, download_model, import_model
from engine.models.model_files import CONFIG
from engine.models.package_files import find_model
from engine.path_kinds import require_kind
from engine.text.chat.template import TEMPLATE, copy_template, load_chat_template
from engine.text.split import read_split
from engine.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from jobs.kinds.training.averages import WeighedExpert, weighed_expert
from jobs.kinds.training.exports import scratch
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry.experts import expert_row
from workbench.registry.seeds import CHANGES, MADE_OF, register_seed
from workbench.specs.base import hub_name, hub_source
from workbench.store import artifact_kinds

_TOKENIZER_BYTES = 4 << 20  # text of each domain that a fresh tokenizer sees


def run(work: Work, spec: MakeSeed) -> JobRun:
    """Writes config, weights and tokenizer into one folder that transformers can load, and loads it again."""
    with work.reading() as session:
        domains = [domain_files(session, work.storage, name) for name in spec.domains]
        copied = _expert_to_copy(session, work, spec.expert) if spec.expert else None
    yield Progress(0, 2, "parts", "making tokenizer and weights")
    artifact_id = work.stable_id("seed")
    with scratch(work, "given") as aside:
        given = yield from _given_model(spec, aside)
        tokenizer, made = _parts(spec, domains, copied, given)
        if spec.chat_template:
            model = given.folder if given else copied.base.folder if copied else None
            tokenizer = _with_template(tokenizer, spec.chat_template, model, aside / "text")
        elif given:
            yield from _advice_on_chat(given.folder)
        changes = (*(given.changes if given else ()), *made.changes)
        yield from map(Note, changes)
        yield Progress(1, 2, "parts", "saving")
        with work.storage.new(artifact_id) as folder:
            size = _save(made.lm, tokenizer, folder)
            if copied and not spec.chat_template:
                copy_template(copied.kept.folder, folder)
            if given and given.origin:
                (folder / ORIGIN).write_text(json.dumps(asdict(given.origin), indent=1), encoding="utf-8")
            config_json = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    yield Progress(2, 2, "parts", "done")

    def register(session: Session) -> dict[str, Any]:
        register_seed(
            session,
            name=spec.name,
            source=given.source if given else _source(spec),
            family=made.lm.config.model_type,
            config=config_json,
            num_parameters=size,
            tokenizer_sha256=tokenizer.sha256,
            artifact=work.register_artifact(session, artifact_id, artifact_kinds.SEED),
            job_id=work.job_id,
        )
        return {
            "seed_model": spec.name,
            "num_parameters": size,
            "vocab_size": tokenizer.vocab_size,
            **({MADE_OF: copied.id} if copied else {}),
            **({CHANGES: " ".join(changes)} if changes else {}),
        }

    return register


def _save(lm: Any, tokenizer: Tokenizer, folder: Path) -> int:
    """Writes a model with its tokenizer; gives the number of its parameters.

    Raises TokenizerError for a tokenizer of more entries than the model has rows, ModelError where what was written is
    not the model when it is loaded again.
    """
    num_rows, num_entries = lm.config.vocab_size, tokenizer.vocab_size
    if num_rows < num_entries:
        extra = [f"“{short(tokenizer.written(id))}” ({id})" for id in range(num_rows, num_entries)]
        shown = ", ".join(extra[:3]) + (" …" if len(extra) > 3 else "")
        raise TokenizerError(
            f"The tokenizer has {num_entries:,} entries, but the model {num_rows:,} rows: none for {shown}.",
            "If the model never saw them, as padding, remove them from tokenizer.json; else give the model that was "
            f"trained with them, or add rows: model.resize_token_embeddings({num_entries}).",
        )
    tokenizer.try_out()
    set_special_tokens(lm, tokenizer)  # a generation_config.json among its own files replaces those of generation
    expected = Fingerprint.of(lm)
    lm.save_pretrained(folder, safe_serialization=True)
    tokenizer.save(folder)
    expected.require_same(folder)
    return num_parameters(lm)


def _expert_to_copy(session: Session, work: Work, name: str) -> WeighedExpert:
    row = expert_row(session, name)
    if reason := method_of(row.method).no_decoder_because:
        raise ModelError(
            f"“{name}” cannot become a seed, since with its base it is not a plain decoder: it {reason}.",
            "Choose an expert of another method.",
        )
    return weighed_expert(work, row, 1.0)


@dataclass(frozen=True)
class _Given:
    """A model from elsewhere: its folder, its one file of weights where the folder may have others, and its source."""

    folder: Path
    source: str
    weights: str = ""
    origin: GgufOrigin | None = None
    changes: tuple[str, ...] = ()


def _given_model(spec: MakeSeed, aside: Path) -> Events[_Given | None]:
    """The model from elsewhere, downloaded, joined or converted now if need be; None for a fresh one and a copy."""
    if spec.source == "hub":
        folder = download_model(*hub_name(spec.location))
        return _Given(folder, hub_source(hub_name(spec.location)[0], folder.name))
    if spec.source in ("folder", "file"):
        return (yield from _given_path(Path(spec.location), _source(spec), aside, spec.bf16))
    if spec.source != "package":
        return None
    packaged = find_model(spec.location)
    source = f"package:{packaged.package}"
    return (yield from _given_path(packaged.join(aside), source, aside, spec.bf16))


def _given_path(path: Path, source: str, aside: Path, in_bf16: bool) -> Events[_Given]:
    described = require_kind(path, ("model", "folder", "safetensors", "gguf"))  # a folder's files say what is missing
    if in_bf16 and described.kind != "gguf":
        raise ModelError(f"{path} is not a GGUF file: its weights keep their precision.", "Leave bf16 unset.")
    if described.kind == "safetensors":
        return _Given(path.parent, source, path.name)
    if described.kind != "gguf":
        _require_model(path)
        return _Given(path, source)
    header = read_header(only_gguf(path))
    yield Note(require_space(header, aside, in_bf16=in_bf16).sentence)
    origin, changes = convert_gguf(header, aside, in_bf16=in_bf16)
    return _Given(aside, source, origin=origin, changes=changes)


def _require_model(folder: Path) -> None:
    """Raises ModelError for a folder that holds no model, or only a link that leads out of it."""
    for file in sorted(folder.glob("*.gguf")):
        confined(folder, file.name)
    if not (folder / CONFIG).exists():
        problem = f"{folder} holds no model: no .gguf file, and no {CONFIG} with .safetensors files."
        raise ModelError(problem, "Give the folder of a model, or its file.")


def _advice_on_chat(folder: Path) -> Iterator[Note]:
    """What an imported model needs before it can answer conversations, if anything."""
    try:
        cause = "This model has no chat template." if load_chat_template(folder) is None else ""
    except ChatTemplateError as error:  # texts can be continued nevertheless
        cause = error.problem
    if cause:
        yield Note(f"{cause} For conversations give one with --chat-template.")


def _source(spec: MakeSeed) -> str:
    return "fresh" if spec.source == "fresh" else f"{spec.source}:{spec.expert or spec.location}"


def _parts(
    spec: MakeSeed, domains: list[DomainFiles], copied: WeighedExpert | None, given: _Given | None
) -> tuple[Tokenizer, ImportedModel]:
    if copied is not None:
        return load_tokenizer(copied.base.folder), ImportedModel(copied.load(), ())
    if given is not None:
        return load_tokenizer(given.folder), import_model(given.folder, given.weights)
    texts = (text for domain in domains for text in _sample(domain.documents()))
    tokenizer = train_tokenizer(texts, spec.vocab_size)
    return tokenizer, ImportedModel(fresh_model(spec.shape, tokenizer.vocab_size, spec.seed), ())


def _with_template(tokenizer: Tokenizer, source: str, model: Path | None, folder: Path) -> Tokenizer:
    """The tokenizer of a model with another chat template; raises ChatTemplateError for one that cannot be rendered.

    It is read again from `folder`: a template decides whether the BOS token begins documents or turns.
    """
    tokenizer.save(folder)
    if model is not None:  # its configuration also names special tokens
        shutil.copyfile(model / CONFIG, folder / CONFIG)
    settings = json.loads((file := folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    file.write_text(json.dumps({**settings, "chat_template": source}), encoding="utf-8")  # for older tools
    (folder / TEMPLATE).write_text(source, encoding="utf-8")
    template = load_chat_template(folder, "the seed model")
    assert template is not None
    template.render([{"role": "user", "content": "Hello?"}], add_generation_prompt=True)
    return load_tokenizer(folder)


def _sample(documents: Path) -> Iterator[str]:
    """Yields the first megabytes of a domain's training text, as much of each domain for the vocabulary."""
    bytes_left = _TOKENIZER_BYTES
    for row in islice(read_split(documents, "train"), 1_000_000):
        if bytes_left <= 0:
            return
        yield row["text"]
        bytes_left -= len(row["text"].encode("utf-8"))
