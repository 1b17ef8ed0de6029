"""Certify a removal (DEMix §7): compare a mixture with and without an expert, and try to extract its text.

The expert stays in the registry. The report holds no text, since it may outlive the expert and its corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from engine.events import forward_progress
from engine.inference.ensemble import Ensemble
from engine.mixing.posterior import PosteriorGate
from engine.statistics.estimates import LEVEL
from engine.text.blocks import Tokens
from engine.text.chat.template import template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.resume_guard import report_reproducible_from
from jobs.kinds.shared.scoring import Experts, files_by_base, load_all, register_scores, score_missing
from jobs.kinds.shared.tokens import DomainFiles, pack, read_domains
from workbench.analysis.changes.retrained_baselines import what_stays
from workbench.kinds.analysis import CertifyRemoval
from workbench.questions.removal import COLUMNS, RemovalColumn, RemovalRow, removal_row, sides_of, verdict
from workbench.registry.reports import register_report


@dataclass(frozen=True)
class RemovalInputs:
    expert_id: str
    full: Experts
    without: tuple[str, ...]
    retrained: Experts  # empty where no mixture was trained without the domain
    heirs: tuple[str, ...]
    not_removed: str
    domains: tuple[DomainFiles, ...]  # the expert's own first


def run(work: Work, spec: CertifyRemoval) -> JobRun:
    """Scores what is missing, compares loaded models and tries to extract text; the report is written at the end.

    Scores are registered at once: they are worth keeping even if a later step fails.
    """
    with work.reading() as session:
        inputs = _read(session, work, spec)
    folders, long_enough = yield from _pack(work, spec, inputs)
    own_text = Tokens.open(folders[inputs.domains[0].name], "train")
    pieces = choose_pieces(own_text, spec.num_prefixes, spec.prefix_length, spec.continuation_length, spec.seed)
    for mixture in filter(None, (spec.mixture, spec.retrained)):
        for split, least in ((spec.split, 0), ("dev", spec.num_blocks * spec.block_size)):
            length = max(spec.max_tokens, least)
            scores = yield from score_missing(work, mixture, long_enough, split, spec.block_size, length)
            with work.transaction() as session:
                register_scores(session, work, scores)
    with work.reading() as session:
        rows = [_row(session, work, spec, domain, domain in long_enough) for domain in folders]
    comparison = _MixtureComparison(work, spec, inputs, rows[0], pieces)
    blocks, outputs = yield from comparison.with_expert(list(folders.values()))
    identity = yield from comparison.never_loaded(blocks)
    outputs |= yield from comparison.continue_retrained()
    findings = _findings(spec, inputs, rows, identity, compare(outputs, pieces), pieces)
    findings["reproducible_from"] = report_reproducible_from(work)

    def register(session: Session) -> dict[str, Any]:
        title = f"Removal of {spec.expert} from {spec.mixture}"
        report = register_report(session, "removal", title, findings, about_id=inputs.expert_id, job_id=work.job_id)
        return {"report": report.id, "expert": spec.expert, "ok": findings["ok"], "sentence": findings["sentence"]}

    return register


def _read(session: Session, work: Work, spec: CertifyRemoval) -> RemovalInputs:
    sides = sides_of(session, spec.mixture, spec.expert, spec.retrained)
    homes = [expert.domain.name for expert in sides.with_expert if expert.domain is not None]
    names = dict.fromkeys([sides.domain.name, *homes])
    removed = next(expert for expert in sides.with_expert if expert not in sides.without_expert)
    return RemovalInputs(
        expert_id=removed.id,
        full=files_by_base(work.storage, sides.with_expert),
        without=tuple(expert.id for expert in sides.without_expert),
        retrained=files_by_base(work.storage, sides.without_domain or ()),
        heirs=tuple(sides.heirs()),
        not_removed=what_stays(session, spec.mixture, removed),
        domains=read_domains(session, work.storage, list(names)),
    )


def _pack(work: Work, spec: CertifyRemoval, inputs: RemovalInputs) -> Events[tuple[dict[str, Path], list[str]]]:
    """Folders of packed tokens by domain, the expert's own first, and the domains with enough dev text.

    Raises MixtureError before anything is computed if the expert's own domain is too short.
    """
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
    return folders, long_enough


def _row(session: Session, work: Work, spec: CertifyRemoval, domain: str, is_long_enough: bool) -> RemovalRow:
    """The perplexities on a domain, or why they are missing."""
    if not is_long_enough:
        return RemovalRow(
            domain, why=f"Its dev text has fewer than {spec.num_blocks} blocks of {spec.block_size} tokens."
        )
    return removal_row(
        session,
        work.storage,
        sides_of(session, spec.mixture, spec.expert, spec.retrained),
        domain,
        split=spec.split,
        block_size=spec.block_size,
        evidence=spec.evidence,
        num_blocks=spec.num_blocks,
    )


@dataclass(frozen=True)
class _MixtureComparison:
    """The mixtures of a certificate, loaded one after another: no two are in memory together.

    Every mixture weighs its experts by the prior of the removed expert's domain, as in the table.
    """

    work: Work
    spec: CertifyRemoval
    inputs: RemovalInputs
    own: RemovalRow
    pieces: Pieces

    def with_expert(self, texts: Sequence[Path]) -> Events[tuple[list[Block], dict[str, Tensor]]]:
        """Loads the mixture that holds the expert: stores its outputs without the expert, and continues the pieces."""
        models = self._load(self.inputs.full)
        without, gate = self.inputs.without, self._gate(self.own.without_expert)
        read = [Tokens.open(folder, self.spec.split).array for folder in texts]
        blocks = choose_blocks(read, self.spec.block_size, len(without), models.vocab_size)
        yield from write_distributions(models, without, gate, blocks, self.work.folder)
        with_expert = yield from self._continue(models, self.own.with_expert)
        without_expert = yield from self._continue_by(MixtureSampler(models, without, gate))
        return blocks, {"with_expert": with_expert, "without_expert": without_expert}

    def never_loaded(self, blocks: Sequence[Block]) -> Events[Identity]:
        """Compares a mixture that never loaded the expert with the stored outputs.

        A base that holds no other expert is not loaded.
        """
        without, gate = self.inputs.without, self._gate(self.own.without_expert)
        files = {
            base: {id: kept for id, kept in experts.items() if id in without}
            for base, experts in self.inputs.full.items()
        }
        models = self._load({base: experts for base, experts in files.items() if experts})
        return (yield from forward_progress(compare_bits(models, without, gate, blocks, self.work.folder)))

    def continue_retrained(self) -> Events[dict[str, Tensor]]:
        """Continues the pieces with the mixture that was trained without the domain; empty if there is none."""
        if not self.inputs.retrained:
            return {}
        models = self._load(self.inputs.retrained)
        return {"without_domain": (yield from self._continue(models, self.own.without_domain))}

    def _continue(self, models: Ensemble, column: RemovalColumn | None) -> Events[Tensor]:
        """Continues the pieces with the experts of a column, in the order of its prior."""
        gate = self._gate(column)
        return (yield from self._continue_by(MixtureSampler(models, list(column.prior) if column else [], gate)))

    def _continue_by(self, mixed: MixtureSampler) -> Events[Tensor]:
        sampling = SamplingConfig(temperature=self.spec.temperature, seed=self.spec.seed)
        unused_rows = load_tokenizer(next(iter(self.inputs.full)).folder).unused_rows(mixed.models.vocab_size)
        return (yield from forward_progress(generate_continuations(mixed, self.pieces, sampling, unused_rows)))

    def _load(self, experts: Experts) -> Ensemble:
        return load_all(self.work, experts, self.spec.block_size)

    def _gate(self, column: RemovalColumn | None) -> PosteriorGate:
        if column is None:
            raise ScoresError("The scores of this certificate were deleted while it was being made.", "Start it again.")
        return PosteriorGate(list(column.prior.values()), self.spec.evidence)


def _findings(
    spec: CertifyRemoval,
    inputs: RemovalInputs,
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
