"""Joins experts into one sparse model. Nothing is trained.

Routers are solved in closed form (DUME): the sums of an expert over its own text are an artifact of their own, and
another join with it reads them. Or they have the rows that anchored experts were trained with, and a row of zeros for
the seed model, which is then one of the networks (FlexOlmo).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from engine.device import choose_device
from engine.errors import ModelError
from engine.events import Event, forward_progress
from engine.loading.loaded_base import computes_in
from engine.methods.moe.checkpoint import as_sparse_moe, set_routers
from engine.methods.moe.descriptor import METHOD as MOE
from engine.methods.multi_expert_files import read_limits
from engine.methods.registry import get_method
from engine.methods.ridge.router import Routers, Sums, count_choices, gather, random_routers, solve, trained_routers
from engine.models.families import load_model
from engine.models.multi_expert import MultiExpertModel
from engine.text.blocks import EvalSample, Tokens
from engine.text.chat.template import template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.expert_files import HeldOut, keep_expert, register_new_expert, store_base
from jobs.kinds.shared.phases import follow_phases
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack, require_same
from jobs.kinds.training.averages import (
    WeighedExpert,
    merge_experts,
    require_averageable,
    require_one_template,
    require_one_tokenizer,
    weighed_expert,
)
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.analysis.routers import ROUTERS, RouterFacts, describe_routers
from workbench.errors import BadSpecError
from workbench.formatting.number_format import pluralize
from workbench.kinds.training.mixtures import JoinExperts, join_complaints
from workbench.registry.experts import COMPOSED, domains_of, expert_row
from workbench.registry.mixtures import create_mixture
from workbench.specs.requests import MixtureSpec
from workbench.store import artifact_kinds

_DEV_TOKENS = 4_096  # of each expert's held-out text, to count what the routers choose
_MERGING = "merging the networks"  # a phase, as those below
_TOKEN_SECONDS = 1e-3  # to read one, before any was read: only the shares of the phases count then


def run(work: Work, spec: JoinExperts) -> JobRun:
    """Merges the networks, gathers what sums are missing, solves the routers and counts what they choose."""
    tokens = {_counting(name): _DEV_TOKENS for name in spec.experts}
    if spec.routers == "solved" and not _are_anchored(work, spec):
        tokens |= {_reading(name): spec.tokens for name in spec.experts}
    expected = {_MERGING: 1.0} | {phase: number * _TOKEN_SECONDS for phase, number in tokens.items()}
    return (yield from follow_phases(_join(work, spec), expected))


def _are_anchored(work: Work, spec: JoinExperts) -> bool:
    with work.reading() as session:
        return all(get_method(expert_row(session, name).method).has_rows for name in spec.experts)


def _reading(expert: str) -> str:
    return f"reading the text of {expert} with its model"


def _counting(expert: str) -> str:
    return f"counting what the routers choose in the text of {expert}"


def _join(work: Work, spec: JoinExperts) -> JobRun:
    with work.reading() as session:
        rows = [expert_row(session, name) for name in spec.experts]
        if complaints := join_complaints(session, spec):  # of experts that were still to come
            raise BadSpecError(complaints)
        require_one_tokenizer(rows)
        if spec.average_rest:
            require_averageable(rows)
        parts = [weighed_expert(work, row, 1.0) for row in rows]
        domains_by_name = {
            row.name: [
                domain_files(session, work.storage, name)
                for name in dict.fromkeys(name_now(session, row, name) for name in domains_of(row))
            ]
            for row in rows
        }
        tokenizer_sha256, seeds = rows[0].tokenizer_sha256, {row.seed_id for row in rows}
        anchor = f"seed:{rows[0].seed.name}" if rows[0].seed else "the seed model"
    require_one_template(parts)
    texts = {domain.id: domain for domains in domains_by_name.values() for domain in domains}
    require_same(work, [*texts.values()], {f"expert “{part.name}”": str(part.kept.sha256) for part in parts})
    first = parts[0]
    block_size = min(spec.block_size, read_limits(first.base.folder).max_positions)
    method = get_method(get_method(first.method).joined)
    if get_method(first.method).has_rows:
        moe, routers = yield from _anchored(spec, parts)
        networks = [anchor, *spec.experts]
    else:
        moe, routers = yield from _solved(work, spec, parts, domains_by_name, block_size)
        networks = spec.experts
    set_routers(moe, routers.weights_LEH)
    stored, read, choices = moe.dtype, _placed(work, moe), dict[str, Tensor]()
    for part in parts:
        choices[part.name] = yield from _choices(work, read, part, domains_by_name[part.name], block_size)
    moe = read.to("cpu", stored)  # to the bit the weights that were merged
    facts = _facts(spec, networks, moe.config.num_experts_per_tok, routers, choices)
    key = work.stable_id("expert")
    model = MultiExpertModel(moe, [key], MOE.new_placement())
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        [*texts.values()],
        method=method.name,
        held_out=HeldOut(),
        base_id=store_base(work, method, model, load_tokenizer(first.base.folder), first.kept.folder),
        tokenizer_sha256=tokenizer_sha256,
    )
    config = {
        COMPOSED: [{"id": part.id, "name": part.name} for part in parts],
        MOE.config_field: {"num_experts": len(networks), "active_experts": facts.top_k},
        "routers": spec.routers,
        "average_rest": spec.average_rest,
        "shrinkage": spec.shrinkage,
        "temperature": spec.temperature,
        "block_size": block_size,
    }
    seed_id = seeds.pop() if len(seeds) == 1 else None

    def register(session: Session) -> dict[str, Any]:
        metrics = {ROUTERS: facts.model_dump()}
        register_new_expert(session, work, expert, seed_id=seed_id, parent_id=None, config=config, metrics=metrics)
        create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert]))
        sentence = f"{pluralize(len(parts), 'expert')} joined as {spec.expert}. {' '.join(describe_routers(facts))}"
        return {"mixture": spec.name, "expert": spec.expert, "sentence": sentence}

    return register


def _solved(
    work: Work,
    spec: JoinExperts,
    parts: Sequence[WeighedExpert],
    domains_by_name: Mapping[str, Sequence[DomainFiles]],
    block_size: int,
) -> Events[tuple[Any, Routers]]:
    """The experts' networks as one model, and its routers from sums over each expert's own text."""

    def merge(models: Mapping[str, Any], _: Mapping[str, float]) -> Iterator[Any]:
        return as_sparse_moe(models, spec.top_k or 1, average_rest=spec.average_rest)

    moe = yield from merge_experts(merge, parts, _MERGING)
    if spec.routers == "random":
        shape = (moe.config.num_hidden_layers, len(parts), moe.config.hidden_size)
        return moe, random_routers(shape, moe.config.initializer_range)
    folders = list[Path]()
    for part in parts:
        folder = yield from _sums(
            work, part, domains_by_name[part.name], spec.tokens, block_size, moe.config.hidden_size
        )
        folders.append(folder)
    return moe, solve(map(Sums.load, folders), spec.shrinkage, spec.temperature)


def _anchored(spec: JoinExperts, parts: Sequence[WeighedExpert]) -> Events[tuple[Any, Routers]]:
    """The seed model's and the experts' networks as one model, and its routers from the rows of their training."""
    methods = [get_method(part.method) for part in parts]
    models = {"": partial(load_model, parts[0].base.folder)} | {
        part.name: partial(method.load_networks, part.base, part.kept)
        for part, method in zip(parts, methods, strict=True)
    }
    merging = as_sparse_moe(models, spec.top_k or len(models), of_all=True)
    moe = yield from forward_progress(merging, phase=_MERGING)
    rows_ELH = [method.rows(part.kept) for part, method in zip(parts, methods, strict=True)]
    return moe, trained_routers(rows_ELH, spec.temperature)


def _facts(
    spec: JoinExperts, networks: Sequence[str], top_k: int, routers: Routers, choices: Mapping[str, Tensor]
) -> RouterFacts:
    """What the routers do with each expert's dev text; `choices` are its tokens by layer and chosen expert [L, E]."""
    of = {
        name: (number, counts_LE / counts_LE.sum(1, keepdim=True))
        for number, name in enumerate(networks)
        if (counts_LE := choices.get(name)) is not None and counts_LE.sum()
    }
    return RouterFacts(
        experts=[*networks],
        top_k=top_k,
        are_random=spec.routers == "random",
        width=routers.weights_LEH.shape[2],
        num_read=list(routers.num_tokens),
        num_held_out=[int(choices[name][0].sum()) if name in choices else 0 for name in networks],
        accuracy=[of[name][1][:, of[name][0]].tolist() if name in of else None for name in networks],
        chosen=[of[name][1].mean(0).tolist() if name in of else None for name in networks],
        condition=routers.condition_L.tolist(),
        cosine=routers.cosine_EE.tolist(),
    )


