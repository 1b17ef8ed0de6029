"""Which stored scores stand beside each other: one rule for tables, mixtures and analyses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from workbench.tables import Evaluation


class Text(NamedTuple):
    """The scored text of a domain's split: exactly these tokens of a tokenizer, in blocks of this size."""

    num_tokens: int
    block_size: int
    tokenizer_sha256: str = ""
    num_counted: int = 0  # tokens of answers, which depends on the rule of masks; 0 where all count


def comparable(
    rows: Iterable[Evaluation], tokenizers: Mapping[str, str] | None = None
) -> dict[str, dict[str, Evaluation]]:
    """The scores of each domain (id) on one text, by expert (id): the text that most experts were scored on.

    `tokenizers` are those of the experts by their ids; not needed where all have one, as in a mixture. Of texts that
    as many were scored on it is the longest, and of as long ones that with the longest blocks.
    """
    texts: dict[str, dict[Text, dict[str, Evaluation]]] = {}
    for row in rows:
        of_domain = texts.setdefault(row.domain_id, {})
        text = Text(row.num_tokens, row.block_size, (tokenizers or {}).get(row.expert_id, ""), row.num_counted or 0)
        of_domain.setdefault(text, {})[row.expert_id] = row
    return {
        domain_id: of_domain[max(of_domain, key=lambda text: (len(of_domain[text]), text))]
        for domain_id, of_domain in texts.items()
    }
