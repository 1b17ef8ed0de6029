"""What the page Overview shows of the registry, read in one short transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from ui.present import headlines
from ui.present.headlines import Headline, MixtureMean
from ui.present.next_steps import Holdings
from ui.present.picture import PictureScores
from ui.present.text.formatting import plain
from ui.studio.job_views.pending_jobs import unfinished_jobs
from ui.widgets.background import kept_client, poll
from workbench.analysis import perplexity_tables
from workbench.analysis.changes.additions import KIND as ADDITION
from workbench.analysis.perplexity_intervals import intervals_of
from workbench.answers.cards import (
    AliasCard,
    DomainCard,
    EvaluationCard,
    ExpertCard,
    JobCard,
    MixtureCard,
    ReportCard,
    SeedCard,
)
from workbench.job_records import jobs as rows
from workbench.questions.perplexities import MixRequest
from workbench.questions.removal import KIND as REMOVAL
from workbench.registry import aliases, corpora, experts, mixtures, reports, seeds
from workbench.registry.database import reading
from workbench.schema.job_states import FINISHED, UNFINISHED
from workbench.settings import get_settings
from workbench.store.storage import get_storage

FRESH_SECONDS = 3600.0
READ_AGAIN_SECONDS = 30.0  # what is seen of neither a name nor a switch: tags, documents that changed


@dataclass(frozen=True)
class Contents:
    """The registry as it is now. `mixtures` are in the order of a choice, the most useful first."""

    domains: Sequence[DomainCard]
    seeds: Sequence[SeedCard]
    experts: Sequence[ExpertCard]
    mixtures: Sequence[MixtureCard]
    evaluations: Sequence[EvaluationCard]
    unfinished: Sequence[JobCard]  # the newest
    num_unfinished: int
    over: Sequence[JobCard]
    additions: Sequence[ReportCard]
    removals: Sequence[ReportCard]
    aliases: Sequence[AliasCard] = ()

    @property
    def mixture(self) -> MixtureCard | None:
        """The mixture that the page is about until the best is measured: the most useful that can be measured."""
        return next(filter(self.can_be_measured, self.mixtures), next(iter(self.mixtures), None))

    def can_be_measured(self, mixture: MixtureCard) -> bool:
        """Whether an expert that takes part is scored on test text; the numbers say which are not."""
        scored = {evaluation.expert for evaluation in self.evaluations if evaluation.split == "test"}
        return any(one.expert in scored for one in mixture.members if one.takes_part)

    @property
    def is_scored(self) -> bool:
        """Whether a mixture can be measured: one of its experts is scored."""
        scored = {evaluation.expert for evaluation in self.evaluations}
        return any(member.expert in scored for mixture in self.mixtures for member in mixture.members)

    def aliases_of(self, mixture: str) -> list[str]:
        """The names besides its own that a mixture is served by."""
        return [alias.name for alias in self.aliases if (alias.kind, alias.model) == ("mixture", mixture)]

    def holdings(self) -> Holdings:
        """How many of each thing there are."""
        scored = {evaluation.expert for evaluation in self.evaluations}
        return Holdings(
            domains=len(self.domains),
            seeds=len(self.seeds),
            experts=len(self.experts),
            mixtures=len(self.mixtures),
            evaluations=len(self.evaluations),
            unscored=[card.name for card in self.experts if card.mixtures and card.name not in scored],
            unfinished=self.unfinished,
            failed=[job for job in self.over if is_fresh_failure(job) and not _was_mended(job, self.over)],
        )


def read_contents() -> Contents:
    """The contents of the registry now."""
    unfinished = unfinished_jobs()
    known = _known_experts()
    with reading() as session:
        return Contents(
            domains=corpora.list_domains(session),
            seeds=seeds.list_seeds(session),
            experts=known.experts,
            mixtures=mixtures.most_useful_first(session),
            evaluations=known.evaluations,
            unfinished=unfinished,
            num_unfinished=sum(rows.count_by_state(session).get(state, 0) for state in UNFINISHED),
            over=rows.list_jobs(session, state=FINISHED),
            additions=reports.list_reports(session, kind=ADDITION),
            removals=reports.list_reports(session, kind=REMOVAL),
            aliases=aliases.list_aliases(session),
        )


@dataclass(frozen=True)
class _Known:
    """Results that take long to read where there are many experts, and the state of the registry that they are of."""

    state: object
    read_at: float
    experts: Sequence[ExpertCard]
    evaluations: Sequence[EvaluationCard]


def _known_experts() -> _Known:
    """The experts and their scores, read again when one is new, renamed, switched or scored, and from time to time."""
    known: _Known | None = st.session_state.get("overview.known")
    with reading() as session:
        members = [
            (mixture.name, [member.expert for member in mixture.members]) for mixture in mixtures.list_mixtures(session)
        ]
        scored = perplexity_tables.newest_evaluation(session)
        state = (get_settings().root, experts.list_states(session), scored, members)
        if known is None or known.state != state or time.time() - known.read_at > READ_AGAIN_SECONDS:
            cards = experts.list_experts(session)
            known = _Known(state, time.time(), cards, perplexity_tables.list_evaluations(session))
            st.session_state["overview.known"] = known
    return known


def _was_mended(failure: JobCard, over: Sequence[JobCard]) -> bool:
    """Whether the same person has succeeded with a job of the same kind since."""
    return any(
        job.state == "done"
        and (job.kind, job.owner) == (failure.kind, failure.owner)
        and (job.finished_at or 0) > (failure.finished_at or 0)
        for job in over
    )


def is_fresh_failure(job: JobCard) -> bool:
    """Whether a failure is recent enough to be shown."""
    return job.state == "failed" and time.time() - (job.finished_at or 0) < FRESH_SECONDS


_KEY = "overview.curves"


def curves_of(experts: Sequence[ExpertCard]) -> dict[str, Sequence[float]]:
    """The losses by expert id, in order; nothing of an expert without a recorded curve."""
    known: dict[str, Sequence[float]] = st.session_state.setdefault(_KEY, {})
    new = [expert for expert in experts if expert.id not in known and expert.job_id]
    if new:
        with reading() as session:
            for expert in new:
                points = rows.metrics(session, str(expert.job_id), f"dev_loss/{expert.domain}")
                known[expert.id] = [point.value for point in points]
    return known


def with_intervals(scores: PictureScores, experts: Sequence[ExpertCard]) -> PictureScores:
    """The same scores with the intervals of the experts' own numbers."""
    own = [score for expert in experts if (score := scores.own_score(expert))]
    with reading() as session:
        return replace(scores, intervals=intervals_of(session, get_storage(), own))


