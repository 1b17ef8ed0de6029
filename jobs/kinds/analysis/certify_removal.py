"""Certify a removal (DEMix §7): what a mixture is without an expert, what that costs, what still comes out.

The expert stays where it is. No text is kept in the report: it may outlive the expert and its corpus.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.orm import Session
from torch import Tensor

from engine.analysis.extraction import (
    CONFIDENCE,
    Extraction,
    Mixed,
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
from engine.text.blocks import Tokens
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.model_loading import Experts, at_once
from jobs.kinds.shared.scoring import register_scores, score_missing
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack
from workbench.analysis.removal import COLUMNS, Column, Row, removal_row, sides_of, verdict
from workbench.analysis.unlearning import what_stays
from workbench.kinds.analysis.certify_removal import CertifyRemoval
from workbench.registry.reports import register_report
from workbench.registry.tables import Expert

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Inputs:
    expert_id: str
    whole: Experts
    without: tuple[str, ...]
    retrained: Experts | None
    heirs: tuple[str, ...]
    not_removed: str
    domains: tuple[DomainFiles, ...]  # the expert's own first


@dataclass(frozen=True)
class _Texts:
    """Folders of packed tokens by domain, the expert's own first, and those whose dev text is long enough."""

    folders: Mapping[str, Path]
    long_enough: tuple[str, ...]


def run(work: Work, spec: CertifyRemoval) -> Generator[Event, None, Register]:
    """Scores what is missing, compares live models, tries to extract; the report is made at the end.

    Scores are registered as soon as they are there: they are worth keeping even when the rest fails.
    """
    with work.reading() as session:
        inputs = _read(session, work, spec)
    texts = yield from _pack(work, spec, inputs)
    pieces = _pieces(spec, texts.folders[inputs.domains[0].name])
    yield from _score(work, spec, texts.long_enough)
    with work.reading() as session:
        rows = _rows(session, work, spec, texts)
    asked = _Asked(work, spec, inputs, rows[0], pieces)
    blocks, said = yield from asked.whole(list(texts.folders.values()))
    identity = yield from asked.never(blocks)
    said |= yield from asked.retrained()
    return _register(spec, inputs, _findings(spec, inputs, rows, identity, compare(said, pieces), pieces))


def _read(session: Session, work: Work, spec: CertifyRemoval) -> _Inputs:
    sides = sides_of(session, spec.mixture, spec.expert, spec.retrained)
    homes = [expert.domain.name for expert in sides.with_expert if expert.domain is not None]
    names = dict.fromkeys([sides.domain.name, *homes])
    removed = next(one for one in sides.with_expert if one not in sides.without_expert)
    return _Inputs(
        expert_id=removed.id,
        whole=_model(work, sides.with_expert),
        without=tuple(one.id for one in sides.without_expert),
        retrained=_model(work, sides.without_domain) if sides.without_domain else None,
        heirs=tuple(sides.heirs()),
        not_removed=what_stays(session, spec.mixture, removed),
        domains=tuple(domain_files(session, work.storage, name) for name in names),
    )


def _model(work: Work, experts: Sequence[Expert]) -> Experts:
    """The files of the experts that take part."""
    kept, found = work.storage.kept, dict[ArtifactRef, dict[str, ArtifactRef]]()
    for expert in experts:
        found.setdefault(kept(expert.base), {})[expert.id] = kept(expert.artifact)
    return found


def _pack(work: Work, spec: CertifyRemoval, inputs: _Inputs) -> Generator[Event, None, _Texts]:
    """Refuses a domain of the expert's that is too short for its prior, before anything is computed."""
    first = next(iter(inputs.whole))
    first.check()
    tokenizer = load_tokenizer(first.folder)  # that of all
    folders: dict[str, Path] = {}
    long_enough = []
    for domain in inputs.domains:
        folders[domain.name] = yield from pack(work, domain, tokenizer)
        available = Tokens.open(folders[domain.name], "dev").num_blocks(spec.block_size)
        if available >= spec.num_blocks:
            long_enough.append(domain.name)
        elif domain is inputs.domains[0]:
            raise MixtureError(
                f"The dev text of “{domain.name}” must hold {spec.num_blocks} blocks of {spec.block_size} tokens for "
                f"its cached prior, but holds {available} instead.",
                "Ask for fewer blocks (`--blocks`) or shorter ones (`--block-size`), or import more text.",
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


def _rows(session: Session, work: Work, spec: CertifyRemoval, texts: _Texts) -> list[Row]:
    """The expert's own domain first; a domain whose dev text is too short says so."""
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
        else Row(domain, why=f"Its dev text holds fewer than {spec.num_blocks} blocks of {spec.block_size} tokens.")
        for domain in texts.folders
    ]


