"""How well the routers of a joined model send each expert's text to its own networks: facts, and their sentences."""

from __future__ import annotations

from pydantic import BaseModel

from workbench.answers.cards import ExpertCard
from workbench.formatting.number_format import amount, listed, pluralize, share

ROUTERS = "routers"  # in the metrics of a joined expert
SETTLED = 20  # tokens for each dimension of a model from which on its sums are taken to be settled
ALIKE = 0.95  # cosine of the columns of two experts from which on a router hardly tells them apart


class RouterFacts(BaseModel):
    """Lists are in the order of the experts. What is measured on dev text is None for an expert without any."""

    experts: list[str]  # with the anchor, if any, as the first
    top_k: int
    are_random: bool = False
    width: int
    num_read: list[int]  # tokens of training text behind each expert's sums; empty: their rows were trained
    num_held_out: list[int]  # tokens of dev text
    accuracy: list[list[float] | None]  # by expert and layer: the share of its dev tokens whose first choice it is
    chosen: list[list[float] | None]  # by expert and chosen expert, mean over layers
    condition: list[float]  # by layer: of the equations that were solved, or of trained rows
    cosine: list[list[float]]  # of every two experts' columns, mean over layers

    @property
    def is_anchored(self) -> bool:
        """Whether the first of the experts is the seed model, beside whose networks the others were trained."""
        return not self.num_read

    @property
    def of_domains(self) -> list[str]:
        """The experts without the anchor."""
        return self.experts[self.is_anchored :]


def facts_of(card: ExpertCard) -> RouterFacts | None:
    """The facts about an expert's routers; None for an expert without."""
    return RouterFacts.model_validate(card.metrics[ROUTERS]) if ROUTERS in card.metrics else None


def describe_routers(facts: RouterFacts) -> list[str]:
    """What the routers are good for, and what speaks against them."""
    network = "one network" if facts.top_k == 1 else f"{facts.top_k} networks"
    sentences = [f"Each token goes through {network} of {len(facts.experts)} in each layer."]
    means = {
        name: sum(layers) / len(layers)
        for name, layers in zip(facts.experts, facts.accuracy, strict=True)
        if layers is not None
    }
    if means:
        worst = min(means, key=lambda name: means[name])
        sentences.append(
            f"The first choice is the text's own expert for {share(sum(means.values()) / len(means))} of held-out "
            f"tokens (dev text, mean over {pluralize(len(facts.condition), 'layer')}, "
            f"n = {sum(facts.num_held_out):,} tokens; by chance {share(1 / len(facts.experts))}); least for {worst}: "
            f"{share(means[worst])}."
        )
    if facts.is_anchored and (to_anchor := [chosen[0] for chosen in facts.chosen if chosen]):
        mean = share(sum(to_anchor) / len(to_anchor))
        sentences.append(f"For {mean} it is {facts.experts[0]}, beside which the experts were trained.")
    if unmeasured := [name for name in facts.of_domains if name not in means]:
        sentences.append(f"Not measured, without dev text: {listed(unmeasured)}.")
    for row, name in enumerate(facts.experts):
        for column in range(facts.is_anchored, row):
            if facts.cosine[row][column] >= ALIKE:
                sentences.append(
                    f"A router hardly tells {facts.experts[column]} and {name} apart: the cosine of their columns is "
                    f"{facts.cosine[row][column]:.2f}. Compare their perplexities on each other's text."
                )
    if facts.are_random:
        return [
            *sentences,
            "The routers are at random: train the whole model on before you use it (a seed model made of this expert, "
            "and the method dense).",
        ]
    if few := [
        f"{name} ({number:,})"
        for name, number in zip(facts.experts, facts.num_read, strict=False)
        if number < SETTLED * facts.width
    ]:
        sentences.append(
            f"Little text: fewer than {SETTLED} tokens for each of {facts.width:,} dimensions: {', '.join(few)}. "
            "More (--tokens) may make the routers better."
        )
    what = "rows" if facts.is_anchored else "equations"
    sentences.append(f"The condition number of the {what} is at most {amount(max(facts.condition))}.")
    return sentences