MOST_MIXTURES = 8  # that are measured: the most useful
_MEASURING = "The stored scores are being mixed."


def mixture_of_page(have: Contents) -> MixtureCard | None:
    """The mixture that the numbers, the picture and the reading are about: the served or the best measured one."""
    best = _best_mean(have)
    known = {mixture.name: mixture for mixture in have.mixtures}
    return known[best.mixture] if isinstance(best, MixtureMean) else have.mixture


def show_numbers(have: Contents, mixture: MixtureCard | None) -> None:
    """The mixture against a single model, coverage, and the last change."""
    shown = (
        _best(have),
        headlines.coverage_headline(have.domains, have.experts, mixture),
        headlines.last_headline(have.additions, have.mixtures, have.removals),
    )
    for number, (column, headline) in enumerate(zip(st.columns(3), shown, strict=True)):
        with column, st.container(border=True, key=f"headline_{number}", height="stretch"):
            _show(headline, number)


def _show(headline: Headline, number: int) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.metric(headline.label, headline.value, width="content", height="content")
        if headline.beside:
            colour = {True: "green", False: "red", None: "gray"}[headline.is_good]
            st.badge(plain(headline.beside), color=colour)  # type: ignore[arg-type]
    st.caption(plain(headline.sentence))
    if headline.page:
        with st.container(key=f"small_link_{number}"):
            st.page_link(headline.page.script, label=headline.link, icon="", query_params=dict(headline.state))


def _best(have: Contents) -> Headline:
    best = _best_mean(have)
    if isinstance(best, str):
        return headlines.mixture_headline(None, why=best)
    return headlines.mixture_headline(best, headlines.baseline_of(best, have.experts, have.evaluations))


def _best_mean(have: Contents) -> MixtureMean | str:
    """The served mixture or else the best of several experts, or why there is none (empty: none is scored)."""
    several = [mixture for mixture in have.mixtures if sum(member.takes_part for member in mixture.members) > 1]
    measurable = [one for one in several if have.can_be_measured(one)]
    served = [one for one in measurable if have.aliases_of(one.name)]
    mixtures = (served or measurable)[:MOST_MIXTURES]
    if not mixtures:
        return ""
    known = {expert.name: expert for expert in have.experts}
    newest = max((evaluation.created_at for evaluation in have.evaluations), default=0.0)
    request = (tuple(mixture.model_dump_json() for mixture in mixtures), len(have.evaluations), newest)
    call = poll("overview.best", request, lambda: _measure(mixtures, known))
    if not call.is_done():
        return _MEASURING
    if call.failure is not None:
        return str(call.failure)
    return headlines.best_of(call.answer) or ""


def _measure(mixtures: Sequence[MixtureCard], experts: Mapping[str, ExpertCard]) -> list[MixtureMean]:
    client = kept_client(get_settings())
    answers = [(mixture, client.ask(MixRequest(mixture=mixture.name, split="test"))) for mixture in mixtures]
    means = [headlines.trained_rows(one, answer.domains, experts) for one, answer in answers]
    return [mean for mean in means if mean]
