"""Tables 2 and 3 and the left of figure 3: ranks of LoRA, blocks and layers of an expert, on the second target."""

from __future__ import annotations

from collections.abc import Iterator

from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict
from workbench_studies.mode import arms, paper
from workbench_studies.mode.evidence import ModeEvidence, on
from workbench_studies.mode.names import Arm
from workbench_studies.mode.orders import (
    COMPARABLE,
    EXPERT_SIZE,
    LORA_RANK,
    best_has_more,
    has_more,
    is_alike,
)

Cell = tuple[int, int]


def judge_shapes(evidence: ModeEvidence) -> list[Verdict]:
    """What a larger LoRA and a larger expert bring, and what they cost."""
    adapters = [*_ranks(evidence), *_ffn(evidence), *_embeddings(evidence)]
    return [*adapters, *_layers(evidence), *_blocks(evidence), *_parameters(evidence)]


# table 2 ------------------------------------------------------------------------------------------


def _ranks(evidence: ModeEvidence) -> Iterator[Verdict]:
    by_rank, chosen = arms.by_rank(evidence.subject.size), evidence.subject.size.lora.rank
    target, retained = ([one] for one in evidence.subject.single)
    largest = max(by_rank)
    first, last = paper.TABLE_2[16], paper.TABLE_2[2048]
    own, other = by_rank[chosen], by_rank[largest]
    claim = Claim(
        "Table 2",
        f"{own} is above {other} on {target[0]}",
        _stand_ins(f"{first[0]} > {last[0]}", (16, 2048), (chosen, largest)),
        topics=(LORA_RANK,),
        id="rank-above-largest",
    )
    yield has_more(evidence, claim, own, other, target)
    claim = Claim(
        "Table 2",
        f"{own} retains more than {other}",
        _stand_ins(f"{first[1]} > {last[1]}", (16, 2048), (chosen, largest)),
        id="rank-retains",
    )
    yield has_more(evidence, claim, own, other, retained)
    if min(by_rank) < chosen:
        least = by_rank[min(by_rank)]
        printed = _stand_ins("48.76 > 48.64", (8, 16), (min(by_rank), chosen))
        claim = Claim("Table 2", f"{least} retains more than {own}", printed, id="least-rank-retains")
        yield has_more(evidence, claim, least, own, retained)


def _stand_ins(printed: str, theirs: tuple[int, int], ours: tuple[int, int]) -> str:
    """The paper's numbers with its ranks, and which ranks stand in for them here."""
    paper_values = f"{printed} (rank {theirs[0]} and {theirs[1]}"
    return f"{paper_values})" if ours == theirs else f"{paper_values}; here {ours[0]} and {ours[1]} stand in for them)"


def _ffn(evidence: ModeEvidence) -> Iterator[Verdict]:
    size = evidence.subject.size
    own, more = arms.by_rank(size)[size.lora.rank], arms.in_ffn(size)
    target, retained = ([one] for one in evidence.subject.single)
    code, english = paper.TABLE_2[16]
    sentence = f"{more}, is above {own} on {target[0]}"
    claim = Claim("Table 2", sentence, f"{paper.IN_FFN[0]} > {code}", id="ffn-above")
    yield has_more(evidence, claim, more, own, target)
    sentence = f"{own} retains more than {more}"
    claim = Claim("Table 2", sentence, f"{english} > {paper.IN_FFN[1]}", id="ffn-retains")
    yield has_more(evidence, claim, own, more, retained)


def _embeddings(evidence: ModeEvidence) -> Iterator[Verdict]:
    """Adapters of token vectors cost accuracy by themselves; with those of FFNs they gain a little and retain less."""
    size = evidence.subject.size
    own, embeddings, both = arms.by_rank(size)[size.lora.rank], arms.in_embeddings(size), arms.in_both(size)
    target, retained = ([one] for one in evidence.subject.single)
    code, english = paper.TABLE_2[16]
    claim = Claim(
        "Table 2",
        f"{own} is above {embeddings}, on {target[0]}",
        f"{code} > {paper.IN_EMBEDDINGS[0]}",
        id="above-embeddings",
    )
    yield has_more(evidence, claim, own, embeddings, target)
    claim = Claim("Table 2", f"{both}, is above {own} on {target[0]}", f"{paper.IN_BOTH[0]} > {code}", id="both-above")
    yield has_more(evidence, claim, both, own, target)
    for more, printed in ((embeddings, paper.IN_EMBEDDINGS), (both, paper.IN_BOTH)):
        claim = Claim(
            "Table 2",
            f"{own} retains more than {more}",
            f"{english} > {printed[1]}",
            id=f"{'both' if more is both else 'embeddings'}-retains",
        )
        yield has_more(evidence, claim, own, more, retained)


# table 3 ------------------------------------------------------------------------------------------


def _layers(evidence: ModeEvidence) -> Iterator[Verdict]:
    """More layers in as many blocks."""
    cells = arms.by_shape(evidence.subject.size)
    target = evidence.subject.single[:1]
    for blocks, layers in cells:
        if (blocks, 2 * layers) in cells:
            yield _is_better(evidence, (blocks, 2 * layers), (blocks, layers), target[0])