def _sums(
    work: Work, part: WeighedExpert, domains: Sequence[DomainFiles], num_tokens: int, block_size: int, width: int
) -> Events[Path]:
    """The folder of an expert's sums over its own text, equally much of each domain, which are gathered if missing."""
    samples = yield from _samples(work, part, domains, "train", num_tokens, block_size)
    if (number := sum(sample.num_tokens for sample in samples)) < width:
        raise ModelError(
            f"The text of “{part.name}” has {number:,} tokens to read, fewer than the {width:,} dimensions of the "
            "model: a router cannot be solved from it.",
            "Import more text and train the expert on it, read more tokens (--tokens), or leave it out.",
        )
    read = [part.base.sha256, part.kept.sha256, *sorted(sample.sha256 for sample in samples)]
    key = f"{artifact_kinds.ROUTER_SUMS}:{hashlib.sha256(json.dumps(read).encode()).hexdigest()}"

    def fill(folder: Path) -> Iterator[Event]:
        gathering = gather(_placed(work, part.load()), samples)
        sums = yield from forward_progress(gathering, phase=_reading(part.name))
        sums.save(folder)

    return (yield from work.cached_artifact(key, artifact_kinds.ROUTER_SUMS, fill))


def _placed(work: Work, lm: Any) -> Any:
    """A model where it reads text, in float32 where 16 bits are slow."""
    device = choose_device(work.settings.device)
    return lm.to(device, lm.dtype if computes_in(lm.dtype, device) else torch.float32)


def _choices(
    work: Work, moe: Any, part: WeighedExpert, domains: Sequence[DomainFiles], block_size: int
) -> Events[Tensor]:
    """How many tokens of an expert's dev text each router sends to each expert [L, E]."""
    samples = yield from _samples(work, part, domains, "dev", _DEV_TOKENS, block_size)
    return (yield from forward_progress(count_choices(moe, samples), phase=_counting(part.name)))


def _samples(
    work: Work, part: WeighedExpert, domains: Sequence[DomainFiles], split: str, num_tokens: int, block_size: int
) -> Events[list[EvalSample]]:
    """A split of an expert's domains, equally much of each."""
    tokenizer, template = load_tokenizer(part.base.folder), template_folder(part.base.folder, part.kept.folder)
    samples = []
    for domain in domains:
        tokens = Tokens.open((yield from pack(work, domain, tokenizer, template, block_size)), split)
        samples.append(EvalSample.of(tokens, block_size, max(num_tokens // len(domains), 1)))
    return samples
