"""The smallest set of a mixture's experts that is about as good as all of them on a domain, from stored scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from pydantic import Field
from sqlalchemy.orm import Session

from engine.errors import ScoresError
from workbench.analysis.scores import ScoredText, mixed_perplexity, scored_texts
from workbench.answers.base import Answer
from workbench.formatting.number_format import listed, perplexity, pluralize
from workbench.formatting.shell_command import evaluate_command
from workbench.questions.question import MixtureName, Question
from workbench.requests.planning import plan
from workbench.store.storage import Storage

_MOST_EXACT = 9  # experts, whose 511 sets are all tried; of more, experts are added one by one

Chosen = tuple[str, ...]  # names of experts


class SetOfExperts(Answer):
    """The best set of so many experts; a number above 0 is a higher perplexity than that of all experts."""

    size: int
    experts: list[str]
    dev_percent: float = Field(description="Its perplexity against that of all experts on dev text, which chose it.")
    test_percent: float | None = Field(description="The same on test text; None where that is not scored.")


class SmallestSet(Answer):
    """The smallest set that is good enough on a domain, after the best sets of fewer experts."""

    mixture: str
    domain: str
    within_percent: float
    dev_tokens: int
    test_tokens: int
    perplexity: float = Field(description="Of all experts that are scored on the dev text of this domain.")
    is_exact: bool = Field(description="Whether all smaller sets were tried; else experts were added one by one.")
    num_tried: int
    sets: list[SetOfExperts] = Field(description="The best set of one expert, of two …; the last is the smallest set.")
    without: list[str] = Field(description="Experts that take part and lack scores on this domain's dev text.")


class SmallestSetRequest(Question[SmallestSet]):
    """The fewest experts of a mixture that are within some percent of all of them on a domain, from stored scores.

    Dev text chooses, test text judges. Each mixture has the saved gate and the saved weights of its experts.
    """

    path = "smallest-set"
    operation = "smallest_set"
    rows = "sets"

    mixture: MixtureName
    domain: str = Field(description="A domain whose dev text its experts are scored on.")
    within_percent: float = Field(1.0, ge=0, le=1000, description="How much higher the perplexity may be, in percent.")

    def answer(self, session: Session, storage: Storage) -> SmallestSet:
        planned = plan(session, storage, self.mixture)
        texts = {text.domain: text for text in scored_texts(session, planned, "dev")}
        if self.domain not in texts:
            raise ScoresError(
                f"No expert of “{self.mixture}” is scored on dev text of “{self.domain}”, which chooses the set. "
                f"Domains that are: {listed([*texts]) if texts else 'none'}.",
                f"Run: {evaluate_command(self.mixture, 'dev')}",
            )
        dev = texts[self.domain]
        test = next((one for one in scored_texts(session, planned, "test") if one.domain == self.domain), None)
        names = [expert.name for expert in dev.planned.experts if expert.weight > 0]  # others add nothing to a mixture

        def perplexity_of(text: ScoredText, chosen: Sequence[str]) -> float:
            places = [place for place, one in enumerate(text.planned.experts) if one.name in chosen]
            some = [text.evaluations[place] for place in places]
            return mixed_perplexity(session, storage, text.planned.of_experts(places), some)

        def test_percent(chosen: Sequence[str]) -> float | None:
            if test is None or not is_tested:
                return None
            return 100 * (perplexity_of(test, chosen) / of_all_on_test - 1)

        is_tested = test is not None and {*names}.isdisjoint(test.without)
        of_all_on_test = perplexity_of(test, names) if test is not None and is_tested else 0.0
        of_all, num_tried, sets = perplexity_of(dev, names), 0, list[SetOfExperts]()
        for tried in _sets_by_size(names, lambda chosen: perplexity_of(dev, chosen)):
            num_tried += len(tried)
            chosen = min(tried, key=lambda one: tried[one])
            percent = 100 * (tried[chosen] / of_all - 1)
            sets.append(
                SetOfExperts(
                    size=len(chosen), experts=[*chosen], dev_percent=percent, test_percent=test_percent(chosen)
                )
            )
            if percent <= self.within_percent:
                break
        return SmallestSet.from_fields(
            self,
            dev_tokens=dev.evaluations[0].num_tokens,
            test_tokens=test.evaluations[0].num_tokens if test else 0,
            perplexity=of_all,
            is_exact=_is_exact(len(names)),
            num_tried=num_tried,
            sets=sets,
            without=list(dev.without),
        )


QUESTION = SmallestSetRequest


def _is_exact(num_experts: int) -> bool:
    return num_experts <= _MOST_EXACT


def _sets_by_size(names: Sequence[str], perplexity_of: Callable[[Chosen], float]) -> Iterator[dict[Chosen, float]]:
    """The perplexities of sets of one expert, then of two …: of all of them, or of the best set and one more each."""
    kept: Chosen = ()
    for size in range(1, len(names) + 1):
        if _is_exact(len(names)):
            sets = [*combinations(names, size)]
        else:
            sets = [(*kept, name) for name in names if name not in kept]
        tried = {chosen: perplexity_of(chosen) for chosen in sets}
        kept = min(tried, key=lambda chosen: tried[chosen])
        yield tried


def describe_smallest_set(answer: SmallestSet) -> list[str]:
    """What was found on how much text, how sure it is, and who is left out."""
    last = answer.sets[-1]
    on_test = "test text is not scored" if last.test_percent is None else f"{last.test_percent:+.1f} % on test text"
    tried = "all of these sizes" if answer.is_exact else "adding the best expert each time: a smaller one may exist"
    chosen = f"{pluralize(last.size, 'expert')} ({listed(last.experts, last.size)})"
    sentences = [
        f"On {answer.domain}, {chosen} {'is' if last.size == 1 else 'are'} within {answer.within_percent:g} % of all, "
        f"whose perplexity is {perplexity(answer.perplexity)}: {last.dev_percent:+.1f} % on dev text "
        f"(n = {answer.dev_tokens:,} tokens), {on_test}"
        + (f" (n = {answer.test_tokens:,})." if last.test_percent is not None else "."),
        f"Tried: {pluralize(answer.num_tried, 'set')}, {tried}.",
    ]
    if answer.without:
        sentences.append(f"Left out, without scores of this dev text: {listed(answer.without)}.")
    return sentences