def _is_better(evidence: ModeEvidence, more: Cell, less: Cell, target: str) -> Verdict:
    cells = arms.by_shape(evidence.subject.size)
    claim = Claim(
        "Table 3", f"{cells[more]} is above {cells[less]} on {target}", _against(more, less), id="larger-above"
    )
    return has_more(evidence, claim, cells[more], cells[less], [target])


def _against(more: Cell, less: Cell) -> str:
    printed = [paper.TABLE_3.get(cell) for cell in (more, less)]
    return paper.IN_FIGURE if None in printed else " > ".join(str(one[0]) for one in printed if one)


def _blocks(evidence: ModeEvidence) -> Iterator[Verdict]:
    """As many layers in more blocks, and whether the most layers cost retention."""
    cells, subject = arms.by_shape(evidence.subject.size), evidence.subject
    own = (subject.size.mode.num_blocks, subject.size.mode.expert_layers)
    apart = (2 * own[0], own[1] // 2)
    if apart in cells:
        yield _is_better(evidence, apart, own, subject.single[0])
    most, least = (pick(cells, key=lambda cell: cell[0] * cell[1]) for pick in (max, min))
    sentence = f"{cells[most]} retains as much as {cells[least]} (within {COMPARABLE:g} points)"
    printed = f"{paper.TABLE_3[6, 2][1]} and {paper.TABLE_3[2, 1][1]}"
    claim = Claim("Table 3", sentence, printed, topics=(EXPERT_SIZE,), id="largest-retains")
    yield is_alike(evidence, claim, cells[most], cells[least], [subject.retention])


# figure 3, left -----------------------------------------------------------------------------------


def _parameters(evidence: ModeEvidence) -> Iterator[Verdict]:
    """Accuracy by what is added: experts gain by it, LoRA does not, and the best of experts is above the best LoRA."""
    by_layers, by_rank = arms.by_layers(evidence.subject.size), arms.by_rank(evidence.subject.size)
    target = evidence.subject.single[:1]
    most, least = (by_layers[pick(by_layers)] for pick in (max, min))
    claim = Claim("Figure 3", f"{most} is above {least} on {target[0]}", paper.IN_FIGURE, id="most-layers")
    yield has_more(evidence, claim, most, least, target)
    paper_values = "77.51 > 76.51 (tables 3 and 2)"
    sentence = f"the best number of layers is above the best rank of LoRA on {target[0]}"
    claim = Claim("Figure 3", sentence, paper_values, id="best-layers")
    yield best_has_more(evidence, claim, _named(by_layers), _named(by_rank), target)


def _named(by_amount: dict[int, Arm]) -> dict[str, Arm]:
    return {str(arm): arm for arm in by_amount.values()}


# tables -------------------------------------------------------------------------------------------


def by_rank(evidence: ModeEvidence) -> list[Row]:
    """Table 2, the paper's rows of the same rank beside ours."""
    size = evidence.subject.size
    shown = [(arm, paper.TABLE_2.get(rank)) for rank, arm in arms.by_rank(size).items()]
    shown += [
        (arms.in_ffn(size), paper.IN_FFN),
        (arms.in_embeddings(size), paper.IN_EMBEDDINGS),
        (arms.in_both(size), paper.IN_BOTH),
    ]
    return [{**_of_adapter(arm), **_beside(evidence, arm, printed)} for arm, printed in shown]


def _of_adapter(arm: Arm) -> Row:
    assert arm.lora
    return {
        "rank": arm.lora.rank,
        "in FFNs": "no" if arm.lora.targets == "attention" else "yes",
        "in embeddings": "yes" if arm.lora.embeddings else "no",
    }


def by_shape(evidence: ModeEvidence) -> list[Row]:
    """Table 3."""
    return [
        {"blocks": cell[0], "layers in each": cell[1], **_beside(evidence, arm, paper.TABLE_3.get(cell))}
        for cell, arm in arms.by_shape(evidence.subject.size).items()
    ]


def by_parameters(evidence: ModeEvidence) -> list[Row]:
    """Figure 3, left: accuracy on the second target by what was added."""
    size = evidence.subject.size
    paper_values = [("LoRA", arm) for arm in arms.by_rank(size).values()]
    paper_values += [("MoDE", arm) for arm in arms.by_layers(size).values()]
    return [{"method": method, "model": str(arm), **_columns(evidence, arm)} for method, arm in paper_values]


def _beside(evidence: ModeEvidence, arm: Arm, printed: tuple[float, float] | None) -> Row:
    """Our numbers and the paper's; a row that the paper has not keeps its columns, which are those of the first row."""
    code, english = printed or (None, None)
    return {**_columns(evidence, arm), "paper: Code": code, "paper: English": english}


def _columns(evidence: ModeEvidence, arm: Arm) -> Row:
    target, retained = evidence.subject.single
    result, kept = evidence.accuracy(arm, [target]), evidence.accuracy(arm, [retained])
    return {
        "parameters added": evidence.num_parameters(arm),
        **interval_columns(result, on(target)),
        on(retained): kept.value if kept else None,
    }
