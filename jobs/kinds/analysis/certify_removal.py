"""Certify a removal (DEMix §7): compare a mixture with and without an expert, and try to extract its text.

The expert stays in the registry. The report holds no text, since it may outlive the expert and its corpus.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.orm import Session
from torch import Tensor

from engine.analysis.extraction import (
    Extraction,
    MixtureSampler,
    Pieces,
    choose_pieces,
    compare,
    generate_continuations,
)
from engine.analysis.removal import Block, Identity, choose_blocks, compare_bits, write_distributions
from engine.config import SamplingConfig
from engine.errors import MixtureError, ScoresError
from engine.events import Event
from engine.files import ArtifactRef
from engine.inference.ensemble import Ensemble
from engine.mixing.posterior import PosteriorGate
from engine.statistics.estimates import LEVEL
from engine.text.blocks import Tokens
from engine.text.chat.own_template import template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.environment import report_reproducible_from
from jobs.kinds.shared.model_loading import Experts, load_all
from jobs.kinds.shared.scoring import register_scores, score_missing
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack
from workbench.analysis.changes.retrained_baselines import what_stays
from workbench.kinds.analysis import CertifyRemoval
from workbench.questions.removal import COLUMNS, RemovalColumn, RemovalRow, removal_row, sides_of, verdict
from workbench.registry.reports import register_report
from workbench.schema.tables import Expert

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Inputs:
    expert_id: str
    full: Experts
    without: tuple[str, ...]
    retrained: Experts | None
    heirs: tuple[str, ...]
    not_removed: str
    domains: tuple[DomainFiles, ...]  # the expert's own first


@dataclass(frozen=True)
class _Texts:
    """Folders of packed tokens by domain (the expert's own first), and the domains with enough dev text."""

    folders: Mapping[str, Path]
    long_enough: tuple[str, ...]


def run(work: Work, spec: CertifyRemoval) -> Generator[Event, None, Register]:
    """Scores what is missing, compares loaded models and tries to extract text; the report is written at the end.

    Scores are registered at once: they are worth keeping even if a later step fails.
    """
    with work.reading() as session:
        inputs = _read(session, work, spec)
    texts = yield from _pack(work, spec, inputs)
    pieces = _pieces(spec, texts.folders[inputs.domains[0].name])
    yield from _score(work, spec, texts.long_enough)
    with work.reading() as session:
        rows = _rows(session, work, spec, texts)
    comparison = _Comparison(work, spec, inputs, rows[0], pieces)
    blocks, outputs = yield from comparison.with_expert(list(texts.folders.values()))
    identity = yield from comparison.never_loaded(blocks)
    outputs |= yield from comparison.retrained()
    findings = _findings(spec, inputs, rows, identity, compare(outputs, pieces), pieces)
    return _register(spec, inputs, {**findings, "reproducible_from": report_reproducible_from(work)})


def _read(session: Session, work: Work, spec: CertifyRemoval) -> _Inputs:
    sides = sides_of(session, spec.mixture, spec.expert, spec.retrained)
    homes = [expert.domain.name for expert in sides.with_expert if expert.domain is not None]
    names = dict.fromkeys([sides.domain.name, *homes])
    removed = next(one for one in sides.with_expert if one not in sides.without_expert)
    return _Inputs(
        expert_id=removed.id,
        full=_model(work, sides.with_expert),
        without=tuple(one.id for one in sides.without_expert),
        retrained=_model(work, sides.without_domain) if sides.without_domain else None,
        heirs=tuple(sides.heirs()),
        not_removed=what_stays(session, spec.mixture, removed),
        domains=tuple(domain_files(session, work.storage, name) for name in names),
    )


def _model(work: Work, experts: Sequence[Expert]) -> Experts:
    """The files of these experts, by base."""
    kept, files = work.storage.kept, dict[ArtifactRef, dict[str, ArtifactRef]]()
    for expert in experts:
        files.setdefault(kept(expert.base), {})[expert.id] = kept(expert.artifact)
    return files


def _pack(work: Work, spec: CertifyRemoval, inputs: _Inputs) -> Generator[Event, None, _Texts]:
    """Packs all domains. Raises MixtureError before anything is computed if the expert's own domain is too short."""
    first = next(iter(inputs.full))
    first.check()
    tokenizer = load_tokenizer(first.folder)  # that of all
    template = template_folder(first.folder, next(iter(inputs.full[first].values())).folder)
    folders: dict[str, Path] = {}
    long_enough = []
    for domain in inputs.domains:
        folders[domain.name] = yield from pack(work, domain, tokenizer, template, spec.block_size)
        available = Tokens.open(folders[domain.name], "dev").num_blocks(spec.block_size)
        if available >= spec.num_blocks:
            long_enough.append(domain.name)
        elif domain is inputs.domains[0]:
            raise MixtureError(
                f"The dev text of “{domain.name}” has {available} blocks of {spec.block_size} tokens. Its cached prior "
                f"needs {spec.num_blocks}.",
                "Use fewer blocks (`--blocks`) or shorter ones (`--block-size`), or import more text.",
            )
    return _Texts(folders, tuple(long_enough))


def _pieces(spec: CertifyRemoval, folder: Path) -> Pieces:
    lengths = spec.prefix_length, spec.continuation_length
    return choose_pieces(Tokens.open(folder, "train"), spec.num_prefixes, *lengths, spec.seed)


def _score(work: Work, spec: CertifyRemoval, domains: Sequence[str]) -> Generator[Event, None, None]:
    for mixture in filter(None, (spec.mixture, spec.retrained)):
        for split, least in ((spec.split, 0), ("dev", spec.num_blocks * spec.block_size)):
            length = max(spec.max_tokens, least)
            scores = yield from score_missing(work, mixture, domains, split, spec.block_size, length)
            with work.transaction() as session:
                register_scores(session, work, scores)


def _rows(session: Session, work: Work, spec: CertifyRemoval, texts: _Texts) -> list[RemovalRow]:
    """One row per domain, the expert's own first. The row of a domain with too little dev text gives that reason."""
    sides = sides_of(session, spec.mixture, spec.expert, spec.retrained)
    return [
        removal_row(
            session,
            work.storage,
            sides,
            domain,
            split=spec.split,
            block_size=spec.block_size,
            evidence=spec.evidence,
            num_blocks=spec.num_blocks,
        )
        if domain in texts.long_enough
        else RemovalRow(
            domain, why=f"Its dev text has fewer than {spec.num_blocks} blocks of {spec.block_size} tokens."
        )
        for domain in texts.folders
    ]


@dataclass(frozen=True)
class _Comparison:
    """The mixtures of a certificate, loaded one after another: no two are in memory together.

    Every mixture weighs its experts by the prior of the removed expert's domain, as in the table.
    """

    work: Work
    spec: CertifyRemoval
    inputs: _Inputs
    own: RemovalRow
    pieces: Pieces

    def with_expert(self, texts: Sequence[Path]) -> Generator[Event, None, tuple[list[Block], dict[str, Tensor]]]:
        """Loads the mixture that holds the expert: stores its outputs without the expert, and continues the pieces."""
        models = self._load(self.inputs.full)
        without, gate = self.inputs.without, self._gate(self.own.without_expert)
        read = [Tokens.open(folder, self.spec.split).array for folder in texts]
        blocks = choose_blocks(read, self.spec.block_size, len(without), models.vocab_size)
        yield from write_distributions(models, without, gate, blocks, self.work.folder)
        mixed = MixtureSampler(models, _ids(self.own.with_expert), self._gate(self.own.with_expert))
        with_expert = yield from self._go_on(mixed)
        without_expert = yield from self._go_on(MixtureSampler(models, without, gate))
        return blocks, {"with_expert": with_expert, "without_expert": without_expert}

    def never_loaded(self, blocks: Sequence[Block]) -> Generator[Event, None, Identity]:
        """Compares a mixture that never loaded the expert with the stored outputs."""
        without, gate = self.inputs.without, self._gate(self.own.without_expert)
        models = self._load(_without(self.inputs))
        return (yield from _last(compare_bits(models, without, gate, blocks, self.work.folder)))

    def retrained(self) -> Generator[Event, None, dict[str, Tensor]]:
        """Continues the pieces with the mixture that was trained without the domain; empty if there is none."""
        if self.inputs.retrained is None:
            return {}
        models = self._load(self.inputs.retrained)
        mixed = MixtureSampler(models, _ids(self.own.without_domain), self._gate(self.own.without_domain))
        return {"without_domain": (yield from self._go_on(mixed))}

    def _go_on(self, mixed: MixtureSampler) -> Generator[Event, None, Tensor]:
        sampling = SamplingConfig(temperature=self.spec.temperature, seed=self.spec.seed)
        unused_rows = load_tokenizer(next(iter(self.inputs.full)).folder).unused_rows(mixed.models.vocab_size)
        return (yield from _last(generate_continuations(mixed, self.pieces, sampling, unused_rows)))

    def _load(self, experts: Experts) -> Ensemble:
        return load_all(self.work, experts, self.spec.block_size)

    def _gate(self, column: RemovalColumn | None) -> PosteriorGate:
        if column is None:
            raise ScoresError("The scores of this certificate were deleted while it was being made.", "Start it again.")
        return PosteriorGate(list(column.prior.values()), self.spec.evidence)


def _without(inputs: _Inputs) -> Experts:
    """The files without the expert's, and without a base that holds no other expert."""
    remaining = {
        base: {id: kept for id, kept in experts.items() if id in inputs.without}
        for base, experts in inputs.full.items()
    }
    return {base: experts for base, experts in remaining.items() if experts}


def _ids(column: RemovalColumn | None) -> list[str]:
    """The expert ids of a column, in the order of its prior."""
    return list(column.prior) if column else []


def _last(events: Iterator[Event | Result]) -> Generator[Event, None, Result]:
    """Passes events on and returns the result that follows them."""
    for one in events:
        if not isinstance(one, Event):
            return one
        yield one
    raise AssertionError("the iterator must end with its result")


def _findings(
    spec: CertifyRemoval,
    inputs: _Inputs,
    rows: Sequence[RemovalRow],
    identity: Identity,
    extraction: Extraction,
    pieces: Pieces,
) -> dict[str, Any]:
    own = {name: getattr(rows[0], name) for name in COLUMNS}
    result = {
        "expert": spec.expert,
        "mixture": spec.mixture,
        "retrained": spec.retrained,
        "domain": rows[0].domain,
        "ok": identity.holds,
        "identity": {"holds": identity.holds, **asdict(identity)},
        "heirs": list(inputs.heirs),
        "split": spec.split,
        "evidence": spec.evidence,
        "num_blocks": spec.num_blocks,
        "perplexity": [row.answer().model_dump() for row in rows],
        "shares": {name: dict(column.prior) for name, column in own.items() if column},
        "extraction": {
            "num_prefixes": spec.num_prefixes,
            "num_documents": pieces.num_documents,
            "prefix_length": spec.prefix_length,
            "continuation_length": spec.continuation_length,
            "temperature": spec.temperature,
            "seed": spec.seed,
            "confidence": LEVEL,
            **asdict(extraction),
        },
        "not_removed": inputs.not_removed,
    }
    return {**result, "sentence": verdict(result)}


def _register(spec: CertifyRemoval, inputs: _Inputs, findings: dict[str, Any]) -> Register:
    def register(session: Session) -> dict[str, Any]:
        title = f"Removal of {spec.expert} from {spec.mixture}"
        report = register_report(session, "removal", title, findings, about_id=inputs.expert_id)
        return {"report": report.id, "expert": spec.expert, "ok": findings["ok"], "sentence": findings["sentence"]}

    return register