@dataclass(frozen=True)
class _Asked:
    """The mixtures of a certificate, loaded one after another: never are two of them in memory.

    Every mixture weighs its experts as in the table, by the prior of the expert's own domain.
    """

    work: Work
    spec: CertifyRemoval
    inputs: _Inputs
    own: Row
    pieces: Pieces

    def whole(self, texts: Sequence[Path]) -> Generator[Event, None, tuple[list[Block], dict[str, Tensor]]]:
        """The mixture that holds the expert: writes down what it says without it, and goes on with it and without."""
        models = self._load(self.inputs.whole)
        without, gate = self.inputs.without, self._gate(self.own.without_expert)
        read = [Tokens.open(folder, self.spec.split).array for folder in texts]
        blocks = choose_blocks(read, self.spec.block_size, len(without), models.vocab_size)
        yield from write_distributions(models, without, gate, blocks, self.work.folder)
        mixed = Mixed(models, _ids(self.own.with_expert), self._gate(self.own.with_expert))
        with_expert = yield from self._go_on(mixed)
        without_expert = yield from self._go_on(Mixed(models, without, gate))
        return blocks, {"with_expert": with_expert, "without_expert": without_expert}

    def never(self, blocks: Sequence[Block]) -> Generator[Event, None, Identity]:
        """The mixture that never loaded the expert, held against what was written down."""
        without, gate = self.inputs.without, self._gate(self.own.without_expert)
        models = self._load(_without(self.inputs))
        return (yield from _last(compare_bits(models, without, gate, blocks, self.work.folder)))

    def retrained(self) -> Generator[Event, None, dict[str, Tensor]]:
        """The mixture that was trained without the domain, going on; nothing where there is none."""
        if self.inputs.retrained is None:
            return {}
        models = self._load(self.inputs.retrained)
        mixed = Mixed(models, _ids(self.own.without_domain), self._gate(self.own.without_domain))
        return {"without_domain": (yield from self._go_on(mixed))}

    def _go_on(self, mixed: Mixed) -> Generator[Event, None, Tensor]:
        sampling = SamplingConfig(temperature=self.spec.temperature, seed=self.spec.seed)
        return (yield from _last(generate_continuations(mixed, self.pieces, sampling)))

    def _load(self, experts: Experts) -> Ensemble:
        return at_once(self.work, experts, self.spec.block_size)

    def _gate(self, column: Column | None) -> PosteriorGate:
        if column is None:
            raise ScoresError(
                "The scores of this certificate must stay while it is made, but are gone.", "Start it again."
            )
        return PosteriorGate(list(column.prior.values()), self.spec.evidence)


def _without(inputs: _Inputs) -> Experts:
    """The files of what is left; a base that held the expert alone is not among them."""
    left = {
        base: {id: kept for id, kept in experts.items() if id in inputs.without}
        for base, experts in inputs.whole.items()
    }
    return {base: experts for base, experts in left.items() if experts}


def _ids(column: Column | None) -> list[str]:
    """The experts of a column in the order of its prior."""
    return list(column.prior) if column else []


def _last(news: Iterator[Event | Result]) -> Generator[Event, None, Result]:
    """Passes events on; gives back the result that ends them."""
    for one in news:
        if not isinstance(one, Event):
            return one
        yield one
    raise AssertionError("such work ends with its result")


def _findings(
    spec: CertifyRemoval,
    inputs: _Inputs,
    rows: Sequence[Row],
    identity: Identity,
    extraction: Extraction,
    pieces: Pieces,
) -> dict[str, Any]:
    own = {name: getattr(rows[0], name) for name in COLUMNS}
    found = {
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
            "confidence": CONFIDENCE,
            **asdict(extraction),
        },
        "not_removed": inputs.not_removed,
    }
    return {**found, "sentence": verdict(found)}


def _register(spec: CertifyRemoval, inputs: _Inputs, findings: dict[str, Any]) -> Register:
    def register(session: Session) -> dict[str, Any]:
        title = f"Removal of {spec.expert} from {spec.mixture}"
        report = register_report(session, "removal", title, findings, about_id=inputs.expert_id)
        return {"report": report.id, "expert": spec.expert, "ok": findings["ok"], "sentence": findings["sentence"]}

    return register
